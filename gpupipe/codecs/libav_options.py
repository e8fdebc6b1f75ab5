"""How quality, bitrate, preset and options of the config reach each libav encoder."""

from __future__ import annotations

import difflib
import os
from typing import TYPE_CHECKING

import av

from gpupipe.codecs import x264_cpu
from gpupipe.codecs.encoders import encoder_facts
from gpupipe.codecs.mastering import COORDINATE, LUMINANCE, MasteringDisplay
from gpupipe.errors import PlanError

if TYPE_CHECKING:
    from gpupipe.codecs.base import EncoderSettings

FLAG_QSCALE, FLAG_GLOBAL_HEADER, FLAG_INTERLACED = 1 << 1, 1 << 22, (1 << 18) | (1 << 29)
QP_TO_LAMBDA = 118  # FF_QP2LAMBDA of libavutil

SVT_PRESETS = {
    "ultrafast": 12, "superfast": 11, "veryfast": 10, "faster": 9, "fast": 8, "medium": 7, "slow": 5, "slower": 4,
    "veryslow": 3,
}  # fmt: skip
OWNED = {
    "time_base": "an fps stage changes the rate",
    "pkt_timebase": "an fps stage changes the rate",
    "video_size": "a resize stage changes the size",
    "pixel_format": "the key output.video.pixel_format does that",
    "codec_tag": "the container decides",
}
"""Generic options that would contradict what gpupipe itself tells the encoder."""


def check_options(settings: EncoderSettings) -> None:
    """Raises PlanError for an option the encoder does not know, or a preset or quality it does not have."""
    context = av.CodecContext.create(settings.encoder, "w")
    supported = context.supported_options
    private = {o.name: o for o in supported.private}
    known = [*private, *(o.name for o in supported.generic)]
    for key, value in settings.options.items():
        if key not in known:
            close = difflib.get_close_matches(key, known, n=1)
            raise PlanError(
                f"{settings.encoder} has no option '{key}'",
                where=f"output.video.options.{key}",
                hint=f"did you mean '{close[0]}'?" if close else "see ffmpeg -h encoder=" + settings.encoder,
            )
        if key in OWNED:
            raise PlanError(f"'{key}' is set by gpupipe", where=f"output.video.options.{key}", hint=OWNED[key])
        if key in ("flags", "flags2") and not value.startswith(("+", "-")):
            hint = "write +cgop or -loop: a bare name would clear those that gpupipe sets"
            raise PlanError(f"flags begin with + or -, not {value!r}", where=f"output.video.options.{key}", hint=hint)
    if settings.preset is not None and "preset" not in private:
        raise PlanError(f"{settings.encoder} has no presets", where="output.video.preset", hint="leave the key out")
    if settings.quality is not None and encoder_facts(settings.encoder).scale is None:
        hint = "leave the key out; profiles and the like go under options"
        raise PlanError(f"{settings.encoder} has no quality setting", where="output.video.quality", hint=hint)
    _check_quality(settings)


def _check_quality(settings: EncoderSettings) -> None:
    quality, scale = settings.quality, encoder_facts(settings.encoder).scale
    if quality is None or scale is None:
        return
    if not scale.least <= quality <= scale.most or (scale.whole and quality != round(quality)):
        kind = "a whole number " if scale.whole else ""
        message = f"quality of {settings.encoder} is {kind}from {scale.least:g} to {scale.most:g}, not {quality:g}"
        raise PlanError(message, where="output.video.quality")


def rate_control(context: av.VideoCodecContext, settings: EncoderSettings) -> None:
    """Sets quality or bitrate, preset, HDR parameters and the user's options on an encoder not yet open."""
    options, scale = _speed(settings), encoder_facts(settings.encoder).scale
    quality = scale.default if scale is not None and settings.quality is None else settings.quality
    if settings.bitrate is not None:
        context.bit_rate = settings.bitrate
    elif scale is not None and quality is not None:
        if scale.kind == "crf":
            options["crf"] = f"{quality:g}"
            context.bit_rate = 0
        else:
            if settings.codec == "mjpeg" and settings.quality is not None:
                quality = jpeg_scale(settings.quality)
            context.flags |= FLAG_QSCALE
            # As an option: PyAV's attribute multiplies by FF_QP2LAMBDA itself. The encoders of MPEG's family read the
            # quality of each frame instead, which PyAV does not set; a range of one scale holds them to it.
            options["global_quality"] = str(round(quality * QP_TO_LAMBDA))
            if scale.kind == "frame quantiser":
                context.flags &= ~FLAG_QSCALE
                options["qmin"] = options["qmax"] = str(max(1, round(quality)))
    location = settings.input_format.color.chroma_location
    if location is not None and settings.input_format.pixels.chroma_shift == (1, 1):
        options["chroma_sample_location"] = location.value
    options.update(settings.options)
    key, text = _library_parameters(settings)
    if text:
        options[key] = ":".join(filter(None, (text, options.get(key, ""))))
    context.options = options


def _speed(settings: EncoderSettings) -> dict[str, str]:
    """The preset in the encoder's own terms."""
    if settings.encoder == "libsvtav1":
        os.environ.setdefault("SVT_LOG", "1")  # the library prints its banner to the terminal otherwise
        return {"preset": str(SVT_PRESETS.get(settings.preset or "medium", settings.preset))}
    if settings.encoder == "libvpx-vp9":
        return {"row-mt": "1"}
    return {} if settings.preset is None else {"preset": settings.preset}


def jpeg_scale(quality: float) -> float:
    """JPEG quality 1..100, the scale of nvJPEG and of everyone else, as libav's quantiser scale 1..31.

    The IJG's rule gives the percentage by which the tables of ISO 10918-1 annex K are scaled; libav's scale is eighths.
    """
    if not 1 <= quality <= 100:
        raise PlanError(f"JPEG quality lies between 1 and 100, not {quality:g}", where="output.video.quality")
    percent = 200 - 2 * quality if quality >= 50 else 5000 / quality
    return min(31.0, max(1.0, percent / 100 * 8))


def _library_parameters(settings: EncoderSettings) -> tuple[str, str]:
    """The encoder library's own parameter string, for HDR10 metadata above all; empty where there is nothing to say."""
    display, light = settings.mastering_display, settings.content_light
    parts: list[str] = []
    if settings.encoder == "libx265":
        parts.append("log-level=none")  # it would print to the terminal; libav repeats what matters
        if display or light:
            parts += ["hdr10=1", "repeat-headers=1"]
        parts += [f"master-display={display}"] if display else []
        parts += [f"max-cll={light[0]},{light[1]}"] if light else []
        return "x265-params", ":".join(parts)
    if settings.encoder in ("libx264", "libx264rgb"):
        parts += [own] if (own := x264_cpu.asm(settings.input_format.width)) else []
        parts += [f"mastering-display={display}"] if display else []
        parts += [f"cll={light[0]},{light[1]}"] if light else []
        return "x264-params", ":".join(parts)
    if settings.encoder == "libsvtav1":
        parts += [f"mastering-display={_real_units(display)}"] if display else []
        parts += [f"content-light={light[0]},{light[1]}"] if light else []
        return "svtav1-params", ":".join(parts)
    return "", ""


def _real_units(display: str) -> str:
    """ST 2086 in SVT-AV1's notation: x265's with chromaticities and cd/m2 as decimals."""
    g, b, r, w, most, least = MasteringDisplay.parse(display)
    points = (
        f"{name}({x / COORDINATE:.5f},{y / COORDINATE:.5f})"
        for name, (x, y) in (("G", g), ("B", b), ("R", r), ("WP", w))
    )
    return f"{''.join(points)}L({most / LUMINANCE:.5f},{least / LUMINANCE:.5f})"
