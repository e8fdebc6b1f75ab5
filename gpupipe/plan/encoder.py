"""Which encoder, in which pixel format, and why."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import av
import av.error

from gpupipe.codecs.encoders import DEVICE_ENCODERS, encoder_facts, usual_encoder
from gpupipe.color import ChromaLocation, Matrix, Range
from gpupipe.errors import CapabilityError, PlanError
from gpupipe.format import PIXEL_FORMATS, FrameFormat, PixelFormat, pixel_format, without_alpha

if TYPE_CHECKING:
    from gpupipe.config import VideoOutput

ALIASES = {"h265": "hevc", "x264": "h264", "x265": "hevc", "avc": "h264"}


@dataclass(frozen=True, slots=True)
class Choice:
    """An encoder and the reason for it."""

    codec: str
    encoder: str
    reason: str
    on_device: bool


def choose_encoder(video: VideoOutput, picture: FrameFormat, device: str) -> Choice:
    """The encoder that the config names, or the best of this machine for its codec.

    Raises PlanError where a named one cannot do it; `auto` says why it did not take the GPU's.
    """
    codec = ALIASES.get(video.codec, video.codec)
    if (named := encoder_facts(video.encoder)).on_device:
        if "codec" not in video.model_fields_set:
            codec = named.codecs[0]
        why_not = _device_refusal(video.encoder, codec, picture, device, video)
        if why_not:
            message = f"{video.encoder} cannot encode {codec} here: {why_not}"
            raise CapabilityError(message, where="output.video.encoder", hint="use `encoder: auto`")
        return Choice(codec, video.encoder, "named in the config", on_device=True)
    if video.encoder != "auto":
        found = _libav(video.encoder, "output.video.encoder")
        if "codec" in video.model_fields_set and found.canonical_name != codec:
            raise PlanError(
                f"{video.encoder} encodes {found.canonical_name}, not {codec}", where="output.video.encoder"
            )
        return Choice(found.canonical_name, found.name, "named in the config", on_device=False)
    reasons = []
    for row in DEVICE_ENCODERS:
        if codec in row.codecs and device != "cpu":
            why_not = _device_refusal(row.name, codec, picture, device, video)
            if why_not is None:
                return Choice(codec, row.name, f"the GPU has it for {codec}", on_device=True)
            reasons.append(f"not {row.name}: {why_not}")
    found = _libav(usual_encoder(codec), "output.video.codec")
    return Choice(codec, found.name, "; ".join(reasons) or f"the CPU encoder for {codec}", on_device=False)


def _device_refusal(encoder: str, codec: str, picture: FrameFormat, device: str, video: VideoOutput) -> str | None:
    row = encoder_facts(encoder)
    if codec not in row.codecs:
        return f"it makes {', '.join(row.codecs)} only"
    if row.needs_gpu and device == "cpu":
        return "this run has no GPU"
    if encoder == "prores_torch":
        from gpupipe.codecs.prores import profile  # noqa: PLC0415

        return profile.supports(picture, options_of(video), video.quality, video.bitrate, video.preset)
    if encoder == "nvjpeg":
        from gpupipe.codecs import nvjpeg  # noqa: PLC0415

        return nvjpeg.supports(picture, options_of(video), video.quality, video.bitrate)
    from gpupipe.codecs import nvenc, nvenc_options  # noqa: PLC0415

    refusal = nvenc.supports(codec, picture)
    if refusal is None and video.encoder == "auto":  # of a named one the plan says which option it is
        try:
            nvenc_options.check_options(codec, options_of(video), video.preset)
        except PlanError as error:
            return str(error)
    return refusal


def options_of(video: VideoOutput) -> dict[str, str]:
    """The encoder's own options as text, which is how encoders know them."""
    return {key: str(value) for key, value in video.options.items()}


def _libav(name: str, where: str) -> av.Codec:
    try:
        codec = av.Codec(name, "w")
    except (av.error.FFmpegError, ValueError):
        hint = "h264, hevc, av1, vp9, prores, mjpeg, ffv1 and all encoders of `ffmpeg -encoders` built into PyAV"
        raise PlanError(f"no encoder called '{name}'", where=where, hint=hint) from None
    if codec.type != "video":
        raise PlanError(f"{name} encodes {codec.type}, not video", where=where)
    return codec


def encoder_pixels(choice: Choice, video: VideoOutput, picture: FrameFormat) -> PixelFormat:
    """The pixel format nearest to the picture's that the encoder takes: depth and chroma are kept before all else."""
    if choice.encoder == "nvenc":
        from gpupipe.codecs import nvenc  # noqa: PLC0415

        offered = list(nvenc.pixel_formats(choice.codec))
    elif choice.encoder == "nvjpeg":
        from gpupipe.codecs import nvjpeg  # noqa: PLC0415

        offered = list(nvjpeg.pixel_formats())
    elif choice.encoder == "prores_torch":
        from gpupipe.codecs.prores import profile  # noqa: PLC0415

        like = picture.pixels if video.pixel_format == "auto" else None
        named = profile.profile_named(options_of(video)) or (profile.P4444 if picture.alpha else None)
        offered = list(profile.pixel_formats(named, like))
    else:
        names = [f.name for f in av.Codec(choice.encoder, "w").video_formats or ()] or list(PIXEL_FORMATS)
        if picture.alpha:
            names = [plain for plain in map(without_alpha, names) if plain is not None]
        offered = list(dict.fromkeys(p.name for p in map(pixel_format, names) if p is not None))
        if choice.encoder == "prores_ks" and "profile" in video.options:
            from gpupipe.codecs.prores import profile  # noqa: PLC0415

            named = profile.profile_named({"profile": str(video.options["profile"])})
            offered = [name for name in offered if name in profile.pixel_formats(named)]
    if video.pixel_format != "auto":
        wanted = pixel_format(without_alpha(video.pixel_format) or video.pixel_format)
        if wanted is None or wanted.name not in offered:
            raise PlanError(f"{choice.encoder} does not take {video.pixel_format}", where="output.video.pixel_format",
                            hint=f"it takes {', '.join(sorted(offered))}")  # fmt: skip
        return wanted
    formats = [PIXEL_FORMATS[n] for n in offered]
    if not formats:
        raise PlanError(f"{choice.encoder} takes no pixel format that gpupipe makes", where="output.video.encoder")
    best = min(formats, key=lambda f: _distance(picture.pixels, f, picture.device))
    if best.family == "gray" and picture.pixels.family != "gray":
        raise PlanError(f"{choice.encoder} takes no colour format that gpupipe makes", where="output.video.encoder",
                        hint=f"use another encoder, or `pixel_format: {best.name}` to drop the colour")  # fmt: skip
    return best


def _distance(have: PixelFormat, want: PixelFormat, device: str) -> tuple[int, ...]:
    """How far a format is: losses first, then needless growth, then the cost of rearranging."""
    depth = 12 if have.layout == "float" else have.depth
    family = "yuv" if have.layout == "float" else have.family
    loss_color = int(want.family == "gray" and family != "gray")
    loss_depth = max(0, depth - want.depth)
    loss_chroma = sum(max(0, w - h) for h, w in zip(have.chroma_shift, want.chroma_shift, strict=True))
    growth = max(0, want.depth - depth) + sum(
        max(0, h - w) for h, w in zip(have.chroma_shift, want.chroma_shift, strict=True)
    )
    other_family = int(want.family != family)
    layout = int(want.layout != have.layout) if device == "cpu" else int(want.layout != "semiplanar")
    return loss_color, loss_depth, loss_chroma, other_family, growth, layout, want.msb_shift


def encoder_format(choice: Choice, video: VideoOutput, picture: FrameFormat, source: FrameFormat) -> FrameFormat:
    """What the encoder is given: `picture` in its pixel format, with the source's tags where they still hold.

    `source` is the decoded picture: where the chain works in float R'G'B', its depth and chroma are what is kept.
    """
    base = picture.with_(pixels=source.pixels) if picture.pixels.layout == "float" else picture
    pixels = encoder_pixels(choice, video, base)
    color = base.color
    if pixels.family != "rgb" and (base.pixels.family == "rgb" or color.matrix == Matrix.RGB):
        color = replace(color, matrix=Matrix.BT709, range=Range.LIMITED)
    elif pixels.family == "rgb":
        color = replace(color, matrix=Matrix.RGB, range=Range.FULL)
    if choice.codec == "mjpeg":
        # JFIF knows no other matrix, range or siting, and so do decoders, whatever the container says.
        color = replace(color, matrix=Matrix.BT470BG, range=Range.FULL)
        if pixels.chroma_shift != (0, 0):
            color = replace(color, chroma_location=ChromaLocation.CENTER)
    # libav's formats have one depth for all planes; prores_torch takes any and writes 16 bits.
    alpha = pixels.depth if picture.alpha and choice.encoder != "prores_torch" else picture.alpha
    return picture.with_(pixels=pixels, color=color, alpha=alpha)
