"""The first picture of a stream: what only a decoded frame knows (side data, field order, real size and range)."""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, NamedTuple, cast

import av
import av.filter
import av.logging
from av.codec.context import ThreadType
from av.sidedata.sidedata import Type

from gpupipe.codecs.libav_log import captured_log
from gpupipe.codecs.mastering import COORDINATE, LUMINANCE, MasteringDisplay
from gpupipe.errors import SourceError
from gpupipe.media.source import HdrInfo
from gpupipe.media.timecode import Timecode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from av.container import InputContainer
    from av.sidedata.sidedata import SideData

PATIENCE = 1000
"""Packets of the main video that are tried before a stream counts as undecodable."""
IDENTITY = (1 << 16, 0, 0, 0, 1 << 16, 0, 0, 0, 1 << 30)
_DYNAMIC = ("DYNAMIC_HDR_PLUS", "DYNAMIC_HDR_VIVID", "DOVI_RPU_BUFFER", "DOVI_METADATA")


class Colors(NamedTuple):
    """By the numbers of H.273; range by libav's (0 unknown, 1 limited, 2 full)."""

    matrix: int
    transfer: int
    primaries: int
    range: int


def colors_of(tagged: av.VideoFrame | av.VideoCodecContext) -> Colors:
    """What a frame says, or a stream's context now."""
    said = (tagged.colorspace, tagged.color_trc, tagged.color_primaries, tagged.color_range)
    return Colors(*(int(one) for one in said))


@dataclass(frozen=True, slots=True)
class FirstPicture:
    """The first picture that decodes."""

    frame: av.VideoFrame
    skipped: int
    """Packets before it that gave an error instead of a picture."""
    side_data: dict[str, bytes]
    """By libav's name, such as MASTERING_DISPLAY_METADATA."""
    stated: Colors
    """What the container says of colour; decoders write over it, some with nothing."""


def first_picture(container: InputContainer, stream: av.VideoStream, where: str) -> FirstPicture:
    """Decodes up to the first picture, on one thread. Raises SourceError where there is none."""
    context = stream.codec_context
    context.thread_type, context.thread_count = ThreadType.NONE, 1
    stated, failed, tried = colors_of(context), 0, 0
    try:
        for packet in container.demux(stream):
            tried += 1
            try:
                frames = context.decode(packet)
            except av.FFmpegError:
                failed += 1
                frames = []
            if frames:
                return FirstPicture(frames[0], failed, side_data(frames[0]), stated)
            if tried >= PATIENCE:
                break
    except av.FFmpegError:
        failed += 1
    codec = context.codec.canonical_name
    raise SourceError(
        f"no picture of video stream {stream.index} ({codec}) can be decoded, {tried} packets tried",
        where=where,
        hint="the file is damaged or encrypted",
    )


def side_data(frame: av.VideoFrame) -> dict[str, bytes]:
    """All side data of a frame by name.

    PyAV's enum is closed: on a kind that it does not know (MV-HEVC's view ids) it raises ValueError for all of them, so
    the unknown kinds are then taken off first by libavfilter's `sidedata`.
    """
    try:
        return _by_name(frame)
    except ValueError:
        newest = max(cast("int", kind.value) for kind in Type)
        filters = [("sidedata", f"mode=delete:type={kind}") for kind in range(newest + 1, newest + 17)]
        plain = _filtered(frame, filters)
        return {} if plain is None else _by_name(plain)


def _by_name(frame: av.VideoFrame) -> dict[str, bytes]:
    """Asks for each kind by name: iteration gives the values in PyAV 18 and the keys in 19."""
    data = cast("Mapping[Type, SideData]", frame.side_data)
    return {kind.name: bytes(item) for kind in Type if (item := data.get(kind)) is not None}


def _filtered(frame: av.VideoFrame, filters: list[tuple[str, str]]) -> av.VideoFrame | None:
    """The frame after a chain of filters; None where they swallow it."""
    graph = av.filter.Graph()
    source = graph.add_buffer(
        width=frame.width, height=frame.height, format=frame.format, time_base=frame.time_base or Fraction(1, 1000)
    )
    graph.link_nodes(source, *(graph.add(name, args) for name, args in filters), graph.add("buffersink")).configure()
    graph.vpush(frame)
    graph.vpush(None)
    try:
        return graph.vpull()
    except (av.FFmpegError, EOFError):
        return None


def shown_info(frame: av.VideoFrame) -> tuple[str | None, str]:
    """Chroma location (left, center, topleft ...; None where unspecified), and P, T or B for progressive, top, bottom.

    PyAV has no attributes for these flags of a frame; libavfilter's `showinfo` logs them.
    """
    with captured_log(av.logging.INFO) as log:
        _filtered(frame, [("showinfo", "checksum=0")])
    text = "".join(line for _, _, line in log)
    chroma, order = re.search(r" cl:(\w+) ", text), re.search(r" i:([PTB]) ", text)
    location = chroma[1] if chroma else "unspecified"
    return None if location == "unspecified" else location, order[1] if order else "P"


def display_matrix(data: dict[str, bytes]) -> tuple[int, ...] | None:
    """Nine fixed-point numbers as in libavutil/display.h; None for identity."""
    raw = data.get("DISPLAYMATRIX")
    matrix = struct.unpack("=9i", raw[:36]) if raw is not None and len(raw) >= 36 else IDENTITY
    return None if matrix == IDENTITY else matrix


def hdr(data: dict[str, bytes], *, dolby_vision: bool) -> HdrInfo:
    """Static HDR metadata; decoders give a container's values to the frame where the bitstream has none."""
    raw_light, raw_display = data.get("CONTENT_LIGHT_LEVEL"), data.get("MASTERING_DISPLAY_METADATA")
    light = struct.unpack("=2I", raw_light[:8]) if raw_light else None
    display = _mastering(raw_display) if raw_display else None
    fit_light = light if light is None or max(light) < 1 << 16 else None
    fit_display = display if display is None or display.valid else None
    return HdrInfo(
        mastering_display=None if fit_display is None else str(fit_display),
        content_light=fit_light,
        dynamic=dolby_vision or any(kind in data for kind in _DYNAMIC),
        damaged=(light, display) != (fit_light, fit_display),
    )


def _mastering(raw: bytes) -> MasteringDisplay | None:
    """AVMasteringDisplayMetadata (ten rationals, two flags); None where a part is missing."""
    numbers = struct.unpack("=22i", raw[:88])
    values = [Fraction(n, d) if d else Fraction(0) for n, d in zip(numbers[:20:2], numbers[1:20:2], strict=True)]
    if not numbers[20] or not numbers[21]:
        return None  # x265 and the SEI know only the whole set
    xy = [round(v * COORDINATE) for v in values[:8]]
    low, high = (round(v * LUMINANCE) for v in values[8:10])
    r, g, b, w = ((xy[i], xy[i + 1]) for i in (0, 2, 4, 6))
    return MasteringDisplay(g, b, r, w, high, low)


def embedded_timecode(data: dict[str, bytes], rate: Fraction) -> str | None:
    """The timecode in the first picture's SEI (S12M) or GOP header.

    None for 00:00:00:00, which is what encoders write there when they have no timecode.
    """
    timecode = None
    if len(raw := data.get("S12M_TIMECODE", b"")) >= 8:
        count, first = struct.unpack("=2I", raw[:8])
        timecode = Timecode.from_smpte(first, rate) if count else None
    elif len(raw := data.get("GOP_TIMECODE", b"")) >= 8:
        timecode = Timecode.from_mpeg(struct.unpack("=q", raw[:8])[0])
    zero = timecode is None or (timecode.hours, timecode.minutes, timecode.seconds, timecode.frames) == (0, 0, 0, 0)
    return None if zero else str(timecode)
