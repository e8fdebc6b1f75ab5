"""Copies between host and GPU, counted by CUPTI (through torch.profiler), whichever library makes them.

CUPTI sees every copy command of the process: torch's, the driver's by ctypes, those inside CUDA Graphs and those of
nvJPEG. NVDEC fetches its bitstream and hands out its surfaces by itself: of that only copies within the GPU show.
"""

from __future__ import annotations

import re
import time
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gpupipe.errors import DeviceError

if TYPE_CHECKING:
    from collections.abc import Iterable

SECONDS, FRAMES = 10.0, 20_000
"""Of a window: the profiler holds what it saw in one, 4 to 15 records of a few hundred bytes a frame."""
_BYTES = re.compile(r'"bytes": (\d+)')


@dataclass(slots=True)
class Copies:
    """Bytes copied, by direction."""

    to_device: int = 0
    to_host: int = 0
    within: int = 0
    """From one place on the GPU to another."""

    def add(self, events: Iterable[Any]) -> None:
        """Counts the copies among a profiler's events, which it describes in words and JSON."""
        for event in events:
            name: str = event.name()
            if not name.startswith("Memcpy "):
                continue
            found = _BYTES.search(event.metadata_json())
            if found is None:
                raise DeviceError("this torch does not say how many bytes a copy had", hint="use torch 2.11 or newer")
            kind, size = name.split()[1], int(found[1])
            if kind in ("HtoD", "HtoA"):
                self.to_device += size
            elif kind in ("DtoH", "AtoH"):
                self.to_host += size
            elif kind != "HtoH":
                self.within += size


class CopyWatch:
    """Counts from `start` to `stop`, window by window; between two windows it looks away for a part of a second.

    `start`, `tick` and `stop` belong to one thread; copies of all threads are counted.
    """

    def __init__(self) -> None:
        self.copies = Copies()
        self.watched = 1.0
        """Share of the time that was inside a window, after `stop`."""
        self._began = self._window = self._seen = 0.0
        self._frames = 0
        self._profiler: Any = None

    def start(self) -> None:
        """Begins to count. Raises DeviceError where CUPTI cannot be used."""
        self._open()
        self._began = self._window

    def tick(self, frames: int) -> None:
        """To be called now and then, with the frames done so far: goes on to the next window when it is time."""
        if time.monotonic() - self._window >= SECONDS or frames - self._frames >= FRAMES:
            self._frames = frames
            full = self._close()
            self._open()
            self.copies.add(full)

    def stop(self) -> Copies:
        """Ends the last window; work on the GPU has to be done by then."""
        elapsed = time.monotonic() - self._began
        events = self._close()
        self.watched = min(1.0, self._seen / elapsed)
        self.copies.add(events)
        return self.copies

    def _open(self) -> None:
        from torch._C._profiler import _ExperimentalConfig  # noqa: PLC0415  the only way to ask for bytes
        from torch.profiler import ProfilerActivity, profile  # noqa: PLC0415  torch only where it is used

        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*Profiler clears events", category=UserWarning)
            self._profiler = profile(
                activities=[ProfilerActivity.CUDA],
                experimental_config=_ExperimentalConfig(
                    expose_kineto_event_metadata=True, disable_external_correlation=True
                ),
            )
            try:
                self._profiler.start()
            except RuntimeError as error:
                message = f"CUPTI cannot be used: {error}"
                raise DeviceError(message, hint="end other profilers, or run without --audit-copies") from None
        self._window = time.monotonic()

    def _close(self) -> Iterable[Any]:
        self._seen += time.monotonic() - self._window
        self._profiler.stop()
        events: Iterable[Any] = self._profiler.profiler.kineto_results.events()
        return events
