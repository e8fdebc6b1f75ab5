"""NVENC's settings in the words of PyNvVideoCodec's `CreateEncoder`, which ignores names and values it does not know.

What stands here was read off the wheel 2.2.4: each name and value given to it, and what then reached the driver looked
at (tests/nvenc_shim/test_wheel_options.py does so again with the wheel that is installed).
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Literal

from gpupipe.errors import PlanError

if TYPE_CHECKING:
    from gpupipe.codecs.base import EncoderSettings

PRESETS = {
    "ultrafast": "P1", "superfast": "P1", "veryfast": "P2", "faster": "P3", "fast": "P3",
    "medium": "P4", "slow": "P5", "slower": "P6", "veryslow": "P7", "placebo": "P7",
}  # fmt: skip
"""x264's preset names -> NVENC's."""

_MOST = (1 << 32) - 1
_MAX_QP = {"h264": 51, "hevc": 51, "av1": 255}
_MAX_CQ = {"h264": 51, "hevc": 51, "av1": 63}
_H264_LEVELS = ("1", "1b", "1.1", "1.2", "1.3", "2", "2.1", "2.2", "3", "3.1", "3.2", "4", "4.1", "4.2", "5", "5.1",
                "5.2", "6", "6.1", "6.2")  # fmt: skip
LEVELS = {
    "h264": _H264_LEVELS,
    "hevc": ("1", "2", "2.1", "3", "3.1", "4", "4.1", "5", "5.1", "5.2", "6", "6.1", "6.2"),
    "av1": ("2", "2.1", "2.2", "2.3", "3", "3.1", "3.2", "3.3", "4", "4.1", "4.2", "4.3", "5", "5.1", "5.2", "5.3", "6",
            "6.1", "6.2", "6.3", "7", "7.1", "7.2", "7.3"),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Option:
    """What an option takes: one of `choices`, or whole numbers from `low` to `high`."""

    choices: tuple[str, ...] = ()
    low: int = 0
    high: int = _MOST
    scale: Literal["", "qp", "cq"] = ""
    """Where `high` is the codec's: quantisers (one, or three with commas for P, B and I pictures) and qualities."""
    codecs: tuple[str, ...] = ("h264", "hevc", "av1")

    def refusal(self, value: str, codec: str) -> str | None:
        """What is wrong with a value, in words."""
        if codec not in self.codecs:
            return f"{codec} has none"
        choices = LEVELS[codec] if self.choices == _H264_LEVELS else self.choices
        if choices:
            return None if value in choices else f"{value!r} is not one of {', '.join(choices)}"
        numbers = value.split(",")
        counts = (1, 3) if self.scale == "qp" else (1,)
        if not all(n.isdecimal() and n.isascii() for n in numbers) or len(numbers) not in counts:
            return f"{value!r} is not {'one number, or three with commas' if len(counts) > 1 else 'a whole number'}"
        high = {"qp": _MAX_QP[codec], "cq": _MAX_CQ[codec]}.get(self.scale, self.high)
        if not all(self.low <= int(n) <= high for n in numbers):
            return f"{value!r} is not from {self.low} to {high}"
        return None


OPTIONS: dict[str, Option] = {
    "tuning_info": Option(("high_quality", "low_latency", "ultra_low_latency", "lossless", "uhq")),
    "rc": Option(("constqp", "vbr", "cbr")),
    "multipass": Option(("disabled", "qres", "fullres")),
    "aq": Option(high=15),  # strength of spatial adaptive quantisation; 0 lets the driver choose it
    "temporalaq": Option(("1",)),  # any value switches it on, 0 too
    "ldkfs": Option(("1",)),  # low delay key frame scale; likewise
    "lookahead": Option(high=32),
    "maxbitrate": Option(low=1),
    "vbvbufsize": Option(low=1),
    "vbvinit": Option(low=1),
    "cq": Option(low=1, scale="cq"),
    "constqp": Option(scale="qp"),
    "initqp": Option(scale="qp"),
    "qmax": Option(scale="qp"),
    "gop": Option(low=1),
    "idrperiod": Option(low=1),
    "bf": Option(high=31),
    "numrefl0": Option(low=1, high=6),
    "numrefl1": Option(low=1, high=6),
    "level": Option(_H264_LEVELS),
    "tier": Option(("0", "1"), codecs=("hevc", "av1")),
}
"""Names that `CreateEncoder` reads and gpupipe does not set by itself."""
OWN = {
    "codec": "output.video.codec", "preset": "output.video.preset", "bitrate": "output.video.bitrate",
    "colorspace": "the source's tags", "fps": "the source's rate", "gpu_id": "device",
    "num_unit_in_ticks": "the source's rate", "timescale": "the source's rate", "timinginfo": "the source's rate",
    "fmt": "output.video.pixel_format", "s": "the last stage's size", "max_res": "the last stage's size",
    "repeatspspps": "gpupipe", "global_header": "gpupipe", "use_ivf_container": "gpupipe",
    "cudastream": "gpupipe", "cudacontext": "gpupipe",
}  # fmt: skip
"""Names that are set from elsewhere, and from where."""
ABSENT = {
    "qmin": "PyNvVideoCodec reads initqp in its place",
    "splitencode": "PyNvVideoCodec has no word for it, and leaves it to the driver",
    "slice": "PyNvVideoCodec takes it and does nothing with it",
}
"""Names that people will look for, and why there are none."""
_ALSO = {
    "split_encode_mode": "splitencode", "splitencodemode": "splitencode", "split_encode": "splitencode",
    "rc-lookahead": "lookahead", "spatial-aq": "aq", "spatial_aq": "aq", "aq-strength": "aq",
    "temporal-aq": "temporalaq", "temporal_aq": "temporalaq", "b_adapt": "bf", "bframes": "bf", "tune": "tuning_info",
    "tuning": "tuning_info",
    "qp": "constqp", "g": "gop", "maxrate": "maxbitrate", "bufsize": "vbvbufsize",
}  # fmt: skip
"""ffmpeg's names for the same."""
UHQ_API = (13, 0)
"""NVENC's API from which on there is `uhq`; the wheel then loads its other module."""

DEFAULT_QUALITY = 18


def check_options(
    codec: str, options: dict[str, str], preset_name: str | None = None, api: tuple[int, int] | None = None
) -> None:
    """Raises PlanError for options or presets that the library would ignore or misread.

    `api` is the version of NVENC's API that the library found; None where that is not known yet.
    """
    for name, value in options.items():
        where = f"output.video.options.{name}"
        if name in OWN:
            raise PlanError(f"{name} is set from {OWN[name]}", where=where, hint="leave it out here")
        if name not in OPTIONS:
            raise PlanError("nvenc has no such option", where=where, hint=_instead(name))
        if refusal := OPTIONS[name].refusal(value, codec):
            raise PlanError(refusal, where=where)
        if value == "uhq" and api is not None and api < UHQ_API:
            message = f"uhq needs NVENC API 13.0, and this driver has {api[0]}.{api[1]}"
            raise PlanError(message, where=where, hint="a driver from 570 on has it; high_quality is next to it")
    preset(preset_name)


def _instead(name: str) -> str:
    """What to write in place of an unknown name."""
    known = _ALSO.get(name, name)
    if known in ABSENT:
        return ABSENT[known]
    if known in OPTIONS:
        return f"it is called {known} here"
    near = difflib.get_close_matches(name, list(OPTIONS), n=1)
    return f"did you mean '{near[0]}'?" if near else f"nvenc has {', '.join(sorted(OPTIONS))}"


def preset(asked: str | None) -> str:
    """NVENC's preset, P1 (fast) to P7 (good), for that or for x264's name of it; P4 by default. Raises PlanError."""
    name = asked or "medium"
    found = PRESETS.get(name, name.upper())
    if found not in PRESETS.values():
        raise PlanError(
            f"nvenc has no preset {name!r}", where="output.video.preset", hint=f"p1 to p7, or {', '.join(PRESETS)}"
        )
    return found


def b_frames(settings: EncoderSettings, most: int) -> int:
    """B pictures between two others: 2 by default, 0 for AV1 and where the GPU has none or latency matters."""
    asked = settings.options.get("bf")
    if asked is not None:
        if int(asked) > most:
            where = "output.video.options.bf"
            raise PlanError(f"this GPU's NVENC makes at most {most} B-frames for {settings.codec}", where=where)
        return int(asked)
    low_latency = "low_latency" in settings.options.get("tuning_info", "")
    return 0 if settings.codec == "av1" or low_latency else min(2, most)


def rate_control(settings: EncoderSettings) -> dict[str, str]:
    """Constant QP for a quality, VBR for a bitrate.

    `quality` is on x264's CRF scale: the QP of P pictures, with I pictures 3 better and B pictures 2 worse, as x264's
    default ipratio 1.4 and pbratio 1.3 make it (6 log2 of them). AV1's QP runs to 255 instead of 51. NVENC's own `cq`
    is not used, because with it the library leaves the bitrate to a ceiling of the level that it does not show.
    """
    if settings.options.get("tuning_info") == "lossless":
        if settings.quality is not None or settings.bitrate is not None:
            key = "quality" if settings.bitrate is None else "bitrate"
            raise PlanError(
                "lossless has neither quality nor bitrate", where=f"output.video.{key}", hint="leave it out"
            )
        return {"rc": "constqp", "constqp": "0"}
    if "rc" in settings.options or "cq" in settings.options or "constqp" in settings.options:
        rate = {"bitrate": str(settings.bitrate)} if settings.bitrate else {}
        return (
            rate if "rc" in settings.options else {**rate, "rc": "constqp" if "constqp" in settings.options else "vbr"}
        )
    if settings.bitrate:
        bits = settings.bitrate
        return {"rc": "vbr", "bitrate": str(bits), "maxbitrate": str(bits * 3 // 2), "vbvbufsize": str(bits * 2)}
    quality = DEFAULT_QUALITY if settings.quality is None else settings.quality
    most = _MAX_QP[settings.codec]
    p, b, i = (min(most, max(0, round((quality + offset) * most / 51))) for offset in (0, 2, -3))
    return {"rc": "constqp", "constqp": f"{p},{b},{i}"}


def _rate(rate: Fraction) -> str:
    """As the library reads it: a fraction is kept to the digit, decimals only to the second."""
    short = rate.limit_denominator(1 << 16)
    return f"{short.numerator}/{short.denominator}"


def arguments(settings: EncoderSettings, b_pictures: int) -> dict[str, str]:
    """Keyword arguments for `CreateEncoder`: gpupipe's defaults, then the config's options over them."""
    gop = max(b_pictures + 1, round(settings.rate * 2))
    own = {
        "codec": settings.codec,
        "preset": preset(settings.preset),
        "tuning_info": "high_quality",
        "fps": _rate(settings.rate or Fraction(25)),  # for rate control only
        "gop": str(gop),
        "idrperiod": settings.options.get("gop", str(gop)),
        **rate_control(settings),
    }
    own |= {"use_ivf_container": "false"} if settings.codec == "av1" else {"repeatspspps": "1"}
    return {**own, **settings.options, "bf": str(b_pictures)}
