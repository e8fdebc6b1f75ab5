"""Copies between host and GPU, counted by CUPTI (through torch.profiler), whichever library makes them.

CUPTI sees every copy command of the process: torch's, the driver's by ctypes, those inside CUDA Graphs and those of
nvJPEG. NVDEC fetches its bitstream and hands out its surfaces by itself: of that only copies within the GPU show.
"""

from __future__ import annotations

import re
import time
import warnings
from collections import Counter
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gpupipe.errors import DeviceError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from contextlib import AbstractContextManager

SECONDS, FRAMES = 30.0, 20_000
"""Of a window: the profiler holds what it saw in one, 4 to 15 records of a few hundred bytes a frame."""
_WAYS = {"HtoD": "to_device", "HtoA": "to_device", "DtoH": "to_host", "AtoH": "to_host"}
"""CUPTI's kinds; all others but HtoH stay on a GPU or go to another."""
_BYTES = re.compile(r'"bytes": (\d+)')


@dataclass(slots=True)
class Copies:
    """Bytes copied, by direction."""

    to_device: int = 0
    to_host: int = 0
    within: int = 0
    """From one place on the GPU to another."""
    counts: Counter[tuple[str, int]] = field(default_factory=Counter, compare=False)
    """Copies `to_device`, `to_host` and `within`, by how many bits their size has."""
    sizes: Counter[tuple[str, int]] = field(default_factory=Counter, compare=False)
    """Bytes of those together."""

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
            if kind != "HtoH":
                self._count(_WAYS.get(kind, "within"), size)

    def _count(self, way: str, size: int) -> None:
        setattr(self, way, getattr(self, way) + size)
        self.counts[way, size.bit_length()] += 1
        self.sizes[way, size.bit_length()] += size

    def mostly(self, way: str) -> str:
        """The sizes that make up most of what was copied one way, in words; empty where nothing was."""
        most = sorted(((size, bits) for (one, bits), size in self.sizes.items() if one == way), reverse=True)[:2]
        return " and ".join(
            f"{size:,} bytes in {self.counts[way, bits]:,} of {1 << bits >> 1:,} or more each" for size, bits in most
        )


class CopyWatch:
    """Counts from `start` to `stop`, window by window; nothing is seen between two windows, so nothing may go on then.

    `start`, `tick` and `stop` belong to one thread; copies of all threads are counted.

    Args:
        device: whose work has to be done where a window ends.
        still: entered around the change of windows, has everybody stand still and says whether they do.
    """

    def __init__(
        self, device: str = "cuda", still: Callable[[], AbstractContextManager[bool]] = lambda: nullcontext(True)
    ) -> None:
        self.copies = Copies()
        self.blind = 0
        """Changes of windows while somebody went on: what was copied then is missing."""
        self._device, self._still = device, still
        self._window, self._frames = 0.0, 0
        self._profiler: Any = None

    def start(self) -> None:
        """Begins to count. Raises DeviceError where CUPTI cannot be used."""
        self._open()

    def tick(self, frames: int) -> None:
        """To be called now and then, with the frames done so far: goes on to the next window when it is time."""
        if time.monotonic() - self._window >= SECONDS or frames - self._frames >= FRAMES:
            self._frames = frames
            with self._still() as stood:
                full = self._close()
                self._open()
            self.blind += not stood
            self.copies.add(full)

    def stop(self) -> Copies:
        """Ends the last window."""
        self.copies.add(self._close())
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
        import torch  # noqa: PLC0415  only where it is used

        torch.cuda.synchronize(self._device)
        self._profiler.stop()
        events: Iterable[Any] = self._profiler.profiler.kineto_results.events()
        return events
