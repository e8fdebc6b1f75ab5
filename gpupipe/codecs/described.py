"""Bitstreams whose pictures stand alone: what their encoders share, and how they are described without one."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import av

from gpupipe.codecs.base import AloneEncoder
from gpupipe.codecs.intra import copied
from gpupipe.codecs.prores.profile import profile_of
from gpupipe.color import AV_RANGE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpupipe.codecs.base import EncoderSettings, Packet
    from gpupipe.frame import FrameBatch


_ALPHA = 25
"""Byte of a ProRes frame whose lower half says what alpha there is (SMPTE RDD 36, 5.1.1)."""


class DescribedEncoder(AloneEncoder):
    """All of `base.AloneEncoder` but `encode_into`; made, it has its `settings`."""

    _scratch: Any = None
    """What the template's stream is of."""

    def encode(self, batch: FrameBatch) -> list[Packet]:
        """See `base.Encoder`."""
        return self.encode_into(batch, copied)

    def finish(self) -> list[Packet]:
        """See `base.Encoder`; nothing is ever held."""
        return []

    def template(self, first: Sequence[Packet]) -> av.VideoStream:
        """See `base.Encoder`."""
        stream, self._scratch = described(self.settings, bytes(first[0]))
        return stream

    def close(self) -> None:
        """See `base.Encoder`."""
        self._scratch = None


def described(settings: EncoderSettings, first: bytes) -> tuple[av.VideoStream, Any]:
    """A stream as `base.Encoder.template` gives it, and what has to live as long.

    Args:
        settings: of an encoder that is `alone`, see `encoders.EncoderFacts`.
        first: the first picture's bitstream.
    """
    return _prores(settings, alpha=bool(first[_ALPHA] & 15)) if settings.codec == "prores" else _jpeg(settings, first)


def _jpeg(settings: EncoderSettings, first: bytes) -> tuple[av.VideoStream, Any]:
    """The picture's own header says size and subsampling, the plan says colour."""
    with av.open(io.BytesIO(first), format="mjpeg") as picture:
        found = picture.streams.video[0].codec_context
        pixels, width, height = found.pix_fmt, found.width, found.height
    source = settings.input_format
    scratch = av.open(io.BytesIO(), "w", format="mov")
    options = {"chroma_sample_location": "center"} if source.pixels.chroma_shift != (0, 0) else {}
    stream = scratch.add_stream("mjpeg", rate=settings.rate, options=options)
    assert isinstance(stream, av.VideoStream)
    context = stream.codec_context
    context.width, context.height, context.pix_fmt = width, height, pixels
    context.sample_aspect_ratio = source.sample_aspect
    context.time_base = settings.time_base
    context.color_range, context.colorspace = 2, 5  # full range, BT.601: what JFIF means
    context.color_primaries, context.color_trc = source.color.primaries, source.color.transfer
    scratch.start_encoding()
    return stream, scratch


def _prores(settings: EncoderSettings, *, alpha: bool) -> tuple[av.VideoStream, Any]:
    """The plan knows the rest: libav's own ProRes encoder, opened but not used, describes the stream."""
    source, profile = settings.input_format, profile_of(settings)
    scratch = av.open(io.BytesIO(), "w", format="mov")
    options = {"profile": str(profile.number), "threads": "1"}
    stream = scratch.add_stream("prores_ks", rate=settings.rate, options=options)
    assert isinstance(stream, av.VideoStream)
    context = stream.codec_context
    context.width, context.height = source.width, source.height
    context.pix_fmt = ("yuva444p10le" if alpha else "yuv444p10le") if profile.chroma_444 else "yuv422p10le"
    context.sample_aspect_ratio = source.sample_aspect
    context.time_base = settings.time_base
    context.colorspace, context.color_range = int(source.color.matrix), AV_RANGE[source.color.range]
    context.color_trc, context.color_primaries = source.color.transfer, source.color.primaries
    scratch.start_encoding()
    return stream, scratch
