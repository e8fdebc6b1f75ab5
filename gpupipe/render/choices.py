"""What the networks of a plan run on, made up before anything is rendered, and then the same for the whole file."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gpupipe import stages
from gpupipe.device import release
from gpupipe.plan.segments import stage_of
from gpupipe.render.segmented import in_lanes
from gpupipe.stages.base import seen

if TYPE_CHECKING:
    from gpupipe.device.base import Lane
    from gpupipe.engines.choice import Choice
    from gpupipe.journal import Journal
    from gpupipe.plan import Plan
    from gpupipe.plan.model import Step
    from gpupipe.render.ledger import Ledger


def choosing(plan: Plan) -> list[tuple[int, Step]]:
    """Stages, by their number, that leave something to the machine which shows in pixels."""
    steps = enumerate(step for step in plan.steps if step.kind == "stage")
    return [(number, step) for number, step in steps if stages.load(step.name).chooses]


def settle(ledger: Ledger, journal: Journal) -> None:
    """Has the plan of a ledger, which was begun, run on what it was begun on; makes it up where nobody has.

    Raises PlanError where that is lost, and what `decided` raises.
    """
    if ledger.plan.choices or not choosing(ledger.plan):
        return
    choices = ledger.choices()
    if choices is None:
        ledger.choose(decided(ledger.plan, journal).choices)
        choices = ledger.choices()
        assert choices is not None, "it is there now"
        ledger.log("choices", choices=[f"{one.network}: {one.engine} in {one.precision}" for one in choices])
    ledger.plan = replace(ledger.plan, choices=choices)


def decided(plan: Plan, journal: Journal) -> Plan:
    """`plan` with the engine, precision and sizes that are best on its device, and that the cache of engines has then.

    Raises what preparing a stage raises.
    """
    if plan.choices or not choosing(plan):
        return plan
    from gpupipe.device import open_lane  # noqa: PLC0415  imports torch

    rows = plan.batch if plan.decoder == "nvdec" and in_lanes(plan) else 1  # as chains are made
    lane: Lane | None = None
    found: list[Choice] = []
    for number, step in choosing(plan):
        stage = stage_of(step)
        stage.attend(journal, rows)
        choices = stage.foreseen(seen(stage, step.source))
        if choices is None:
            lane = lane or open_lane(plan.device)
            with lane.active():
                stage.prepare(seen(stage, step.source))
            choices = stage.choices()
        found += [replace(one, stage=number) for one in choices]
    if lane is not None:
        lane.synchronize()
    del stage
    release(plan.device)
    return replace(plan, choices=tuple(found))
