"""What the exporter tells, against the runs that it was told of; read by prometheus-client's own parser."""

from __future__ import annotations

import urllib.request
from contextlib import suppress
from fractions import Fraction
from types import SimpleNamespace
from typing import TYPE_CHECKING

import nvml_double
import pytest
from prometheus_client.parser import text_string_to_metric_families

from gpupipe.config import parse_config
from gpupipe.errors import GpupipeError, MediaError, StoppedError
from gpupipe.events import happened
from gpupipe.journal import Journal
from gpupipe.media.probe import probe
from gpupipe.metrics import Exporter
from gpupipe.plan import make_plan
from gpupipe.render import Watch, render
from gpupipe.sample import make_sample

if TYPE_CHECKING:
    from collections.abc import Iterator

CPU = SimpleNamespace(
    device="cpu", decoder="libav", encoder=SimpleNamespace(encoder="libx264"), device_bytes=0, segments=(1,)
)
GPU = SimpleNamespace(
    device="cuda:0", decoder="nvdec", encoder=SimpleNamespace(encoder="nvjpeg"), device_bytes=5 << 30, segments=(1,)
)
ANY = "127.0.0.1"


@pytest.fixture
def exporter() -> Iterator[Exporter]:
    with Exporter(0, ANY) as exporter:
        yield exporter


def told(exporter: Exporter) -> dict[tuple[str, ...], float]:
    """(name, label values in the order of the labels' names) to value."""
    with urllib.request.urlopen(exporter.url, timeout=240) as answer:
        text = answer.read().decode()
    samples = [s for family in text_string_to_metric_families(text) for s in family.samples]
    return {(s.name, *(value for _, value in sorted(s.labels.items()))): s.value for s in samples}


def test_a_run_is_counted_as_its_output_holds(exporter, tmp_path, ffprobe):
    make_sample(tmp_path / "clip.mov", seconds=3, size=(320, 180), rate=Fraction(25))
    config = parse_config({"segments": {"seconds": 1}, "sessions": 2, "output": {"video": {"preset": "ultrafast"}}})
    plan = make_plan(config, probe(tmp_path / "clip.mov"), tmp_path / "o.mp4", device="cpu")
    watch, journal = Watch(), Journal()
    seen: list[dict[tuple[str, ...], float]] = []

    def look(_: object) -> None:
        if not seen:
            seen.append(told(exporter))

    with exporter.watching(plan, watch, journal):
        render(
            plan,
            overwrite=False,
            journal=journal,
            stop=SimpleNamespace(is_set=lambda: False),
            watch=watch,
            progress=look,
        )
    (stream,) = ffprobe(tmp_path / "o.mp4", "-count_frames", "-show_streams", "-select_streams", "v")["streams"]
    packets = ffprobe(tmp_path / "o.mp4", "-show_packets", "-select_streams", "v")["packets"]
    after = told(exporter)
    frames = int(stream["nb_read_frames"])
    assert after["gpupipe_frames_total",] == after["gpupipe_computed_frames_total",] == frames
    assert after["gpupipe_encoded_bytes_total",] == pytest.approx(sum(int(p["size"]) for p in packets), rel=0.02)
    assert after["gpupipe_source_seconds_total",] == pytest.approx(3, abs=0.1)
    assert after["gpupipe_runs_total", "done"] == 1
    assert (after["gpupipe_active_runs",], seen[0]["gpupipe_active_runs",]) == (0, 1)
    assert seen[0]["gpupipe_expected_frames",] == frames
    assert seen[0]["gpupipe_run_info", "libav", "cpu", "libx264"] == 1
    states = [seen[0]["gpupipe_segments", state] for state in ("waiting", "running", "finished")]
    assert sum(states) == len(plan.segments) == 2
    lanes = {key[1:]: value for key, value in after.items() if key[0] == "gpupipe_lane_seconds_total"}
    assert {lane for _, lane, _ in lanes} == {"writer", "runner-0", "runner-1"}
    assert lanes["runner", "runner-0", "encode"] > 0
    (writer,) = [lane for lane in watch.read().lanes if lane.name == "writer"]
    shown = {state: value for (kind, _, state), value in lanes.items() if kind == "writer"}
    assert shown == pytest.approx(writer.seconds)
    assert 0 < sum(shown.values()) < watch.read().elapsed
    assert after["process_resident_memory_bytes",] > 50e6


def test_runs_add_up_and_never_fall(exporter):
    for frames, error in (
        (10, None),
        (20, MediaError("disk full")),
        (30, StoppedError("asked")),
        (40, ValueError("bug")),
    ):
        watch, journal = Watch(), Journal()
        watch.lane("run", "open")
        watch.frames = frames
        journal.warn("decode-error", "a packet", count=2)
        happened("engine-build")
        happened("smaller-tiles")
        watch.leave()
        with suppress(MediaError, StoppedError, ValueError), exporter.watching(CPU, watch, journal):
            assert told(exporter)["gpupipe_active_runs",] == 1
            if error is not None:
                raise error
    now = told(exporter)
    assert now["gpupipe_frames_total",] == 100
    assert [now["gpupipe_runs_total", end] for end in ("done", "failed", "stopped")] == [1, 2, 1]
    assert [now["gpupipe_errors_total", kind] for kind in ("MediaError", "DeviceError", "bug")] == [1, 0, 1]
    assert now["gpupipe_errors_total", "VolumeError"] == 0, "a class of a class"
    assert now["gpupipe_warnings_total", "decode-error"] == 8
    assert (now["gpupipe_engine_builds_total",], now["gpupipe_retries_total",]) == (4, 0)
    assert [now["gpupipe_memory_backoffs_total", less] for less in ("sessions", "batches", "tiles")] == [0, 0, 4]


def test_a_gpu_in_base_units(exporter, monkeypatch):
    nvml_double.install(monkeypatch)
    assert not [key for key in told(exporter) if key[0].startswith("gpupipe_gpu") and len(key) > 1]
    with exporter.watching(GPU, Watch(), Journal()):
        now = told(exporter)
    assert now["gpupipe_gpu_info", "0", nvml_double.NAME, nvml_double.UUID] == 1
    assert now["gpupipe_gpu_utilization_ratio", "gpu", "0"] == 0.97
    assert now["gpupipe_gpu_utilization_ratio", "nvdec", "0"] == 0.88
    assert ("gpupipe_gpu_utilization_ratio", "nvenc", "0") not in now  # it has none, which is not 0 %
    assert now["gpupipe_gpu_temperature_celsius", "0"] == 63
    assert now["gpupipe_gpu_power_watts", "0"] == 412.5
    assert now["gpupipe_gpu_memory_used_bytes", "0"] == 12_800 << 20
    assert now["gpupipe_gpu_sm_clock_hertz", "0"] == 1.98e9
    assert now["gpupipe_planned_device_memory_bytes", "cuda:0"] == 5 << 30


def test_a_port_in_use_is_an_error_before_work(exporter):
    port = int(exporter.url.split(":")[2].split("/")[0])
    with pytest.raises(GpupipeError, match=rf"--metrics-port: 127.0.0.1:{port}: Address already in use"):
        Exporter(port, ANY)


def test_workers_of_a_machine_take_ports_side_by_side(exporter):
    port = int(exporter.url.split(":")[2].split("/")[0])
    with Exporter.near(port, ANY) as second, Exporter.near(port, ANY) as third:
        ports = [int(one.url.split(":")[2].split("/")[0]) for one in (exporter, second, third)]
    assert ports[0] < ports[1] < ports[2] < ports[0] + 16
