"""A run with a ledger writes what a run without one writes, from any source that can be cut, into every container."""

from __future__ import annotations

import hashlib
import json
import subprocess
import threading
from fractions import Fraction
from typing import TYPE_CHECKING

import av
import pytest

from gpupipe.config import parse_config
from gpupipe.errors import MediaError, StoppedError
from gpupipe.journal import Journal
from gpupipe.media.probe import probe
from gpupipe.plan import make_plan
from gpupipe.render import render
from gpupipe.render.ledger import Ledger

if TYPE_CHECKING:
    from pathlib import Path

SMALL = [{"resize": {"width": 192, "height": -2, "filter": "bilinear"}}]
X264 = {"video": {"encoder": "libx264", "preset": "veryfast"}}


def run(source: Path, output: Path, config: dict) -> Journal:
    journal = Journal()
    plan = make_plan(parse_config(config), probe(source), output, device="cpu")
    render(plan, overwrite=False, journal=journal, stop=threading.Event())
    assert not output.with_name(output.name + ".gpupipe").exists()
    return journal


def packets(path: Path) -> list[tuple[int, int | None, int | None, str]]:
    with av.open(str(path)) as container:
        return [
            (p.stream.index, p.pts, p.dts, hashlib.sha256(bytes(p)).hexdigest()) for p in container.demux() if p.size
        ]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("vfr_63_frames_59_distinct_durations.mp4", "mp4"),  # the longest segment is not the first
        ("vfr_63_frames_59_distinct_durations.mp4", "ts"),
        ("editlist_video_starts_1s_after_audio.mp4", "mkv"),
        ("xdcam_ex_1080i_opengop.mov", "ts"),
        ("mjpeg_422_fullrange_pcm.avi", "mp4"),
    ],
)
def test_the_same_packets(corpus: Path, tmp_path: Path, name: str, kind: str) -> None:
    config = {"output": {**X264, "audio": "copy" if kind == "mkv" else "none"}, "segments": {"seconds": 0.1}}
    if "1080i" not in name:
        config["stages"] = SMALL
    for what in ("off", "keep"):
        run(corpus / "files" / name, tmp_path / f"{what}.{kind}", {**config, "sessions": 2, "resume": what})
    assert packets(tmp_path / f"keep.{kind}") == packets(tmp_path / f"off.{kind}")


@pytest.mark.parametrize("within", [{"start": 1.1}, {"start": 0.5, "end": 3.3}, {"end": 2}])
def test_a_range(tmp_path: Path, ffmpeg, within: dict) -> None:
    source = tmp_path / "s.mp4"
    ffmpeg("-f", "lavfi", "-i", "testsrc2=s=192x108:r=30000/1001:d=5", "-f", "lavfi", "-i", "sine=d=5", "-c:v",
           "libx264", "-bf", "2", "-g", "30", "-preset", "ultrafast", "-c:a", "aac", source)  # fmt: skip
    for what in ("off", "keep"):
        config = {"output": X264, "segments": {"seconds": 0.9}, "range": within, "resume": what}
        run(source, tmp_path / f"{what}.mp4", config)
    assert (tmp_path / "keep.mp4").read_bytes() == (tmp_path / "off.mp4").read_bytes()


def test_any_number_of_runners(tmp_path: Path, ffmpeg) -> None:
    source = tmp_path / "s.mkv"
    ffmpeg("-f", "lavfi", "-i", "testsrc2=s=192x108:r=25:d=6", "-c:v", "libx264", "-g", "25", source)
    seen = set()
    for sessions, what in ((1, "keep"), (2, "keep"), (4, "keep"), (2, "off")):
        output = tmp_path / f"{sessions}{what}.mp4"
        run(source, output, {"output": X264, "segments": {"seconds": 1}, "sessions": sessions, "resume": what})
        seen.add(output.read_bytes())
    assert len(seen) == 1


def times(path: Path, stream: str) -> tuple[list[Fraction], list[str]]:
    """Seconds and hashes of a stream's packets, by ffprobe."""
    command = ["ffprobe", "-v", "error", "-select_streams", stream, "-show_packets", "-show_data_hash", "MD5"]
    shown = ["-show_entries", "packet=pts,data_hash:stream=time_base", "-of", "json", path]
    done = json.loads(subprocess.run([*command, *shown], capture_output=True, check=True, timeout=240).stdout)
    base = Fraction(done["streams"][0]["time_base"])
    found = sorted((packet["pts"] * base, packet["data_hash"]) for packet in done["packets"])
    return [at for at, _ in found], [data for _, data in found]


def test_sound_stays_where_it_was(tmp_path: Path, ffmpeg) -> None:
    """23.976 frames a second, sound that begins a quarter of a second late: the offset holds to the end."""
    source, output = tmp_path / "s.mp4", tmp_path / "out.mp4"
    ffmpeg("-f", "lavfi", "-i", "testsrc=s=64x48:r=24000/1001:d=40", "-itsoffset", "0.25", "-f", "lavfi", "-i",
           "sine=b=4:r=48000:d=40", "-c:v", "libx264", "-preset", "ultrafast", "-g", "48", "-c:a", "aac", source)  # fmt: skip
    run(source, output, {"output": X264, "segments": {"seconds": 2}, "sessions": 2, "resume": "keep"})
    before, after = times(source, "v:0")[0], times(output, "v:0")[0]
    sound, data = times(source, "a:0")
    kept, same = times(output, "a:0")
    assert same == data  # bit-equal
    assert len(after) == len(before) == 960
    for place in (0, -1):
        assert abs((after[place] - kept[place]) - (before[place] - sound[place])) < Fraction(1, 1000)
    assert abs(after[0] - kept[0]) > Fraction(1, 5)


def test_a_setting_that_the_muxer_refuses_is_told_before_any_work(tmp_path: Path, corpus: Path, monkeypatch) -> None:
    source, output = corpus / "files" / "bt601_full_range.mp4", tmp_path / "out.mp4"
    plan = make_plan(parse_config({"resume": "keep", "output": X264}), probe(source), output, device="cpu")

    def refuses(*_: object) -> None:
        raise MediaError("the mp4 muxer refuses it")

    monkeypatch.setattr("gpupipe.render.kept.open_muxer", refuses)
    with pytest.raises(MediaError, match="refuses it"):
        render(plan, overwrite=False, journal=Journal(), stop=threading.Event())
    assert not list(tmp_path.iterdir())


def test_a_folder_without_a_run_is_not_left(tmp_path: Path, corpus: Path) -> None:
    source = corpus / "files" / "bt601_full_range.mp4"
    plan = make_plan(parse_config({"resume": "keep"}), probe(source), tmp_path / "out.mp4", device="cpu")
    with Ledger(plan) as ledger:
        ledger.begin()
        assert ledger.folder.is_dir()
    assert not list(tmp_path.iterdir())


def test_a_segment_that_a_node_has_not_told_of_yet_is_kept_too(tmp_path: Path, corpus: Path) -> None:
    config = {"output": X264, "resume": "keep", "segments": {"seconds": 0.1}}
    source = probe(corpus / "files" / "vfr_63_frames_59_distinct_durations.mp4")
    plan = make_plan(parse_config(config), source, tmp_path / "o.mp4", device="cpu")

    def fill(ledger: Ledger, *_: object) -> None:
        assert not ledger.pieces
        ledger.path(0).touch()  # by its last name: whole
        raise StoppedError("stopped on request")

    with pytest.raises(StoppedError) as told:
        render(plan, overwrite=False, journal=Journal(), stop=threading.Event(), fill=fill)
    assert told.value.hint == f"1 of {len(plan.segments)} segments are kept, the same command goes on"
