"""A plan in words: what `gpupipe plan` prints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpupipe import stages
from gpupipe.codecs.encoders import encoder_facts

if TYPE_CHECKING:
    from fractions import Fraction

    from gpupipe.codecs.base import EncoderSettings
    from gpupipe.color import ColorSpec
    from gpupipe.format import FrameFormat
    from gpupipe.plan.model import Plan, Step


def lines(plan: Plan) -> list[str]:
    """One fact a line, in the order in which a frame meets them."""
    info, video = plan.source, plan.source.video
    frames = f", {video.frames} frames" if video.frames else ""
    out = [
        f"input    {info.path}",
        (
            f"         {' '.join(filter(None, (video.codec, video.profile, video.native_pixels)))} "
            f"{video.format.width}x{video.format.height}, {_rate(video.rate)} fps{frames}, {_color(video.format.color)}"
        ),
    ]
    if plan.start_pts is not None or plan.end_pts is not None:
        out.append(f"range    {_moment(plan.start_pts, video.time_base, 'the start')} up to, not including, "
                   f"{_moment(plan.end_pts, video.time_base, 'the end')}")  # fmt: skip
    where = plan.device if plan.decoder == "nvdec" else "cpu"
    out.append(f"decode   {plan.decoder} on {where}: {plan.decoder_reason}")
    side = f", {plan.sessions} side by side" if len(plan.segments) > 1 else ""
    out.append(f"segments {plan.segments_reason}{side}")
    if plan.devices:
        out.append(f"devices  {', '.join(plan.devices)}: segments go to whichever is free")
    if plan.ledger:
        out.append(f"resume   finished segments are kept in {plan.output.name}.gpupipe until the output is whole")
    out += [f"memory   {reason}" for reason in (plan.memory_reason, plan.host_reason) if reason]
    if plan.decoder == "nvdec" and plan.steps:
        out.append(f"graphs   {_graphs(plan)}")
    if plan.retime is not None:
        out.append(f"retime   to {_rate(plan.retime)} fps, repeating and dropping by time")
    out += [f"  {n}. {_step(step)}" for n, step in enumerate(plan.steps, 1)] or [
        "         frames go to the encoder as they are"
    ]
    encoder = plan.encoder
    control = f"{encoder.bitrate} b/s" if encoder.bitrate else f"quality {_quality(encoder)}"
    extras = "".join(f", {k}={v}" for k, v in encoder.options.items())
    preset = f", preset {encoder.preset}" if encoder.preset else ""
    picture = f"{encoder.input_format.pixels.name}{_alpha(encoder.input_format)}"
    what = f"{encoder.encoder} ({encoder.codec}), {picture}, {control}{preset}{extras}"
    out.append(f"encode   {what}: {plan.encoder_reason}")
    for track in plan.tracks:
        if track.action != "encode" or track.kind != "video":
            out.append(
                f"stream   #{track.index} {track.kind}: {track.action}{' - ' + track.reason if track.reason else ''}"
            )
    if plan.timecode:
        out.append(f"timecode {plan.timecode}")
    out.append(f"output   {plan.output} ({plan.container})")
    if plan.provenance is not None:
        signed = f", signed with {plan.provenance.certificate}" if plan.provenance.certificate else ""
        out.append(f"origin   the output says that it is {plan.provenance.source_type} (IPTC){signed}")
    out += [f"note     {note}" for note in plan.notes]
    return out


def _graphs(plan: Plan) -> str:
    """What a batch costs Python."""
    if plan.graphs == "whole":
        return "all work on a batch is one CUDA Graph"
    kinds = {step.name: stages.load(step.name) for step in plan.steps if step.kind == "stage"}
    own = ", ".join(name for name, kind in kinds.items() if kind.captures)
    return f"parts of {own}; the rest is launched step by step" if plan.graphs == "parts" else "off: step by step"


def _quality(encoder: EncoderSettings) -> str:
    """What is asked for, or what is taken where that is known: options may say something else."""
    if encoder.quality is not None:
        return f"{encoder.quality:g}"
    scale = encoder_facts(encoder.encoder).scale
    known = scale is not None and scale.kind == "crf" and scale.default is not None and not encoder.options
    return f"{scale.default:g} (default)" if known and scale is not None else "default"


def _step(step: Step) -> str:
    head = f"{step.name} {_settings(step)}".strip() if step.kind == "stage" else f"{step.kind} ({step.name})"
    size = (
        ""
        if step.kind in ("upload", "download")
        else f" -> {step.target.pixels.name}{_alpha(step.target)} {step.target.width}x{step.target.height}"
    )
    return f"{head}{size}{': ' + step.reason if step.reason else ''}"


def _settings(step: Step) -> str:
    """What is set; where settings hold others, only what differs from the defaults, which would be a page."""
    values = step.settings
    if any(isinstance(value, dict) for value in values.values()):
        kind = stages.load(step.name).Settings
        unshown = {name for name, field in kind.model_fields.items() if not field.repr}
        values = kind.model_validate(values, strict=False).model_dump(
            mode="json", exclude_defaults=True, exclude=unshown
        )
    return ", ".join(f"{k}={_flow(v)}" for k, v in values.items() if v not in (None, [], {}, ()))


def _flow(value: object) -> str:
    """As YAML has it on one line."""
    if isinstance(value, dict):
        ((name, inner),) = value.items() if len(value) == 1 else (("", None),)
        return name if inner == {} else "{" + ", ".join(f"{k}: {_flow(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_flow, value)) + "]"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _alpha(picture: FrameFormat) -> str:
    return f" with {picture.alpha}-bit alpha" if picture.alpha else ""


def _rate(rate: Fraction) -> str:
    return str(rate) if rate.denominator == 1 else f"{float(rate):.3f} ({rate})"


def _moment(pts: int | None, time_base: Fraction, otherwise: str) -> str:
    return otherwise if pts is None else f"{float(pts * time_base):.6f} s (pts {pts})"


def _color(color: ColorSpec) -> str:
    numbers = (color.matrix, color.transfer, color.primaries)
    said = [words for words, number in zip(color.words(), numbers, strict=True) if number != 2]
    said += [f"{color.range.value} range"] if color.range else []
    return ", ".join(said) or "no colour tags"
