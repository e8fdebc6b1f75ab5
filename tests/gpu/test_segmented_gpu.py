"""Several sessions on one file give the frames and times of one session, whichever way its packets are read."""

from __future__ import annotations

import threading
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING

import av
import numpy as np
import pytest

from gpupipe.config import parse_config
from gpupipe.journal import Journal
from gpupipe.media.probe import probe
from gpupipe.media.segments import SegmentReader
from gpupipe.plan import make_plan
from gpupipe.render import render, writer_process

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.gpu

CLIPS = (
    "start_at_10s_2b_sar1137_800.mp4",
    "editlist_video_starts_1s_after_audio.mp4",
    "audio_shorter_than_video_60fps.mp4",
    "hlg_hevc_1080p_cropped_aac.mp4",
    "vfr_63_frames_59_distinct_durations.mp4",
    "mvhevc_90fps_1934x2160.mov",
    "xdcam_ex_1080i_opengop.mov",
    "mkv_pgs_ac3.mkv",
)


OPEN = {
    "h264": ("libx264", {"x264-params": "open-gop=1:keyint=12:min-keyint=12:bframes=3:scenecut=0"}),
    "hevc": ("libx265", {"x265-params": "open-gop=1:keyint=12:min-keyint=12:bframes=4:scenecut=0:log-level=none"}),
}
COUNT = 60


def frames(
    source: Path, output: Path, segments: object, journal: Journal | None = None
) -> tuple[int, list[tuple[int, bytes]]]:
    """How many segments there were; pts and samples of every frame of a lossless run on the GPU."""
    config = {"segments": segments, "output": {"video": {"codec": "ffv1", "options": {"level": "3"}}}}
    plan = make_plan(parse_config(config), probe(source), output, device="cuda")
    render(plan, overwrite=False, journal=journal or Journal(), stop=threading.Event())
    with av.open(str(output)) as container:
        found = [
            (frame.pts, b"".join(np.asarray(memoryview(p)).tobytes() for p in frame.planes))
            for frame in container.decode(video=0)
        ]
    return len(plan.segments), found


@pytest.mark.parametrize("name", CLIPS)
def test_segmented_equals_one_session(clips: Path, tmp_path: Path, name: str) -> None:
    _, whole = frames(clips / name, tmp_path / "whole.mkv", "off")
    _, cut = frames(clips / name, tmp_path / "cut.mkv", {"seconds": 0.3})
    assert cut == whole


@pytest.mark.parametrize("form", ["mp4", "mkv"])
@pytest.mark.parametrize("codec", list(OPEN))
def test_pictures_that_lead_a_key_frame_belong_to_the_part_before(tmp_path: Path, codec: str, form: str) -> None:
    """A part begins with a key frame and, behind it, pictures that refer to the part before."""
    source, (encoder, options) = tmp_path / f"open.{form}", OPEN[codec]
    with av.open(str(source), "w") as out:
        stream = out.add_stream(encoder, rate=25, options=options)
        stream.width, stream.height, stream.pix_fmt = 192, 160, "yuv420p"  # NVDEC takes no HEVC below 144x144
        for number in range(COUNT):
            y, x = np.mgrid[0:240, 0:192]
            picture = (128 + 60 * np.sin((x + 3 * number) / 19) * np.cos((y + number) / 13)).astype(np.uint8)
            frame = av.VideoFrame.from_ndarray(picture, format="yuv420p")
            frame.pts, frame.time_base = number, Fraction(1, 25)
            out.mux(stream.encode(frame))
        out.mux(stream.encode(None))
    with av.open(str(source)) as container:
        order = [(p.pts, p.is_keyframe) for p in container.demux(video=0) if p.size]
    assert any(key and following[0] < pts for (pts, key), following in pairwise(order)), "nothing leads a key frame"
    journal = Journal()
    _, whole = frames(source, tmp_path / "whole.mkv", "off", journal)
    parts, cut = frames(source, tmp_path / "cut.mkv", {"seconds": 0.4}, journal)
    assert not journal.entries, [(one.message, one.count, one.places[:3]) for one in journal.entries.values()]
    assert (parts, len(whole)) == (5, COUNT)
    assert [pts for pts, _ in cut] == [pts for pts, _ in whole]
    assert cut == whole


def test_read_at_once_equals_one_by_one(clips: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clip = clips / "vfr_63_frames_59_distinct_durations.mp4"
    taken: list[bool] = []
    packed = SegmentReader.packed

    def told(self: SegmentReader, segment: object) -> object:
        found = packed(self, segment)  # type: ignore[arg-type]
        taken.append(found is not None)
        return found

    monkeypatch.setattr(SegmentReader, "packed", told)
    _, at_once = frames(clip, tmp_path / "packed.mkv", {"seconds": 0.3})
    assert len(taken) > 1
    assert all(taken)
    monkeypatch.setattr(SegmentReader, "packed", lambda *_: None)
    _, one_by_one = frames(clip, tmp_path / "demuxed.mkv", {"seconds": 0.3})
    assert at_once == one_by_one


@pytest.mark.parametrize("codec", ["mjpeg", "prores"])
def test_many_sessions_are_written_by_a_process_of_their_own(
    clips: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, codec: str
) -> None:
    """The bytes of a run with few, sound and all."""
    source, begun = probe(clips / "gopro_tmcd_timecode_gpmf_data.mp4"), []
    monkeypatch.setattr(writer_process, "SESSIONS", 8)
    monkeypatch.setattr(writer_process, "WriterProcess", watched(writer_process.WriterProcess, begun))
    for sessions in (9, 2):
        config = {"segments": {"seconds": 0.1}, "sessions": sessions, "output": {"video": {"codec": codec}}}
        plan = make_plan(parse_config(config), source, tmp_path / f"{sessions}.mov", device="cuda")
        assert plan.sessions == sessions
        render(plan, overwrite=False, journal=Journal(), stop=threading.Event())
    assert len(begun) == 1
    assert (tmp_path / "9.mov").read_bytes() == (tmp_path / "2.mov").read_bytes()


def watched(kind: type, begun: list) -> object:
    def made(*args, **more):
        begun.append(kind(*args, **more))
        return begun[-1]

    return made
