"""The output container: encoded and copied tracks, on the source's clock moved to the output's zero."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import av

from gpupipe.errors import MediaError
from gpupipe.media import containers, describe, matroska
from gpupipe.media.container import open_input
from gpupipe.media.lanes import AudioLane, CopyLane, Lane, Span, TextLane, VideoLane
from gpupipe.media.output import describe_os_error, libav_url
from gpupipe.media.source import HdrInfo

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from av.container import InputContainer

    from gpupipe.format import FieldOrder
    from gpupipe.journal import Journal
    from gpupipe.media.source import SourceInfo, Track

    Packet: TypeAlias = av.Packet[Any]


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


class AudioSettings(Protocol):
    """How audio is encoded."""

    @property
    def bitrate(self) -> int | None:
        """Bits a second."""
        ...


class Muxer:
    """Writes one output file. Used by one thread.

    Give packets of other streams to `write_copied` as they are demuxed; call `add_video` once, when the encoder can
    describe its bitstream, then `write_video`. What arrives before that is held back. End with `close` or `abort`.

    Args:
        path: where to write, normally a temporary name.
        container: name of the container, of `carry.container_of`.
        source: facts of the source.
        tracks: what becomes of each source stream, of `carry.plan_tracks`.
        header: facts of the output.
        journal: told of repairs.
        audio: settings for the audio tracks that are encoded.
        streams: the source, opened, to describe the copied streams; the file is opened once more without it.

    Raises:
        MediaError: the file cannot be written, or a stream cannot be described.
    """

    def __init__(
        self,
        path: Path,
        container: str,
        source: SourceInfo,
        tracks: tuple[Track, ...],
        header: VideoHeader,
        journal: Journal,
        *,
        audio: AudioSettings | None = None,
        streams: InputContainer | None = None,
    ) -> None:
        self._path, self._container = path, containers.container(container)
        self._source, self._tracks, self._header, self._journal = source, tracks, header, journal
        self._audio = audio
        carried = any(t.action != "drop" and t.index != source.video.index for t in tracks)
        self._owned = open_input(source.path) if carried and streams is None else None
        self._streams: Any = streams if streams is not None else self._owned
        self._span = Span(
            offset=header.offset,
            start=header.offset if header.offset > source.start else None,
            end=header.end,
        )
        self._lanes: dict[int, Lane] = {}
        self._held: list[Packet] = []
        self._pictures: dict[int, bytes] = {}
        self._video: VideoLane | None = None
        self._display: tuple[int, matroska.DisplaySize] | None = None
        self._closed = False
        for track in tracks:
            if track.kind == "audio" and track.action == "encode":
                self._lanes[track.index] = self._audio_lane(track)
        with self._errors():
            options = dict(self._container.options)
            if container == "mp4" and header.copy_metadata and describe.needs_free_tags(source, tracks):
                options["movflags"] = options.get("movflags", "") + "+use_metadata_tags"
            self._out: Any = av.open(
                libav_url(path), "w", format=self._container.muxer, container_options=options, metadata_errors="replace"
            )

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """What libav and the system say, as a MediaError that names the volume and what to do."""
        try:
            yield
        except ValueError as error:  # libav's EINVAL is one too
            why = getattr(error, "strerror", None) or error
            raise MediaError(f"the {self._container.name} muxer refuses it: {why}", where=str(self._path)) from None
        except (OSError, av.FFmpegError) as error:
            raise describe_os_error(error, self._path) from None

    def _audio_lane(self, track: Track) -> AudioLane:
        bitrate = self._audio.bitrate if self._audio is not None else None
        stream = self._streams.streams[track.index]
        return AudioLane(stream, track.codec, bitrate, self._span, self._journal)

    def add_video(self, template: av.VideoStream) -> None:
        """Describes the encoded video, writes the header with every track, and what was held back.

        `template` is a stream as `codecs.base.Encoder.template` returns it.
        """
        if self._video is not None:
            raise MediaError("the video was described twice", where=str(self._path))
        with self._errors():
            for track in self._tracks:
                self._add(track, template)
            if self._video is None:
                self._add_video(template)
            self._describe_file()
            self._out.start_encoding()
            strict = not self._out.format.flags & describe.TS_NONSTRICT
            for lane in (self._video, *self._lanes.values()):
                assert lane is not None
                lane.begin(strict=strict, edit_lists=self._container.edit_lists)
        held, self._held = self._held, []
        for packet in held:
            self.write_copied(packet)

    def _add(self, track: Track, template: av.VideoStream) -> None:
        """One output stream, in the order of the source's."""
        if track.index == self._source.video.index:
            self._add_video(template)
            return
        if track.action == "drop":
            return
        info = next(s for s in self._source.streams if s.index == track.index)
        source = self._streams.streams[track.index]
        if track.kind == "cover" and self._container.attachments:
            data = self._pictures.get(track.index) or b""
            if data:
                self._out.add_attachment(*describe.cover_name(info), data)
            return
        if track.kind == "attachment":
            name, mimetype = describe.attachment_name(info)
            self._out.add_attachment(name, mimetype, source.data)
            return
        lane = self._lanes.get(track.index)
        if isinstance(lane, AudioLane):
            stream = self._out.add_stream_from_template(lane.template, opaque=True)
            lane.stream = stream
            stream.time_base = Fraction(1, lane.rate)
        elif track.kind == "subtitle" and track.action == "encode":
            lane = TextLane(source, track.codec, self._out, self._span, self._journal)
            stream = lane.stream
        else:
            stream = self._out.add_stream_from_template(source, **({} if track.kind == "data" else {"opaque": True}))
            describe.codec_tag(stream, source, self._container, self._source.container)
            describe.channels(stream, self._container)
            lane = CopyLane(source, stream, track.kind, self._span, self._journal)
        stream.disposition = source.disposition
        stream.metadata.clear()
        if self._header.copy_metadata:
            stream.metadata.update(describe.stream_tags(info, self._container, encoded=track.action == "encode"))
        elif "language" in info.tags:
            stream.metadata["language"] = info.tags["language"]
        self._lanes[track.index] = lane

    def _add_video(self, template: av.VideoStream) -> None:
        header = self._header
        described = describe.add_video(self._out, template, header.hdr, self._container)
        stream, context = described.stream, described.stream.codec_context
        stream.time_base = header.time_base
        context.framerate = header.rate
        if header.sample_aspect:
            context.sample_aspect_ratio = header.sample_aspect
        if header.field_order != "unknown":
            context.field_order = describe.FIELD_ORDERS.index(header.field_order)
        if header.display_matrix is not None:
            stream.set_display_matrix(header.display_matrix)
        info = next((s for s in self._source.streams if s.index == self._source.video.index), None)
        if info is not None and header.copy_metadata:
            stream.metadata.update(describe.stream_tags(info, self._container, encoded=True))
        if info is not None:
            stream.disposition = describe.disposition(info)
        stream.metadata["encoder"] = describe.application(header.encoder)
        timecode = describe.timecode_tag(header.timecode, header.rate, self._container, self._journal)
        if timecode is not None:
            stream.metadata["timecode"] = timecode
        if self._container.matroska and header.sample_aspect not in (0, 1):
            self._reserve_display_size(stream, context)
        self._video = VideoLane(stream, header.time_base, self._span, self._journal)

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
        self._display = (position, size)

    def _describe_file(self) -> None:
        tags = describe.file_tags(self._source.tags, self._container) if self._header.copy_metadata else {}
        self._out.metadata.update(tags)
        self._out.metadata["encoding_tool"] = describe.application()
        if self._header.copy_metadata and self._container.chapters and self._source.chapters:
            self._out.set_chapters(describe.chapters(self._source.chapters, self._span))

    def write_video(self, packet: Packet) -> None:
        """One packet of the encoded main video, in decoding order, with pts and dts in the header's time base."""
        if self._video is None:
            raise MediaError("the video was not described before its first packet", where=str(self._path))
        for ready in self._video.packets(packet):
            self._write(ready)

    def write_copied(self, packet: Packet) -> None:
        """One packet of any other stream of the source, with times as the demuxer gave them."""
        index = packet.stream_index
        track = self._track(index)
        if track is None or not packet.size:
            return
        if track.kind == "cover":
            self._pictures.setdefault(index, bytes(packet))
        if self._video is None:
            self._held.append(packet)
            return
        lane = self._lanes.get(index)
        if lane is None:
            return
        for ready in lane.packets(packet):
            self._write(ready)

    def _track(self, index: int) -> Track | None:
        for track in self._tracks:
            if track.index == index and track.action != "drop" and index != self._source.video.index:
                return track
        return None

    def _write(self, packet: Packet) -> None:
        with self._errors():
            self._out.mux_one(packet)

    def close(self) -> None:
        """Finishes the file. Raises MediaError where that fails, or no picture was ever written."""
        if self._closed:
            return
        if self._video is None:
            self.abort()
            raise MediaError("no picture was encoded", where=str(self._source.path), hint="see `gpupipe probe`")
        for lane in self._lanes.values():
            for packet in lane.finish():
                self._write(packet)
        self._closed = True
        with self._errors():
            self._out.close()
        if self._display is not None:
            self._write_display_size(*self._display)
        self._release()

    def _write_display_size(self, position: int, size: matroska.DisplaySize) -> None:
        try:
            matroska.write_display_size(self._path, position, size)
        except (LookupError, IndexError):
            raise MediaError(
                "the display size of non-square pixels could not be written",
                where=str(self._path),
                hint="use .mp4 or .mov",
            ) from None
        except OSError as error:
            raise describe_os_error(error, self._path) from None

    def abort(self) -> None:
        """Gives up: removes what was written. Safe to call at any time, and after `close`."""
        if self._closed:
            return
        self._closed = True
        # libav writes an index even now; with the name gone MP4's second pass over the file ends at once.
        with suppress(OSError):
            self._path.unlink()
        with suppress(OSError, ValueError, av.FFmpegError):
            self._out.close()
        self._release()

    def _release(self) -> None:
        self._lanes.clear()
        self._held.clear()
        if self._owned is not None:
            self._owned.close()
            self._owned = None
