"""Packets of a source in file order, with repaired timestamps, from a keyframe before the wanted range on."""

from __future__ import annotations

from fractions import Fraction
from itertools import chain
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import av
from av.format import Flags

from gpupipe.codecs.matte import begins
from gpupipe.codecs.refresh import Refresh
from gpupipe.media.container import open_input, stream_notes
from gpupipe.media.discontinuity import ClockRepair
from gpupipe.media.probe import main_video

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

    from av.container import InputContainer

    from gpupipe.journal import Journal
    from gpupipe.media.source import SourceInfo

    Packet: TypeAlias = av.Packet[Any]

MARGIN = Fraction(2)
"""Seconds before a range where reading begins, for the sake of sound that is stored behind its picture."""
TOLERANCE = 64
"""Read errors in a row, without a packet between, after which a file counts as ended."""
HELD = 20_000
"""Packets kept while the keyframe before the range is looked for; a longer run is handed out as it is."""


class Demuxer:
    """Reads a source once. Use as a context manager; `packets` may be iterated once.

    Args:
        info: what `probe` found.
        journal: is told of read errors, damaged packets and clock repairs, with byte positions.
        range_start: first wanted pts in the video's time base; None reads from the beginning.
    """

    def __init__(self, info: SourceInfo, journal: Journal, *, range_start: int | None = None) -> None:
        self._info, self._journal = info, journal
        self.container: InputContainer
        """Open from the start of the Demuxer's life to its end."""
        self.video_stream: av.VideoStream
        """The main video; its `codec_context` is free for the CPU decoder."""
        self._open()
        self._position: int | None = None
        self._packets = self._repaired() if range_start is None else self._from(range_start)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the file; safe to call twice."""
        self.container.close()

    def packets(self) -> Iterator[Packet]:
        """Packets of all streams. Those with `is_discard` are to be decoded and not shown (edit lists).

        With a range, video begins at the last keyframe at or before it, and packets of other streams that end before it
        are left out.
        """
        return self._packets

    def _from(self, start: int) -> Iterator[Packet]:
        """Finds the place now, so that `container` and `video_stream` are the final ones; reads on later."""
        held: list[Packet] = []
        packets = self._lasting(start)
        if self._seek(start):
            if self._collect(packets, start, held):
                return chain(held, packets)
            self._rewind()
            held, packets = [], self._lasting(start)
        self._collect(packets, start, held)
        return chain(held, packets)

    def _seek(self, start: int) -> bool:
        """Goes to a keyframe before the range; False where reading must begin at the beginning.

        Clocks that may jump make a timestamp ambiguous, and streams without timestamps have none, so those are read
        from the beginning.
        """
        if self._jumpy or self._info.video.start is None:
            return False
        target = start - round(MARGIN / self._info.video.time_base)
        if target <= self._info.video.start:
            return False
        try:
            self.container.seek(target, stream=self.video_stream, backward=True)
        except (av.FFmpegError, OSError):
            self._rewind()
            return False
        return True

    def _open(self) -> None:
        self.container = open_input(self._info.path)
        self.video_stream = main_video(self.container, str(self._info.path))
        self._refresh = Refresh(self.video_stream)

    def _rewind(self) -> None:
        """Opens anew: seeking to the start is not the start in every container (packets without timestamps there)."""
        self.container.close()
        self._open()

    def _collect(self, packets: Iterator[Packet], start: int, held: list[Packet]) -> bool:
        """Fills `held` with what is needed to decode from `start` on; whether it begins with a keyframe in time."""
        video = self.video_stream.index
        for packet in packets:
            if packet.stream_index != video:
                held.append(packet)
                continue
            at = packet.dts if packet.dts is not None else packet.pts
            if self._begins(packet) and packet.pts is not None and packet.pts <= start:
                held[:] = [p for p in held if p.stream_index != video]
            held.append(packet)
            if (at is not None and at > start) or len(held) > HELD:
                break
        first = next((p for p in held if p.stream_index == video), None)
        return first is not None and self._begins(first) and first.pts is not None and first.pts <= start

    def _begins(self, packet: Packet) -> bool:
        video = self._info.video
        if video.format.alpha:
            return begins(packet, video.codec)
        return packet.is_keyframe and not self._refresh.gradual(packet)

    @property
    def _jumpy(self) -> bool:
        return bool(Flags(self.container.format.flags) & Flags.ts_discont)

    def _repaired(self) -> Iterator[Packet]:
        if not self._jumpy:
            yield from self._read()
            return
        repair = ClockRepair(self._info, self._journal)
        for packet in self._read():
            yield from repair.place(packet)
        yield from repair.finish()

    def _read(self) -> Iterator[Packet]:
        """What libavformat gives, going on after read errors, with an end to it."""
        failures = 0
        while failures < TOLERANCE:
            try:
                for packet in self.container.demux():
                    if packet.size == 0 and packet.pts is None and packet.dts is None:
                        continue  # PyAV's own mark for 'flush', one a stream at the end
                    failures = 0
                    self._note(packet)
                    yield packet
            except IndexError:  # PyAV's, at the very end: it has no object for a stream that began in mid-file
                break
            except (av.FFmpegError, OSError) as error:
                failures += 1
                self._failed(error)
            else:
                break
        self._note_late_streams()

    def _note_late_streams(self) -> None:
        """PyAV hides packets of streams that were not there when the file was opened; libav counts them."""
        late = len(stream_notes(self.container)) - len(self.container.streams) if self._jumpy else 0
        if late > 0:
            message = f"streams that begin in the middle of the file are missing in the output: {late}"
            self._journal.warn("late-stream", message)

    def _note(self, packet: Packet) -> None:
        if packet.pos is not None and packet.pos >= 0:
            self._position = packet.pos
        if packet.is_corrupt:
            place = f"byte {self._position}, pts {packet.pts}"
            self._journal.warn(
                "packet-damaged", f"a damaged packet of stream {packet.stream_index} at {place}", place=place
            )

    def _failed(self, error: Exception) -> None:
        after = "at the beginning" if self._position is None else f"after byte {self._position}"
        reason = getattr(error, "strerror", None) or str(error)
        self._journal.warn("read-error", f"reading failed {after}: {reason}; what could be read is used", place=after)

    def _lasting(self, start: int) -> Iterator[Packet]:
        """All packets of the main video, and those of other streams that do not end before `start`."""
        begin = start * self._info.video.time_base
        return (p for p in self._repaired() if p.stream_index == self._info.video.index or self._overlaps(p, begin))

    def _overlaps(self, packet: Packet, begin: Fraction) -> bool:
        """Whether a packet of another stream reaches past `begin` (seconds); one of unknown length gets MARGIN."""
        stream = self._info.streams[packet.stream_index]
        if packet.pts is None or stream.time_base is None or stream.kind in ("cover", "attachment"):
            return True
        length = packet.duration * stream.time_base if packet.duration else MARGIN
        return packet.pts * stream.time_base + length > begin
