"""A real Prometheus scrapes a running render; promtool reads the metrics and the alert rules."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import urllib.request
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import nvml_double
import pytest
import yaml
from patience import LIMIT, until
from prometheus_server import Server, program, prometheus

from gpupipe.errors import MediaError
from gpupipe.journal import Journal
from gpupipe.metrics import Exporter
from gpupipe.render import Watch
from gpupipe.sample import make_sample

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).resolve().parents[2]
RULES = ROOT / "deploy" / "alerts.yml"
PANELS = json.loads((ROOT / "deploy" / "grafana-dashboard.json").read_text())["panels"]
QUERIES = [(panel["title"], target["expr"]) for panel in PANELS for target in panel.get("targets", ())]
CONFIG = """{segments: {seconds: 1}, sessions: 2, output: {video: {preset: ultrafast}},
stages: [{resize: {width: 640, height: 360}}, {warp: {rotate: 5}}]}"""
GPU = SimpleNamespace(
    device="cuda:0", decoder="nvdec", encoder=SimpleNamespace(encoder="nvjpeg"), device_bytes=5 << 30, segments=()
)
LOOPS = 3000
"""Of a clip of two seconds, so that the render takes longer than the test; it is stopped when all is seen."""


@pytest.fixture(scope="module")
def running(
    tmp_path_factory: pytest.TempPathFactory, ffmpeg: Callable[..., str]
) -> Iterator[tuple[subprocess.Popen, str, Path]]:
    """A render that exports, its host:port, and its folder."""
    folder = tmp_path_factory.mktemp("scraped")
    make_sample(folder / "short.mov", seconds=2, size=(160, 90), rate=Fraction(25))
    ffmpeg("-stream_loop", LOOPS, "-i", folder / "short.mov", "-map", "0:v", "-c", "copy", folder / "clip.mov")
    (folder / "c.yaml").write_text(CONFIG)
    words = ["run", folder / "c.yaml", folder / "clip.mov", folder / "o.mp4", "--device", "cpu", "--log", "json"]
    words = [sys.executable, "-m", "gpupipe", *words, "--metrics-port", "127.0.0.1:0"]
    with subprocess.Popen(list(map(str, words)), stderr=subprocess.PIPE, text=True) as process:
        late = threading.Timer(3 * LIMIT, process.kill)
        late.start()
        try:
            assert process.stderr is not None
            url = next((e["url"] for e in map(json.loads, process.stderr) if e["event"] == "metrics"), "")
            assert url, "the run ended before it exported"
            threading.Thread(target=process.stderr.read, daemon=True).start()  # a full pipe would hold the run up
            yield process, url.removeprefix("http://").removesuffix("/metrics"), folder
        finally:
            late.cancel()
            process.kill()


def in_test(expression: str) -> str:
    """As Grafana fills it in."""
    return expression.replace("$__rate_interval", "3s").replace("$job", ".*").replace("$instance", ".*")


def test_every_query_of_the_dashboard_has_series(running, tmp_path, monkeypatch):
    """Those of a GPU through the NVML double, in an exporter beside the render's."""
    process, target, folder = running
    nvml_double.install(monkeypatch)
    with Exporter(0, "127.0.0.1") as double, double.watching(GPU, Watch(), Journal()):
        targets = [target, double.url.removeprefix("http://").removesuffix("/metrics")]
        with prometheus(tmp_path, targets, RULES) as server:
            # On a busy machine a scrape may come too late, and leaves none of its series behind: each is asked for until
            # it is there.
            assert len(QUERIES) > 25
            for _, query in QUERIES:
                until(lambda query=query: server.query(in_test(query)), process)
            earlier = until(lambda: own(target), process)
            seen = until(lambda: max((n for n in computed(server) if n >= earlier), default=0), process)
            assert 0 < earlier <= seen <= own(target)
            # A share is a rate, which late scrapes bend; it comes right.
            until(lambda: sane(server.query(in_test(dict(QUERIES)["Lanes at work"]))), process)
            hot = until(lambda: server.query("gpupipe_gpu_temperature_celsius"), process)
            assert [s["value"][1] for s in hot] == ["63"]
            until(lambda: [t["health"] for t in server.get("targets")["activeTargets"]] == ["up", "up"], process)
            loaded = [rule["health"] for group in server.get("rules")["groups"] for rule in group["rules"]]
            assert loaded
            assert set(loaded) == {"ok"}
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=240) == 130
    assert not (folder / "o.mp4").exists()


def sane(found: list[dict]) -> bool:
    """Whether these are shares of the time of both kinds of lanes."""
    busy = {s["metric"]["kind"]: float(s["value"][1]) for s in found}
    return set(busy) == {"writer", "runner"} and all(0 <= share <= 1.01 for share in busy.values())


def computed(server: Server) -> list[float]:
    """Frames of the render, as Prometheus knows them."""
    return [
        float(s["value"][1])
        for s in server.query('gpupipe_computed_frames_total and on (instance) gpupipe_run_info{device="cpu"}')
    ]


def own(target: str) -> float:
    """Frames of the render, as it says itself."""
    with urllib.request.urlopen(f"http://{target}/metrics", timeout=240) as answer:
        lines = answer.read().decode().splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith("gpupipe_computed_frames_total "))


def promtool(*words: object, given: str | None = None) -> None:
    done = subprocess.run(
        [program("promtool"), *map(str, words)], input=given, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "error" not in done.stderr.lower()
    assert given is None or done.stderr == ""


def test_promtool_finds_nothing_wrong_with_the_metrics(monkeypatch):
    nvml_double.install(monkeypatch)
    watch, journal = Watch(), Journal()
    journal.warn("decode-error", "a packet")
    watch.lane("run", "open")
    watch.queue("computed batches", [])
    watch.leave()
    with Exporter(0, "127.0.0.1") as exporter:
        with pytest.raises(MediaError), exporter.watching(GPU, watch, journal):
            raise MediaError("disk full")
        with exporter.watching(GPU, watch, journal), urllib.request.urlopen(exporter.url, timeout=240) as answer:
            text = answer.read().decode()
    assert text.count("# HELP gpupipe_") > 25
    promtool("check", "metrics", given=text)


def series(name: str, values: str, **labels: str) -> dict[str, str]:
    given = {"job": "gpupipe", "instance": "a", **labels}
    return {"series": f"{name}{{{', '.join(f'{k}={v!r}' for k, v in given.items())}}}", "values": values}


AT_WORK = series("gpupipe_active_runs", "1x60")
GIB = 1 << 30
CASES = {
    "GpupipeGpuMemoryNearLimit": [
        series("gpupipe_gpu_memory_used_bytes", f"{137 * GIB}x60", gpu="0"),
        series("gpupipe_gpu_memory_bytes", f"{140 * GIB}x60", gpu="0"),
    ],
    "GpupipeHostMemoryNearLimit": [
        series("gpupipe_host_memory_available_bytes", f"{GIB}x60"), series("gpupipe_host_memory_bytes", f"{64 * GIB}x60"),
    ],
    "GpupipeSteppedBack": [series("gpupipe_memory_backoffs_total", "0x25 1x35", less="sessions")],
    "GpupipeStalled": [AT_WORK, series("gpupipe_computed_frames_total", "500x60"),
                       series("gpupipe_lane_seconds_total", "0+60x60", lane="writer", state="wait for encoded parts")],
    "GpupipeGpuHot": [series("gpupipe_gpu_temperature_celsius", "88x60", gpu="0"),
                      series("gpupipe_gpu_slowdown_temperature_celsius", "90x60", gpu="0")],
    "GpupipeRunFailed": [series("gpupipe_runs_total", "0x25 1x35", result="failed")],
}  # fmt: skip
QUIET = {
    "all well": [
        AT_WORK, series("gpupipe_computed_frames_total", "0+9000x60"),
        series("gpupipe_gpu_memory_used_bytes", f"{100 * GIB}x60", gpu="0"),
        series("gpupipe_gpu_memory_bytes", f"{140 * GIB}x60", gpu="0"),
        series("gpupipe_gpu_temperature_celsius", "70x60", gpu="0"),
        series("gpupipe_runs_total", "0x60", result="failed"), series("gpupipe_runs_total", "0+1x60", result="done"),
        series("gpupipe_memory_backoffs_total", "0x60", less="sessions"),
    ],
    "measuring the quality": [AT_WORK, series("gpupipe_computed_frames_total", "500x60"),
                              series("gpupipe_lane_seconds_total", "0+60x60", lane="writer", state="measure")],
    "waiting for work": [AT_WORK, series("gpupipe_computed_frames_total", "500x60"),
                         series("gpupipe_lane_seconds_total", "0+60x60", lane="runner-0", state="wait for a segment")],
    "nothing to do": [series("gpupipe_active_runs", "0x60"), series("gpupipe_computed_frames_total", "500x60")],
}  # fmt: skip


def test_alerts_fire_when_they_should_and_only_then(tmp_path):
    promtool("check", "rules", RULES)
    names = [rule["alert"] for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]
    assert sorted(names) == sorted(CASES)
    fires = [
        {"interval": "1m", "input_series": given, "promql_expr_test": [
            {"expr": f'count(ALERTS{{alertname="{name}", alertstate="firing"}})', "eval_time": "30m",
             "exp_samples": [{"labels": "{}", "value": 1}]},
            {"expr": 'count(ALERTS{alertstate="firing"})', "eval_time": "30m",
             "exp_samples": [{"labels": "{}", "value": 1}]},
        ]}
        for name, given in CASES.items()
    ]  # fmt: skip
    silent = [
        {"interval": "1m", "input_series": given, "promql_expr_test": [
            {"expr": 'ALERTS{alertstate="firing"}', "eval_time": f"{at}m", "exp_samples": []} for at in (10, 30, 55)]}
        for given in QUIET.values()
    ]  # fmt: skip
    tests = {"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": fires + silent}
    (tmp_path / "tests.yml").write_text(yaml.safe_dump(tests))
    promtool("test", "rules", tmp_path / "tests.yml")
