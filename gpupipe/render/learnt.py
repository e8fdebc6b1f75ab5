"""A plan whose stages have seen the clip: those that must look at pictures before the run get some from all over it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gpupipe.errors import EngineError, PlanError
from gpupipe.plan.model import Notice
from gpupipe.plan.segments import stage_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import torch

    from gpupipe.plan import Plan


def learnt(plan: Plan, say: Callable[[str], None] = lambda _: None) -> Plan:
    """The plan with what its stages learn from pictures of the clip; the same plan where none wants any.

    Args:
        plan: as `make_plan` made it.
        say: told in words what is looked at, since it may take a minute.

    Raises:
        PlanError: the source does not say how long it is.
        EngineError: an engine that was named cannot do what is asked.
        MediaError, DeviceError: as a run.
    """
    for index, step in enumerate(plan.steps):
        if step.kind == "stage" and (count := stage_of(step).samples()):
            say(f"{step.name}: looking at {count} pictures of {plan.source.path.name}")
            plan = _learnt(plan, index, count)
    return plan


def _learnt(plan: Plan, index: int, count: int) -> Plan:
    step = plan.steps[index]
    found = stage_of(step).learn(step.source, _pictures(plan, index, count))
    settings = found.settings.model_dump(mode="json")
    told = "; ".join(stage_of(replace(step, settings=settings)).notes(step.source))
    steps = (*plan.steps[:index], replace(step, settings=settings, reason=told), *plan.steps[index + 1 :])
    warnings = (*plan.warnings, Notice(f"{step.name}-precision", found.warning)) if found.warning else plan.warnings
    return replace(plan, steps=steps, warnings=warnings)


def _pictures(plan: Plan, index: int, count: int) -> Sequence[tuple[torch.Tensor, ...]]:
    """What comes to a step, at `count` times or fewer, each picture once."""
    from gpupipe.render.stills import spread, stills  # noqa: PLC0415  imports torch

    before = replace(plan, steps=plan.steps[:index], retime=None)
    try:
        ticks = spread(count, before)
    except PlanError as error:
        where = str(plan.source.path)
        raise EngineError(error.message, where=where, hint="give `range: {end: ...}`, to calibrate on") from None
    found = {still.pts: still.after.planes for still in stills(before, ticks, beyond=True)}
    return tuple(found.values())
