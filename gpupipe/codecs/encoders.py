"""What is known of each encoder beyond what its library says of itself: one row each, which all else reads."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Scale:
    """An encoder's constant quality, and how libav is told of it.

    The libraries take what lies beyond the ends for the end, or refuse it in words of their own.
    """

    kind: Literal["crf", "quantiser", "frame quantiser"]
    """A frame quantiser is read from each frame instead of from the encoder's settings."""
    least: float
    most: float
    default: float | None
    """CRFs that look about alike on each one's own scale; None leaves the encoder's own rate control."""
    whole: bool = False


@dataclass(frozen=True, slots=True)
class EncoderFacts:
    """One encoder."""

    name: str
    codecs: tuple[str, ...] = ()
    """What it makes, as libav names codecs, the usual one first."""
    _: KW_ONLY
    usual: bool = False
    """It is the CPU's encoder for its codec, where libav's own of the codec's name is not."""
    on_device: bool = False
    """It takes tensors where the stages leave them; all others are libav's and take host memory."""
    needs_gpu: bool = False
    alone: bool = False
    """On the device it codes every picture by itself: any lane may take any batch."""
    any_size: bool = False
    """It takes odd sizes with subsampled chroma; all others get even ones."""
    fields: bool = False
    """It keeps two fields apart, or codes every line by itself."""
    alpha: bool = False
    """It is given alpha as a plane, and a decoder gives the same back. That of others is no plane (PNG), or what is
    opaque comes back as nearly so (prores_aw), or few decoders know of it (HEVC, VP9)."""
    counts: bool = False
    """It only counts frames: see `frame_numbers`."""
    scale: Scale | None = None
    """For libav's; the GPU's encoders look after their own."""


ENCODERS = (
    EncoderFacts("nvenc", ("h264", "hevc", "av1"), on_device=True, needs_gpu=True),
    EncoderFacts("nvjpeg", ("mjpeg",), on_device=True, needs_gpu=True, alone=True, any_size=True),
    EncoderFacts(
        "prores_torch", ("prores",), on_device=True, alone=True, any_size=True, fields=True,
        alpha=True,
    ),
    EncoderFacts("libx264", ("h264",), usual=True, fields=True, scale=Scale("crf", 0, 51, 18)),
    EncoderFacts("libx264rgb", ("h264",), scale=Scale("crf", 0, 51, 18)),
    EncoderFacts("libx265", ("hevc",), usual=True, scale=Scale("crf", 0, 51, 20)),
    EncoderFacts("libsvtav1", ("av1",), usual=True, any_size=True, scale=Scale("crf", 0, 63, 25, whole=True)),
    EncoderFacts("libvpx-vp9", ("vp9",), usual=True, any_size=True, scale=Scale("crf", 0, 63, 24, whole=True)),
    EncoderFacts("libvpx", ("vp8",), usual=True, any_size=True),
    EncoderFacts(
        "prores_ks", ("prores",), usual=True, any_size=True, fields=True, alpha=True,
        scale=Scale("quantiser", 1, 64, None),
    ),
    EncoderFacts("prores_aw", ("prores",), fields=True),
    EncoderFacts("mjpeg", ("mjpeg",), any_size=True, fields=True, scale=Scale("frame quantiser", 1, 100, 3)),
    EncoderFacts("mpeg1video", ("mpeg1video",), any_size=True, counts=True),
    EncoderFacts(
        "mpeg2video", ("mpeg2video",), any_size=True, fields=True, counts=True,
        scale=Scale("frame quantiser", 1, 31, 3),
    ),
    EncoderFacts("mpeg4", ("mpeg4",), any_size=True, counts=True, scale=Scale("frame quantiser", 1, 31, 3)),
    EncoderFacts("dnxhd", ("dnxhd",), any_size=True, fields=True),
    EncoderFacts("ffv1", ("ffv1",), any_size=True, fields=True, alpha=True),
    EncoderFacts("rawvideo", ("rawvideo",), any_size=True, fields=True),
    EncoderFacts("huffyuv", ("huffyuv",), fields=True),
    EncoderFacts("utvideo", ("utvideo",), fields=True, alpha=True),
    EncoderFacts("jpeg2000", ("jpeg2000",), any_size=True),
    EncoderFacts("png", ("png",), any_size=True),
    EncoderFacts("tiff", ("tiff",), any_size=True),
    EncoderFacts("magicyuv", ("magicyuv",), any_size=True, alpha=True),
    EncoderFacts("msmpeg4v2", ("msmpeg4v2",), any_size=True),
    EncoderFacts("flv", ("flv1",), any_size=True),
    EncoderFacts("snow", ("snow",), any_size=True),
    EncoderFacts("asv1", ("asv1",), any_size=True),
)  # fmt: skip
DEVICE_ENCODERS = tuple(row for row in ENCODERS if row.on_device)
"""In the order in which `auto` asks."""
_BY_NAME = {row.name: row for row in ENCODERS}
_USUAL = {row.codecs[0]: row.name for row in ENCODERS if row.usual}


def encoder_facts(encoder: str) -> EncoderFacts:
    """Of an encoder by name; of one that has no row, that it is libav's and has nothing special."""
    return _BY_NAME.get(encoder, EncoderFacts(encoder))


def usual_encoder(codec: str) -> str:
    """The CPU's encoder for a codec; libav's own often bears the codec's name."""
    return _USUAL.get(codec, codec)
