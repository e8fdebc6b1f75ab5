"""Alpha of libav's frames: how deep it is, in which plane it lies, and the decoders that give it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import av
import av.error
import numpy as np

from gpupipe.format import pixel_format, with_alpha, without_alpha

if TYPE_CHECKING:
    from av.video.format import VideoFormat

    from gpupipe.format import PixelFormat

ONE_THREAD: Final = 1
"""For swscale: with more, each fills chroma a little beyond its lines, over alpha that another has written already."""
_BESIDE = {"vp8": "libvpx", "vp9": "libvpx-vp9"}
"""Codecs whose alpha is a bitstream beside that of the picture, and libav's decoders that decode both."""

_ADDITION: Final = "matroska_block_additional"
_IDENTIFIER = 8
"""Where a packet has it, and the bytes that say which addition it is."""


def alpha_bits(native: VideoFormat) -> int:
    """Bits of alpha that are kept of libav's `native`; 0 where it has none. Floats and 32 bits become 16.

    A palette may hold alpha; whether it does `alpha_of` says.
    """
    return 8 if native.has_palette else min(16, max((c.bits for c in native.components if c.is_alpha), default=0))


def alpha_of(frame: av.VideoFrame) -> int:
    """`alpha_bits` of a frame; 0 where all colours of its palette that are used are opaque, or none is seen at all."""
    bits = alpha_bits(frame.format)
    if not frame.format.has_palette:
        return bits
    indices, palette = frame.to_ndarray()
    used = palette[np.unique(indices), 0]
    return bits if used.min() < used.max() or 0 < used.min() < 255 else 0


def beside(tags: dict[str, str]) -> bool:
    """Whether a stream says that it has its alpha in a bitstream beside; libav's copies write the tag in capitals."""
    return any(key.lower() == "alpha_mode" and value == "1" for key, value in tags.items())


def second_stream(codec: str, tags: dict[str, str], native: str) -> bool:
    """Whether a stream has its alpha in a bitstream beside, which this libav can decode (8-bit 4:2:0 alone)."""
    return beside(tags) and native == "yuv420p" and _found(_BESIDE.get(codec)) is not None


def begins(packet: av.Packet[Any], codec: str) -> bool:
    """Whether decoding can begin at a packet: at a key frame, and one of the alpha too that lies beside it.

    The two bitstreams are encoded apart, so alpha may have key frames elsewhere. VP8: RFC 6386, 9.1; VP9: version 0.6
    of the bitstream specification, 6.2, of any frame that is not of profile 3.
    """
    if not packet.is_keyframe or codec not in _BESIDE or not packet.has_sidedata(_ADDITION):
        return packet.is_keyframe
    first = bytes(packet.get_sidedata(_ADDITION))[_IDENTIFIER : _IDENTIFIER + 1]
    return bool(first) and not first[0] & (0b1 if codec == "vp8" else 0b1100)


def decoder_of_both(stream: av.VideoStream) -> av.VideoCodecContext | None:
    """A context of its own that decodes picture and alpha of VP8 or VP9; None for all others, which need none."""
    name = _found(_BESIDE.get(stream.codec_context.codec.canonical_name))
    if name is None:
        return None
    context = av.CodecContext.create(name, "r")
    assert isinstance(context, av.VideoCodecContext)
    return context


def _found(name: str | None) -> str | None:
    if name is None:
        return None
    try:
        av.Codec(name, "r")
    except (av.error.FFmpegError, ValueError):
        return None
    return name


def taken_apart(frame: av.VideoFrame, pixels: PixelFormat) -> tuple[av.VideoFrame, av.VideoFrame | None, PixelFormat]:
    """The frame that holds the picture, the one whose last plane is its alpha if it is another, and the pixel format.

    Nothing is copied of planar formats that gpupipe has arithmetic for. Of all others swscale makes the picture in
    `pixels`; it moves 8- and 16-bit alpha between packed and planar formats as it is.
    """
    frame = _in_order(frame)
    plain = without_alpha(frame.format.name)
    known = None if plain is None else pixel_format(plain)
    if known is not None:
        return frame, None, known
    bits = alpha_bits(frame.format)
    twin = with_alpha(pixels.name)
    if twin is not None and bits == pixels.depth and frame.format.is_rgb:
        return frame.reformat(format=twin, threads=ONE_THREAD), None, pixels
    wide = "gbrap" if frame.format.is_rgb else "yuva444p"
    matte = (
        frame if plain is not None else frame.reformat(format=wide if bits == 8 else f"{wide}16le", threads=ONE_THREAD)
    )
    return frame.reformat(format=pixels.name, threads=ONE_THREAD), matte, pixels


def _in_order(frame: av.VideoFrame) -> av.VideoFrame:
    """Palettes as RGBA, since swscale gives them other alpha on the way to planes; planes as little-endian ones."""
    if frame.format.has_palette:
        return frame.reformat(format="rgba", threads=ONE_THREAD)
    little = frame.format.name.removesuffix("be") + "le"
    if frame.format.is_big_endian and without_alpha(little) is not None:
        return frame.reformat(format=little, threads=ONE_THREAD)
    return frame
