"""Tracks on their way into the output: times moved, the range cut, order repaired."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from gpupipe.errors import MediaError
from gpupipe.media.audio import AudioEncoder
from gpupipe.media.layout import layout_of
from gpupipe.media.rescale import Monotonic, Rescaler, SampleClock
from gpupipe.media.text import TextConverter

if TYPE_CHECKING:
    from collections.abc import Iterable

    import av
    from av.container import OutputContainer

    from gpupipe.journal import Journal

    Packet: TypeAlias = av.Packet[Any]


@dataclass(frozen=True, slots=True)
class Span:
    """The part of the source that is written, in seconds on the source's clock."""

    offset: Fraction
    """Becomes 0."""
    start: Fraction | None
    """None for all there is."""
    end: Fraction | None


_LARGEST = 1 << 62
"""libav's timestamps have 64 bits, and its muxers add to them."""


class Lane(Protocol):
    """One output stream."""

    stream: Any

    def begin(self, *, strict: bool, edit_lists: bool) -> None:
        """Called when the header is written and the muxer's time base known.

        `strict`: equal decoding times are refused; `edit_lists`: a packet may begin before 0.
        """
        ...

    def packets(self, packet: Packet) -> Iterable[Packet]:
        """The packets to write for one that came in."""
        ...

    def finish(self) -> Iterable[Packet]:
        """What is left at the end."""
        ...


def _fraction(value: Any) -> Fraction:
    return Fraction(value.numerator, value.denominator)


class _Timed:
    """Moves packets to an output stream's clock."""

    def __init__(self, stream: Any, time_base: Fraction, span: Span, what: str, journal: Journal) -> None:
        self.stream = stream
        self._time_base, self._span, self._what, self._journal = time_base, span, what, journal

    def begin(self, *, strict: bool, edit_lists: bool) -> None:
        """See Lane."""
        self._target = _fraction(self.stream.time_base)
        self._rescale = Rescaler(self._time_base, self._target, self._span.offset)
        self._rising = Monotonic(1 if strict else 0, self._what, self._journal)
        self._edit_lists = edit_lists

    def _emit(self, packet: Packet, pts: int, dts: int, duration: int) -> Packet:
        dts = self._rising(dts)
        if max(dts, pts, duration) > _LARGEST or min(dts, pts, duration) < -_LARGEST:
            seconds = float(max(pts, dts, key=abs) * self._target)
            hint = "the source's timestamps are damaged; a range may leave that part out"
            raise MediaError(f"{self._what}: {seconds:.3g} s is no time a file can hold", hint=hint)
        packet.dts, packet.pts, packet.duration = dts, pts if pts > dts else dts, duration  # noqa: FURB136  twice as fast
        packet.time_base, packet.stream = self._target, self.stream
        return packet

    def finish(self) -> Iterable[Packet]:
        """See Lane."""
        return ()


class VideoLane(_Timed):
    """The encoded main video. All its packets are written: the pictures were chosen before they were encoded.

    `gapless`: see `containers.Container`; then a tick is a picture, and times that are left out are told.
    """

    def __init__(
        self, stream: Any, time_base: Fraction, span: Span, journal: Journal, *, gapless: bool = False
    ) -> None:
        super().__init__(stream, time_base, span, "video", journal)
        self._next: int | None = None
        self._gapless = gapless

    def packets(self, packet: Packet) -> Iterable[Packet]:
        """See Lane."""
        pts = packet.pts if packet.pts is not None else packet.dts
        assert pts is not None
        dts = packet.dts if packet.dts is not None else pts
        begin, end = self._rescale(pts), self._rescale(pts + (packet.duration or 0))
        ready = self._emit(packet, begin, begin if dts == pts else self._rescale(dts), end - begin)
        if self._gapless:
            self._follow(ready, pts)
        return (ready,)

    def _follow(self, ready: Packet, pts: int) -> None:
        assert ready.dts is not None
        if self._next is not None and ready.dts != self._next:
            self._journal.warn(
                "times-lost",
                "this container shows pictures one after another at its rate: from here on they are not shown at their"
                " times, nor beside their sound; use an `fps` stage or another container",
                place=f"pts {pts}",
            )
        self._next = ready.dts + 1


class CopyLane(_Timed):
    """A stream copied packet by packet; payloads are never touched."""

    def __init__(self, source: Any, stream: Any, kind: str, span: Span, journal: Journal) -> None:
        super().__init__(stream, _fraction(source.time_base), span, f"stream {source.index}", journal)
        self._source, self._kind = source, kind
        self._end: int | None = None
        """Where the last packet ended, in the source's time base."""
        self._dts: int | None = None
        self._keyed = False
        self._clock: SampleClock | None = None

    def begin(self, *, strict: bool, edit_lists: bool) -> None:
        """See Lane."""
        super().begin(strict=strict, edit_lists=edit_lists)
        rate = getattr(self._source.codec_context, "sample_rate", 0) if self._kind == "audio" else 0
        if rate and self._target == Fraction(1, rate) and self._time_base > self._target:
            self._clock = SampleClock(tolerance=int(self._time_base / self._target) + 1)

    def packets(self, packet: Packet) -> Iterable[Packet]:
        """The packet on the output's clock; nothing where it lies outside the range."""
        if self._kind == "cover":
            return (self._emit(packet, 0, 0, 0),)
        pts, dts = self._times(packet)
        length = packet.duration or 0
        self._end = pts + length
        shown = self._cut(packet, pts, length)
        if shown is None:
            return ()
        pts, length = shown
        at = self._rescale(pts)
        if self._clock is not None:
            at = self._clock(at, self._samples(packet))
        decoded = self._rescale(min(dts, pts)) if self._kind == "video" else at
        return (self._emit(packet, at, decoded, self._rescale.span(pts, length)),)

    def _times(self, packet: Packet) -> tuple[int, int]:
        """Presentation and decoding time; one is taken from the other, both from the end of the packet before."""
        pts, dts, length = packet.pts, packet.dts, packet.duration or 0
        if pts is None and dts is None:
            pts = self._end or 0
            self._journal.warn(
                "pts-missing", f"{self._what}: packets without a time follow the one before", place=f"at {pts}"
            )
        shown = pts if pts is not None else dts
        assert shown is not None
        if dts is None and self._kind == "video":  # libav leaves it out until it knows the reordering
            depth = getattr(self._source.codec_context, "reorder_depth", 0)
            dts = shown - depth * length if self._dts is None else min(shown, self._dts + length)
        self._dts = dts if dts is not None else shown
        return shown, self._dts

    def _cut(self, packet: Packet, pts: int, length: int) -> tuple[int, int] | None:
        """Begin and length of the part in range; None where there is none.

        Subtitles and data are shortened. Audio keeps the packet that reaches over the start if the container can hide
        its beginning, else begins with the first whole one. Video begins with the first key frame.
        """
        span, base = self._span, self._time_base
        if span.end is not None and pts * base >= span.end:
            return None
        if span.start is None or pts * base >= span.start:
            if self._kind == "video" and span.start is not None and not self._key(packet):
                return None
        elif self._kind == "video" or (pts + length) * base <= span.start:
            return None
        elif self._kind == "audio":
            return (pts, length) if self._edit_lists else None
        else:
            first = -(-span.start // base)
            pts, length = int(first), pts + length - int(first)
        if self._kind in ("subtitle", "data") and span.end is not None and length:
            length = min(length, int(span.end // base) - pts)
        return pts, length

    def _key(self, packet: Packet) -> bool:
        if not self._keyed and not packet.is_keyframe:
            self._journal.warn(
                "copied-video-late", f"{self._what} is copied and begins with its first key frame in the range"
            )
            return False
        self._keyed = True
        return True

    def _samples(self, packet: Packet) -> int:
        """Length of an audio packet in samples: the codec's own frame size, else what its duration says."""
        context = self._source.codec_context
        name = context.codec.name
        if name.startswith("pcm_") and (digits := "".join(c for c in name[4:8] if c.isdigit())):
            return int(packet.size * 8 // (int(digits) * layout_of(context).nb_channels))
        return int(context.frame_size or self._rescale.span(packet.pts or 0, packet.duration or 0))


class TextLane(CopyLane):
    """Text subtitles in another codec."""

    def __init__(self, source: Any, codec: str, container: OutputContainer, span: Span, journal: Journal) -> None:
        self._convert = TextConverter(source, codec, container)
        super().__init__(source, self._convert.stream, "subtitle", span, journal)

    def packets(self, packet: Packet) -> Iterable[Packet]:
        """The packet converted, and then as any copied one."""
        converted = self._convert(packet)
        return () if converted is None else super().packets(converted)


class AudioLane(_Timed):
    """Audio encoded anew."""

    def __init__(self, source: Any, codec: str, bitrate: int | None, span: Span, journal: Journal) -> None:
        self._encoder = AudioEncoder(source, codec, bitrate, start=span.start, end=span.end, journal=journal)
        self.rate = self._encoder.rate
        self.template = self._encoder.template
        super().__init__(None, Fraction(1, self.rate), span, f"stream {source.index}", journal)

    def packets(self, packet: Packet) -> Iterable[Packet]:
        """What the encoder has ready."""
        return self._timed(self._encoder.encode(packet))

    def finish(self) -> Iterable[Packet]:
        """What was still in the encoder."""
        return self._timed(self._encoder.finish())

    def _timed(self, made: list[Packet]) -> Iterable[Packet]:
        for packet in made:
            pts = packet.pts if packet.pts is not None else packet.dts
            assert pts is not None
            at = self._rescale(pts)
            yield self._emit(packet, at, at, self._rescale.span(pts, packet.duration or 0))
