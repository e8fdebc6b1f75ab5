"""What a codec library must offer. One module a library meets one or both of these."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from fractions import Fraction
    from typing import Any, TypeAlias

    import av
    import numpy as np
    from numpy.typing import NDArray

    from gpupipe.format import FrameFormat
    from gpupipe.frame import FrameBatch

    Packet: TypeAlias = av.Packet[Any]
    Spans: TypeAlias = Sequence[tuple[int, int]]
    Keep: TypeAlias = Callable[[NDArray[np.uint8], Spans], list[Any]]
    """Copies bitstreams, at least one, each from byte `begin` to `end` of memory that is used again, to where they may
    stay. They lie in order there, with little between them. Gives bytes-like data, or what stands for packets."""


@dataclass(frozen=True, slots=True)
class EncoderSettings:
    """What the plan asks of an encoder. Every field is plain data, so that a plan can be written to JSON."""

    codec: str
    """h264, hevc, av1, vp9, prores, mjpeg, ffv1 ... as libav names codecs."""
    encoder: str
    """libx264, libx265, nvenc, nvjpeg ..."""
    input_format: FrameFormat
    """What `encode` is given."""
    time_base: Fraction
    """Of every pts given and every packet returned."""
    rate: Fraction
    """Nominal frames a second, for rate control and headers; never for timestamps."""
    quality: float | None
    bitrate: int | None
    """Bits a second; with it the encoder is rate-controlled, without it `quality` rules."""
    preset: str | None
    options: dict[str, str] = field(default_factory=dict)
    """The library's own options, passed on as they are; an unknown one is an error."""
    mastering_display: str | None = None
    """SMPTE ST 2086 in x265's notation: see `codecs.mastering.MasteringDisplay`."""
    content_light: tuple[int, int] | None = None
    """MaxCLL and MaxFALL, cd/m2."""


class AccessUnit(NamedTuple):
    """A packet of H.264 or HEVC as Annex-B, somewhere in memory."""

    address: int
    size: int
    pts: int
    duration: int
    key: bool
    """Whether decoding may begin with it."""
    discard: bool
    """Whether its picture is decoded and not shown."""


class Decoder(Protocol):
    """Packets in, pictures out in display order. Used by one thread."""

    format: FrameFormat
    """Of every batch it yields, until the stream changes it."""

    def decode(self, packet: Packet | None) -> Iterator[FrameBatch]:
        """Feeds one packet (None: the end) and yields what is ready.

        A damaged packet is reported to the journal and skipped. A CUDA decoder's planes belong to the library and hold
        only until the next `decode`.
        """
        ...

    def restart(self) -> None:
        """After the end was fed: ready for packets of another place in the same stream, beginning with a key frame."""
        ...

    def close(self) -> None:
        """Frees what is held; safe to call twice."""
        ...


class Encoder(Protocol):
    """Pictures in, packets out in decode order with pts, dts and duration. Used by one thread."""

    settings: EncoderSettings

    def encode(self, batch: FrameBatch) -> list[Packet]:
        """Encodes the valid pictures of a batch; returns what is ready."""
        ...

    def finish(self) -> list[Packet]:
        """Drains the encoder: every picture that went in has come out after this."""
        ...

    def template(self, first: Sequence[Packet]) -> av.VideoStream:
        """A stream that describes the bitstream, for `add_stream_from_template(..., opaque=True)`.

        `first` are the first packets it made. The caller keeps the encoder alive while it uses the stream.
        """
        ...

    def close(self) -> None:
        """Frees what is held; safe to call twice."""
        ...


class AloneEncoder(Encoder, Protocol):
    """One on the device that codes every picture by itself, see `encoders.EncoderFacts.alone`."""

    def encode_into(self, batch: FrameBatch, keep: Keep) -> list[Packet]:
        """As `encode`; the packets' bytes lie where `keep` has put them."""
        ...
