"""Negotiation: from a config and the facts of a source to a Plan, before any frame is touched."""

from __future__ import annotations

from typing import TYPE_CHECKING

import av

from gpupipe import __version__
from gpupipe.codecs.base import EncoderSettings
from gpupipe.codecs.libav import rehearse
from gpupipe.device import pick_device, pick_devices
from gpupipe.device.driver import free_memory
from gpupipe.device.host import rooms
from gpupipe.errors import CapabilityError, PlanError
from gpupipe.media import carry, timecode, timeline
from gpupipe.media.pixels import losses
from gpupipe.plan.chain import ChainBuilder, at, entries
from gpupipe.plan.device import choose_decoder, nvdec_engines
from gpupipe.plan.encoder import (
    ANY_SIZE,
    DEVICE_ENCODERS,
    FIELD_ENCODERS,
    Choice,
    choose_encoder,
    encoder_format,
    options_of,
)
from gpupipe.plan.host import HostBudget, HostNeed, fit_host
from gpupipe.plan.memory import Budget, fit, need_of
from gpupipe.plan.model import Notice, Plan, Step
from gpupipe.plan.provenance import choose_provenance
from gpupipe.plan.segments import batch_size, choose_segments, graphable, keeps, lead_in

if TYPE_CHECKING:
    from fractions import Fraction
    from pathlib import Path

    from gpupipe.config import Config
    from gpupipe.format import FrameFormat
    from gpupipe.media.source import SourceInfo

__all__ = ["Notice", "Plan", "Step", "make_plan"]


HDR_TRANSFERS = (16, 18)
"""PQ (SMPTE ST 2084) and HLG (ARIB STD-B67) of H.273."""


def make_plan(
    config: Config, info: SourceInfo, output: Path, *, device: str | None = None, strict: bool = False
) -> Plan:
    """Decides everything about one run.

    Args:
        config: the validated config; its `input` and `output.path` are not looked at.
        info: what `media.probe.probe` found.
        output: final name of the result.
        device: overrides `config.device` and `config.devices`.
        strict: what would be a warning about lost streams or pixels is a PlanError.

    Raises:
        PlanError: the config asks what this source, container or machine cannot do.
        DeviceError: a GPU was asked for by name and is not there.
    """
    places = _places(config, device)
    place, several = places[0], len(places) > 1
    if several:
        config = _kept(config)
    container = carry.container_of(output)
    decoder, why, picture = choose_decoder(info, place)
    choice = choose_encoder(config.output.video, picture, place)
    builder = ChainBuilder(picture)
    retime, carried = _stages(config, info, builder, choice, place)
    warnings = _source_losses(info) + _finish_chain(config, info, builder, choice)
    carry.check_codec(container, choice.codec)
    tracks, lost = carry.plan_tracks(info, container, config.output)
    warnings += [Notice(code, message) for code, message in lost]
    window = timeline.resolve_range(config.range.start, config.range.end, info)
    engines = nvdec_engines(info, place) if choice.on_device and decoder == "nvdec" else 0
    segments, sessions, cutting = choose_segments(
        config, info, window, engines=engines, retimed=retime is not None, lead=lead_in(builder.steps)
    )
    host, short = _host(config, info, builder, choice, sessions=sessions, decoder=decoder)
    budget = _memory(config, picture, builder, choice, sessions=host.sessions, places=places)
    provenance, unsaid = choose_provenance(config.output, builder.steps, container)
    plan = Plan(
        version=__version__,
        source=info,
        output=output,
        container=container,
        device=place,
        decoder=decoder,
        decoder_reason=why,
        start_pts=window.start,
        end_pts=window.end,
        origin=timeline.origin(config.range.start, window.start, info),
        segments=segments,
        sessions=budget.sessions,
        segments_reason=cutting,
        device_bytes=budget.bytes,
        memory_reason=budget.reason,
        batch=budget.batch,
        graphs=config.graphs == "auto" and graphable(builder.steps),
        steps=tuple(builder.steps),
        retime=retime,
        encoder=_settings(config, info, choice, builder.tagged(), retime),
        encoder_reason=choice.reason,
        tracks=tracks,
        audio=None if isinstance(config.output.audio, str) else config.output.audio,
        metadata=config.output.metadata == "copy",
        display_matrix=carried,
        timecode=_timecode(config, info, window.start),
        size_change=config.size_change,
        warnings=(*warnings, *short, *unsaid),
        notes=(*info.notes, *dict.fromkeys(builder.notes)),
        host_limit=config.memory.host,
        host_bytes=host.bytes,
        host_reason=host.reason,
        provenance=provenance,
        quality=config.quality,
        ledger=keeps(config, info, segments, on_device=engines > 0),
        devices=places if several else (),
    )
    _refuse(plan, config, strict=strict)
    if not choice.on_device:
        rehearse(plan.encoder)
    elif choice.encoder == "nvenc":
        from gpupipe.codecs import nvenc  # noqa: PLC0415

        nvenc.rehearse(plan.encoder)
    return plan


def _places(config: Config, device: str | None) -> tuple[str, ...]:
    """Where the run happens, the first place being the one that is planned for."""
    if device is None and config.devices is not None:
        return pick_devices(config.devices)
    return (pick_device(device or config.device),)


def _kept(config: Config) -> Config:
    """Several GPUs meet in the ledger: what each renders is kept until it is joined."""
    if config.resume == "off":
        raise PlanError("several devices need finished segments to be kept", where="resume", hint="leave the key out")
    return config.model_copy(update={"resume": "keep"})


def _memory(
    config: Config, picture: FrameFormat, builder: ChainBuilder, choice: Choice, *, sessions: int,
    places: tuple[str, ...],
) -> Budget:  # fmt: skip
    """How many sessions and how large batches each GPU has memory for; none is needed on the CPU."""
    device = places[0]
    batch = batch_size(picture)
    if device == "cpu" or not (builder.steps or picture.device != "cpu"):
        return Budget(sessions, batch, 0, "")
    known = [free for one in places if (free := free_memory(int(one.removeprefix("cuda:")))) is not None]
    free = min(known, default=None)
    if config.memory.device is not None:
        free = min(config.memory.device, free if free is not None else config.memory.device)
    need = need_of(picture, builder.steps, choice.encoder, free)
    return fit(need, sessions, batch, free, device=device, asked=isinstance(config.sessions, int) and sessions > 1)


def _host(
    config: Config, info: SourceInfo, builder: ChainBuilder, choice: Choice, *, sessions: int, decoder: str
) -> tuple[HostBudget, list[Notice]]:
    """How many sessions the host has memory for, and the warning where that is not all that were asked for."""
    room = next(iter(rooms(config.memory.host)), None)
    cpu = HostNeed.of(
        info.video.format, builder.steps, decodes=decoder == "libav", encodes=not choice.on_device,
        free=None if room is None else room.left,
    )  # fmt: skip
    budget = fit_host(cpu, sessions, room)
    if budget.enough and (budget.sessions == sessions or config.sessions == "auto"):
        return budget, []
    return budget, [Notice("memory-short", budget.reason)]


def _source_losses(info: SourceInfo) -> list[Notice]:
    """What of the source's pictures never reaches the first stage."""
    native, video = info.video.native_pixels, info.streams[info.video.index]
    lost = [f"pixel format {native}: {loss}" for loss in losses(av.VideoFormat(native))]
    if video.tags.get("alpha_mode") == "1":
        lost.append("alpha dropped: it is a second bitstream, which is not decoded")
    return [Notice("source-reduced", message) for message in lost]


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


def _finish_chain(config: Config, info: SourceInfo, builder: ChainBuilder, choice: Choice) -> list[Notice]:
    """Conversion to the encoder's format, even sizes, download; returns what is lost on the way."""
    source, warnings = info.video.format, []
    if builder.format.interlaced and choice.encoder not in FIELD_ENCODERS:
        raise PlanError(
            f"{choice.encoder} cannot keep the fields of an interlaced source ({builder.format.field_order})",
            where="output.video",
            hint=f"use one of {', '.join(sorted(FIELD_ENCODERS))}, or deinterlace it with another program first",
        )
    target = encoder_format(choice, config.output.video, builder.format, source)
    before = builder.format
    builder.convert(target, f"{choice.encoder} takes {target.pixels.name}")
    depth = source.pixels.depth if before.pixels.layout == "float" else before.pixels.depth
    if target.pixels.depth < depth:
        warnings.append(
            Notice("depth-reduced", f"{choice.encoder} takes {target.pixels.depth} bit: {depth} bit is dithered")
        )
    chroma = source.pixels.chroma_shift if before.pixels.family == "rgb" else before.pixels.chroma_shift
    if target.pixels.chroma_shift > chroma:
        warnings.append(Notice("chroma-reduced", f"{choice.encoder} takes {target.pixels.name}: chroma is halved"))
    if choice.encoder not in ANY_SIZE and (message := builder.even(choice.encoder)):
        warnings.append(Notice("size-evened", message))
    if builder.format.device != "cpu" and not choice.on_device:
        builder.download(choice.encoder)
    if target.color.transfer in HDR_TRANSFERS and target.pixels.depth == 8:
        message = "PQ or HLG in 8 bit shows bands, and gpupipe does not tone-map: choose a 10-bit codec or encoder"
        warnings.append(Notice("hdr-in-8-bit", message))
    if choice.codec == "h264" and (target.pixels.depth > 8 or target.pixels.chroma_shift != (1, 1)):
        hint = "many players and browsers cannot show it; `pixel_format: yuv420p` makes a file for everyone"
        builder.notes.append(f"H.264 in {target.pixels.name}: {hint}")
    if info.video.hdr.dynamic:
        warnings.append(
            Notice(
                "dynamic-hdr-dropped", "HDR10+ or Dolby Vision metadata of the pictures is not carried; static HDR10 is"
            )
        )
    return warnings


def _settings(
    config: Config, info: SourceInfo, choice: Choice, picture: FrameFormat, retime: Fraction | None
) -> EncoderSettings:
    video = config.output.video
    return EncoderSettings(
        codec=choice.codec,
        encoder=choice.encoder,
        input_format=picture,
        time_base=info.video.time_base if retime is None else 1 / retime,
        rate=retime or info.video.rate,
        quality=video.quality,
        bitrate=video.bitrate,
        preset=video.preset,
        options=options_of(video),
        mastering_display=info.video.hdr.mastering_display,
        content_light=info.video.hdr.content_light,
    )


def _timecode(config: Config, info: SourceInfo, start: int | None) -> str | None:
    """The start timecode, moved by the frames that a range leaves out."""
    video = info.video
    if video.timecode is None or config.output.metadata == "none":
        return None
    if start is None:
        return video.timecode
    origin = video.start or 0
    frames = -((origin - start) * video.time_base * video.rate // 1)  # ceiling: the first frame at or after the start
    return timecode.offset(video.timecode, video.rate, max(0, int(frames)))


def _refuse(plan: Plan, config: Config, *, strict: bool) -> None:
    """The refusals that need the whole plan."""
    copies = [s for s in plan.steps if s.kind in ("upload", "download")]
    if config.memory.device_only:
        if plan.device == "cpu":
            raise CapabilityError(
                "device_only needs a GPU", where="memory", hint="see `gpupipe doctor`, or use `memory: auto`"
            )
        if copies or plan.encoder.encoder not in DEVICE_ENCODERS:
            step = copies[0].reason if copies else f"{plan.encoder.encoder} runs on the CPU"
            raise PlanError(
                f"pixels would pass through host memory: {step}",
                where="memory",
                hint=f"use {', '.join(DEVICE_ENCODERS)}, or `memory: auto`",
            )
    if strict and plan.warnings:
        raise PlanError(
            "; ".join(n.message for n in plan.warnings), where="--strict", hint="drop --strict to accept it"
        )
