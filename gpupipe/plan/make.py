"""Makes a Plan."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpupipe import __version__
from gpupipe.codecs import libav
from gpupipe.codecs.base import EncoderSettings
from gpupipe.codecs.encoders import DEVICE_ENCODERS, encoder_facts
from gpupipe.errors import CapabilityError, PlanError
from gpupipe.media import carry, timecode, timeline
from gpupipe.plan.alpha import carrying, choose_alpha
from gpupipe.plan.device import choose_decoder, nvdec_engines
from gpupipe.plan.encoder import Choice, choose_encoder, options_of
from gpupipe.plan.machine import device_budget, host_budget, kept, places_of
from gpupipe.plan.model import Notice, Plan
from gpupipe.plan.pictures import Chain, build_chain
from gpupipe.plan.provenance import choose_provenance
from gpupipe.plan.segments import choose_segments, graphs_of, heavy_in, keeps, lead_in, most_waiting

if TYPE_CHECKING:
    from pathlib import Path

    from gpupipe.config import Config
    from gpupipe.media.source import SourceInfo


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
    places = places_of(config, device)
    place, several = places[0], len(places) > 1
    if several:
        config = kept(config)
    container = carry.container_of(output)
    decoder, why, picture = choose_decoder(info, place)
    choice = choose_encoder(config.output.video, picture, place)
    alpha = choose_alpha(config.output.video, info, choice)
    if alpha.bits:
        info = carrying(info, alpha)
        decoder, why, picture = choose_decoder(info, place)
    chain = build_chain(config, info, picture, choice, place)
    carry.check_codec(container, choice.codec)
    tracks, lost = carry.plan_tracks(info, container, config.output)
    window = timeline.resolve_range(config.range.start, config.range.end, info)
    engines = nvdec_engines(info, place) if choice.on_device and decoder == "nvdec" else 0
    alone = encoder_facts(choice.encoder).alone
    segments, sessions, cutting = choose_segments(
        config, info, window, engines=engines, retimed=chain.retime is not None, lead=lead_in(chain.steps),
        alone=alone, heavy=heavy_in(chain.steps),
    )  # fmt: skip
    ledger = keeps(config, info, segments, on_device=engines > 0)
    host, short = host_budget(
        config, info.video.format, chain.steps, sessions,
        decodes=decoder == "libav", encodes=not choice.on_device,
        waiting=most_waiting(segments, sessions) if alone and not ledger else 0,
    )  # fmt: skip
    budget = device_budget(config, picture, chain.steps, choice.encoder, host.sessions, places=places)
    provenance, unsaid = choose_provenance(config.output, chain.steps, container)
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
        graphs=graphs_of(config, chain.steps),
        steps=chain.steps,
        retime=chain.retime,
        encoder=_settings(config, info, choice, chain),
        encoder_reason=choice.reason,
        tracks=tracks,
        audio=None if isinstance(config.output.audio, str) else config.output.audio,
        metadata=config.output.metadata == "copy",
        display_matrix=chain.display_matrix,
        timecode=_timecode(config, info, window.start),
        size_change=config.size_change,
        warnings=(*alpha.warnings, *chain.warnings, *(Notice(*one) for one in lost), *short, *unsaid),
        notes=(*info.notes, *alpha.notes, *chain.notes),
        host_limit=config.memory.host,
        host_bytes=host.bytes,
        host_reason=host.reason,
        waiting_bytes=host.waiting,
        provenance=provenance,
        quality=config.quality,
        ledger=ledger,
        devices=places if several else (),
    )
    _refuse(plan, config)
    if strict:
        refuse_warnings(plan)
    _rehearse(plan.encoder)
    return plan


def _settings(config: Config, info: SourceInfo, choice: Choice, chain: Chain) -> EncoderSettings:
    video = config.output.video
    return EncoderSettings(
        codec=choice.codec,
        encoder=choice.encoder,
        input_format=chain.tagged,
        time_base=info.video.time_base if chain.retime is None else 1 / chain.retime,
        rate=chain.retime or info.video.rate,
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


def _refuse(plan: Plan, config: Config) -> None:
    """The refusals that need the whole plan."""
    copies = [s for s in plan.steps if s.kind in ("upload", "download")]
    if config.memory.device_only:
        if plan.device == "cpu":
            raise CapabilityError(
                "device_only needs a GPU", where="memory", hint="see `gpupipe doctor`, or use `memory: auto`"
            )
        if copies or not encoder_facts(plan.encoder.encoder).on_device:
            step = copies[0].reason if copies else f"{plan.encoder.encoder} runs on the CPU"
            raise PlanError(
                f"pixels would pass through host memory: {step}",
                where="memory",
                hint=f"use {', '.join(row.name for row in DEVICE_ENCODERS)}, or `memory: auto`",
            )


def refuse_warnings(plan: Plan) -> None:
    """What `--strict` asks: raises PlanError where the plan has warnings."""
    if plan.warnings:
        raise PlanError(
            "; ".join(n.message for n in plan.warnings), where="--strict", hint="drop --strict to accept it"
        )


def _rehearse(settings: EncoderSettings) -> None:
    """Raises PlanError for what the encoder or its library would refuse or ignore."""
    if not encoder_facts(settings.encoder).on_device:
        libav.rehearse(settings)
    elif settings.encoder == "nvenc":
        from gpupipe.codecs import nvenc  # noqa: PLC0415

        nvenc.rehearse(settings)
