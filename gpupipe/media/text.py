"""Text subtitles from one codec to another, packet by packet, by libav's own decoders and encoders."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias, cast

import av

from gpupipe.errors import MediaError

if TYPE_CHECKING:
    from av.container import OutputContainer

    Packet: TypeAlias = av.Packet[Any]


class TextConverter:
    """Turns packets of one text subtitle stream into another codec's.

    Args:
        source: the stream that the packets come from.
        codec: libav encoder: mov_text, subrip, webvtt or ass.
        container: where the new stream is added.

    Raises:
        MediaError: libav has no decoder or encoder for it.
    """

    def __init__(self, source: av.subtitles.stream.SubtitleStream, codec: str, container: OutputContainer) -> None:
        context = cast("Any", source.codec_context)
        if context is None:
            raise MediaError(f"libav has no decoder for the subtitles of stream {source.index}")
        self._decoder = cast("Any", av.CodecContext.create(context.codec.name, "r"))
        self._decoder.extradata = context.extradata
        self._decoder.open()
        self.stream = cast("Any", container).add_stream(codec)
        self._encoder = self.stream.codec_context
        self._encoder.subtitle_header = self._decoder.subtitle_header

    def __call__(self, packet: Packet) -> Packet | None:
        """A packet with the same times in the new codec; None where there is nothing to show (MP4's gap fillers)."""
        shown = self._decoder.decode2(packet)
        if shown is None or not any(rect.dialogue.strip() for rect in shown if rect.type == b"ass"):
            return None
        shown.start_display_time = 0  # libav's encoders take nothing else; the packet has the time
        converted = cast("Packet", self._encoder.encode_subtitle(shown))
        converted.pts, converted.dts, converted.duration = packet.pts, packet.dts, packet.duration
        converted.time_base = packet.time_base
        converted.is_keyframe = True
        return converted
