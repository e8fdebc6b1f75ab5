"""Carries out the jobs of a batch, several at once where they are small; a bad file does not stop the others."""

from __future__ import annotations

import threading
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from gpupipe.batch.book import Entry
from gpupipe.errors import BusyError, GpupipeError, MediaError, SourceError, StoppedError
from gpupipe.journal import Journal
from gpupipe.media.output import OutputFile, describe_os_error
from gpupipe.plan.stored import absolute
from gpupipe.render import Watch, render
from gpupipe.render.facts import facts, fingerprint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from gpupipe.batch.book import Book
    from gpupipe.batch.jobs import Job
    from gpupipe.plan import Plan
    from gpupipe.render import Progress, StopFlag

Outcome = Literal["done", "failed", "standing", "stopped", "busy"]
"""`standing`: an earlier run's entry still holds, be it of a success or of a failure. `busy`: another run is
at work on that output, which says nothing of the file, so it is not put down."""


@dataclass(frozen=True, slots=True)
class Finished:
    """How a job ended."""

    job: Job
    outcome: Outcome
    entry: Entry
    warnings: tuple[str, ...] = ()
    bug: Exception | None = None
    """What was no expected failure."""

    @property
    def failed(self) -> bool:
        """Now or before; `busy` is no failure."""
        return self.outcome == "failed" or (self.outcome == "standing" and self.entry.state == "failed")


class Room:
    """Places that runs share: one that is cut into segments fills the device by itself, the others take one each."""

    def __init__(self, places: int) -> None:
        self.places = self._free = places
        self._changed = threading.Condition()

    @contextmanager
    def taken(self, places: int, stop: StopFlag) -> Iterator[None]:
        """Waits for as many. Raises StoppedError where `stop` is set first."""
        with self._changed:
            while not self._changed.wait_for(lambda: self._free >= places, timeout=0.1):
                if stop.is_set():
                    raise StoppedError("stopped")
            self._free -= places
        try:
            yield
        finally:
            with self._changed:
                self._free += places
                self._changed.notify_all()


@dataclass(frozen=True, slots=True)
class Batch:
    """How the jobs of a batch are carried out.

    `prepare` makes a job's plan, `progress` is told of a running job from its own thread, `watching` is around its run.
    """

    prepare: Callable[[Job], Plan]
    book: Book
    stop: StopFlag
    overwrite: bool = False
    restart: bool = False
    retry: bool = False
    """Files that failed before are tried again though nothing has changed."""
    progress: Callable[[Job, Progress], None] = lambda _job, _now: None
    watching: Callable[[Job, Plan, Watch, Journal], AbstractContextManager[None]] = lambda *_: nullcontext()
    begun: Callable[[Job, Plan], None] = lambda _job, _plan: None

    def run(self, jobs: Sequence[Job], room: Room) -> Iterator[Finished]:
        """Each job as it ends; after a stop the rest is left out."""
        waiting = iter(jobs)
        with ThreadPoolExecutor(max_workers=room.places, thread_name_prefix="batch") as pool:
            running: set[Future[Finished]] = set()
            while True:
                while (
                    len(running) < room.places and not self.stop.is_set() and (job := next(waiting, None)) is not None
                ):
                    running.add(pool.submit(self._one, job, room))
                if not running:
                    return
                ended, running = wait(running, return_when=FIRST_COMPLETED)
                for future in ended:
                    yield future.result()

    def _one(self, job: Job, room: Room) -> Finished:
        standing = self.book.standing(job)
        if standing is not None and not (standing.state == "failed" and self.retry):
            return Finished(job, "standing", standing)
        journal = Journal(lambda _: None)
        try:
            entry, known = self._carry_out(job, room, journal)
        except StoppedError:
            return Finished(job, "stopped", Entry(str(job.source), "failed", reason="stopped"))
        except BusyError as error:
            entry = Entry(str(job.source), "failed", reason=str(error), exit_code=error.exit_code)
            return Finished(job, "busy", entry)
        except GpupipeError as error:
            return self._failed(job, error)
        except Exception as error:  # noqa: BLE001  the other files have nothing to do with it
            entry = Entry(str(job.source), "failed", reason=f"a bug: {error!r}", exit_code=3)
            return Finished(job, "failed", entry, bug=error)
        self.book.add(job, entry)
        return Finished(job, "done", entry, (*known, *(str(one) for one in journal.entries.values())))

    def _carry_out(self, job: Job, room: Room, journal: Journal) -> tuple[Entry, tuple[str, ...]]:
        """How it ended, and the plan's warnings."""
        if not self.overwrite and self.book.left_by_us(job):
            why = "is of another config, version or state of the source"
            raise MediaError(why, where=str(job.output), hint="--overwrite makes it anew")
        try:
            job.output.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise describe_os_error(error, job.output) from None
        OutputFile(job.output, overwrite=self.overwrite, inputs=(job.source,)).check()
        plan = self.prepare(job)
        with room.taken(room.places if len(plan.segments) > 1 else 1, self.stop):
            read = facts(absolute(plan))["files"]
            self.begun(job, plan)
            watch = Watch()
            with self.watching(job, plan, watch, journal):
                result = render(
                    plan, overwrite=self.overwrite, restart=self.restart, journal=journal, stop=self.stop,
                    watch=watch, progress=lambda now: self.progress(job, now),
                )  # fmt: skip
        assert isinstance(read, dict)
        stat = job.output.stat()
        entry = Entry(
            str(job.source), "done", files=read, size=stat.st_size, modified=stat.st_mtime_ns, frames=result.frames,
            seconds=round(result.seconds, 3), warnings=len(plan.warnings) + len(journal),
        )  # fmt: skip
        return entry, tuple(notice.message for notice in plan.warnings)

    def _failed(self, job: Job, error: GpupipeError) -> Finished:
        files: dict[str, dict[str, object]] = {}
        if isinstance(error, SourceError) and job.source.is_file():
            files[str(job.source.absolute())] = fingerprint(job.source)
        entry = Entry(
            str(job.source), "failed", files=files, reason=str(error), exit_code=error.exit_code, lasting=bool(files)
        )
        self.book.add(job, entry)
        return Finished(job, "failed", entry)
