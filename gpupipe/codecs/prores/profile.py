"""The six profiles, what each takes and how much it may spend; no torch, so that a plan can ask."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gpupipe.codecs.prores import tables
from gpupipe.errors import PlanError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpupipe.codecs.base import EncoderSettings
    from gpupipe.format import FrameFormat, PixelFormat

_LARGEST = 65535  # sides are 16-bit numbers in the frame header
_TIERS = (1620, 2700, 6075)  # macroblocks a frame: 720x576, 960x720, 1440x1080; anything larger is the last tier


@dataclass(frozen=True, slots=True)
class Profile:
    """One of the six."""

    name: str
    number: int
    fourcc: str
    chroma_444: bool
    bits_per_macroblock: tuple[int, int, int, int]
    """By size of frame; the published target rates (Apple ProRes white paper) of 720x486i29.97, 960x720p59.94,
    1280x720p59.94 and 1920x1080p29.97, as bits a macroblock. They leave alpha out, as those do."""
    luma: tuple[int, ...]
    chroma: tuple[int, ...]
    """Quantisation weights in raster order, sent with every frame. At the profile's rate those of prores_ks."""
    finest: int
    """The finest quantiser index that rate control uses."""

    def frame_bytes(self, macroblocks: int) -> int:
        """The most that a frame of so many macroblocks should take."""
        tier = sum(macroblocks > limit for limit in _TIERS)
        return self.bits_per_macroblock[tier] * macroblocks // 8


PROFILES: tuple[Profile, ...] = (
    Profile("proxy", 0, "apco", False, (287, 234, 208, 184), tables.PROXY_LUMA, tables.PROXY_CHROMA, 4),
    Profile("lt", 1, "apcs", False, (693, 537, 468, 417), tables.LT, tables.LT, 1),
    Profile("standard", 2, "apcn", False, (1004, 778, 681, 601), tables.STANDARD, tables.STANDARD, 1),
    Profile("hq", 3, "apch", False, (1506, 1167, 1019, 899), tables.HQ, tables.HQ, 1),
    Profile("4444", 4, "ap4h", True, (2248, 1748, 1529, 1349), tables.HQ, tables.HQ, 1),
    Profile("4444xq", 5, "ap4x", True, (3372, 2626, 2294, 2024), tables.HQ, tables.HQ, 1),
)
HQ, P4444, P4444XQ = PROFILES[3:]


def profile_named(options: Mapping[str, str]) -> Profile | None:
    """The profile under `options`, by the names and numbers that prores_ks has too; None where it is left open.

    Raises PlanError for an unknown one, and for any other option.
    """
    for key in options:
        if key != "profile":
            raise PlanError(f"prores_torch has no option '{key}'", where=f"output.video.options.{key}",
                            hint="it has profile only")  # fmt: skip
    wanted = options.get("profile", "auto")
    if wanted in ("auto", "-1"):
        return None
    for profile in PROFILES:
        if wanted in (profile.name, str(profile.number)):
            return profile
    names = ", ".join(p.name for p in PROFILES)
    raise PlanError(f"ProRes has no profile '{wanted}'", where="output.video.options.profile", hint=f"{names}, or 0..5")


_422, _444 = ("yuv422p10le",), ("yuv444p12le", "yuv444p10le")


def pixel_formats(profile: Profile | None, like: PixelFormat | None = None) -> tuple[str, ...]:
    """What it takes: 10-bit 4:2:2, or 12-bit or 10-bit 4:4:4 for the 4444 profiles.

    Where the profile is left open, 4:4:4 is for pictures `like` that have it; without `like`, all of them are named.
    """
    if profile is None and like is None:
        return _422 + _444
    full = profile.chroma_444 if profile is not None else like is not None and _is_444(like)
    return _444 if full else _422


def profile_of(settings: EncoderSettings) -> Profile:
    """The profile of a run; where it is left open, as prores_ks chooses: hq for 4:2:2 and 4444 for 4:4:4.

    4444 XQ has luma weights of its own, half of the others, where `quality` is given; at its rate they would buy
    nothing that prores_ks' weights do not.

    Raises PlanError for what prores_torch does not do: see `check`.
    """
    check(settings.options, settings.quality, settings.bitrate, settings.preset)
    pixels = settings.input_format.pixels
    profile = profile_named(settings.options)
    if pixels.name not in pixel_formats(profile):
        named = f"ProRes {profile.name}" if profile else "prores_torch"
        raise PlanError(f"{named} does not take {pixels.name}", where="output.video.pixel_format",
                        hint=f"it takes {', '.join(pixel_formats(profile))}")  # fmt: skip
    profile = profile or (P4444 if _is_444(pixels) else HQ)
    if profile is P4444XQ and settings.quality is not None:
        return replace(profile, luma=tables.XQ_LUMA)
    return profile


def _is_444(pixels: PixelFormat) -> bool:
    return pixels.chroma_shift == (0, 0) and pixels.family != "gray"


def check(options: Mapping[str, str], quality: float | None, bitrate: int | None, preset: str | None) -> None:
    """Raises PlanError for settings that prores_torch does not have.

    `quality` is the quantiser index of every slice, 1 (finest) to 224, as prores_ks has it (there up to 64); without
    it each frame is held to the profile's target rate.
    """
    profile_named(options)
    if quality is not None and not (1 <= quality <= tables.MAX_QUANTISER and quality == int(quality)):
        raise PlanError(f"quality is a whole quantiser index from 1 (finest) to 224, not {quality:g}",
                        where="output.video.quality", hint="leave it out for the profile's rate")  # fmt: skip
    if bitrate is not None:
        raise PlanError("a ProRes profile has its own rate", where="output.video.bitrate",
                        hint="options: {profile: proxy|lt|standard|hq|4444|4444xq}")  # fmt: skip
    if preset is not None:
        raise PlanError("prores_torch has no presets", where="output.video.preset", hint="leave the key out")


def supports(
    picture: FrameFormat, options: Mapping[str, str], quality: float | None, bitrate: int | None, preset: str | None
) -> str | None:
    """Why prores_torch cannot make such pictures under such settings; None where it can."""
    try:
        check(options, quality, bitrate, preset)
    except PlanError as error:
        return f"{error.message}, {error.hint}" if error.hint else error.message
    if max(picture.width, picture.height) > _LARGEST:
        return f"ProRes has at most {_LARGEST} samples a side"
    if picture.interlaced and picture.height % 2:
        return "its fields would differ in height"
    return None
