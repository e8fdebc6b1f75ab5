"""What runs on a node: lanes kept warm, segments in, encoded segments out."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from gpupipe.errors import carried
from gpupipe.farm.job import Job, plan_here, sees_ledger
from gpupipe.journal import Journal
from gpupipe.render import Watch
from gpupipe.render.children import Folder
from gpupipe.render.warm import Warm

if TYPE_CHECKING:
    from gpupipe.render.pieces import Piece


class Scratch:
    """A folder of this process for segments until they are sent. What killed workers left is taken away first."""

    PREFIX = "gpupipe-segments-"

    def __init__(self) -> None:
        base = Path(tempfile.gettempdir())
        with (base / f"{self.PREFIX}{os.getuid()}.lock").open("ab") as turn:
            fcntl.flock(turn, fcntl.LOCK_EX)
            for old in base.glob(f"{self.PREFIX}*/"):
                self._sweep(old)
            self.path = Path(tempfile.mkdtemp(prefix=self.PREFIX))
            self._lock = (self.path / "lock").open("ab")
            fcntl.flock(self._lock, fcntl.LOCK_EX)

    @staticmethod
    def _sweep(old: Path) -> None:
        with suppress(OSError), (old / "lock").open("ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # whoever made it is gone
            shutil.rmtree(old)

    def close(self) -> None:
        """Takes it away."""
        shutil.rmtree(self.path, ignore_errors=True)
        self._lock.close()


class Worker:
    """One GPU, or one share of the CPU, of a node; made into a Ray actor. Errors are answers, not raised.

    Args:
        job: what is to be done; cheap until `prepare`.
        device: `cpu` or `cuda:0`, the only one that Ray shows it.
    """

    def __init__(self, job: Job, device: str) -> None:
        self._job, self._device = job, device
        self._scratch: Scratch | None = None
        self._warm: Warm | None = None
        self._metrics = ExitStack()

    def begun(self) -> None:
        """Answers as soon as the node has room for it."""

    def prepare(self) -> Exception | bool:
        """Fetches the source, looks whether bytes would be the same; answers whether the ledger is seen from here."""
        try:
            plan = plan_here(self._job, self._device)
            shared = sees_ledger(self._job)
            if not shared:
                self._scratch = Scratch()
            path = Path(self._job.folder) if self._scratch is None else self._scratch.path
            self._folder = Folder(plan, self._job.digest, path)
            watch = Watch()
            if self._job.metrics is not None:
                from gpupipe.metrics import Exporter  # noqa: PLC0415  only where it is asked

                exporter = self._metrics.enter_context(Exporter.near(*self._job.metrics))
                self._metrics.enter_context(exporter.watching(plan, watch, Journal()))
            self._warm = Warm(plan, self._folder, watch)
            self._warm.open()
        except Exception as error:  # noqa: BLE001  it is told to whoever asked
            return carried(error)
        return shared

    def render(self, index: int) -> Exception | Piece:
        """Renders a segment; several at once. It then lies in the ledger, or is fetched by `chunk` and `drop`."""
        assert self._warm is not None, "prepare() first"
        try:
            return self._warm.render(index)
        except Exception as error:  # noqa: BLE001
            return carried(error)

    def shown(self) -> dict[int, int]:
        """Pictures computed of each segment that is not done."""
        return {} if self._warm is None else self._warm.shown()

    def chunk(self, index: int, start: int, size: int) -> bytes:
        """Some bytes of a segment's file."""
        with self._folder.file(index).open("rb") as file:
            file.seek(start)
            return file.read(size)

    def drop(self, index: int) -> None:
        """A segment was received."""
        self._folder.file(index).unlink(missing_ok=True)

    def close(self) -> None:
        """Ends lanes and takes away what was not sent."""
        if self._warm is not None:
            self._warm.close()
        self._metrics.close()
        if self._scratch is not None:
            self._scratch.close()
