"""NVDEC is not given pictures that refer to others before the key frame at which decoding begins.

NVDEC's parser is a named double here, after NVIDIA's own sources (pixels, and the real one: tests/gpu/test_nvdec_gpu.py
and test_segmented_gpu.py). libav says which pictures can be decoded.
"""

from __future__ import annotations

import io
import itertools
from ctypes import string_at
from fractions import Fraction
from types import SimpleNamespace
from typing import TYPE_CHECKING

import av
import pytest
from nvdec_double import COUNT, H, W, decoder, encoded

from gpupipe.codecs import nvdec, nvdec_session
from gpupipe.codecs.leading import Leading, slice_type
from gpupipe.journal import Journal
from gpupipe.media.probe import probe
from gpupipe.media.segments import SegmentReader, cut, timetable
from gpupipe.media.window import Window

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

GOP = 12
RASL, BLA, CRA = (8, 9), range(16, 19), 21


class Parser:
    """A session that behaves like NVDEC's parser: every picture shown is given the earliest time of all it holds.

    A picture after an end is a new beginning; leading pictures that refer to what was before are never shown, and their
    times stay.
    """

    def __init__(self, owner: SimpleNamespace) -> None:
        self.owner = owner
        self.hidden = self.begun = False
        self.waiting: list[int] = []
        """What will be shown, by its own time; and all times given."""
        self.times: list[int] = []

    def Decode(self, data: SimpleNamespace) -> list[SimpleNamespace]:  # noqa: N802  the library's name
        if not data.bsl:
            found = [self.shown() for _ in list(self.waiting)]
            self.times.clear()
            self.begun = False
            return found
        self.owner.fed.append(data.pts - nvdec._TIME_OFFSET)
        if len(self.owner.fed) in self.owner.bad:
            raise RuntimeError("HandlePictureDecode :\nError code : 1")
        kind = slice_type(string_at(data.bsl_data, data.bsl))
        if kind is not None and 16 <= kind <= CRA:
            self.hidden = kind < CRA or not self.begun
        self.begun = True
        self.times.append(data.pts)
        if not (kind in RASL and self.hidden):
            self.waiting.append(data.pts)
        return [self.shown()] if len(self.waiting) > 2 else []

    def shown(self) -> SimpleNamespace:
        self.waiting.remove(min(self.waiting))
        time = min(self.times)
        self.times.remove(time)
        return SimpleNamespace(getPTS=lambda: time, format="Pixel_Format.NV12", GetPtrToPlane=lambda _: 0)

    def GetWidth(self) -> int:  # noqa: N802
        return W

    def GetHeight(self) -> int:  # noqa: N802
        return H


def library(*bad: int) -> SimpleNamespace:
    """Fails at the packets, counted from one, that it is told to."""
    owner = SimpleNamespace(fed=[], bad=bad, cudaVideoCodec=SimpleNamespace(HEVC="HEVC", H264="H264"))
    owner.PacketData = lambda: SimpleNamespace(bsl=0, bsl_data=0, pts=0)
    owner.CreateDecoder = lambda **_: Parser(owner)
    return owner


OPEN = {"preset": "ultrafast", "x265-params": "keyint=12:min-keyint=12:scenecut=0:bframes=4:open-gop=1:log-level=none"}


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    folder, made = tmp_path_factory.mktemp("leading"), {}

    def of(form: str) -> Path:
        if form not in made:
            made[form] = folder / f"clip.{'mkv' if form == 'matroska' else form}"
            encoded("libx265", OPEN, made[form], form)
        return made[form]

    return of


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvdec_session, "primary_context", lambda _: 0)


def kinds(path: Path) -> list[int | None]:
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        to_annexb = av.BitStreamFilterContext("hevc_mp4toannexb", stream)
        return [slice_type(bytes(p)) for packet in container.demux(stream) for p in to_annexb.filter(packet)]


@pytest.mark.parametrize("form", ["mp4", "matroska"])
def test_every_picture_of_every_segment_comes_out_in_its_place(clip, form: str) -> None:
    """By one decoder that is kept open: MP4 is read at once, Matroska packet by packet."""
    path = clip(form)
    assert CRA in kinds(path)
    assert set(RASL) & set(kinds(path)), "no picture refers back, so nothing is tested"
    info = probe(path)
    times = timetable(info)
    segments = cut(times, Window(None, None), Fraction(GOP, 25), info.video.time_base)
    assert len(segments) == COUNT // GOP
    reader, journal, lib = SegmentReader(info), Journal(), library()
    tested = decoder(reader.video_stream, journal, lib)
    found = []
    for segment in (segments[2], segments[0], segments[3], segments[1]):
        window = Window(segment.start, segment.end)
        shown = list(surfaces(tested, reader, segment, at_once=form == "mp4"))
        tested.restart()
        own = [pts for pts in shown if window.holds(pts)]
        assert own == [pts for pts in times.pts if window.holds(pts)]
        assert len(own) == segment.frames
        found += own
    assert sorted(found) == list(times.pts)
    assert len(journal) == 0
    tested.close()
    reader.close()


def surfaces(tested: nvdec.NvdecDecoder, reader: SegmentReader, segment, *, at_once: bool) -> Iterator[int]:
    packed = reader.packed(segment)
    assert (packed is not None) == at_once
    if packed is not None:
        yield from (surface.pts for surface in tested.packed(*packed))
        return
    for packet in itertools.chain(reader.packets(segment), [None]):
        yield from (surface.pts for surface in tested.surfaces(packet))


def behind(path: Path, first: int) -> bytes:
    """The packets from the `first`-th key frame on, as a file of their own."""
    out = io.BytesIO()
    with av.open(str(path)) as container, av.open(out, "w", format="matroska") as file:
        stream = container.streams.video[0]
        copy = file.add_stream_from_template(stream)
        keys = 0
        for packet in container.demux(stream):
            keys += packet.is_keyframe and packet.size > 0
            if packet.size and keys > first:
                packet.stream = copy
                file.mux(packet)
    return out.getvalue()


def test_a_file_that_begins_with_them_is_decoded_as_libav_does(clip) -> None:
    data, journal, lib = behind(clip("mp4"), 1), Journal(), library()
    with av.open(io.BytesIO(data)) as container:
        packets = sum(packet.size > 0 for packet in container.demux(video=0))
    with av.open(io.BytesIO(data)) as container:
        wanted = [frame.pts for frame in container.decode(video=0)]
    assert packets > len(wanted) == COUNT - GOP
    with av.open(io.BytesIO(data)) as container:
        stream = container.streams.video[0]
        tested = decoder(stream, journal, lib)
        found = [s.pts for p in container.demux(stream) for s in tested.surfaces(p if p.size else None)]
    assert found == wanted
    assert len(journal) == 0
    assert len(lib.fed) == len(wanted)


def demuxed(path: Path) -> list[av.Packet]:
    """Video packets; a decoder empties those that it is given."""
    with av.open(str(path)) as container:
        return [packet for packet in container.demux(video=0) if packet.size]


def test_what_a_failed_session_costs_is_told(clip) -> None:
    """It is replaced at a key frame: what leads that one would have been decoded, and is lost with the rest."""
    path, journal, lib = clip("matroska"), Journal(), library(6)
    order = [(p.pts, p.is_keyframe) for p in demuxed(path)]
    entry = next(number for number, (_, key) in enumerate(order) if number > 5 and key)
    leading = [pts for pts, _ in order[entry + 1 :] if pts < order[entry][0]]
    assert leading, "nothing leads the key frame, so nothing is tested"
    with av.open(str(path)) as container:
        tested = decoder(container.streams.video[0], journal, lib)
        found = [s.pts for p in [*demuxed(path), None] for s in tested.surfaces(p)]
    assert [pts for pts in found if pts >= order[entry][0]] == sorted(
        pts for pts, _ in order[entry:] if pts not in leading
    )
    told = journal.entries["decode-error"]
    assert told.count == 1 + sum(pts not in found for pts, _ in order[:entry]) + len(leading)
    assert not set(leading) & set(lib.fed)


def test_a_restart_leaves_nothing_inside(clip) -> None:
    """Whoever has seen enough does not feed the end; the next part must not begin with pictures of this one."""
    path, journal, lib = clip("matroska"), Journal(), library()
    with av.open(str(path)) as container:
        tested = decoder(container.streams.video[0], journal, lib)
        first = [s.pts for p in demuxed(path)[:7] for s in tested.surfaces(p)]
        assert len(first) == 5
        tested.restart()
        again = [s.pts for p in [*demuxed(path)[:7], None] for s in tested.surfaces(p)]
    assert again == sorted(p.pts for p in demuxed(path)[:7])
    assert len(journal) == 0


def unit(kind: int) -> bytes:
    return b"\x00\x00\x00\x01" + bytes((kind << 1, 1)) + b"\x80rest"


@pytest.mark.parametrize(
    ("fed", "barred"),
    [
        ([19, 1, 21, 9, 8, 1], []),  # decoded from an IDR: a CRA's leading pictures have what they refer to
        ([21, 9, 8, 1, 0, 21, 9, 1], [1, 2]),
        ([19, 1, 16, 9, 7, 8, 1], [3, 5]),  # a broken link: the stream was spliced here
        ([21, 1, 8, 1, 1], [2]),  # fields: the second one of the key frame comes before
        ([39, 35], []),  # no picture at all
    ],
)
def test_which_are_barred(fed: list[int], barred: list[int]) -> None:
    leading = Leading("hevc")
    found = []
    for number, kind in enumerate(fed):
        key = 16 <= kind <= CRA
        if leading.asks(key=key) and leading.bars(unit(35) + unit(kind), number, key=key):
            found.append(number)
    assert found == barred
    assert not Leading("vp9").asks(key=True)
    assert slice_type(b"\x00\x00\x01") is None


def test_a_packet_without_a_slice_is_no_beginning() -> None:
    """Some containers flag packets as key frames that hold a delimiter or an SEI only, or are damaged."""
    delimiter, cra, rasl, trail = (b"\x00\x00\x01" + bytes((kind << 1, 1, 0x80)) for kind in (35, 21, 9, 1))
    leading = Leading("hevc")
    assert not leading.bars(delimiter, 0, key=True)
    assert not leading.bars(cra, 40, key=True)
    assert not leading.bars(delimiter, 41, key=False)
    assert not leading.bars(trail, 42, key=False)
    assert not leading.bars(delimiter, 43, key=False)
    assert leading.asks(key=False)
    assert leading.bars(rasl, 38, key=False)
