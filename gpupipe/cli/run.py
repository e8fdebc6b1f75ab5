"""`gpupipe run`: a source in, a whole output or none out."""

from __future__ import annotations

from threading import Event
from typing import TYPE_CHECKING

import click

from gpupipe.cli import DONE, WARNED
from gpupipe.cli.job import prepare
from gpupipe.cli.options import job
from gpupipe.cli.progress import reporting
from gpupipe.cli.stop import stopping
from gpupipe.journal import Entry, Journal
from gpupipe.render import render

if TYPE_CHECKING:
    from pathlib import Path

    from gpupipe.cli.console import Console
    from gpupipe.render import RenderResult


@click.command(name="run", short_help="Carry out a config.")
@job
@click.pass_obj
def command(
    console: Console,
    *,
    config: Path,
    input: Path | None,  # noqa: A002  (click names the parameter as the user sees it)
    output: Path | None,
    device: str | None,
    overwrite: bool,
    strict: bool,
    quiet: bool,
    log: str,
) -> int:
    """Do what CONFIG says to INPUT and write OUTPUT, which appears only when it is whole.

    INPUT and OUTPUT override the config. Relative paths start from the current directory.
    """
    console.quiet, console.json_log = quiet, log == "json"
    stop = Event()
    with stopping(stop, console):
        plan = prepare(config, input, output, device=device, strict=strict)
        for line in plan.lines():
            console.say(line)
        console.event("start", plan=plan.to_json())
        for notice in plan.warnings:
            console.warning(notice.code, notice.message)
        journal = Journal(lambda entry: _first(console, entry))
        with reporting(console) as progress:
            result = render(plan, overwrite=overwrite, journal=journal, stop=stop, progress=progress)
    _conclude(console, result, journal)
    return WARNED if strict and len(journal) else DONE


def _first(console: Console, entry: Entry) -> None:
    """Told at once; how often it happened is told at the end."""
    place = f" ({entry.places[0]})" if entry.places else ""
    console.warning(entry.code, f"{entry.message}{place}", entry.count)


def _conclude(console: Console, result: RenderResult, journal: Journal) -> None:
    """Counts that grew after the first warning, then one line of what was done."""
    for entry in journal.entries.values():
        if entry.count > 1:
            console.say(f"warning: {entry}")
    rate = f" ({result.frames / result.seconds:.0f} a second)" if result.seconds > 0 else ""
    counts = ((result.repeated, "repeated"), (result.dropped, "dropped"), (len(journal), "kinds of warnings"))
    changed = "".join(f", {n} {what}" for n, what in counts if n)
    console.say(f"done: {result.output}: {result.frames} frames in {result.seconds:.1f} s{rate}{changed}")
    console.event("done", result=result, warnings=list(journal.entries.values()))
