"""Audio re-encoded with PyAV: cut to the sample, gaps filled, channel layout and rate kept where the codec can."""

from __future__ import annotations

import io
import math
from fractions import Fraction
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import av
from av.audio.fifo import AudioFifo
from av.audio.resampler import AudioResampler

from gpupipe.errors import MediaError, PlanError
from gpupipe.media.layout import layout_of, standard

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpupipe.journal import Journal

    Packet: TypeAlias = av.Packet[Any]

PCM_FRAME = 1024
"""Samples a packet for codecs that take any number."""


class AudioEncoder:
    """Decodes the packets of one stream and encodes them anew. Used by one thread.

    The time of every packet that comes out is in samples of the output rate, on the source's clock (its zero is the
    source's zero, not that of the output). What lies before `start` or from `end` on is cut off to the sample.

    Args:
        stream: of the source, in an open container that nobody else decodes this stream with.
        codec: libav's codec or encoder name.
        bitrate: bits a second; None leaves it to the encoder.
        start: seconds; None for all there is.
        end: seconds, not included.
        journal: told of gaps and overlaps.

    Raises:
        PlanError: libav has no such encoder, or it does not take the settings.
    """

    def __init__(
        self,
        stream: av.AudioStream,
        codec: str,
        bitrate: int | None,
        *,
        start: Fraction | None,
        end: Fraction | None,
        journal: Journal,
    ) -> None:
        self._index, self._journal = stream.index, journal
        source = cast("Any", stream.codec_context)
        if source is None:
            raise MediaError(f"libav has no decoder for the audio of stream {stream.index}")
        self._decoder = source  # the stream's own: only it knows the time base, which skipping encoder delay needs
        self._template, self._owner = self._open(codec, bitrate, source)
        context = self._template.codec_context
        self.rate: int = context.sample_rate
        self._resampler = AudioResampler(format=context.format, layout=context.layout, rate=self.rate)
        self._fifo = AudioFifo()
        self._size: int = context.frame_size or PCM_FRAME
        self._first = None if start is None else math.ceil(start * self.rate)
        self._end = None if end is None else math.ceil(end * self.rate)
        self._expected: int | None = None
        """Sample that the next decoded one should be."""
        self._written = 0
        self._origin: int | None = None
        """Time of the first sample that goes in."""

    def _open(self, codec: str, bitrate: int | None, source: Any) -> tuple[Any, Any]:
        """The encoder, in a container of its own that is never written; an encoder is not bound to the output's."""
        try:
            described = av.Codec(codec, "w")
        except ValueError:
            raise PlanError(f"libav has no audio encoder '{codec}'", where="output.audio.codec") from None
        owner = av.open(io.BytesIO(), "w", format="nut" if codec.startswith("pcm") else "matroska")
        original = layout_of(source)
        channels = standard(original)
        if channels is None:
            raise PlanError(
                f"{codec} cannot take the channels of stream {self._index}: {original.name}",
                where="output.audio",
                hint="use `audio: copy`",
            )
        rates = described.audio_rates
        rate = source.sample_rate
        if rates and rate not in rates:
            rate = min((r for r in rates if r >= rate), default=max(rates))
        try:
            stream = cast("Any", owner).add_stream(codec, rate=rate)
            context = stream.codec_context
            context.layout = channels
            context.format = _sample_format(described, source)
            context.time_base = Fraction(1, rate)
            if bitrate:
                context.bit_rate = bitrate
            owner.start_encoding()
        except (ValueError, av.FFmpegError) as error:
            why = getattr(error, "strerror", None) or error
            message = f"{codec} does not take {channels.name} at {rate} Hz: {why}"
            raise PlanError(message, where="output.audio", hint="another codec may do") from None
        return stream, owner

    @property
    def template(self) -> av.AudioStream:
        """A stream that describes what comes out; valid while this object lives."""
        return cast("av.AudioStream", self._template)

    def encode(self, packet: Packet) -> list[Packet]:
        """Feeds one packet of the source; returns what is ready."""
        try:
            frames = self._decoder.decode(packet)
        except av.FFmpegError:
            self._journal.warn(
                "audio-damaged",
                f"stream {self._index}: damaged audio is replaced by silence",
                place=f"pts {packet.pts}",
            )
            return []
        done: list[Packet] = []
        for frame in frames:
            layout_of(frame)
            done += self._take(frame, packet)
        return done

    def finish(self) -> list[Packet]:
        """Drains decoder, resampler and encoder."""
        done: list[Packet] = []
        for frame in self._decoder.decode(None):
            layout_of(frame)
            done += self._take(frame, None)
        for frame in self._resampler.resample(None):
            self._queue(frame)
        done += self._drain(last=True)
        return done + list(self._template.codec_context.encode(None))

    def _take(self, frame: av.AudioFrame, packet: Packet | None) -> list[Packet]:
        base = frame.time_base or (packet.time_base if packet is not None else None)
        if frame.pts is not None and base:
            self._synchronise(frame.pts * Fraction(base.numerator, base.denominator))
        frame.pts = None
        for piece in self._resampler.resample(frame):
            self._queue(piece)
        return self._drain(last=False)

    def _synchronise(self, stated: Fraction) -> None:
        """Fills a gap with silence, so that what follows keeps its time; the jitter of coarse ticks is left alone."""
        at = round(stated * self.rate)
        if self._expected is None:
            self._expected = at
            return
        gap = at - self._expected
        if abs(gap) <= self.rate // 200:  # 5 ms
            return
        place = f"{float(stated):.3f} s"
        if gap < 0:
            self._journal.warn("audio-overlap", f"stream {self._index}: audio goes back in time", place=place)
            return
        self._journal.warn("audio-gap", f"stream {self._index}: a gap in the audio is filled with silence", place=place)
        while gap > 0:
            count = min(gap, self.rate)
            self._queue(self._silence(count))
            gap -= count

    def _silence(self, count: int) -> av.AudioFrame:
        context = self._template.codec_context
        frame = av.AudioFrame(format=context.format.name, layout=context.layout.name, samples=count)
        frame.sample_rate = self.rate
        value = b"\x80" if context.format.name.startswith("u8") else b"\0"
        for plane in frame.planes:
            plane.update(value * plane.buffer_size)
        return frame

    def _queue(self, frame: av.AudioFrame) -> None:
        """Cuts a frame to the range and puts it in line."""
        if self._expected is None:
            self._expected = self._first or 0
        at, count = self._expected, frame.samples
        self._expected = at + count
        skip = max(0, (self._first or at) - at) if self._first is not None else 0
        keep = count if self._end is None else min(count, self._end - at)
        if skip >= keep:
            return
        if self._origin is None:
            self._origin = at + skip
        frame.pts = None
        if skip or keep < count:
            frame = _cut(frame, skip, keep)
        self._fifo.write(frame)

    def _drain(self, *, last: bool) -> list[Packet]:
        done: list[Packet] = []
        for frame in self._frames(last=last):
            frame.pts = (self._origin or 0) + self._written
            frame.time_base = Fraction(1, self.rate)
            self._written += frame.samples
            done += self._template.codec_context.encode(frame)
        return done

    def _frames(self, *, last: bool) -> Iterator[av.AudioFrame]:
        while self._fifo.samples >= self._size:
            frame = self._fifo.read(self._size)
            if frame is not None:
                yield frame
        if last and self._fifo.samples:
            frame = self._fifo.read(self._fifo.samples, partial=True)
            if frame is not None:
                yield frame


def _sample_format(codec: av.Codec, source: Any) -> str:
    """The source's own sample format where the encoder takes it, else its first of at least the same depth."""
    offered = [f.name for f in codec.audio_formats or ()]
    have = source.format.name if source.format is not None else "fltp"
    family = have.removesuffix("p")
    for name in (have, family, f"{family}p"):
        if name in offered:
            return str(name)
    deep = [n for n in offered if family not in ("s16", "u8") and not n.startswith(("u8", "s16"))]
    return str((deep or offered or [have])[0])


def _cut(frame: av.AudioFrame, start: int, stop: int) -> av.AudioFrame:
    """Samples `start` up to `stop` of a frame."""
    unit = frame.format.bytes * (1 if frame.format.is_planar else frame.layout.nb_channels)
    piece = av.AudioFrame(format=frame.format.name, layout=frame.layout.name, samples=stop - start)
    piece.sample_rate = frame.sample_rate
    for old, new in zip(frame.planes, piece.planes, strict=True):
        data = bytes(old)[start * unit : stop * unit]
        new.update(data + bytes(new.buffer_size - len(data)))
    return piece
