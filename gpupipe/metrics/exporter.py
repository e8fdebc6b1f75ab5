"""The exporter: one a process, whatever number of runs it carries out. It works only when it is asked."""

from __future__ import annotations

import socket
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Self

from gpupipe.device.host import available_bytes, total_bytes
from gpupipe.device.nvml import GpuGauge
from gpupipe.errors import CapabilityError, GpupipeError, StoppedError
from gpupipe.metrics.totals import Totals

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client.core import Metric

    from gpupipe.journal import Journal
    from gpupipe.plan import Plan
    from gpupipe.render import Watch

Run = tuple["Plan", "Watch", "Journal"]
_NEAR = 16


class PortTakenError(GpupipeError):
    """The port that was asked for cannot be had."""


class Exporter:
    """Answers scrapes at `url` from its making until it is closed; use as a context manager.

    Args:
        port: 0 takes any that is free.
        address: to listen on; `0.0.0.0` is every one of this machine.

    Raises:
        CapabilityError: prometheus-client is missing.
        PortTakenError: the port cannot be had.
    """

    def __init__(self, port: int, address: str = "0.0.0.0") -> None:  # noqa: S104  Prometheus asks from elsewhere
        try:
            from prometheus_client import CollectorRegistry, ProcessCollector, start_http_server  # noqa: PLC0415
        except ImportError:
            raise CapabilityError(
                "prometheus-client is not installed", where="--metrics-port", hint="pip install 'gpupipe[metrics]'"
            ) from None
        self._lock = threading.Lock()
        self._past, self._runs = Totals(), list[Run]()
        self._gauges: dict[str, GpuGauge] = {}
        registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        registry.register(self)
        try:
            self._server, self._thread = start_http_server(port, address, registry)
        except OSError as error:
            hint = "another program listens there; choose another port, or 0 for any"
            raise PortTakenError(f"{address}:{port}: {error.strerror}", where="--metrics-port", hint=hint) from None
        shown = "localhost" if address in ("0.0.0.0", "::") else address  # noqa: S104
        self.url = f"http://{f'[{shown}]' if ':' in shown else shown}:{self._server.server_port}/metrics"

    @classmethod
    def near(cls, port: int, address: str) -> Exporter:
        """On the first of 16 ports from `port` on that can be had: several processes of a machine export."""
        for number in range(port, port + _NEAR - 1 if port else 0):
            with suppress(PortTakenError):
                return cls(number, address)
        return cls(port + _NEAR - 1 if port else 0, address)

    @contextmanager
    def watching(self, plan: Plan, watch: Watch, journal: Journal) -> Iterator[None]:
        """While it is entered the run is among what is told; when it is left its counts stay."""
        run = (plan, watch, journal)
        with self._lock:
            self._runs.append(run)
            if plan.device not in self._gauges and plan.device != "cpu":
                self._gauges[plan.device] = GpuGauge(plan.device)
        end, kind = "done", None
        try:
            yield
        except (StoppedError, KeyboardInterrupt):
            end = "stopped"
            raise
        except BaseException as error:
            end, kind = "failed", type(error).__name__ if isinstance(error, GpupipeError) else "bug"
            raise
        finally:
            with self._lock:
                self._runs.remove(run)
                self._past.add(watch.read(), journal)
                self._past.ended[end] += 1
                if kind is not None:
                    self._past.errors[kind] += 1

    def collect(self) -> Iterator[Metric]:
        """Everything, now; prometheus-client calls it at each scrape."""
        from gpupipe.metrics import families  # noqa: PLC0415  imports prometheus-client

        with self._lock:
            totals = self._past.copy()
            runs = [(plan, watch.read(), journal) for plan, watch, journal in self._runs]
            gauges = [(device.removeprefix("cuda:"), gauge) for device, gauge in self._gauges.items()]
        for _, reading, journal in runs:
            totals.add(reading, journal)
        yield from families.of_totals(totals)
        yield from families.of_runs([(plan, reading) for plan, reading, _ in runs])
        yield from families.of_host(available_bytes(), total_bytes())
        yield from families.of_gpus([(index, gauge) for index, gauge in gauges if gauge.reason is None])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Answers no more."""
        ending = threading.Thread(target=self._server.shutdown, name="metrics-end", daemon=True)
        ending.start()
        host, port = self._server.server_address[:2]
        with suppress(OSError), socket.create_connection((str(host), port), timeout=1):
            pass  # wakes the server, which looks at its own clock only twice a second
        ending.join()
        self._server.server_close()
        self._thread.join()
