"""`gpupipe segment`: some segments of a saved plan, on any machine that sees its files."""

from __future__ import annotations

from threading import Event
from typing import TYPE_CHECKING

import click

from gpupipe.cli.options import PATH, as_json, talk
from gpupipe.cli.progress import reporting
from gpupipe.cli.stop import stopping
from gpupipe.journal import Journal
from gpupipe.plan.stored import read_plan
from gpupipe.render import Watch, watched
from gpupipe.render.pieced import segments

if TYPE_CHECKING:
    from pathlib import Path

    from gpupipe.cli.console import Console


@click.command(name="segment", short_help="Render segments of a saved plan.")
@click.argument("plan", type=PATH)
@click.argument("numbers", metavar="N...", type=click.IntRange(min=0), nargs=-1, required=True)
@talk
@as_json
@click.pass_obj
def command(console: Console, *, plan: Path, numbers: tuple[int, ...], quiet: bool, log: str, as_json: bool) -> None:
    """Render segments N (from 0) of PLAN, which `gpupipe plan --save` made, into OUTPUT.gpupipe.

    A segment that is there and whole is not rendered again. Any number of these may run at once, on machines that see
    the same files by the same paths; `gpupipe join PLAN` then writes the output.
    """
    console.quiet, console.json_log = quiet, log == "json"
    stop, watch = Event(), Watch()
    with stopping(stop, console) as stops:
        found = read_plan(plan)
        stops.kept = True
        total = sum(found.segments[n].frames for n in set(numbers) if n < len(found.segments))
        with reporting(console, watch, found.device) as progress, watched(found, watch, progress, total) as meter:
            made = segments(found, numbers, journal=Journal(console.first), stop=stop, meter=meter)
    wanted = sorted(set(numbers))
    for number, piece in zip(wanted, made, strict=True):
        console.say(f"done: segment {number}: {piece.frames} frames, {piece.bytes} bytes")
    console.event("done", segments=dict(zip(wanted, made, strict=True)))
    if as_json:
        console.json(dict(zip(wanted, made, strict=True)))
