"""`gpupipe preview` against what a lossless run wrote, read back by PyAV and ffmpeg."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

import av
import numpy as np
import pytest
from click.testing import CliRunner

from gpupipe.cli import cli
from gpupipe.cli.console import Console
from gpupipe.config import parse_config
from gpupipe.errors import GpupipeError
from gpupipe.journal import Journal
from gpupipe.media.probe import probe
from gpupipe.plan import make_plan
from gpupipe.render import render
from gpupipe.render.stills import moments, spread, stills

if TYPE_CHECKING:
    from pathlib import Path

TIMES = ("0", "0.5", "1.27", "2.44", "3.96")
GRADED = {
    "stages": [
        {"crop": {"width": 240, "height": 160}},
        {"warp": {"rotate": 5}},
        {"resize": {"width": 200, "height": 140}},
    ]
}


class Never:
    def is_set(self) -> bool:
        return False


@pytest.fixture(scope="module")
def clip(sample_clip) -> Path:
    return sample_clip(4)


def planned(source: Path, out: Path, **config: object):
    settings = parse_config({**config, "output": {"audio": "none", "video": {"codec": "ffv1"}}})
    return make_plan(settings, probe(source), out, device="cpu")


def written(path: Path) -> dict[Fraction, list[np.ndarray]]:
    """Planes of every frame of a file, by time, as PyAV decodes them."""
    found = {}
    with av.open(str(path)) as container:
        for frame in container.decode(video=0):
            kind = np.uint8 if frame.format.components[0].bits == 8 else np.uint16
            planes = []
            for plane in frame.planes:
                rows = np.frombuffer(plane, kind).reshape(plane.height, -1)
                planes.append(rows[:, : plane.width].copy())
            found[frame.pts * frame.time_base] = planes
    return found


def same_as_run(source: Path, tmp_path: Path, times: tuple[str, ...], **config: object) -> None:
    out = tmp_path / "lossless.mkv"
    plan = planned(source, out, **config)
    render(plan, overwrite=True, journal=Journal(), stop=Never())
    frames = written(out)
    for text, still in zip(times, stills(plan, moments(times, plan)), strict=True):
        wanted = Fraction(text)
        at = min(t for t in frames if t + Fraction(1, 2000) >= wanted)  # Matroska counts in milliseconds
        assert abs(still.seconds - at) <= Fraction(1, 1000)
        planes = [plane[0].numpy() for plane in still.after.planes]
        assert all(map(np.array_equal, planes, frames[at])), text
        assert len(planes) == len(frames[at])


def test_pixels_are_those_of_a_lossless_run(clip, tmp_path):
    same_as_run(clip, tmp_path, TIMES, **GRADED)


def test_with_a_new_frame_rate(clip, tmp_path):
    same_as_run(
        clip, tmp_path, ("0", "1.3", "3.5"), stages=[{"fps": {"rate": 10}}, {"crop": {"width": 100, "height": 100}}]
    )


@pytest.mark.parametrize(
    ("name", "times"),
    [("h264_high10.mp4", ("0.1", "0.7")), ("vfr_63_frames_59_distinct_durations.mp4", ("0", "1", "2"))],
)
def test_real_files(corpus, tmp_path, name, times):
    same_as_run(corpus / "files" / name, tmp_path, times, stages=[{"resize": {"width": 160, "height": 90}}])


def test_the_png_holds_the_same_picture_as_ffmpeg_reads(tmp_path, ffmpeg):
    """An R'G'B' source, stage and lossless run: what the PNG holds must be its very samples."""
    config, clip = tmp_path / "c.yaml", tmp_path / "rgb.mkv"
    ffmpeg("-f", "lavfi", "-i", "testsrc2=s=160x90:d=2,format=gbrp10le", "-c:v", "ffv1", clip)
    config.write_text("stages: [{warp: {rotate: 5}}]\noutput: {video: {codec: ffv1}}\n")
    out, still, raw = tmp_path / "out.mkv", tmp_path / "still.png", tmp_path / "still.raw"
    run = ["run", str(config), str(clip), str(out), "--device", "cpu", "--quiet"]
    assert CliRunner().invoke(cli, run, obj=Console()).exit_code == 0
    shown = [
        "preview",
        str(config),
        str(clip),
        "--at",
        "1.2",
        "--show",
        "after",
        "-o",
        str(still),
        "--device",
        "cpu",
        "--quiet",
    ]
    assert CliRunner().invoke(cli, shown, obj=Console(), catch_exceptions=False).exit_code == 0
    ffmpeg("-i", still, "-pix_fmt", "rgb48le", "-f", "rawvideo", raw)
    ours = np.frombuffer(raw.read_bytes(), np.uint16).reshape(90, 160, 3)
    ffmpeg("-ss", "1.2", "-i", out, "-frames:v", "1", "-pix_fmt", "gbrp10le", "-f", "rawvideo", raw)
    green, blue, red = np.frombuffer(raw.read_bytes(), np.uint16).reshape(3, 90, 160)
    codes = np.stack([red, green, blue], axis=-1)
    assert len(np.unique(codes)) > 200
    assert np.array_equal(ours, np.round(codes / 1023 * 65535))


def test_before_and_after_and_the_contact_sheet(clip, tmp_path, ffprobe):
    config = tmp_path / "c.yaml"
    config.write_text("stages: [{crop: {width: 200, height: 100}}]\n")

    def shape(*options: str) -> tuple[int, int]:
        path = tmp_path / "x.png"
        words = ["preview", str(config), str(clip), *options, "-o", str(path), "--device", "cpu", "--overwrite"]
        done = CliRunner().invoke(cli, words, obj=Console(), catch_exceptions=False)
        assert done.exit_code == 0
        stream = ffprobe(path)["streams"][0]
        return stream["width"], stream["height"]

    assert shape("--at", "1,2") == (320 + 8 + 200, 180 + 8 + 180)
    assert shape("--at", "1", "--show", "after") == (200, 100)
    assert shape("--contact", "12", "--show", "after") == (4 * 200 + 3 * 8, 3 * 100 + 2 * 8)


def test_times_of_a_contact_sheet_cover_the_range(clip, tmp_path):
    plan = planned(clip, tmp_path / "x.mkv", range={"start": 1, "end": 3})
    times = [float(still.seconds) for still in stills(plan, spread(4, plan))]
    assert times == pytest.approx([1.25, 1.75, 2.25, 2.75], abs=0.04)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--at", "99"], "--at: 99 lies beyond the end"),
        (["--at", "soon"], "--at: 'soon' is not a time"),
        (["--at", "0.2"], "outside the range"),
        (["--at", "3.99"], "no picture follows"),
    ],
)
def test_refused(clip, tmp_path, options, says):
    config = tmp_path / "c.yaml"
    config.write_text("range: {start: 1}\n")
    out = tmp_path / "x.png"
    words = ["preview", str(config), str(clip), *options, "-o", str(out), "--device", "cpu"]
    done = CliRunner().invoke(cli, words, obj=Console())
    assert isinstance(done.exception, GpupipeError)
    assert says in str(done.exception)
    assert not list(tmp_path.glob("*.png"))


@pytest.mark.parametrize(
    ("name", "pictures"),
    [("one_frame_av1_64x64.mp4", 1), ("rot180_3_frames.mov", 2), ("truncated_moov_says_745_frames.mp4", 1)],
)
def test_a_contact_sheet_of_less_than_it_wants(corpus, tmp_path, name, pictures):
    """A clip of few pictures, and one that is shorter than it says: what there is, each once."""
    config = tmp_path / "c.yaml"
    config.write_text("stages: []\n")
    words = ["preview", str(config), str(corpus / "files" / name), "--contact", "7", "-o", str(tmp_path / "x.png")]
    done = CliRunner().invoke(cli, words, obj=Console(), catch_exceptions=False)
    assert done.exit_code == 0
    assert done.output.count(" s") == pictures
