"""What watches a run for others: the report that it leaves, and what Prometheus scrapes meanwhile."""

from __future__ import annotations

import re
import shlex
import sys
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpupipe.cli.job import apart
from gpupipe.cli.options import PATH
from gpupipe.errors import GpupipeError
from gpupipe.media.output import OutputFile, describe_os_error
from gpupipe.report.recorder import Recorder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpupipe.cli.console import Console
    from gpupipe.journal import Journal
    from gpupipe.metrics import Exporter
    from gpupipe.plan import Plan
    from gpupipe.render import RenderResult, Watch
    from gpupipe.render.audit import AuditReport

KINDS = (".html", ".json")


def report_paths(ctx: click.Context, parameter: click.Parameter, value: tuple[Path, ...]) -> tuple[Path, ...]:  # noqa: ARG001
    """A callback of click: refuses what is no kind of report."""
    for path in value:
        if path.suffix.lower() not in KINDS:
            raise click.BadParameter(f"a report is a .html or a .json, not {path.name!r}")
    return value


def listening_at(ctx: click.Context, parameter: click.Parameter, value: str | None) -> tuple[int, str] | None:  # noqa: ARG001
    """A callback of click: (port, address) of `9464`, `127.0.0.1:9464` or `[::1]:9464`."""
    if value is None:
        return None
    match = re.fullmatch(r"(?:\[?([0-9A-Za-z.:-]+?)\]?:)?([0-9]{1,5})", value)
    if match is None or int(match[2]) > 65535:
        raise click.BadParameter(f"PORT or ADDRESS:PORT, with a port up to 65535, not {value!r}")
    return int(match[2]), match[1] or "0.0.0.0"  # noqa: S104  as exporters do: Prometheus asks from elsewhere


reports = click.option(
    "--report", type=PATH, multiple=True, callback=report_paths, metavar="FILE",
    help="Leave a report of the run: a .html page or .json; may be given twice.",
)  # fmt: skip


@contextmanager
def exported(console: Console, where: tuple[int, str] | None) -> Iterator[Exporter | None]:
    """The exporter of this process, and where it is said; None where it is not asked for."""
    if where is None:
        yield None
        return
    from gpupipe.metrics import Exporter  # noqa: PLC0415  only where it is asked

    with Exporter(*where) as exporter:
        console.say(f"metrics  {exporter.url}")
        console.event("metrics", url=exporter.url)
        yield exporter


@contextmanager
def exporting(
    console: Console, where: tuple[int, str] | None, plan: Plan, watch: Watch, journal: Journal
) -> Iterator[None]:
    """While it is entered Prometheus may scrape the run; nothing where it is not asked for."""
    with (
        exported(console, where) as exporter,
        nullcontext() if exporter is None else exporter.watching(plan, watch, journal),
    ):
        yield


class Observer:
    """Records a run and writes its reports; see `observing`."""

    def __init__(self, plan: Plan, watch: Watch, journal: Journal, files: tuple[OutputFile, ...]) -> None:
        self._plan, self._journal, self._files = plan, journal, files
        self.recorder = Recorder(watch, plan.device) if files else None

    def conclude(self, result: RenderResult | None, failure: str | None, copies: AuditReport | None) -> None:
        """Writes the reports of a run that has ended, well or not."""
        if self.recorder is None:
            return
        from gpupipe.report.run import RunReport  # noqa: PLC0415  only where a report is wanted

        report = RunReport(
            self._plan, shlex.join(["gpupipe", *sys.argv[1:]]), str(Path.cwd()), self.recorder,
            tuple(self._journal.entries.values()), result, failure, copies,
        )  # fmt: skip
        for file in self._files:
            content = report.to_json() if file.name.suffix.lower() == ".json" else report.to_html()
            try:
                file.path.write_text(content, encoding="utf-8", errors="backslashreplace")
            except OSError as error:
                raise describe_os_error(error, file.name) from None
            file.commit()


@contextmanager
def observing(
    plan: Plan, watch: Watch, journal: Journal, reports: tuple[Path, ...], config: Path, *, overwrite: bool
) -> Iterator[Observer]:
    """While it is entered the run is recorded; a failure of the run is reported too, and goes on.

    Raises MediaError before the run where a report could not be written, or is a file that the run reads or writes.
    """
    with ExitStack() as stack:
        files = tuple(
            stack.enter_context(OutputFile(p, overwrite=overwrite, inputs=apart(plan, config))) for p in reports
        )
        observer = Observer(plan, watch, journal, files)
        try:
            yield observer
        except GpupipeError as error:
            observer.conclude(None, str(error), None)
            raise
