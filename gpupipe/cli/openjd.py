"""What queues of Open Job Description read from a task's output: how far it is, what it does, why it failed."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from gpupipe.cli.progress import EVENT_EVERY, every
from gpupipe.errors import GpupipeError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gpupipe.cli.console import Console
    from gpupipe.render import Progress

openjd = click.option(
    "--openjd", is_flag=True, help="Print openjd_progress and openjd_status lines, for a render queue."
)


class Lines:
    """Writes them to stdout, where they are wanted."""

    def __init__(self, console: Console, *, wanted: bool) -> None:
        self._console, self._wanted = console, wanted

    def status(self, words: str) -> None:
        """What it does now."""
        self._say("status", words)

    def following(self, report: Callable[[Progress], None]) -> Callable[[Progress], None]:
        """`report`, and how far it is in percent, once a second."""
        if not self._wanted:
            return report
        line = every(EVENT_EVERY, self._progress)

        def both(now: Progress) -> None:
            report(now)
            line(now)

        return both

    def _progress(self, now: Progress) -> None:
        if now.total:
            self._say("progress", f"{min(100.0, 100 * now.frames / now.total):.1f}")

    @contextmanager
    def failing(self) -> Iterator[None]:
        """Around the work: tells why it failed, or that all is done."""
        try:
            yield
        except GpupipeError as error:
            self._say("fail", str(error))
            raise
        self._say("progress", "100.0")

    def _say(self, what: str, words: str) -> None:
        if self._wanted:
            self._console.data([f"openjd_{what}: {words}"])
