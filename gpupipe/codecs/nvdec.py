"""Decoding by NVDEC through PyNvVideoCodec: PyAV's packets in, surfaces out that stay on the GPU."""

from __future__ import annotations

from ctypes import string_at
from typing import TYPE_CHECKING, Any

import av
import av.bitstream
import av.error

from gpupipe.codecs import pynv
from gpupipe.codecs.leading import Leading
from gpupipe.codecs.nvdec_session import Session, Surface, surface_views
from gpupipe.codecs.nvdec_support import CODECS, StreamFacts, supports, surface_format
from gpupipe.codecs.parameter_sets import beside, complete
from gpupipe.codecs.sequence import base_layer, layered, signature
from gpupipe.errors import DeviceError, device_failure, first_line
from gpupipe.frame import NO_PTS, FrameBatch
from gpupipe.journal import Journal

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from fractions import Fraction

    from gpupipe.codecs.base import AccessUnit, Packet
    from gpupipe.device.base import Lane
    from gpupipe.format import FrameFormat

__all__ = ["CODECS", "NvdecDecoder", "StreamFacts", "Surface", "supports", "surface_format"]

_TIME_OFFSET = 1 << 40
"""Added to every pts, so that none is negative."""


def _filters(stream: av.VideoStream) -> av.bitstream.BitStreamFilterContext | None:
    """NVDEC's parser wants H.264 and HEVC as Annex-B with their headers in the stream."""
    name, extradata = stream.codec_context.codec.canonical_name, stream.codec_context.extradata or b""
    length_prefixed = extradata[:1] == b"\x01"
    if not length_prefixed or name not in ("h264", "hevc"):
        return None
    try:
        return av.bitstream.BitStreamFilterContext(f"{name}_mp4toannexb", stream)
    except av.error.FFmpegError as error:
        raise DeviceError(
            f"the parameter sets that the container gives of its {name} are damaged: {error.strerror}",
            hint="use `device: cpu`, which may find others in the stream",
        ) from None


class NvdecDecoder:
    """Decodes one stream on the GPU; meets `base.Decoder`.

    Surfaces belong to the library. The planes of a batch hold until the generator that gave it is asked for more than
    the packet's pictures, that is until the next `decode`; work on them must be given to `lane` before that
    (`device.cuda.copy_of` keeps one longer). A stream that changes its size or format goes on in a new session, and
    batches then have the new format.

    Args:
        stream: the demuxer's stream.
        source: format of the surfaces, see `surface_format`.
        time_base: of the packets.
        journal: told of damage.
        lane: the CUDA stream that surfaces are written on.
        library: stands in for PyNvVideoCodec in tests.
    """

    def __init__(
        self, stream: av.VideoStream, source: FrameFormat, time_base: Fraction, journal: Journal, lane: Lane, *,
        library: Any = None,
    ) -> None:  # fmt: skip
        self.format = source
        self._codec = stream.codec_context.codec.canonical_name
        self._time_base, self._journal, self._lane = time_base, journal, lane
        self._library = library or pynv.load()
        self._filter = _filters(stream)
        self._sets = beside(self._codec, stream.codec_context.extradata or b"")
        """Put before the first packet that a session is given where that has none."""
        self._sequence = b""
        self._leading = Leading(self._codec)
        self._holds = False
        """Whether the session was given packets since it was opened or drained."""
        self._times: dict[int, tuple[int, int] | None] = {}
        """By the time given to the library: pts and duration of the picture; None where the demuxer hides it."""
        self._last = 0
        self._kept: Packet | None = None
        self._layered = False
        """Whether layers above the first must be taken out."""
        self._broken = False
        """Whether the session failed, and the one in its place has given no picture yet."""
        self._waits = False
        """Whether packets are skipped until the next key frame: it may be long until that gives a picture."""
        self._shown = 0
        self._session = self._open()

    def _open(self) -> Session:
        return Session(self._library, self._codec, self.format, self._lane)

    def _reopen(self) -> None:
        self.close()  # its surfaces are freed before the new session asks for memory
        self._session = self._open()
        self._emptied()

    def _emptied(self) -> None:
        self._holds = False
        self._leading.anew()

    def decode(self, packet: Packet | None) -> Iterator[FrameBatch]:
        """See `base.Decoder`."""
        for surface in self.surfaces(packet):
            yield self.batch_of(surface)

    def surfaces(self, packet: Packet | None) -> Iterator[Surface]:
        """As `decode`, but bare surfaces: for whoever copies them on the lane at once, many thousands a second."""
        place = "at the end" if packet is None else f"pts {packet.pts}"  # the filter empties the packet
        try:
            parts = self._filter.filter(packet) if self._filter else [packet] if packet is not None else []
        except av.error.FFmpegError as error:
            self._journal.warn("decode-error", f"damaged video skipped: {error.strerror}", place=place)
            parts = []
        for part in parts:
            yield from self._feed(part)
        if packet is None:
            yield from self._drain()

    def rehearse(self, packet: Packet) -> None:
        """Decodes a key frame and forgets it, so that the library allocates its surfaces now: that stalls others."""
        journal, self._journal = self._journal, Journal()  # what it finds is told when it counts
        try:
            for part in (packet, None):
                for _ in self.surfaces(part):
                    pass
        except DeviceError:
            self._reopen()
        self._journal, self._shown, self._broken, self._waits = journal, 0, False, False
        self.restart()

    def packed(self, units: Iterable[AccessUnit], sequence: bytes) -> Iterator[Surface]:
        """As `surfaces` for every packet up to a key frame or the end, without what is done for unusual ones.

        Args:
            units: packets with times, as Annex-B, all of the same sequence.
            sequence: what `codecs.sequence.signature` says of the first.
        """
        if self._sequence and sequence != self._sequence:
            self._reopen()
        self._sequence, self._layered = sequence, False
        data, leading = self._library.PacketData(), self._leading
        for unit in units:
            address, size, pts, duration, key, discard = unit
            if (key or self._waits or leading.watches) and self._skipped(unit):
                continue
            self._last = data.pts = pts + _TIME_OFFSET
            data.bsl_data, data.bsl = address, size
            if not self._holds:
                self._headed(data, string_at(address, size))
            hidden = discard or (leading.watches and self._hidden(pts))
            self._times[self._last] = None if hidden else (pts, duration)
            yield from self._decoded(data, pts, steady=True)
        yield from self._drain(steady=True)

    def _skipped(self, unit: AccessUnit) -> bool:
        if self._waits and not unit.key:
            self._lost(unit.pts)
            return True
        self._waits = False
        asked = self._leading.asks(key=unit.key)
        return asked and self._barred(string_at(unit.address, unit.size), unit.pts, key=unit.key)

    def _feed(self, packet: Packet) -> Iterator[Surface]:
        if packet.size == 0:
            return
        if packet.is_corrupt:
            self._journal.warn("corrupt-packet", "damaged video, pictures may be wrong", place=f"pts {packet.pts}")
        if self._waits and not packet.is_keyframe:
            self._lost(packet.pts)
            return
        self._waits = False
        if packet.is_keyframe or not self._sequence:
            head = bytes(packet)
            self._layered = layered(self._codec, head)
            sequence = signature(self._codec, head)
            if self._sets and not sequence and not self._sequence:
                sequence = signature(self._codec, self._sets)
            if sequence and self._sequence and sequence != self._sequence:
                yield from self._drain()
                self._reopen()
            self._sequence = sequence or self._sequence
        base = base_layer(bytes(packet)) if self._layered else None
        if base == b"":
            return  # another view by itself; no bytes at all would be the end of the stream
        if self._leading.asks(key=packet.is_keyframe) and self._barred(
            bytes(packet), packet.pts, key=packet.is_keyframe
        ):
            return
        self._timed(packet)
        yield from self._decoded(self._data(packet, base), packet.pts)

    def _timed(self, packet: Packet) -> None:
        """Notes a packet's time under the one that the library gets.

        It gives times back sorted, one with each picture in display order, so they must be the real ones.
        """
        if packet.pts is None:
            if self._last >= _TIME_OFFSET // 2:
                self._journal.warn(
                    "pts-approximate",
                    "timestamps missing: pictures near may be out by one",
                    place=f"pts {self._last - _TIME_OFFSET}",
                )
            self._last += 1
            shown = (NO_PTS, packet.duration or 0)
        else:
            self._last = packet.pts + _TIME_OFFSET
            shown = (packet.pts, packet.duration or 0)
        self._times[self._last] = None if packet.is_discard or self._hidden(packet.pts) else shown

    def _barred(self, data: bytes, pts: int | None, *, key: bool) -> bool:
        """Whether a packet is kept from the library, see `Leading`.

        Its picture belongs to the part before, or no decoder has it; only where a session was replaced it is a loss.
        """
        barred = self._leading.bars(data, pts, key=key)
        if barred and self._leading.lost:
            self._lost(pts)
        return barred

    def _hidden(self, pts: int | None) -> bool:
        """Whether a picture is decoded and not shown, see `Leading`; a loss as above."""
        hidden = self._leading.hides(pts)
        if hidden and self._leading.lost:
            self._lost(pts)
        return hidden

    def _data(self, packet: Packet, base: bytes | None) -> Any:
        """The library's packet, or `base` alone; it points into memory that is kept until the next one."""
        data = self._library.PacketData()
        data.bsl_data, data.bsl, data.pts = packet.buffer_ptr, packet.buffer_size, self._last
        if base is not None:
            self._keep(data, base)
        if not self._holds:
            self._headed(data, string_at(data.bsl_data, data.bsl))
        return data

    def _headed(self, data: Any, unit: bytes) -> None:
        """Puts parameter sets before the first packet of a session that knows none yet, see `parameter_sets`."""
        if self._sets and not complete(self._codec, unit):
            self._keep(data, self._sets + unit)

    def _keep(self, data: Any, unit: bytes) -> None:
        self._kept = av.Packet(unit)
        data.bsl_data, data.bsl = self._kept.buffer_ptr, self._kept.buffer_size

    def _drain(self, *, steady: bool = False) -> list[Surface]:
        """Every picture that the session still holds; what never came out is reported."""
        surfaces = self._decoded(self._library.PacketData(), None, steady=steady)
        self._emptied()
        for time in self._times.values():
            if time is not None:
                self._lost(time[0])
        self._times.clear()
        return surfaces

    def _lost(self, pts: int | None) -> None:
        place = "unknown pts" if pts in (None, NO_PTS) else f"pts {pts}"
        self._journal.warn("decode-error", "damaged video: pictures that could not be decoded", place=place)

    def _decoded(self, data: Any, pts: int | None, *, steady: bool = False) -> list[Surface]:
        """The pictures that come out; where they are `steady`, all have the size of the session's first."""
        self._holds = True
        try:
            frames = self._session.decode(data)
        except Exception as error:  # noqa: BLE001  its exceptions share no base
            self._failed(error, pts)
            return []
        surfaces = []
        for frame in frames:
            given = frame.getPTS()
            time = self._times.pop(given) if given in self._times else _stated(given)
            if time is not None:
                source = self._session.format_of(frame, steady=steady)
                surfaces.append(Surface(frame.GetPtrToPlane(0), source, *time))
        if frames:
            self._broken = False
            self._shown += len(surfaces)
        return surfaces

    def _failed(self, error: Exception, pts: int | None) -> None:
        """Damage is stepped over: another session takes the place of the one that failed. Raises a second time."""
        if self._broken or not self._shown:
            raise device_failure(f"NVDEC failed: {first_line(error)}", where=f"pts {pts}",
                              hint="use `device: cpu`") from None  # fmt: skip
        self._journal.warn("decode-error", f"damaged video: NVDEC failed: {first_line(error)}", place=f"pts {pts}")
        self._broken = self._waits = True
        self._reopen()  # a session is not to be used after an exception
        self._leading.anew(midway=True)

    def batch_of(self, surface: Surface) -> FrameBatch:
        """A batch of one whose planes are views of the surface."""
        return FrameBatch(
            surface.format,
            (surface.pts,),
            self._time_base,
            planes=surface_views(surface),
            durations=(surface.duration,),
            ready=self._lane.record(),
        )

    def restart(self) -> None:
        """See `base.Decoder`. The session goes on with the next key frame; what it still holds is not shown."""
        if self._holds:  # whoever saw a picture behind the last that is wanted did not feed the end
            self._decoded(self._library.PacketData(), None)
            self._emptied()
        self._times.clear()
        if self._filter is not None:
            self._filter.flush()

    def close(self) -> None:
        """See `base.Decoder`."""
        self._session.close()


def _stated(given: int) -> tuple[int, int]:
    """The pts and duration of a picture under a time that it was not fed with."""
    return given - _TIME_OFFSET if given >= _TIME_OFFSET // 2 else NO_PTS, 0
