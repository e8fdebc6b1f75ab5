"""The output container: encoded and copied tracks, on the source's clock moved to the output's zero."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import av
import av.error

from gpupipe.errors import MediaError, SourceError
from gpupipe.media import containers, describe, matroska, provenance
from gpupipe.media.container import open_input
from gpupipe.media.header import HeaderBuilder, VideoHeader, span_of
from gpupipe.media.lanes import AudioLane, Lane, VideoLane
from gpupipe.media.output import describe_os_error, libav_url, shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from av.container import InputContainer

    from gpupipe.journal import Journal
    from gpupipe.media.source import SourceInfo, Track

    Packet: TypeAlias = av.Packet[Any]


__all__ = ["AudioSettings", "Muxer", "VideoHeader"]


_FAILURES = (ValueError, OSError, av.FFmpegError)
_TAG_ERRORS: dict[str, Any] = {} if int(av.__version__.split(".")[0]) >= 19 else {"metadata_errors": "replace"}
"""PyAV 18 stops at a tag that is not UTF-8 unless told not to; 19 has no such argument."""


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

    def __init__(  # noqa: PLR0917  (what is written, what of, and how: in this order everywhere)
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
        carried = any(t.action != "drop" and t.index != source.video.index for t in tracks)
        self._owned = open_input(source.path) if carried and streams is None else None
        self._streams: Any = streams if streams is not None else self._owned
        self._lanes: dict[int, Lane] = {}
        self._encoded = self._audio_lanes(audio)
        self._held: list[Packet] = []
        self._pictures: dict[int, bytes] = {}
        self._video: VideoLane | None = None
        self._display: tuple[int, matroska.DisplaySize] | None = None
        self._closed = False
        with self._errors():
            self._out: Any = av.open(
                libav_url(path),
                "w",
                format=self._container.muxer,
                container_options=self._options(),
                **_TAG_ERRORS,
            )

    def _audio_lanes(self, settings: AudioSettings | None) -> dict[int, AudioLane]:
        """Encoders are opened at once: a bad setting shows before any work."""
        bitrate = settings.bitrate if settings is not None else None
        span = span_of(self._header, self._source)
        return {
            t.index: AudioLane(self._streams.streams[t.index], t.codec, bitrate, span, self._journal)
            for t in self._tracks
            if t.kind == "audio" and t.action == "encode"
        }

    def _options(self) -> dict[str, str]:
        options = dict(self._container.options)
        free = self._header.copy_metadata and describe.needs_free_tags(self._source, self._tracks)
        if self._container.name == "mp4" and free:
            options["movflags"] = options.get("movflags", "") + "+use_metadata_tags"
        return options

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """What libav and the system say, as a MediaError that names the volume and what to do."""
        try:
            yield
        except _FAILURES as error:
            raise self._described(error) from None

    def _described(self, error: Exception) -> MediaError:
        if isinstance(error, ValueError):  # libav's EINVAL is one too
            why = getattr(error, "strerror", None) or error
            return MediaError(f"the {self._container.name} muxer refuses it: {why}", where=shown(self._path))
        if isinstance(error, av.error.PermissionError):  # of the muxer: the file is open already
            hint = "another container, or another profile of the codec, may do"
            message = f"the {self._container.name} muxer refuses it: {error.strerror}"
            return MediaError(message, where=shown(self._path), hint=hint)
        return describe_os_error(error, self._path)

    def add_video(self, template: av.VideoStream) -> None:
        """Describes the encoded video, writes the header with every track, and what was held back.

        `template` is a stream as `codecs.base.Encoder.template` returns it.
        """
        if self._video is not None:
            raise MediaError("the video was described twice", where=shown(self._path))
        with self._errors():
            self._write_header(template)
        held, self._held = self._held, []
        for packet in held:
            self.write_copied(packet)

    def _write_header(self, template: av.VideoStream) -> None:
        container = self._container
        builder = HeaderBuilder(self._out, container, self._source, self._streams, self._header, journal=self._journal)
        for track in self._tracks:
            if track.index == self._source.video.index:
                self._video = builder.add_video(template)
            elif lane := builder.add(track, self._encoded.get(track.index), self._pictures):
                self._lanes[track.index] = lane
        self._video = self._video or builder.add_video(template)
        builder.describe_file()
        self._display = builder.display
        self._out.start_encoding()
        strict = not self._out.format.flags & describe.TS_NONSTRICT
        for lane in (self._video, *self._lanes.values()):
            lane.begin(strict=strict, edit_lists=container.edit_lists)

    def write_video(self, *packets: Packet) -> None:
        """Packets of the encoded main video, in decoding order, with pts and dts in the header's time base."""
        lane = self._video
        if lane is None:
            raise MediaError("the video was not described before its first packet", where=shown(self._path))
        self._write([ready for packet in packets for ready in lane.packets(packet)])

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
        self._write(tuple(lane.packets(packet)))  # what fails before the muxer is none of its errors

    def _track(self, index: int) -> Track | None:
        for track in self._tracks:
            if track.index == index and track.action != "drop" and index != self._source.video.index:
                return track
        return None

    def _write(self, packets: Iterable[Packet]) -> None:
        mux = self._out.mux_one
        try:  # not `_errors`, which would take as long as all else here that is Python
            for packet in packets:
                mux(packet)
        except _FAILURES as error:
            raise self._described(error) from None

    def close(self) -> None:
        """Finishes the file. Raises MediaError where that fails, or no picture was ever written."""
        if self._closed:
            return
        if self._video is None:
            self.abort()
            raise SourceError("no picture was encoded", where=str(self._source.path), hint="see `gpupipe probe`")
        for lane in self._lanes.values():
            self._write(tuple(lane.finish()))
        self._closed = True
        with self._errors():
            self._out.close()
        if self._display is not None:
            self._write_display_size(*self._display)
        self._release()
        if self._header.provenance is not None:
            provenance.finish(self._path, self._container, self._header.provenance, self._journal)

    def _write_display_size(self, position: int, size: matroska.DisplaySize) -> None:
        try:
            matroska.write_display_size(self._path, position, size)
        except (LookupError, IndexError):
            raise MediaError(
                "the display size of non-square pixels could not be written",
                where=shown(self._path),
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
