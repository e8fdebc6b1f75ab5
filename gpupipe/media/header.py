"""The header of an output: every stream described, in the order of the source's, and the file itself."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from gpupipe.format import FIELD_ORDERS
from gpupipe.media import describe, matroska, provenance
from gpupipe.media.lanes import AudioLane, CopyLane, Lane, Span, TextLane, VideoLane
from gpupipe.media.source import HdrInfo

if TYPE_CHECKING:
    from collections.abc import Mapping

    import av

    from gpupipe.format import FieldOrder
    from gpupipe.journal import Journal
    from gpupipe.media.containers import Container
    from gpupipe.media.provenance import Provenance
    from gpupipe.media.source import SourceInfo, StreamInfo, Track


@dataclass(frozen=True, slots=True)
class VideoHeader:
    """What the container says of the main video, and where the output's time 0 lies."""

    rate: Fraction
    """Nominal frames a second, for headers and the timecode track."""
    time_base: Fraction
    """Of the packets given to `write_video`."""
    display_matrix: tuple[int, ...] | None = None
    """To be carried; None for identity."""
    sample_aspect: Fraction = Fraction(1)
    """0 where it is not known."""
    field_order: FieldOrder = "progressive"
    timecode: str | None = None
    hdr: HdrInfo = field(default_factory=HdrInfo)
    offset: Fraction = Fraction(0)
    """Seconds of the source that become 0 of the output; past the source's beginning it is the start of a range."""
    end: Fraction | None = None
    """Seconds of the source at which a range ends; copied packets from there on are dropped."""
    copy_metadata: bool = True
    """Whether tags and chapters are written."""
    encoder: str = ""
    """Name for the track's encoder tag."""
    provenance: Provenance | None = None
    """What is said of how the pictures came to be."""


class HeaderBuilder:
    """Adds streams to an opened output that has no header yet.

    Args:
        out: the output, as PyAV opened it.
        container: its kind.
        source: facts of the source.
        streams: the source, opened; None where nothing of it is carried.
        header: facts of the output.
        journal: told of what cannot be said in this container.
    """

    def __init__(
        self, out: Any, container: Container, source: SourceInfo, streams: Any, header: VideoHeader, *, journal: Journal
    ) -> None:
        self._out, self._container, self._source, self._streams = out, container, source, streams
        self._header, self._journal = header, journal
        self.span = span_of(header, source)
        self.display: tuple[int, matroska.DisplaySize] | None = None
        """Position of the video among the tracks and the display size to be written when the file is complete."""
        self._keep: object = None

    def add_video(self, template: av.VideoStream) -> VideoLane:
        """The main video, as its encoder describes it."""
        header = self._header
        described = describe.add_video(self._out, template, header.hdr, self._container)
        self._keep = described
        stream, context = described.stream, described.stream.codec_context
        stream.time_base = 1 / header.rate if self._container.constant_rate else header.time_base
        context.framerate = header.rate
        if header.sample_aspect:
            context.sample_aspect_ratio = header.sample_aspect
        if header.field_order != "unknown":
            context.field_order = FIELD_ORDERS.index(header.field_order)
        if header.display_matrix is not None:
            stream.set_display_matrix(header.display_matrix)
        info = self._info(self._source.video.index)
        if info is not None:
            self._tag(stream, info, encoded=True)
            stream.disposition = describe.disposition(info)
        stream.metadata["encoder"] = describe.application(header.encoder)
        timecode = describe.timecode_tag(header.timecode, header.rate, self._container, self._journal)
        if timecode is not None:
            stream.metadata["timecode"] = timecode
        if self._container.matroska and header.sample_aspect not in (0, 1):
            self._reserve_display_size(stream, context)
        return VideoLane(stream, header.time_base, self.span, self._journal, gapless=self._container.gapless)

    def _info(self, index: int) -> StreamInfo | None:
        return next((s for s in self._source.streams if s.index == index), None)

    def _tag(self, stream: Any, info: StreamInfo, *, encoded: bool) -> None:
        stream.metadata.clear()
        if self._header.copy_metadata:
            stream.metadata.update(describe.stream_tags(info, self._container, encoded=encoded))
        elif "language" in info.tags:
            stream.metadata["language"] = info.tags["language"]

    def _reserve_display_size(self, stream: Any, context: Any) -> None:
        if self._header.display_matrix is not None:
            message = (
                "PyAV cannot write rotation and non-square pixels both to Matroska; the latter stay in the bitstream"
            )
            self._journal.warn("sample-aspect-only-in-bitstream", message)
            return
        stream.set_display_rotation(matroska.PLACEHOLDER_DEGREES)
        webm = self._container.name == "webm"
        size = matroska.display_size(context.width, context.height, self._header.sample_aspect, webm=webm)
        position = sum(s.type in ("video", "audio", "subtitle") for s in self._out.streams) - 1
        self.display = (position, size)

    def add(self, track: Track, audio: AudioLane | None, pictures: Mapping[int, bytes]) -> Lane | None:
        """One more stream; None where it has no packets of its own (attachments, Matroska's covers).

        `audio` is the track's encoder where it has one; `pictures` are the cover pictures seen so far.
        """
        info = self._info(track.index)
        if track.action == "drop" or info is None:
            return None
        source = self._streams.streams[track.index]
        if track.kind == "attachment":
            self._out.add_attachment(*describe.attachment_name(info), source.data)
            return None
        if track.kind == "cover" and self._container.attachments:
            if track.index in pictures:
                self._out.add_attachment(*describe.cover_name(info), pictures[track.index])
            return None
        lane = self._lane(track, source, audio)
        lane.stream.disposition = source.disposition
        self._tag(lane.stream, info, encoded=track.action == "encode")
        return lane

    def _lane(self, track: Track, source: Any, audio: AudioLane | None) -> Lane:
        if audio is not None:
            audio.stream = self._out.add_stream_from_template(audio.template, opaque=True)
            audio.stream.time_base = Fraction(1, audio.rate)
            return audio
        if track.action == "encode":
            return TextLane(source, track.codec, self._out, self.span, self._journal)
        stream = self._out.add_stream_from_template(source, **({} if track.kind == "data" else {"opaque": True}))
        describe.codec_tag(stream, source, self._container, self._source.container)
        describe.channels(stream, self._container)
        return CopyLane(source, stream, track.kind, self.span, self._journal)

    def describe_file(self) -> None:
        """Global tags and chapters."""
        self._out.metadata["encoding_tool"] = describe.application()
        if self._header.copy_metadata:
            self._out.metadata.update(describe.file_tags(self._source.tags, self._container))
        if self._header.provenance is not None and self._container.matroska:
            self._out.metadata[provenance.TAG] = self._header.provenance.uri
        if not self._header.copy_metadata:
            return
        if self._container.chapters and self._source.chapters:
            self._out.set_chapters(describe.chapters(self._source.chapters, self.span))


def span_of(header: VideoHeader, source: SourceInfo) -> Span:
    """The part of the source that is written: an offset past the source's beginning is the start of a range."""
    start = header.offset if header.offset > source.start else None
    return Span(offset=header.offset, start=start, end=header.end)
