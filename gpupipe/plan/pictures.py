"""What becomes of the pictures between decoder and encoder, and what of them is lost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import av

from gpupipe.codecs.encoders import ENCODERS, encoder_facts
from gpupipe.errors import PlanError
from gpupipe.media.pixels import losses
from gpupipe.plan.chain import ChainBuilder, at, entries
from gpupipe.plan.encoder import Choice, encoder_format
from gpupipe.plan.model import Notice, Step

if TYPE_CHECKING:
    from fractions import Fraction

    from gpupipe.config import Config
    from gpupipe.format import FrameFormat
    from gpupipe.media.source import SourceInfo

HDR_TRANSFERS = (16, 18)
"""PQ (SMPTE ST 2084) and HLG (ARIB STD-B67) of H.273."""


@dataclass(frozen=True, slots=True)
class Chain:
    """What was decided."""

    steps: tuple[Step, ...]
    tagged: FrameFormat
    """What the encoder gets; tags that the source left open are open in it."""
    retime: Fraction | None
    """The rate of an fps stage."""
    display_matrix: tuple[int, ...] | None
    """What is still to be carried."""
    warnings: tuple[Notice, ...]
    notes: tuple[str, ...]


def build_chain(config: Config, info: SourceInfo, picture: FrameFormat, choice: Choice, device: str) -> Chain:
    """Stages, conversions and copies from `picture`, which the decoder gives, to what the chosen encoder takes.

    Raises PlanError where a stage or the encoder cannot do it.
    """
    builder = ChainBuilder(picture)
    retime, matrix = _stages(config, info, builder, choice, device)
    warnings = (*_source_losses(info), *_finish(config, info, builder, choice))
    notes = tuple(dict.fromkeys(builder.notes))
    return Chain(tuple(builder.steps), builder.tagged(), retime, matrix, warnings, notes)


def _source_losses(info: SourceInfo) -> list[Notice]:
    """What of the source's pictures never reaches the first stage."""
    native = info.video.native_pixels
    return [Notice("source-reduced", f"pixel format {native}: {loss}") for loss in losses(av.VideoFormat(native))]


def _stages(
    config: Config, info: SourceInfo, builder: ChainBuilder, choice: Choice, device: str
) -> tuple[Fraction | None, tuple[int, ...] | None]:
    """Adds the stages; returns the rate of an fps stage and the display matrix that is still to be carried."""
    matrix = info.video.display_matrix
    listed = [name for name, *_ in entries(config.stages)]
    needs_device = (
        any(name != "fps" for name in listed) or choice.on_device or (matrix is not None and "orient" not in listed)
    )
    if device != "cpu" and builder.format.device == "cpu" and needs_device:
        builder.upload(device)
    retime: Fraction | None = None
    if matrix is not None and "orient" not in listed:
        matrix = _orient(builder, matrix, "stages.orient")
    for name, where, entry, stage in entries(config.stages):
        if hasattr(stage, "rate"):
            if retime is not None:
                raise PlanError("a chain has one frame rate", where=where, hint="keep one fps stage")
            retime = stage.rate
        elif name == "orient":
            if stage.automatic and matrix is not None:
                matrix = _orient(builder, matrix, where)
        else:
            try:
                builder.stage(name, entry.settings.model_dump(mode="json"), where, stage)
            except PlanError as error:
                raise at(where, error) from None
    return retime, matrix


def _orient(builder: ChainBuilder, matrix: tuple[int, ...], where: str) -> tuple[int, ...] | None:
    """Turns the pixels as the display matrix says; a matrix that is no turn or flip is carried instead."""
    from gpupipe.stages.orient import STAGE as ORIENT  # noqa: PLC0415
    from gpupipe.stages.orient import OrientSettings  # noqa: PLC0415

    settings = OrientSettings(matrix=matrix)
    stage = ORIENT(settings)
    if stage.geometry is None:
        builder.notes.append("the display matrix is no turn by 90 degrees or flip: it is carried, not applied")
        return matrix
    builder.stage("orient", settings.model_dump(mode="json"), where, stage)
    return None


def _finish(config: Config, info: SourceInfo, builder: ChainBuilder, choice: Choice) -> list[Notice]:
    """Conversion to the encoder's format, even sizes, download; returns what is lost on the way."""
    source, warnings, row = info.video.format, [], encoder_facts(choice.encoder)
    if builder.format.interlaced and not row.fields:
        keep = ", ".join(sorted(one.name for one in ENCODERS if one.fields))
        raise PlanError(
            f"{choice.encoder} cannot keep the fields of an interlaced source ({builder.format.field_order})",
            where="output.video",
            hint=f"use one of {keep}, or deinterlace it with another program first",
        )
    target = encoder_format(choice, config.output.video, builder.format, source)
    before = builder.format
    builder.convert(target, f"{choice.encoder} takes {target.pixels.name}")
    depth = source.pixels.depth if before.pixels.layout == "float" else before.pixels.depth
    if target.pixels.depth < depth:
        warnings.append(
            Notice("depth-reduced", f"{choice.encoder} takes {target.pixels.depth} bit: {depth} bit is dithered")
        )
    if target.alpha < before.alpha:
        rounded = f"{choice.encoder} takes {target.alpha} bit of alpha: {before.alpha} bit is rounded"
        warnings.append(Notice("depth-reduced", rounded))
    chroma = source.pixels.chroma_shift if before.pixels.family == "rgb" else before.pixels.chroma_shift
    if target.pixels.chroma_shift > chroma:
        warnings.append(Notice("chroma-reduced", f"{choice.encoder} takes {target.pixels.name}: chroma is halved"))
    if not row.any_size and (message := builder.even(choice.encoder)):
        warnings.append(Notice("size-evened", message))
    if builder.format.device != "cpu" and not choice.on_device:
        builder.download(choice.encoder)
    if target.color.transfer in HDR_TRANSFERS and target.pixels.depth == 8:
        message = "PQ or HLG in 8 bit shows bands, and gpupipe does not tone-map: choose a 10-bit codec or encoder"
        warnings.append(Notice("hdr-in-8-bit", message))
    if choice.codec == "h264" and (target.pixels.depth > 8 or target.pixels.chroma_shift != (1, 1)):
        hint = "many players and browsers cannot show it; `pixel_format: yuv420p` makes a file for everyone"
        builder.notes.append(f"H.264 in {target.pixels.name}: {hint}")
    return [*warnings, *_hdr_notices(info)]


def _hdr_notices(info: SourceInfo) -> list[Notice]:
    """What of the source's HDR metadata is not kept."""
    found = []
    if info.video.hdr.damaged:
        message = "the source's static HDR metadata has numbers that no bitstream can hold: it is left out"
        found.append(Notice("hdr-damaged", message))
    if info.video.hdr.dynamic:
        message = "HDR10+ or Dolby Vision metadata of the pictures is not carried; static HDR10 is"
        found.append(Notice("dynamic-hdr-dropped", message))
    return found
