from __future__ import annotations

import io
from fractions import Fraction
from typing import TYPE_CHECKING

import av
import av.bitstream
import pytest

from gpupipe.codecs.sequence import base_layer, layered, signature, unusual_headers

if TYPE_CHECKING:
    from pathlib import Path


def packets(codec: str, width: int, height: int, count: int = 3) -> list[bytes]:
    encoder = {"h264": "libx264", "hevc": "libx265", "vp8": "libvpx", "vp9": "libvpx-vp9"}[codec]
    context = av.CodecContext.create(encoder, "w")
    context.width, context.height, context.pix_fmt, context.time_base = width, height, "yuv420p", Fraction(1, 25)
    context.framerate = Fraction(25)
    context.options = {"x265-params": "log-level=none"} if codec == "hevc" else {}
    found = []
    for pts in range(count):
        frame = av.VideoFrame(width, height, "yuv420p")
        for plane in frame.planes:
            plane.update(bytes([pts + 50]) * plane.buffer_size)
        frame.pts, frame.time_base = pts, Fraction(1, 25)
        found += context.encode(frame)
    return [bytes(p) for p in found + context.encode(None)]


@pytest.mark.parametrize("codec", ["h264", "hevc", "vp8", "vp9"])
def test_signature_changes_with_size_and_with_nothing_else(codec: str) -> None:
    first, again, wider, taller = (packets(codec, *size) for size in ((128, 96), (128, 96), (144, 96), (128, 112)))
    assert signature(codec, first[0])
    assert signature(codec, again[0]) == signature(codec, first[0])
    assert signature(codec, first[-1]) == b""  # a predicted picture says nothing
    assert len({signature(codec, p[0]) for p in (first, wider, taller)}) == 3


def test_real_size_change_is_seen(corpus: Path) -> None:
    with av.open(str(corpus / "files" / "reschange_848x464_to_424x232.h264")) as container:
        signs = [signature("h264", bytes(p)) for p in container.demux(video=0) if p.size]
    assert len({s for s in signs if s}) == 2


@pytest.mark.parametrize("name", [
    "crop_hevc_914x686_b4.ts", "hlg_hevc_1080p_cropped_aac.mp4", "vfr_63_frames_59_distinct_durations.mp4",
    "odd_175x143_vp8.ivf",
])  # fmt: skip
def test_real_crops_begin_at_the_corner(corpus: Path, name: str) -> None:
    with av.open(str(corpus / "files" / name)) as container:
        assert unusual_headers(container.streams.video[0]) is None


@pytest.mark.parametrize(("codec", "side"), [("h264", "left"), ("h264", "top"), ("hevc", "left"), ("hevc", "top")])
@pytest.mark.parametrize("container", ["mp4", "raw"])
def test_crop_of_left_or_top_is_found(codec: str, side: str, container: str) -> None:
    crop = av.bitstream.BitStreamFilterContext(f"{codec}_metadata=crop_{side}=4", codec)
    data = b"".join(bytes(p) for part in packets(codec, 128, 96) for p in crop.filter(av.Packet(part)))
    raw = av.open(io.BytesIO(data), format=codec)
    if container == "raw":
        assert "left or top" in unusual_headers(raw.streams.video[0])
        return
    out = io.BytesIO()
    with av.open(out, "w", format="mp4") as muxer:
        stream = muxer.add_stream_from_template(raw.streams.video[0], opaque=True)
        stream.time_base = Fraction(1, 25)
        for number, packet in enumerate(p for p in raw.demux(video=0) if p.size):
            packet.stream, packet.pts, packet.dts, packet.time_base = stream, number, number, Fraction(1, 25)
            muxer.mux(packet)
    with av.open(io.BytesIO(out.getvalue())) as back:
        assert "left or top" in unusual_headers(back.streams.video[0])


def test_monochrome_is_found_behind_libavs_420() -> None:
    """libav gives 4:0:0 H.264 out as 4:2:0; NVDEC does not decode it at all."""
    context = av.CodecContext.create("libx264", "w")
    context.width, context.height, context.pix_fmt, context.time_base = 128, 96, "gray", Fraction(1, 25)
    frame = av.VideoFrame(128, 96, "gray")
    frame.pts, frame.time_base = 0, Fraction(1, 25)
    data = b"".join(bytes(p) for p in context.encode(frame) + context.encode(None))
    with av.open(io.BytesIO(data), format="h264") as raw:
        assert unusual_headers(raw.streams.video[0]) == "the stream is monochrome"


def test_second_view_of_mv_hevc_is_taken_out(corpus: Path) -> None:
    with av.open(str(corpus / "files" / "mvhevc_90fps_1934x2160.mov")) as container:
        stream = container.streams.video[0]
        convert = av.bitstream.BitStreamFilterContext("hevc_mp4toannexb", stream)
        units = [bytes(p) for packet in container.demux(stream) if packet.size for p in convert.filter(packet)]
    assert layered("hevc", units[0])
    bases = [base_layer(u) for u in units]
    assert not any(layered("hevc", b) for b in bases)
    pictures = []
    for data in (units, bases):
        with av.open(io.BytesIO(b"".join(data)), format="hevc") as raw:
            pictures.append([frame.to_ndarray() for frame in raw.decode(video=0)])
    assert len(pictures[0]) == len(pictures[1]) == 5
    assert all((a == b).all() for a, b in zip(*pictures, strict=True))
    assert not layered("hevc", packets("hevc", 128, 96)[0])


@pytest.mark.parametrize("codec", ["h264", "hevc"])
@pytest.mark.parametrize("data", [b"", bytes(9), b"\x55" * 9, b"\x00\x00\x01", b"\x00\x00\x01" * 3])
def test_a_packet_without_units_says_nothing(codec: str, data: bytes) -> None:
    """A damaged one is for the decoder to judge."""
    assert signature(codec, data) == b""
    assert not layered(codec, data)
    assert base_layer(data) in {b"", data}
