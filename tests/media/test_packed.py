"""Packets read at once equal those of libav's demuxer and bitstream filter."""

from __future__ import annotations

import ctypes
import re
from fractions import Fraction
from typing import TYPE_CHECKING

import av
import pytest
from av.bitstream import BitStreamFilterContext

from gpupipe.codecs.sequence import signature
from gpupipe.media.packed import PackedReader
from gpupipe.media.probe import probe
from gpupipe.media.segments import SegmentReader, cut, timetable
from gpupipe.media.window import Window

if TYPE_CHECKING:
    from pathlib import Path

    from gpupipe.media.segments import Segment

PLAIN = (
    "audio_shorter_than_video_60fps.mp4",
    "bt601_full_range.mp4",
    "editlist_video_starts_1s_after_audio.mp4",
    "fmp4_bogus_duration.mp4",
    "h264_high10.mp4",
    "hevc_12bit_pq_320x180.mp4",
    "hlg_hevc_1080p_cropped_aac.mp4",
    "matrix_transpose_flip_not_just_rotate.mp4",
    "rot_plus90_h264_aac.mp4",
    "sar_2_1_640x360.mp4",
    "start_at_10s_2b_sar1137_800.mp4",
    "vfr_63_frames_59_distinct_durations.mp4",
)
PARAMETER_SETS = {"h264": {7, 8, 9}, "hevc": {32, 33, 34, 35}}


def units(codec: str, data: bytes) -> list[bytes]:
    """NAL units without start codes; parameter sets and delimiters left out, since a filter repeats them."""
    parts = [part.rstrip(b"\x00") for part in re.split(b"\x00\x00\x01", data)]
    kind = (lambda p: p[0] & 31) if codec == "h264" else (lambda p: p[0] >> 1 & 63)
    return [p for p in parts if p and kind(p) not in PARAMETER_SETS[codec]]


def filtered(path: Path, segment: Segment) -> list[tuple[int | None, int | None, bool, list[bytes]]]:
    """What the demuxer and libav's own filter give."""
    reader = SegmentReader(probe(path))
    codec = reader.video_stream.codec_context.codec.canonical_name
    annexb = BitStreamFilterContext(f"{codec}_mp4toannexb", reader.video_stream)
    rows = []
    for packet in reader.packets(segment):
        about = (packet.pts, packet.duration, packet.is_discard)
        rows.append((*about, units(codec, b"".join(bytes(part) for part in annexb.filter(packet)))))
    reader.close()
    return rows


@pytest.mark.parametrize("name", PLAIN)
def test_equals_libav(corpus: Path, name: str) -> None:
    path = corpus / "files" / name
    info = probe(path)
    times = timetable(info)
    segments = cut(times, Window(None, None), Fraction(1, 2), info.video.time_base)
    reader = SegmentReader(info)
    codec = reader.video_stream.codec_context.codec.canonical_name
    for segment in reversed(segments):  # in any order
        packed = reader.packed(segment)
        assert packed is not None
        data = [ctypes.string_at(unit.address, unit.size) for unit in packed.units]
        ours = [
            (unit.pts, unit.duration, unit.discard, units(codec, part))
            for unit, part in zip(packed.units, data, strict=True)
        ]
        assert ours == filtered(path, segment)
        assert packed.sequence == signature(codec, data[0]) != b""
        assert packed.units[0].key
    reader.close()


@pytest.mark.parametrize(
    "name",
    [
        "mvhevc_90fps_1934x2160.mov",  # layers
        "xdcam_ex_1080i_opengop.mov",  # Annex-B in a MOV, MPEG-2
        "corrupt_bad_nal_sizes.mp4",
        "mkv_pgs_ac3.mkv",
        "ts_starts_without_keyframe.ts",
        "prores_422_proxy.mov",
    ],
)
def test_unusual_files_are_left_to_the_demuxer(corpus: Path, name: str) -> None:
    info = probe(corpus / "files" / name)
    times = timetable(info)
    (segment,) = cut(times, Window(None, None), Fraction(1000), info.video.time_base)
    reader = SegmentReader(info)
    assert reader.packed(segment) is None
    reader.close()


def rewritten(source: Path, target: Path, change: bytes) -> Path:
    """The file with the last bytes of its first key frame's place in `mdat` changed."""
    data = bytearray(source.read_bytes())
    with av.open(str(source)) as container:
        packet = next(p for p in container.demux(video=0) if p.size)
        assert packet.pos is not None
        data[packet.pos : packet.pos + len(change)] = change
    target.write_bytes(data)
    return target


@pytest.mark.parametrize("change", [b"\x7f\xff\xff\xff", b"\x00\x00\x00\x00", b"\x00\x00\x00\x01"])
def test_lengths_that_do_not_add_up(corpus: Path, tmp_path: Path, change: bytes) -> None:
    whole = corpus / "files" / "bt601_full_range.mp4"
    info = probe(whole)
    (segment,) = cut(timetable(info), Window(None, None), Fraction(1000), info.video.time_base)
    broken = rewritten(whole, tmp_path / "broken.mp4", change)
    with av.open(str(whole)) as container:
        reader = PackedReader(broken, container.streams.video[0])
        assert segment.span is not None
        assert reader.read(segment.span) is None
        reader.close()


def test_a_file_that_became_shorter(corpus: Path, tmp_path: Path) -> None:
    whole = corpus / "files" / "bt601_full_range.mp4"
    info = probe(whole)
    (segment,) = cut(timetable(info), Window(None, None), Fraction(1000), info.video.time_base)
    shorter = tmp_path / "shorter.mp4"
    shorter.write_bytes(whole.read_bytes()[:20000])
    with av.open(str(whole)) as container:
        reader = PackedReader(shorter, container.streams.video[0])
        assert segment.span is not None
        assert reader.read(segment.span) is None
        reader.close()
