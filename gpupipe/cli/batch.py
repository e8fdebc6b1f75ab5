"""`gpupipe batch`: one config, many files; a bad one does not stop the others, and a second run does what is left."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial
from threading import Event
from typing import TYPE_CHECKING

import click

from gpupipe.batch.book import Book, made_by
from gpupipe.batch.jobs import Job, jobs, sources
from gpupipe.batch.run import Batch, Finished, Room
from gpupipe.cli import DONE, INTERRUPTED, WARNED, bug, options
from gpupipe.cli.job import plan_of
from gpupipe.cli.observe import exported, listening_at
from gpupipe.cli.options import PATH, as_json, device, talk
from gpupipe.cli.progress import LINE_EVERY, every, line, pace
from gpupipe.cli.stop import stopping
from gpupipe.config import load_config
from gpupipe.device import pick_device, pick_devices
from gpupipe.media.output import describe_os_error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from gpupipe.cli.console import Console
    from gpupipe.journal import Journal
    from gpupipe.metrics import Exporter
    from gpupipe.plan import Plan
    from gpupipe.render import Progress, Watch

AT_ONCE = 8
"""Files that share a GPU; one that is cut into segments fills it by itself."""
FAILED = 1
_WORDS = {"done": "done", "standing": "done before", "failed": "failed", "stopped": "stopped", "busy": "busy"}


@click.command(name="batch", short_help="Carry out a config on many files.")
@click.argument("config", type=PATH)
@click.argument("inputs", nargs=-1, metavar="INPUT...")
@click.option("--list", "lists", type=PATH, multiple=True, metavar="FILE", help="Take the paths in it too, one a line.")
@click.option("--output-dir", type=PATH, required=True, metavar="DIR", help="Where the outputs go; made if need be.")
@click.option("--name", default="{stem}.mp4", show_default=True, metavar="TEMPLATE",
              help="What outputs are called: {stem}, {suffix}, {parent} of the input, or its {number}.")  # fmt: skip
@click.option("--jobs", "at_once", type=click.IntRange(1, 64), metavar="N",
              help="Files at once; by default 1 on the CPU, and on a GPU as many short ones as fit.")  # fmt: skip
@click.option("--retry", is_flag=True, help="Try sources again that were bad before, though nothing has changed.")
@device
@click.option("--overwrite", is_flag=True, help="Replace outputs that exist.")
@options.restart
@options.strict
@talk
@click.option("--metrics-port", callback=listening_at, metavar="[ADDRESS:]PORT",
              help="Let Prometheus scrape the batch there; 0 takes any free port and says which.")  # fmt: skip
@options.log_file
@as_json
@click.pass_obj
def command(
    console: Console,
    *,
    config: Path,
    inputs: tuple[str, ...],
    lists: tuple[Path, ...],
    output_dir: Path,
    name: str,
    at_once: int | None,
    retry: bool,
    device: str | None,
    overwrite: bool,
    restart: bool,
    strict: bool,
    quiet: bool,
    log: str,
    log_file: Path | None,
    metrics_port: tuple[int, str] | None,
    as_json: bool,
) -> int:
    """Do what CONFIG says to each INPUT, a path or a pattern in quotes, and write the outputs to DIR.

    A file that fails does not stop the others. What became of each is kept in DIR, so the same command again does only
    what is not done. Exit code 1 if any failed, or is busy: another run is at work on its output.
    """
    console.quiet, console.json_log = quiet, log == "json"
    if log_file is not None:
        console.log_to(log_file, config, *lists)
    settings = load_config(config)
    todo = jobs(sources(inputs, lists), name, output_dir)
    places = pick_devices(settings.devices) if settings.devices is not None and device is None else ()
    place = places[0] if places else pick_device(device or settings.device)
    try:
        output_dir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise describe_os_error(error, output_dir) from None
    stop = Event()
    stack = ExitStack()
    telling = _Telling(console, len(todo), stack.enter_context(exported(console, metrics_port)))
    batch = Batch(
        lambda job: plan_of(config, settings, job.source, job.output, device=None if places else place, strict=strict),
        Book(output_dir, made_by(settings)), stop, overwrite=overwrite, restart=restart, retry=retry,
        begun=telling.begun, progress=telling.progress, watching=telling.watching,
    )  # fmt: skip
    with stack, stopping(stop, console) as stops:
        stops.kept = True
        for finished in batch.run(todo, Room(at_once or (1 if place == "cpu" or len(places) > 1 else AT_ONCE))):
            telling.ended(finished)
    return _conclude(console, todo, telling.all, strict=strict, as_json=as_json)


class _Telling:
    """A line as each file begins, every ten seconds while it runs, and as it ends."""

    def __init__(self, console: Console, total: int, exporter: Exporter | None) -> None:
        self._console, self._total, self._exporter = console, total, exporter
        self._lines: dict[Job, Callable[[Progress], None]] = {}
        self.all: list[Finished] = []

    def begun(self, job: Job, plan: Plan) -> None:
        self._console.event("file", source=job.source, output=job.output, state="begun", plan=plan.digest())
        self._lines[job] = every(LINE_EVERY, lambda now: self._console.say(f"{job.source.name}: {line(now)}"))

    @contextmanager
    def watching(self, job: Job, plan: Plan, watch: Watch, journal: Journal) -> Iterator[None]:
        """While it is entered a run's steps back and retries are told with its name, and its counts are exported."""
        watch.told = partial(self._console.happened, about=job.source)
        with nullcontext() if self._exporter is None else self._exporter.watching(plan, watch, journal):
            yield

    def progress(self, job: Job, now: Progress) -> None:
        self._lines[job](now)

    def ended(self, finished: Finished) -> None:
        self.all.append(finished)
        job, entry = finished.job, finished.entry
        self._console.event(
            "file", source=job.source, output=job.output, state=_state(finished), frames=entry.frames,
            seconds=entry.seconds, warnings=finished.warnings, reason=entry.reason, exit_code=entry.exit_code,
        )  # fmt: skip
        self._console.say(f"[{len(self.all)}/{self._total}] {_outcome(finished)}")
        for text in finished.warnings:
            self._console.say(f"  warning: {text}")
        if finished.bug is not None:
            self._console.say(f"  {bug.report(finished.bug)}")


def _state(finished: Finished) -> str:
    return "failed before" if finished.outcome == "standing" and finished.failed else _WORDS[finished.outcome]


def _outcome(finished: Finished) -> str:
    job, entry = finished.job, finished.entry
    if finished.failed:
        again = " (nothing has changed; --retry tries again)" if finished.outcome == "standing" else ""
        return f"{_state(finished)}  {job.source}: {entry.reason.removeprefix(f'{job.source}: ')}{again}"
    if finished.outcome == "busy":
        return f"busy     {job.source}: {entry.reason}"
    if finished.outcome == "stopped":
        return f"stopped  {job.source}"
    rate = f", {pace(entry.frames / entry.seconds)} a second" if entry.seconds else ""
    return f"{_state(finished)}  {job.source} -> {job.output}: {entry.frames} frames{rate}"


def _conclude(console: Console, todo: list[Job], ended: list[Finished], *, strict: bool, as_json: bool) -> int:
    """The summary: every file that is not simply done, then how many of which."""
    counts = Counter(_state(one) for one in ended)
    counts["not begun"] = len(todo) - len(ended)
    for one in ended:
        if one.failed or one.outcome == "busy":
            console.say(f"  {_outcome(one)}")
    told = [f"{counts[name]} {name}" for name in ("done", "done before", "failed", "failed before", "busy", "stopped",
                                                  "not begun") if counts[name]]  # fmt: skip
    console.say(f"{len(todo)} files: {', '.join(told)}")
    console.event("done", counts=dict(counts))
    if as_json:
        console.json([{"outcome": _state(one), **_facts(one)} for one in ended])
    if counts["stopped"] or counts["not begun"]:
        console.error("stopped; what is done is kept, and the same command goes on", INTERRUPTED)
        return INTERRUPTED
    if any(one.failed or one.outcome == "busy" for one in ended):
        return FAILED
    return WARNED if strict and any(one.entry.warnings for one in ended) else DONE


def _facts(finished: Finished) -> dict[str, object]:
    job, entry = finished.job, finished.entry
    return {
        "source": job.source, "output": job.output, "frames": entry.frames, "seconds": entry.seconds,
        "bytes": entry.size, "warnings": finished.warnings, "warning_count": entry.warnings, "reason": entry.reason,
        "exit_code": entry.exit_code,
    }  # fmt: skip
