"""`gpupipe run`: a source in, a whole output or none out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from gpupipe.cli.job import prepare
from gpupipe.cli.options import job
from gpupipe.cli.progress import reporting
from gpupipe.cli.stop import stopping
from gpupipe.errors import StoppedError
from gpupipe.journal import Entry, Journal
from gpupipe.render import RenderResult, StopFlag, render

if TYPE_CHECKING:
    from pathlib import Path

    from gpupipe.cli.console import Console

WARNED = 4


@click.command(name="run")
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
    stop = StopFlag()
    with stopping(stop, console):
        plan = prepare(config, input, output, device=device, strict=strict)
        for line in plan.lines():
            console.say(line)
        console.event("start", plan=plan.to_json())
        for warning in plan.warnings:
            console.warning("plan", warning)
        journal = Journal(lambda entry: console.warning(entry.code, entry.message))
        try:
            with reporting(console) as progress:
                result = render(plan, overwrite=overwrite, journal=journal, stop=stop, progress=progress)
        except StoppedError as error:
            raise StoppedError(
                str(error), hint="the output was not touched; run the same command to start again"
            ) from None
    _conclude(console, result, journal)
    return WARNED if strict and len(journal) else 0


def _conclude(console: Console, result: RenderResult, journal: Journal) -> None:
    """Counts that grew after the first warning, then one line of what was done."""
    repeated: list[Entry] = [entry for entry in journal.entries.values() if entry.count > 1]
    for entry in repeated:
        console.say(f"warning: {entry}")
    rate = f", {result.frames / result.seconds:.0f} a second" if result.seconds > 0 else ""
    changed = [f"{n} {what}" for n, what in ((result.repeated, "repeated"), (result.dropped, "dropped")) if n]
    console.say(
        f"done: {result.output}: {result.frames} frames in {result.seconds:.1f} s{rate}{''.join(', ' + c for c in changed)}"
    )
    console.event("done", result=result, warnings=list(journal.entries.values()))
