"""The same plan in another process: on another GPU, and with what the file of a plan does not hold."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gpupipe.media.segments import located

if TYPE_CHECKING:
    from gpupipe.format import FrameFormat
    from gpupipe.plan.model import Plan


def placed(plan: Plan, device: str) -> Plan:
    """`plan` with every picture that lies on its GPU on `device`, `cuda:N`; a plan of the CPU stays as it is.

    What it makes, and its digest, are the same.
    """
    if plan.device in ("cpu", device):
        return plan

    def moved(picture: FrameFormat) -> FrameFormat:
        return picture if picture.device == "cpu" else picture.with_(device=device)

    steps = tuple(replace(step, source=moved(step.source), target=moved(step.target)) for step in plan.steps)
    encoder = replace(plan.encoder, input_format=moved(plan.encoder.input_format))
    source = replace(plan.source, video=replace(plan.source.video, format=moved(plan.source.video.format)))
    return replace(plan, device=device, steps=steps, encoder=encoder, source=source)


def with_places(plan: Plan) -> Plan:
    """`plan`, which was stored, knowing again where its packets lie; for a decoder that reads a segment's at once."""
    if plan.decoder != "nvdec":
        return plan
    return replace(plan, segments=located(plan.source, plan.segments))
