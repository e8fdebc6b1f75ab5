"""Several GPUs of one machine: a process for each, which keeps its lanes warm and writes segments into the ledger.

Processes, because Python threads of one process take turns, which several GPUs would feel, and because what makes a
GPU's context unusable, or ends its process, must not reach the others.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpupipe.device import enter_device
from gpupipe.device.meanwhile import load_meanwhile
from gpupipe.errors import DeviceError, carried
from gpupipe.media.output import describe_os_error
from gpupipe.plan.placed import placed, with_places
from gpupipe.plan.stored import dump, load
from gpupipe.render.dispatch import Dispatch
from gpupipe.render.folder import SEGMENTS
from gpupipe.render.pieces import Piece, PieceWriter
from gpupipe.render.seat import SeatLostError
from gpupipe.render.warm import Warm

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from multiprocessing.connection import Connection

    from gpupipe.journal import Journal
    from gpupipe.plan import Plan
    from gpupipe.render.ledger import Ledger
    from gpupipe.render.progress import Meter, StopFlag
    from gpupipe.render.seat import Seat

REPORT, GOODBYE = 0.5, 20.0
"""Seconds between words of a child on how far it is; seconds that it has to end by itself."""
LANES_A_SPARE = 8
"""For so many lanes one more segment waits in a child."""


class Folder:
    """Where another process than the ledger's owner puts segments: the ledger's folder, or one to send from.

    Meets `shelf.Store`.
    """

    def __init__(self, plan: Plan, digest: str, path: Path) -> None:
        self.plan, self.pieces = plan, dict[int, Piece]()
        self._digest, self.path = digest, path

    def file(self, index: int) -> Path:
        """Of a segment."""
        return self.path / f"{index:06}.seg"

    def writer(self, index: int) -> PieceWriter:
        """See `Store`."""
        with self.writing():
            return PieceWriter(self.file(index), self._digest)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """See `Store`."""
        try:
            yield
        except OSError as error:
            raise describe_os_error(error, self.path / "segment") from error

    def finished(self, index: int, piece: Piece) -> None:
        """See `Store`."""
        self.pieces[index] = piece


def on_devices(ledger: Ledger, journal: Journal, stop: StopFlag, meter: Meter) -> None:
    """Renders what a ledger lacks on all devices of its plan; meets `kept.Fill`."""
    if not ledger.missing():
        return
    children = Children(ledger)

    def tell(text: str) -> None:
        journal.warn("device-lost", text)

    try:
        Dispatch(ledger, children, journal, tell).run(stop, meter)
    finally:
        children.close()


class Children:
    """See `seat.Office`: a child for each device of the plan; one that is lost stays so."""

    def __init__(self, ledger: Ledger) -> None:
        self._children = [Child(ledger, device) for device in ledger.plan.devices]
        self._waiting = list(self._children)
        self._left = len(self._children)

    def fresh(self) -> Sequence[Seat]:
        """See `Office`."""
        ready = [child for child in self._waiting if child.ready.is_set()]
        self._waiting = [child for child in self._waiting if child not in ready]
        if not self._left:
            raise DeviceError("every device failed", hint="see `gpupipe doctor`")
        return ready

    def lost(self, seat: Seat) -> None:  # noqa: ARG002  whichever it was
        """See `Office`."""
        self._left -= 1

    def close(self) -> None:
        """Ends all."""
        for child in self._children:
            child.end()
        for child in self._children:
            child.wait()


def places_of(plan: Plan) -> int:
    """Segments that a child has at once: some wait, for lanes that end before more can come."""
    return plan.sessions + 1 + plan.sessions // LANES_A_SPARE


class Child:
    """See `seat.Seat`: a process that renders on one device."""

    def __init__(self, ledger: Ledger, device: str) -> None:
        plan = ledger.plan
        self.name, self.places = device, places_of(plan)
        self.ready = threading.Event()
        """Set when it can be given segments, or has ended."""
        self._pending: dict[int, Future[Piece]] = {}
        self._counts: dict[int, int] = {}
        self._lock = threading.Lock()
        self._over = ""
        """Why it ended."""
        context = multiprocessing.get_context("spawn")
        self._here, there = context.Pipe()
        job = dump(plan), ledger.digest, str(ledger.folder / SEGMENTS), device
        self._process = context.Process(target=serve, args=(there, *job), name=f"gpupipe on {device}", daemon=True)
        self._process.start()
        there.close()
        threading.Thread(target=self._listen, name=f"listens to {device}", daemon=True).start()

    def render(self, index: int) -> Future[Piece]:
        """See `Seat`."""
        future: Future[Piece] = Future()
        with self._lock:
            if self._over:
                future.set_exception(SeatLostError(self._over))
                return future
            self._pending[index] = future
        with suppress(OSError):  # it has ended: who listens will say so
            self._here.send(index)
        return future

    def shown(self) -> Mapping[int, int]:
        """See `Seat`."""
        return self._counts

    def _listen(self) -> None:
        with suppress(Exception):  # a word that cannot be read ends it too: what it has would be waited for without end
            while True:
                what, index, answer = self._here.recv()
                if what == "ready":
                    self.ready.set()
                elif what == "shown":
                    self._counts = answer
                else:
                    future = self._pending.pop(index)
                    if what == "done":
                        future.set_result(answer)
                    else:
                        future.set_exception(answer)
        self._process.join(GOODBYE)
        code = self._process.exitcode
        with self._lock:
            self._over = f"its process ended with code {code}" if code else "its process ended"
            left, self._pending = list(self._pending.values()), {}
        for future in left:
            future.set_exception(SeatLostError(self._over))
        self.ready.set()

    def end(self) -> None:
        """Tells it to end, and does not wait."""
        with suppress(OSError):
            self._here.send(None)

    def close(self) -> None:
        """See `Seat`; the others go on meanwhile."""
        self.end()
        threading.Thread(target=self.wait, name=f"ends {self.name}", daemon=True).start()

    def wait(self) -> None:
        """Until it has ended, which it is made to when its time is over."""
        self._process.join(GOODBYE)
        if self._process.is_alive():
            self._process.kill()
            self._process.join(GOODBYE)


def serve(there: Connection, plan: dict[str, Any], digest: str, folder: str, device: str) -> None:
    """What a child does until it is told to end, or whoever started it is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent decides
    gc.set_threshold(100_000, 20, 20)  # as the command line does
    load_meanwhile("torch")
    mine = with_places(placed(load(plan, "the plan"), device))
    with suppress(OSError):  # no driver: whoever opens lanes says so
        enter_device(device)  # the GPU's context, beside torch
    store = Folder(mine, digest, Path(folder))
    warm, sending, over = Warm(mine, store), threading.Lock(), threading.Event()

    def say(what: str, index: int, answer: object) -> None:
        with sending, suppress(OSError):
            there.send((what, index, answer))

    def render(index: int) -> None:
        try:
            say("done", index, warm.render(index))
        except Exception as error:  # noqa: BLE001  it is told to whoever asked
            say("failed", index, carried(error))

    def report() -> None:
        while not over.wait(REPORT):
            say("shown", -1, warm.shown())

    threading.Thread(target=report, daemon=True).start()
    pool = ThreadPoolExecutor(places_of(mine))
    with suppress(Exception):  # the first segment meets the same, and tells it
        warm.open()
    say("ready", -1, None)
    with suppress(OSError, EOFError):
        while (index := there.recv()) is not None:
            pool.submit(render, index)
    over.set()
    warm.close()
    os._exit(0)  # libraries of the GPU take their time to end, and nobody needs it
