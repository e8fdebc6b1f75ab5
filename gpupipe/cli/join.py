"""`gpupipe join`: the output of a saved plan whose segments are rendered."""

from __future__ import annotations

import json
from threading import Event
from typing import TYPE_CHECKING

import click

from gpupipe.cli import DONE, WARNED, options
from gpupipe.cli.openjd import Lines, openjd
from gpupipe.cli.options import PATH, as_json, talk
from gpupipe.cli.progress import reporting
from gpupipe.cli.stop import stopping
from gpupipe.journal import Journal
from gpupipe.media.output import describe_os_error
from gpupipe.plain import parsed
from gpupipe.plan.stored import read_plan
from gpupipe.render import Watch, watched
from gpupipe.render.pieced import join

if TYPE_CHECKING:
    from pathlib import Path

    from gpupipe.cli.console import Console
    from gpupipe.plan import Plan


@click.command(name="join", short_help="Write the output of a saved plan.")
@click.argument("plan", type=PATH)
@options.overwrite
@click.option("--strict", is_flag=True, help="Warnings of any segment give exit code 4.")
@openjd
@talk
@as_json
@click.pass_obj
def command(
    console: Console, *, plan: Path, overwrite: bool, strict: bool, openjd: bool, quiet: bool, log: str, as_json: bool
) -> int:
    """Write the output of PLAN from its segments, look at it, give it its name and take the segments away.

    PLAN.joined says then that it was done: the same command does nothing more as long as the output is that file.
    """
    console.quiet, console.json_log = quiet, log == "json"
    stop, watch, journal = Event(), Watch(), Journal(console.first)
    jobs = Lines(console, wanted=openjd)
    with stopping(stop, console) as stops, jobs.failing():
        found = read_plan(plan)
        console.file = found.source.path
        stops.kept = True
        stamp = plan.with_name(plan.name + ".joined")
        if _facts(found) in _stamped(stamp):
            console.say(f"done: {found.output}: it was joined before")
            console.event("done", output=found.output, before=True)
            return DONE
        jobs.status(f"join of {len(found.segments)} segments")
        with (
            reporting(console, watch, found.device) as progress,
            watched(found, watch, jobs.following(progress)) as meter,
        ):
            done = join(
                found, overwrite=overwrite, journal=journal, stop=stop, meter=meter, named=lambda: _stamp(found, stamp)
            )
    console.say(f"done: {found.output}: {done.frames} frames of {len(found.segments)} segments")
    console.event("done", output=found.output, before=False, frames=done.frames, bytes=done.bytes)
    if as_json:
        console.json({"output": found.output, "frames": done.frames, "bytes": done.bytes, "quality": done.scores,
                      "warnings": list(journal.entries.values())})  # fmt: skip
    return WARNED if strict and len(journal) else DONE


def _facts(plan: Plan) -> dict[str, object] | None:
    """What says that the output is the one that was joined; None where there is none."""
    try:
        stat = plan.output.stat()
    except OSError:
        return None
    return {"digest": plan.digest(), "size": stat.st_size, "modified": stat.st_mtime_ns}


def _stamped(stamp: Path) -> list[object]:
    try:
        return [parsed(stamp.read_text(encoding="utf-8"))]
    except (OSError, ValueError):
        return []


def _stamp(plan: Plan, stamp: Path) -> None:
    try:
        stamp.write_text(json.dumps(_facts(plan)), encoding="utf-8")
    except OSError as error:
        raise describe_os_error(error, stamp) from None
