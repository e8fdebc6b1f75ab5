"""Facts of a source file, as plain frozen data: what probe finds out, what the plan reasons with, what JSON shows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from fractions import Fraction
    from pathlib import Path

    from gpupipe.format import FrameFormat

StreamKind = Literal["video", "audio", "subtitle", "attachment", "data", "cover"]


@dataclass(frozen=True, slots=True)
class StreamInfo:
    """One stream of the container, in file order."""

    index: int
    kind: StreamKind
    codec: str
    """libav codec name; empty where unknown."""
    time_base: Fraction | None
    start: int | None
    """First pts in `time_base`; None where the container does not say."""
    duration: int | None
    tags: dict[str, str] = field(default_factory=dict)
    disposition: tuple[str, ...] = ()
    details: dict[str, str] = field(default_factory=dict)
    """For people: sample rate, layout, file name of an attachment."""


@dataclass(frozen=True, slots=True)
class HdrInfo:
    """Static HDR metadata, from the container or from the first picture."""

    mastering_display: str | None = None
    """SMPTE ST 2086 in x265's notation: see `codecs.mastering.MasteringDisplay`."""
    content_light: tuple[int, int] | None = None
    """MaxCLL and MaxFALL, cd/m2."""
    dynamic: bool = False
    """HDR10+ or Dolby Vision metadata travels with the pictures."""
    damaged: bool = False
    """There is static metadata with numbers that no bitstream can hold; it is not kept."""


@dataclass(frozen=True, slots=True)
class VideoInfo:
    """The main video stream: the first that is not a cover picture; neither disposition nor size outvotes order."""

    index: int
    codec: str
    profile: str | None
    format: FrameFormat
    """Of the decoded pictures: `format.pixels` is the libav format's twin, or the nearest one gpupipe works in."""
    native_pixels: str
    """libav's own pixel format name, such as yuvj422p, yuv411p or pal8."""
    coded_width: int
    coded_height: int
    time_base: Fraction
    rate: Fraction
    """Nominal frames a second (average, else guessed); never used for timestamps where pts exist."""
    start: int | None
    """First pts in `time_base`."""
    frames: int | None
    """What the container promises; None where it does not say."""
    duration: int | None
    """In `time_base`."""
    display_matrix: tuple[int, ...] | None
    """Nine 16.16 / 2.30 fixed point numbers as in libavutil/display.h; None for identity."""
    hdr: HdrInfo = HdrInfo()
    alpha: int = 0
    """Bits of the alpha that can be decoded, 0 where there is none; `format.alpha` says what a plan makes of it."""
    timecode: str | None = None
    """SMPTE start timecode, `;` before the frames where drop-frame; from the tmcd track, tags, or the first GOP."""


@dataclass(frozen=True, slots=True)
class SourceInfo:
    """A source file."""

    path: Path
    container: str
    """libav's demuxer name, such as `mov,mp4,m4a,3gp,3g2,mj2`."""
    video: VideoInfo
    streams: tuple[StreamInfo, ...]
    start: Fraction
    """Seconds at which the file begins: the earliest start of video and audio; time 0 of a player."""
    duration: Fraction | None
    """Seconds; None where unknown or unbelievable."""
    tags: dict[str, str] = field(default_factory=dict)
    chapters: tuple[dict[str, object], ...] = ()
    size_bytes: int = 0
    notes: tuple[str, ...] = ()
    """Oddities that probing found (bogus duration, missing timestamps)."""


@dataclass(frozen=True, slots=True)
class Track:
    """What becomes of one source stream in the output."""

    index: int
    kind: StreamKind
    action: Literal["encode", "copy", "drop"]
    reason: str = ""
    """Why it is dropped or changed; empty for a plain copy."""
    codec: str = ""
    """What it is encoded in where `action` is `encode` (audio, converted text subtitles, the main video)."""
