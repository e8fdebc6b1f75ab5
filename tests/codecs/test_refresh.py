"""Key frames that are refreshed bit by bit are no places to begin at: libav says which pictures there are."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING

import av
import pytest

from gpupipe.codecs.refresh import Refresh
from gpupipe.config import parse_config
from gpupipe.journal import Journal
from gpupipe.media.probe import probe
from gpupipe.media.segments import Segment, SegmentReader, timetable
from gpupipe.plan import make_plan
from gpupipe.render import render

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

COUNT, GOP = 75, 12


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory, ffmpeg) -> Callable[..., Path]:
    folder = tmp_path_factory.mktemp("refresh")

    def of(name: str, encoder: str, options: str) -> Path:
        path = folder / name
        if not path.exists():
            ffmpeg("-f", "lavfi", "-i", f"testsrc2=s=192x160:r=25:d={COUNT // 25}", "-c:v", encoder,
                   f"-{encoder.removeprefix('lib')}-params", options, path)  # fmt: skip
        return path

    return of


BITS = "intra-refresh=1:keyint=12:bframes=0"
WHOLE = "open-gop=1:keyint=12:min-keyint=12:bframes=3:scenecut=0"


def keys(path: Path) -> list[tuple[int, bool]]:
    """Number and judgement of each packet that the container calls a key frame."""
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        refresh = Refresh(stream)
        rows = [(p.is_keyframe, refresh.gradual(p)) for p in container.demux(stream) if p.size]
    assert not any(gradual for key, gradual in rows if not key)
    return [(number, gradual) for number, (key, gradual) in enumerate(rows) if key]


@pytest.mark.parametrize("name", ["bits.mkv", "bits.mp4", "bits.mov", "bits.ts"])
def test_only_the_first_is_whole(clip, name: str) -> None:
    found = keys(clip(name, "libx264", BITS))
    assert [number for number, _ in found] == list(range(0, COUNT, GOP))
    assert [gradual for _, gradual in found] == [False] + [True] * (len(found) - 1)


@pytest.mark.parametrize(
    ("name", "encoder", "options"),
    [
        ("open.mkv", "libx264", WHOLE),
        ("open.mp4", "libx264", WHOLE),
        ("open.ts", "libx264", WHOLE),
        ("intra.mp4", "libx264", "keyint=1"),
        ("open_hevc.mp4", "libx265", WHOLE + ":log-level=none"),
    ],
)
def test_open_groups_begin_with_whole_pictures(clip, name: str, encoder: str, options: str) -> None:
    found = keys(clip(name, encoder, options))
    assert len(found) > 2
    assert not any(gradual for _, gradual in found)


@pytest.mark.parametrize("form", ["mkv", "mp4"])
@pytest.mark.parametrize("section", [None, "2.0"])
def test_nothing_is_lost_where_a_run_may_not_begin(clip, tmp_path: Path, form: str, section: str | None) -> None:
    """Neither by cutting the file nor by a range that begins in its midst."""
    source = clip(f"bits.{form}", "libx264", BITS)
    config = {"segments": {"seconds": 0.4}, "output": {"video": {"codec": "ffv1"}}}
    if section:
        config["range"] = {"start": section}
    journal, out = Journal(), tmp_path / "o.mkv"
    plan = make_plan(parse_config(config), probe(source), out, device="cpu")
    render(plan, overwrite=False, journal=journal, stop=threading.Event())
    with av.open(str(source)) as container:
        wanted = [f.to_ndarray().tobytes() for f in container.decode(video=0)][50 if section else 0 :]
    with av.open(str(out)) as container:
        found = [f.to_ndarray().tobytes() for f in container.decode(video=0)]
    assert len(plan.segments) == 1
    assert plan.segments_reason == "one: no key frame to cut at 0.4 s or more from the start"
    assert found == wanted
    assert len(journal) == 0


@pytest.mark.parametrize("form", ["mkv", "mp4"])
def test_a_reader_goes_back_to_a_whole_picture(clip, form: str) -> None:
    """Of a segment whose first picture lies behind such a key frame, as those that lead a stage in may."""
    info = probe(clip(f"bits.{form}", "libx264", BITS))
    reader, times = SegmentReader(info), timetable(info)
    reader.peek()
    assert list(times.keyframes) == [times.pts[0]]
    first = next(reader.packets(Segment(times.pts[40], None, COUNT - 40, closed=False)))
    assert first.pts == times.pts[0]
    reader.close()


SEI = b"\x00\x00\x01\x06"


@pytest.mark.parametrize(
    ("data", "gradual"),
    [
        (SEI + b"\x06\x02\x17\x10\x80\x00\x00\x01\x41\x9b", True),
        (SEI + b"\x06\x01\xc4\x80\x00\x00\x01\x41\x9b", False),
        (SEI + b"\x05\x03\x06\x02\x17\x06\x02\x17\x10\x80\x00\x00\x01\x41\x9b", True),  # behind another message
        (SEI + b"\x05\x03\x06\x02\x17\x80\x00\x00\x01\x41\x9b", False),  # inside another
        (SEI + b"\x06\x02\x17\x10\x80\x00\x00\x01\x65\x88", False),  # an IDR picture is whole
        (b"\x00\x00\x01\x41\x9b" + SEI + b"\x06\x02\x17\x10\x80", False),  # of the next picture
        (SEI + b"\xff\xff", False), (SEI, False), (b"", False), (b"\x00\x00\x01", False),
    ],
)  # fmt: skip
def test_what_is_read(data: bytes, gradual: bool) -> None:
    packet = av.Packet(data)
    packet.is_keyframe = True
    stream = av.CodecContext.create("h264", "r")
    holder = type("Stream", (), {"codec_context": stream})()
    assert Refresh(holder).gradual(packet) == gradual


RECOVERS_LATER = b"\x00\x00\x01\x06\x06\x01\x20\x80"
CAPTIONS = b"\x00\x00\x01\x06\x05" + b"\xff" * 40 + b"\x10" + b"\xaa" * (255 * 40 + 16) + b"\x80"
SLICE = b"\x00\x00\x01\x41\x9a"
AVCC = bytes.fromhex("01640028ffe1000667640028abcd01000468eebcb0")


@pytest.mark.parametrize("extradata", [b"", AVCC, AVCC[:-2], b"\x01" * 9])
@pytest.mark.parametrize(
    ("data", "gradual"),
    [
        (b"\x55" * 20, False),
        (bytes(20), False),
        (b"\x00\x00\x01", False),
        (b"\x00\x00\x00\x09\x41\x9a", False),
        (RECOVERS_LATER + SLICE, True),
        (RECOVERS_LATER + CAPTIONS + SLICE, True),
        (CAPTIONS + SLICE, False),
    ],
)
def test_damaged_packets_and_long_messages(extradata: bytes, data: bytes, gradual: bool) -> None:
    """Such as have no start code at all, behind a description that is damaged too."""
    context = SimpleNamespace(codec=SimpleNamespace(canonical_name="h264"), extradata=extradata)
    packet = av.Packet(data)
    packet.is_keyframe = True
    assert Refresh(SimpleNamespace(codec_context=context)).gradual(packet) == (gradual and extradata != AVCC)
