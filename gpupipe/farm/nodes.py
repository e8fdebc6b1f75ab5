"""Nodes of a Ray cluster: an actor a GPU, or a share of the CPU, on every node that is there or comes."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from gpupipe.errors import FarmError, first_line
from gpupipe.farm.seats import LOOK, RaySeat, why
from gpupipe.farm.worker import Worker
from gpupipe.render.seat import SeatLostError

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpupipe.farm.job import Job
    from gpupipe.render.ledger import Ledger
    from gpupipe.render.seat import Seat

T = TypeVar("T")
ANSWER = 30.0
"""Seconds after which a cluster whose head does not answer is lost.

Ray itself ends the process of a driver after 60 s without its head.
"""
_AGAIN = 3
"""Actors that a place on a node gets, one after the other, if they end while the node lives."""
_PAUSE = 0.05


def _asked(ask: Callable[[], T]) -> Future[T]:
    """Asks the cluster's head, in a thread that nobody waits for: without it, Ray may never come back."""
    answer: Future[T] = Future()

    def wait() -> None:
        try:
            answer.set_result(ask())
        except BaseException as error:  # noqa: BLE001  whoever asked gets it
            answer.set_exception(error)

    threading.Thread(target=wait, name="head", daemon=True).start()
    return answer


def _silent() -> FarmError:
    return FarmError("the cluster's head does not answer", hint="look at it by `ray status`")


def _gone(error: Exception) -> FarmError:
    return FarmError(f"the cluster is gone: {first_line(error)}", hint="look at it by `ray status`")


@dataclass(slots=True)
class _Place:
    """Where a node has room for an actor."""

    node: str
    name: str
    cpus: int
    """Cores of it, where no GPU is used."""
    tries: int = 0
    seat: RaySeat | None = None
    started: Any = None
    """Answered when the actor runs: until then the node may be busy with others' work."""
    preparing: Any = None
    """Answered when it can render; None when it is."""
    over: bool = False
    """Nothing is started here any more."""


@dataclass
class Nodes:
    """See `seat.Office`.

    Args:
        ray: the module, connected.
        ledger: of the run.
        job: what nodes are told.
        gpu: whether a GPU is needed; else shares of `cores` CPU cores.
        sessions: segments side by side on a seat.
        patience: seconds to wait for a first or another node.
        tell: told of nodes, in words.
    """

    ray: Any
    ledger: Ledger
    job: Job
    gpu: bool
    cores: int
    sessions: int
    patience: float
    tell: Callable[[str], None]
    _places: dict[tuple[str, int], _Place] = field(default_factory=dict)
    _looking: Future[list[dict[str, Any]]] | None = None
    _looked: float = float("-inf")
    _alive: set[str] = field(default_factory=set)
    _since: float = field(default_factory=time.monotonic)
    """When there was a seat, or hope for one, for the last time."""
    _refused: str = ""
    _ending: list[RaySeat] = field(default_factory=list)
    """Closed, and not gone yet."""

    def fresh(self) -> list[Seat]:
        """See `Office`."""
        self._look()
        self._ending = [seat for seat in self._ending if not seat.gone()]
        ready: list[Seat] = []
        for place in self._places.values():
            if place.seat is not None:
                if place.preparing is not None and (seat := self._ready(place)) is not None:
                    ready.append(seat)
            elif place.node in self._alive and not place.over:
                self._hire(place)
        self._expect()
        return ready

    def _expect(self) -> None:
        """Raises FarmError where nobody works, and nobody is likely to begin."""
        now = time.monotonic()
        if any(place.seat is not None and self._runs(place) for place in self._places.values()):
            self._since = now
        here = [place for place in self._places.values() if place.node in self._alive]
        if now - self._since > self.patience or (here and all(place.over for place in here)):
            kind = "a GPU" if self.gpu else "CPU cores"
            why = f"; {self._refused}" if self._refused else f" with {kind} to give"
            raise FarmError(f"the farm has no node left{why}", hint="look at it by `ray status`")

    def _runs(self, place: _Place) -> bool:
        if place.preparing is None:
            return True
        with suppress(Exception):
            return bool(self.ray.wait([place.started], timeout=0)[0])
        return False

    def _look(self) -> None:
        """Asks for the nodes, and looks later for the answer."""
        now = time.monotonic()
        if self._looking is None:
            if now - self._looked >= LOOK:
                self._looking, self._looked = _asked(self.ray.nodes), now
            return
        if not self._looking.done():
            if now - self._looked > ANSWER:
                raise _silent()
            return
        looking, self._looking = self._looking, None
        try:
            self._note(looking.result())
        except Exception as error:  # noqa: BLE001  gRPC's, Ray's, the system's
            raise _gone(error) from None

    def _note(self, nodes: list[dict[str, Any]]) -> None:
        self._alive = {node["NodeID"] for node in nodes if node["Alive"]}
        idle = 0 if self.gpu else sum(int(node["Resources"].get("GPU", 0)) for node in nodes if node["Alive"])
        if idle and not self._places:
            self.tell(f"the nodes' {idle} GPUs stay idle: the plan, which is made on this machine, takes none")
        for node in nodes:
            if not node["Alive"]:
                continue
            have = node["Resources"]
            cpus = int(have.get("CPU", 0))
            count = int(have.get("GPU", 0)) if self.gpu else min(cpus, max(1, cpus // self.cores))
            for number in range(count):
                key = node["NodeID"], number
                if key not in self._places:
                    where = f"{node['NodeManagerAddress']} ({node['NodeID'][:6]})"
                    what = f", GPU {number}" if self.gpu else f", share {number}" if count > 1 else ""
                    self._places[key] = _Place(node["NodeID"], where + what, cpus // count)

    def _hire(self, place: _Place) -> None:
        strategy = self.ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(place.node, soft=False)
        places = self.sessions + 1  # one waits on the node, so that no lane ever does
        needs = {"num_gpus": 1, "num_cpus": 0} if self.gpu else {"num_cpus": place.cpus}
        kind = self.ray.remote(Worker).options(
            **needs, max_restarts=0, max_concurrency=places + 4, scheduling_strategy=strategy
        )  # fmt: skip
        try:
            actor = _asked(partial(kind.remote, self.job, "cuda:0" if self.gpu else "cpu")).result(ANSWER)
        except TimeoutError:
            raise _silent() from None
        except Exception as error:  # noqa: BLE001  gRPC's, Ray's, the system's
            raise _gone(error) from None
        place.tries += 1
        place.seat = RaySeat(self.ray, actor, place.name, places=places, ledger=self.ledger)
        place.started, place.preparing = actor.begun.remote(), actor.prepare.remote()

    def _ready(self, place: _Place) -> RaySeat | None:
        assert place.seat is not None
        try:
            if not self.ray.wait([place.preparing], timeout=0)[0]:
                return None
            answer = self.ray.get(place.preparing)
        except Exception as error:  # noqa: BLE001  the actor did not come up
            answer = SeatLostError(why(error))
        place.preparing = None
        if isinstance(answer, Exception):
            self._refuse(place, answer)
            return None
        place.seat.shared = answer
        self.tell(f"{place.name} is ready{', and writes to the ledger itself' if answer else ''}")
        return place.seat

    def _refuse(self, place: _Place, error: Exception) -> None:
        self._refused = f"{place.name}: {first_line(error)}"
        self.tell(f"{place.name} is not used: {error}")
        self._end(place)
        place.over = not isinstance(error, SeatLostError) or place.tries >= _AGAIN

    def lost(self, seat: Seat) -> None:
        """See `Office`; another actor is tried where the node still lives."""
        for place in self._places.values():
            if place.seat is seat:
                self._end(place)
                place.over = place.tries >= _AGAIN

    def _end(self, place: _Place) -> None:
        if place.seat is not None:
            place.seat.close()
            self._ending.append(place.seat)
            place.seat = place.preparing = None

    def close(self) -> None:
        """Ends all actors."""
        for place in self._places.values():
            self._end(place)
        while self._ending:
            self._ending = [seat for seat in self._ending if not seat.gone()]
            time.sleep(_PAUSE)
