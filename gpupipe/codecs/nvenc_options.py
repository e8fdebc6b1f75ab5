"""NVENC's settings in the words of PyNvVideoCodec's `CreateEncoder`, which ignores names it does not know."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from gpupipe.errors import PlanError

if TYPE_CHECKING:
    from gpupipe.codecs.base import EncoderSettings

PRESETS = {
    "ultrafast": "P1", "superfast": "P1", "veryfast": "P2", "faster": "P3", "fast": "P3",
    "medium": "P4", "slow": "P5", "slower": "P6", "veryslow": "P7", "placebo": "P7",
}  # fmt: skip
"""x264's preset names -> NVENC's."""

_ANY_NUMBER = None
OPTIONS: dict[str, tuple[str, ...] | None] = {
    "tuning_info": ("high_quality", "low_latency", "ultra_low_latency", "lossless", "uhq"),
    "rc": ("constqp", "vbr", "cbr"),
    "multipass": ("disabled", "qres", "fullres"),
    "temporalaq": ("1",),  # any value switches it on, 0 too
    "ldkfs": ("1",),  # likewise
    **dict.fromkeys(
        ("maxbitrate", "vbvbufsize", "vbvinit", "cq", "constqp", "initqp", "qmax", "gop", "bf", "idrperiod",
         "lookahead", "aq", "numrefl0", "numrefl1", "level", "tier"), _ANY_NUMBER,
    ),
}  # fmt: skip
"""Names that `CreateEncoder` reads and gpupipe does not set by itself; None: a number, or three with commas.

`qmin` is not among them: the library reads `initqp` in its place.
"""
OWN = {
    "codec": "output.video.codec", "preset": "output.video.preset", "bitrate": "output.video.bitrate",
    "colorspace": "the source's tags", "fps": "the source's rate", "gpu_id": "device",
    "fmt": "output.video.pixel_format", "s": "the last stage's size",
    "repeatspspps": "gpupipe", "cudastream": "gpupipe", "cudacontext": "gpupipe",
}  # fmt: skip
"""Names that are set from elsewhere, and from where."""

DEFAULT_QUALITY = 18
_MAX_QP = {"h264": 51, "hevc": 51, "av1": 255}


def check_options(settings: EncoderSettings) -> None:
    """Raises PlanError for options or presets that the library would ignore or misread."""
    for name, value in settings.options.items():
        where = f"output.video.options.{name}"
        if name in OWN:
            raise PlanError(f"{name} is set from {OWN[name]}", where=where, hint="leave it out here")
        if name not in OPTIONS:
            near = difflib.get_close_matches(name, list(OPTIONS), n=1)
            hint = f"did you mean '{near[0]}'?" if near else f"nvenc has {', '.join(sorted(OPTIONS))}"
            raise PlanError("nvenc has no such option", where=where, hint=hint)
        allowed = OPTIONS[name]
        if allowed is not None and value not in allowed:
            raise PlanError(f"{value!r} is not one of {', '.join(allowed)}", where=where)
        if allowed is None and not value.replace(",", "").isdecimal():
            raise PlanError(f"{value!r} is not a number", where=where)
    preset(settings)


def preset(settings: EncoderSettings) -> str:
    """NVENC's preset, P1 (fast) to P7 (good), for that or for x264's name of it; P4 by default. Raises PlanError."""
    name = settings.preset or "medium"
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


def arguments(settings: EncoderSettings, b_pictures: int) -> dict[str, str]:
    """Keyword arguments for `CreateEncoder`: gpupipe's defaults, then the config's options over them."""
    rate = round(settings.rate * 100)
    gop = max(b_pictures + 1, round(settings.rate * 2))
    own = {
        "codec": settings.codec,
        "preset": preset(settings),
        "tuning_info": "high_quality",
        "fps": f"{rate // 100}.{rate % 100:02d}",  # two decimals are all it reads; for rate control only
        "gop": str(gop),
        "idrperiod": settings.options.get("gop", str(gop)),
        **rate_control(settings),
    }
    if settings.codec != "av1":
        own["repeatspspps"] = "1"
    return {**own, **settings.options, "bf": str(b_pictures)}
