"""From the names in a plan to the decoder and encoder that bear them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from gpupipe.codecs.libav import LibavDecoder, LibavEncoder

if TYPE_CHECKING:
    from collections.abc import Callable

    import av

    from gpupipe.codecs.base import Decoder, Encoder, EncoderSettings, Keep, Packet
    from gpupipe.device.base import Lane
    from gpupipe.frame import FrameBatch
    from gpupipe.journal import Journal
    from gpupipe.plan import Plan


def make_decoder(plan: Plan, stream: av.VideoStream, lane: Lane, journal: Journal) -> Decoder:
    """The plan's decoder for an open stream: the main video."""
    video = plan.source.video
    if plan.decoder == "libav":
        return LibavDecoder(stream, video.format, video.time_base, journal, opaque=not video.alpha)
    from gpupipe.codecs.nvdec import NvdecDecoder, surface_format  # noqa: PLC0415  needs the GPU packages

    surfaces = surface_format(video, lane.device)
    return NvdecDecoder(stream, surfaces, video.time_base, journal, lane)


def encoder_maker(plan: Plan) -> Callable[[Lane], Encoder]:
    """Opens the plan's encoders, behind NVDEC with CUDA Graphs: all of them are open before a decoder session is.

    Behind a CPU decoder pictures come one by one, which a graph of a whole batch would code as so many, and encoders
    are opened segment by segment while other lanes compute, which a capture does not bear.
    """
    return partial(
        make_encoder, plan.encoder, batch=plan.batch, graphs=plan.graphs != "off" and plan.decoder == "nvdec"
    )


def make_encoder(settings: EncoderSettings, lane: Lane, batch: int = 16, *, graphs: bool = False) -> Encoder:
    """The plan's encoder, open: a bad option shows here, before the first frame.

    Args:
        settings: what the plan asks.
        lane: where the pictures are.
        batch: pictures that come at once, at most.
        graphs: it may capture CUDA Graphs: no decoder session is at work yet.
    """
    if settings.encoder == "nvenc":
        from gpupipe.codecs.nvenc import NvencEncoder  # noqa: PLC0415

        return NvencEncoder(settings, lane)
    if settings.encoder == "nvjpeg":
        from gpupipe.codecs.nvjpeg import NvjpegEncoder  # noqa: PLC0415

        return NvjpegEncoder(settings, lane, batch)
    if settings.encoder == "prores_torch":
        from gpupipe.codecs.prores.encoder import ProresEncoder  # noqa: PLC0415  imports torch

        return ProresEncoder(settings, lane, batch if graphs else 0)
    return LibavEncoder(settings)


def encode(encoder: Encoder, batch: FrameBatch, keep: Keep) -> list[Packet]:
    """Packets of a batch, their bytes where `keep` puts them if it is an `AloneEncoder`."""
    # Not `isinstance`, which takes a quarter of a millisecond to look at a Protocol.
    into: Callable[[FrameBatch, Keep], list[Packet]] | None = getattr(encoder, "encode_into", None)
    return encoder.encode(batch) if into is None else into(batch, keep)
