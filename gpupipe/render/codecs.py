"""From the names in a plan to the decoder and encoder that bear them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpupipe.codecs.libav import LibavDecoder, LibavEncoder

if TYPE_CHECKING:
    from gpupipe.codecs.base import Decoder, Encoder, EncoderSettings
    from gpupipe.journal import Journal
    from gpupipe.media.demux import Demuxer
    from gpupipe.plan import Plan


def make_decoder(plan: Plan, demuxer: Demuxer, journal: Journal) -> Decoder:
    """The plan's decoder for the demuxer's main video."""
    video = plan.source.video
    if plan.decoder == "libav":
        return LibavDecoder(demuxer.video_stream, video.format, video.time_base, journal)
    from gpupipe.codecs.nvdec import NvdecDecoder  # noqa: PLC0415  needs the GPU packages

    return NvdecDecoder(demuxer.video_stream, video.format, video.time_base, journal, plan.device)


def make_encoder(settings: EncoderSettings, device: str) -> Encoder:
    """The plan's encoder, open: a bad option shows here, before the first frame."""
    if settings.encoder == "nvenc":
        from gpupipe.codecs.nvenc import NvencEncoder  # noqa: PLC0415

        return NvencEncoder(settings, device)
    if settings.encoder == "nvjpeg":
        from gpupipe.codecs.nvjpeg import NvjpegEncoder  # noqa: PLC0415

        return NvjpegEncoder(settings, device)
    return LibavEncoder(settings)
