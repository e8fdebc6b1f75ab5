"""`gpupipe segment`: some segments of a saved plan, on any machine that sees its files."""

from __future__ import annotations

from threading import Event
from typing import TYPE_CHECKING

import click

from gpupipe.cli.openjd import Lines, openjd
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
@click.option("--count", type=click.IntRange(min=1), default=1, metavar="K",
              help="Render K from each N on, as far as there are so many.")  # fmt: skip
@openjd
@talk
@as_json
@click.pass_obj
def command(
    console: Console, *, plan: Path, numbers: tuple[int, ...], count: int, openjd: bool, quiet: bool, log: str,
    as_json: bool,
) -> None:  # fmt: skip
    """Render segments N (from 0) of PLAN, which `gpupipe plan --save` made, into OUTPUT.gpupipe.

    A segment that is there and whole is not rendered again. Any number of these may run at once, on machines that see
    the same files by the same paths; `gpupipe join PLAN` then writes the output.
    """
    console.quiet, console.json_log = quiet, log == "json"
    jobs = Lines(console, wanted=openjd)
    stop, watch = Event(), Watch()
    with stopping(stop, console) as stops, jobs.failing():
        found = read_plan(plan)
        console.file = found.source.path
        stops.kept = True
        wanted = sorted({n + k for n in numbers for k in range(max(1, min(count, len(found.segments) - n)))})
        total = sum(found.segments[n].frames for n in wanted if n < len(found.segments))
        jobs.status(f"segments {wanted[0]} to {wanted[-1]}" if len(wanted) > 1 else f"segment {wanted[0]}")
        with (
            reporting(console, watch, found.device) as progress,
            watched(found, watch, jobs.following(progress), total) as meter,
        ):
            made = segments(found, wanted, journal=Journal(console.first), stop=stop, meter=meter)
    for number, piece in zip(wanted, made, strict=True):
        console.say(f"done: segment {number}: {piece.frames} frames, {piece.bytes} bytes")
    console.event("done", segments=dict(zip(wanted, made, strict=True)))
    if as_json:
        console.json(dict(zip(wanted, made, strict=True)))
