"""A run whose segments are rendered by the nodes of a Ray cluster; this machine keeps the ledger and joins."""

from __future__ import annotations

import re
import secrets
import signal
import socket
import threading
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gpupipe.errors import CapabilityError, FarmError, first_line
from gpupipe.farm.job import job_of
from gpupipe.farm.nodes import Nodes
from gpupipe.render.dispatch import Dispatch
from gpupipe.render.folder import SEGMENTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gpupipe.journal import Journal
    from gpupipe.render.ledger import Ledger
    from gpupipe.render.progress import Meter, StopFlag

_HOST_PORT = re.compile(r"(?:ray://)?\[?([0-9A-Za-z.:_-]+?)\]?:([0-9]{1,5})")
KNOCK = 20.0
"""Seconds to wait for a cluster's port to open."""
STORE = 256 << 20
"""Bytes of the object store of a cluster that is started here: a few chunks of segments pass through it."""


@dataclass(frozen=True, slots=True)
class Farm:
    """Meets `kept.Fill`.

    Args:
        address: of a cluster, as Ray takes it (`auto`, `10.0.0.1:6379`, `ray://10.0.0.1:10001`); None starts one here.
        cores: CPU cores of a share, where no GPU is used.
        patience: seconds to wait for a first or another node, once there is none.
        url: where nodes fetch the source from; None where they see it under the plan's path.
        cache: folder on each node for what is fetched.
        tell: told of nodes that come and go, in words.
        metrics: (port, address) from which on workers let Prometheus scrape them.
    """

    address: str | None
    cores: int
    patience: float
    url: str | None
    cache: str | None
    tell: Callable[[str], None]
    metrics: tuple[int, str] | None = None

    def __call__(self, ledger: Ledger, journal: Journal, stop: StopFlag, meter: Meter) -> None:
        """See `Fill`. Raises FarmError where the cluster cannot be reached or is lost."""
        if not ledger.missing():
            return
        gpu = ledger.plan.device != "cpu"
        with _cluster(self.address) as ray, _token(ledger) as token:
            job = job_of(ledger, url=self.url, cache=self.cache, token=token, metrics=self.metrics)
            nodes = Nodes(
                ray, ledger, job, gpu, self.cores, ledger.plan.sessions, patience=self.patience, tell=self.tell
            )
            try:
                Dispatch(ledger, nodes, journal, self.tell).run(stop, meter)
            finally:
                nodes.close()


@contextmanager
def _token(ledger: Ledger) -> Iterator[str]:
    """A file by which nodes know the ledger's folder."""
    name = f".farm-{secrets.token_hex(8)}.part"  # swept away where a run is killed
    path = ledger.folder / SEGMENTS / name
    with ledger.writing():
        path.touch()
    try:
        yield name
    finally:
        with suppress(OSError):
            path.unlink()


@contextmanager
def _cluster(address: str | None) -> Iterator[Any]:
    """Ray, connected."""
    ray = import_ray()
    _knock(address)
    here = {} if address else {"include_dashboard": False, "object_store_memory": STORE}
    try:
        with _signals_kept():
            ray.init(address=address or "local", log_to_driver=False, logging_level="error", **here)
    except Exception as error:  # noqa: BLE001  gRPC's, Ray's, the system's
        where = address or "a cluster on this machine"
        hint = "check the address, and that both sides have the same Ray and Python"
        raise FarmError(f"Ray cannot be reached: {first_line(error)}", where=where, hint=hint) from None
    try:
        yield ray
    finally:
        with suppress(Exception):
            ray.shutdown()


def _knock(address: str | None) -> None:
    """Raises FarmError where nobody listens at HOST:PORT: Ray would wait for good there, deaf to signals."""
    if address == "auto":
        address = _found()
    match = _HOST_PORT.fullmatch(address or "")
    if match is None:
        return
    try:
        socket.create_connection((match[1], int(match[2])), KNOCK).close()
    except (OSError, OverflowError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise FarmError(f"Ray cannot be reached: {why}", where=address, hint="check the address") from None


def _found() -> str | None:
    """What Ray takes `auto` for: also a cluster that is gone and left its address behind."""
    with suppress(Exception):  # Ray's own affair; where it is another by now, Ray says itself what is wrong
        from ray._private.services import canonicalize_bootstrap_address  # noqa: PLC0415

        found = canonicalize_bootstrap_address("auto")
        return found if isinstance(found, str) else None
    return None


@contextmanager
def _signals_kept() -> Iterator[None]:
    """SIGINT and SIGTERM stay with whoever has them: Ray would end the process at SIGTERM, and offers no way not to.

    Its Python part asks for the signals by `signal.signal`, its core by the system, which setting them again undoes.
    """
    ours, install = (signal.SIGINT, signal.SIGTERM), signal.signal
    handlers = {number: signal.getsignal(number) for number in ours}

    def refuse(number: int, handler: Any) -> Any:
        return handlers[signal.Signals(number)] if number in ours else install(number, handler)

    signal.signal = refuse  # type: ignore[assignment]  # of the same shape, in plain words
    try:
        yield
    finally:
        signal.signal = install
        if threading.current_thread() is threading.main_thread():
            for number, handler in handlers.items():
                install(number, handler)


def import_ray() -> Any:
    """The module. Raises CapabilityError where it is not installed, or not for this Python or platform."""
    try:
        import ray.util.scheduling_strategies  # noqa: PLC0415  only here
    except ImportError as error:
        hint = "pip install 'gpupipe[farm]', or `gpupipe farm template` for another queue"
        raise CapabilityError(f"Ray cannot be imported: {first_line(error)}", hint=hint) from None
    return ray
