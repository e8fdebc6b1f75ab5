"""`gpupipe run`: a source in, a whole output or none out."""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial
from threading import Event
from typing import TYPE_CHECKING

import click

from gpupipe.cli import DONE, WARNED, options
from gpupipe.cli.job import prepare
from gpupipe.cli.observe import Observer, exporting, listening_at, observing, reports
from gpupipe.cli.options import as_json, job
from gpupipe.cli.progress import pace, reporting
from gpupipe.cli.stop import stopping
from gpupipe.device.meanwhile import load_meanwhile
from gpupipe.journal import Journal
from gpupipe.render import Watch, render
from gpupipe.render.audit import CopyAudit

if TYPE_CHECKING:
    from pathlib import Path

    from gpupipe.cli.console import Console
    from gpupipe.plan import Plan
    from gpupipe.render import RenderResult
    from gpupipe.render.audit import AuditReport


@click.command(name="run", short_help="Carry out a config.")
@job
@options.restart
@click.option("--audit-copies", is_flag=True, help="Count what is copied to and from the GPU, beside the bitstreams.")
@options.log_file
@reports
@click.option("--metrics-port", callback=listening_at, metavar="[ADDRESS:]PORT",
              help="Let Prometheus scrape the run there; 0 takes any free port and says which.")  # fmt: skip
@as_json
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
    log_file: Path | None,
    restart: bool,
    audit_copies: bool,
    report: tuple[Path, ...],
    metrics_port: tuple[int, str] | None,
    as_json: bool,
) -> int:
    """Do what CONFIG says to INPUT and write OUTPUT, which appears only when it is whole.

    INPUT and OUTPUT override the config. Relative paths start from the current directory. A run that keeps its
    finished segments (`resume` in the config) is gone on with by the same command.
    """
    console.quiet, console.json_log = quiet, log == "json"
    load_meanwhile("torch")
    if log_file is not None:
        console.log_to(log_file, config)
    stop = Event()
    with stopping(stop, console) as stops:
        plan = prepare(config, input, output, device=device, strict=strict, say=console.say)
        stops.kept, console.file = plan.ledger, plan.source.path
        announce(console, plan)
        journal = Journal(console.first, console.say)
        watch = Watch()
        with (
            observing(plan, watch, journal, report, config, overwrite=overwrite) as observer,
            exporting(console, metrics_port, plan, watch, journal),
        ):
            result, audit = _carry_out(
                console, plan, journal, stop, overwrite=overwrite, restart=restart, audited=audit_copies, watch=watch,
                observer=observer,
            )  # fmt: skip
            observer.conclude(result, None, audit)
    conclude(console, result, journal, audit)
    if as_json:
        warned = list(journal.entries.values())
        told = {"result": result, "notices": plan.warnings, "warnings": warned, "copies": audit}
        console.json({**told, "models": list(watch.models.values())})
    return WARNED if strict and (len(journal) or (audit is not None and not audit.within_limits)) else DONE


def announce(console: Console, plan: Plan) -> None:
    """What is about to be done, and what it will lose."""
    for line in plan.lines():
        console.say(line)
    console.event("start", plan=plan.to_json())
    for notice in plan.warnings:
        console.warning(notice.code, notice.message)


def _carry_out(
    console: Console, plan: Plan, journal: Journal, stop: Event, *, overwrite: bool, restart: bool, audited: bool,
    watch: Watch, observer: Observer,
) -> tuple[RenderResult, AuditReport | None]:  # fmt: skip
    carry_out = partial(render, plan, overwrite=overwrite, restart=restart, journal=journal, stop=stop, watch=watch)
    with reporting(console, watch, plan.device) as progress, observer.recorder or nullcontext():
        if not audited:
            return carry_out(progress=progress), None
        with CopyAudit(plan) as audit:
            result = carry_out(progress=audit.watching(progress))
    return result, audit.report(result.output)


def conclude(console: Console, result: RenderResult, journal: Journal, audit: AuditReport | None) -> None:
    """Counts that grew after the first warning, the audit, then one line of what was done."""
    for entry in journal.entries.values():
        if entry.count > 1:
            console.say(f"warning: {entry}")
    for score in result.quality:
        console.say(f"quality  {score}")
    for line in audit.lines() if audit is not None else ():
        console.say(line)
    rate = f" ({pace(result.rate)} a second)" if result.seconds > 0 else ""
    counts = (
        (result.kept, "from earlier runs"),
        (result.repeated, "repeated"),
        (result.dropped, "dropped"),
        (len(journal), "kinds of warnings"),
    )
    changed = "".join(f", {n} {what}" for n, what in counts if n)
    console.say(f"done: {result.output}: {result.frames} frames in {result.seconds:.1f} s{rate}{changed}")
    console.event("done", result=result, warnings=list(journal.entries.values()), copies=audit)
