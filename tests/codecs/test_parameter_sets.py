"""Wherever NVDEC's session begins, it is given parameter sets before the first picture, whatever the container.

Its parser is a named double, see `nvdec_double` (the real one: tests/gpu/test_segmented_gpu.py).
"""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import TYPE_CHECKING

import av
import numpy as np
import pytest
from nvdec_double import COUNT, decoder, encoded, library

from gpupipe.codecs import nvdec, nvdec_session
from gpupipe.codecs.parameter_sets import START_CODE, beside, complete, described
from gpupipe.codecs.sei import START, VCL, nal_type
from gpupipe.errors import DeviceError
from gpupipe.journal import Journal
from gpupipe.media.probe import probe
from gpupipe.media.segments import SegmentReader, cut, timetable
from gpupipe.media.window import Window

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from gpupipe.media.segments import Segment, Timetable
    from gpupipe.media.source import SourceInfo

GOP = 12
SETS = {"h264": [7, 8], "hevc": [32, 33, 34]}
IDR = {"h264": (5,), "hevc": (19, 20)}
OPEN = {
    "h264": ("libx264", {"x264-params": "open-gop=1:keyint=12:min-keyint=12:bframes=3:scenecut=0"}),
    "hevc": (
        "libx265",
        {
            "preset": "ultrafast",
            "x265-params": "keyint=12:min-keyint=12:scenecut=0:bframes=4:open-gop=1:log-level=none",
        },
    ),
}


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Path]:
    folder, made = tmp_path_factory.mktemp("sets"), set()

    def of(codec: str, form: str) -> Path:
        """Encoded once, because x264 by several threads gives other bytes another time."""
        path = folder / f"{codec}.{form}"
        if path not in made:
            made.add(path)
            encoded(*OPEN[codec], path) if form == "mp4" else copied(of(codec, "mp4"), path)
        return path

    return of


def copied(source: Path, path: Path) -> None:
    with av.open(str(source)) as container, av.open(str(path), "w") as out:
        stream = container.streams.video[0]
        copy = out.add_stream_from_template(stream)
        for packet in container.demux(stream):
            if packet.size:
                packet.stream = copy
                out.mux(packet)


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvdec_session, "primary_context", lambda _: 0)


def kinds(codec: str, unit: bytes) -> list[int]:
    return [nal_type(codec, unit, m.end()) for m in START.finditer(unit)]


def parts(path: Path) -> tuple[SourceInfo, Timetable, tuple[Segment, ...]]:
    info = probe(path)
    times = timetable(info)
    return info, times, cut(times, Window(None, None), Fraction(GOP, 25), info.video.time_base)


def given(tested: nvdec.NvdecDecoder, reader: SegmentReader, segment: Segment) -> Iterator[int]:
    packed = reader.packed(segment)
    if packed is not None:
        yield from (surface.pts for surface in tested.packed(*packed))
        return
    for packet in itertools.chain(reader.packets(segment), [None]):
        yield from (surface.pts for surface in tested.surfaces(packet))


@pytest.mark.parametrize("fresh", [False, True])
@pytest.mark.parametrize("form", ["mp4", "mov", "mkv"])
@pytest.mark.parametrize("codec", list(OPEN))
def test_every_segment_begins_with_them_and_is_whole(clip, codec: str, form: str, fresh: bool) -> None:
    """By one decoder that was tried on the first key frame and is kept open, and by one for each segment."""
    path = clip(codec, form)
    info, times, segments = parts(path)
    assert len(segments) == COUNT // GOP
    with av.open(str(path)) as container:
        whole = {frame.pts: frame.to_ndarray() for frame in container.decode(video=0)}
    assert not all(times.keyframes.values()), "no GOP is open, so nothing is tested"
    journal, lib, found = Journal(), library(codec), []
    reader = SegmentReader(info)
    tested = decoder(reader.video_stream, journal, lib)
    if not fresh:
        tested.rehearse(reader.peek())
    lib.pictures.clear()
    lib.begun.clear()
    for segment in segments[2:] + segments[:2]:
        if fresh:
            tested.close()
            tested = decoder(reader.video_stream, journal, lib)
        window = Window(segment.start, segment.end)
        own = [pts for pts in given(tested, reader, segment) if window.holds(pts)]
        tested.restart()
        assert own == [pts for pts in times.pts if window.holds(pts)]
        for pts in own:
            assert np.array_equal(lib.pictures[pts], whole[pts]), pts
        found += own
    assert sorted(found) == list(times.pts)
    assert len(lib.begun) == len(segments)
    heads = [list(itertools.takewhile(lambda k: k not in VCL[codec], kinds(codec, unit))) for unit in lib.begun]
    assert all([k for k in head if k in SETS[codec]] == SETS[codec] for head in heads), heads
    assert len(journal) == 0
    tested.close()
    reader.close()


def nals(unit: bytes) -> list[bytes]:
    starts = [m.end() for m in START.finditer(unit)]
    return [unit[a : b - 3].rstrip(b"\x00") for a, b in zip(starts, [*starts[1:], len(unit) + 3], strict=True)]


@pytest.mark.parametrize("codec", list(OPEN))
def test_all_containers_feed_the_same(clip, codec: str) -> None:
    """What is read at once (MP4) and packet by packet (Matroska), every NAL unit of every segment but repeated sets."""
    fed = []
    for form in ("mp4", "mkv"):
        info, _, segments = parts(clip(codec, form))
        reader, lib = SegmentReader(info), library(codec)
        tested = decoder(reader.video_stream, Journal(), lib)
        for segment in segments:
            list(given(tested, reader, segment))
            tested.restart()
        assert (reader.packed(segments[1]) is None) == (form == "mkv")
        fed.append([nals(unit) for unit in lib.fed])
        reader.close()
        tested.close()
    vcl = [[[n for n in unit if nal_type(codec, n, 0) in VCL[codec]] for unit in units] for units in fed]
    assert vcl[0] == vcl[1]
    assert {n for unit in fed[0] for n in unit} == {n for unit in fed[1] for n in unit}


@pytest.mark.parametrize("form", ["mp4", "mkv"])
def test_a_session_that_takes_the_place_of_a_failed_one_gets_them(clip, form: str) -> None:
    """The next key frame is that of an open GOP, and no IDR picture follows in the whole file."""
    path = clip("h264", form)
    info, times, (segment, *_) = parts(path)
    whole = cut(times, Window(None, None), Fraction(10**6), info.video.time_base)[0]
    assert segment.end is not None
    reader, lib, journal = SegmentReader(info), library("h264", 6), Journal()
    tested = decoder(reader.video_stream, journal, lib)
    found = list(given(tested, reader, whole))
    assert [pts for pts in found if pts >= segment.end] == [pts for pts in times.pts if pts >= segment.end]
    lost = [pts for pts in times.pts if pts not in found]
    assert f"pts {max(lost)}" in journal.entries["decode-error"].places
    assert journal.entries["decode-error"].count == 1 + len(lost)  # one tells of the failure
    assert [[k for k in kinds("h264", unit) if k in SETS["h264"]] for unit in lib.begun] == [SETS["h264"]] * 2
    assert not set(IDR["h264"]) & set(kinds("h264", lib.begun[1]))
    tested.close()
    reader.close()


def behind(path: Path, out: Path) -> list[tuple[int, bool]]:
    """The packets from the second key frame on, as a file of their own; their pts, and whether they are key frames."""
    rows = []
    with av.open(str(path)) as container, av.open(str(out), "w") as file:
        stream = container.streams.video[0]
        copy = file.add_stream_from_template(stream)
        for packet in container.demux(stream):
            if packet.size and (rows or (packet.is_keyframe and packet.pts > 0)):
                rows.append((packet.pts, packet.is_keyframe))
                packet.stream = copy
                file.mux(packet)
    return rows


@pytest.mark.parametrize("form", ["mp4", "mkv"])
@pytest.mark.parametrize("codec", list(OPEN))
def test_a_file_that_begins_in_an_open_gop_is_shown_as_libav_does(clip, tmp_path, codec: str, form: str) -> None:
    """Read in one go and at once; what refers back is neither shown nor told, since no decoder has it."""
    path = tmp_path / f"begins.{form}"
    rows = behind(clip(codec, form), path)
    leading = [pts for pts, _ in rows if pts < rows[0][0]]
    assert leading
    with av.open(str(path)) as container:
        wanted = {frame.pts: frame.to_ndarray() for frame in container.decode(video=0)}
    assert len(wanted) == len(rows) - len(leading)
    info, times, _ = parts(path)
    whole = cut(times, Window(None, None), Fraction(10**6), info.video.time_base)[0]
    for at_once in (False, True):
        lib, journal, reader = library(codec), Journal(), SegmentReader(info)
        tested = decoder(reader.video_stream, journal, lib)
        if at_once:
            found = list(given(tested, reader, whole))
        else:
            found = [s.pts for p in [*reader.packets(whole), None] for s in tested.surfaces(p)]
        assert found == list(wanted)
        assert all(np.array_equal(lib.pictures[pts], wanted[pts]) for pts in found)
        assert len(journal) == 0
        tested.close()
        reader.close()


def unit(codec: str, *types: int) -> bytes:
    return b"".join(b"\x00\x00\x01" + bytes((k if codec == "h264" else k << 1, 1)) + b"\x80" for k in types)


@pytest.mark.parametrize(
    ("codec", "types", "whole"),
    [
        ("h264", (9, 7, 8, 6, 5), True),
        ("h264", (6, 1), False),
        ("h264", (7, 1, 8), False),  # one that comes behind the picture is of no use to it
        ("h264", (8, 7), True),
        ("h264", (), False),
        ("hevc", (35, 32, 33, 34, 21), True),
        ("hevc", (33, 34, 21), False),
        ("mpeg2video", (7,), True),
    ],
)
def test_whether_an_access_unit_has_all(codec: str, types: tuple[int, ...], whole: bool) -> None:
    assert complete(codec, unit(codec, *types)) == whole


def test_what_a_container_gives_beside_the_packets(clip) -> None:
    for codec, wanted in SETS.items():
        with av.open(str(clip(codec, "mkv"))) as container:
            extradata = container.streams.video[0].codec_context.extradata
        sets = beside(codec, extradata)
        assert [k for k in kinds(codec, sets) if k in wanted] == wanted
        assert beside(codec, sets) == sets
        assert beside("av1", sets) == b""
        assert described(codec, extradata[:20]) is None
        assert beside(codec, b"") == beside(codec, extradata[:20]) == b""


@pytest.mark.parametrize("codec", ["h264", "hevc"])
def test_a_description_that_is_cut_short_is_none(codec: str) -> None:
    """Half a parameter set is worse than none: a decoder may take it for a whole one."""
    sps, pps = b"\x67\x64\x00\x28\xac", b"\x68\xee\x3c\x80"
    whole = b"\x01\x64\x00\x28\xff\xe1\x00\x05" + sps + b"\x01\x00\x04" + pps
    if codec == "hevc":
        whole = b"\x01" + bytes(20) + b"\x03\x01" + b"\x21\x00\x02\x00\x05" + sps + b"\x00\x04" + pps
    assert beside(codec, whole) == b"\x00\x00\x00\x01" + sps + b"\x00\x00\x00\x01" + pps
    assert [described(codec, whole[:end]) for end in range(len(whole))] == [None] * len(whole)


def test_a_damaged_description_is_told(clip: Callable[[str, str], Path], tmp_path: Path) -> None:
    """The filter that makes Annex B does not open then: libav's own decoder goes by what is in the stream, if it is."""
    data, path = bytearray(clip("h264", "mp4").read_bytes()), tmp_path / "damaged.mp4"
    at = data.index(b"avcC") + 4 + 6  # the length of the first SPS
    data[at : at + 2] = b"\xff\xff"
    path.write_bytes(data)
    with av.open(str(path)) as container, pytest.raises(DeviceError, match="sets that the container gives of its h264"):
        nvdec._filters(container.streams.video[0])


def test_a_view_by_itself_is_no_end_of_the_stream(clip: Callable[[str, str], Path]) -> None:
    """MV-HEVC: what is left of such a packet is nothing, which tells NVDEC that no more comes."""
    lib = library("hevc")
    with av.open(str(clip("hevc", "mp4"))) as container:
        stream = container.streams.video[0]
        session = decoder(stream, Journal(), lib)
        pictures = 0
        for packet in container.demux(stream):
            pictures += sum(1 for _ in session.surfaces(packet if packet.size else None))
            if len(lib.fed) == 1:
                session._layered = True
                other = av.Packet(START_CODE + b"\x02\x09" + b"\x80" * 8)
                other.pts, session._filter, kept = packet.pts, None, session._filter
                assert not list(session.surfaces(other))
                session._filter, session._layered = kept, False
    assert pictures == COUNT
    assert len(lib.begun) == 1
