"""`gpupipe models compile`: engines built ahead of the runs that need them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpupipe.cli.job import prepare
from gpupipe.cli.options import PATH, device
from gpupipe.config import load_config
from gpupipe.errors import ConfigError
from gpupipe.journal import Journal
from gpupipe.plan.segments import stage_of
from gpupipe.render.segmented import in_lanes
from gpupipe.stages.base import seen

if TYPE_CHECKING:
    from gpupipe.cli.console import Console
    from gpupipe.plan import Plan, Step
    from gpupipe.stages.base import Stage


@click.command(name="compile", short_help="Build the engines that a config needs.")
@click.argument("config", type=PATH)
@click.argument("input", type=PATH, required=False)
@device
@click.pass_obj
def command(
    console: Console,
    *,
    config: Path,
    input: Path | None,  # noqa: A002  (click names the parameter as the user sees it)
    device: str | None,
) -> None:
    """Build, measure and keep what the networks of CONFIG need for pictures like INPUT's, on this machine's device.

    INPUT overrides the config. A run on the same kind of machine then starts from the cache.
    """
    settings = load_config(config)
    output = Path(settings.output.path or "compiled.mkv")  # planned with, not written
    plan = prepare(config, input, output, device=device, strict=False, say=console.say)
    there = [(step, stage_of(step)) for step in plan.steps if step.kind == "stage"]
    found = [(step, stage) for step, stage in there if stage.models()]
    if not found:
        raise ConfigError("no stage of it runs a network", where=f"{config}: stages")
    for step, stage in found:
        _build(console, plan, step, stage)


def _build(console: Console, plan: Plan, step: Step, stage: Stage) -> None:
    from gpupipe.device import open_lane  # noqa: PLC0415  imports torch

    rows = plan.batch if plan.decoder == "nvdec" and in_lanes(plan) else 1  # as the run's chain is made
    stage.attend(Journal(console.first, console.say), rows)
    lane = open_lane(plan.device)
    with lane.active():
        stage.prepare(seen(stage, step.source))
    lane.synchronize()
    console.data(f"{use.name}: {use.engine} for {step.source.width}x{step.source.height}" for use in stage.models())
