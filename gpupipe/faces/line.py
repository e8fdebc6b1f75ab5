"""From pictures to pictures: faces seen, chosen, worked on, laid back, and drawn where that is asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from gpupipe.faces.draw import drawn
from gpupipe.faces.follow import NOBODY
from gpupipe.faces.found import nothing
from gpupipe.faces.rework import forget

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpupipe.device.replay import Recorder
    from gpupipe.faces.rework import Rework
    from gpupipe.faces.seen import Seen
    from gpupipe.faces.sight import Sight

    Chooser = Callable[[Seen], torch.Tensor]


class Line:
    """Called with the next pictures of a piece of a run.

    Args:
        sight: finds and follows faces.
        choose: which of them are worked on, (N, K) bool.
        rework: works on them; None where nothing is to be done.
        side: of crops when all work is done.
        device: where all of it runs.
        debug: draw what was found.
    """

    def __init__(
        self, sight: Sight, choose: Chooser, rework: Rework | None, side: int, *, device: torch.device, debug: bool
    ) -> None:
        self._sight, self._choose, self._rework, self._side = sight, choose, rework, side
        self._device, self._debug = device, debug
        self._worked = len(self._made())

    def record(self, recorder: Recorder, rgb: torch.Tensor) -> None:
        """From now on what reads nothing is replayed, for as many pictures of that size; `rgb` is written to."""
        self._sight.record(recorder, rgb)
        if self._rework is not None:
            how = self._sight.how
            self._rework.record(recorder, nothing(len(rgb), how.wanted.places, rgb.device, self._sight.width))

    def _made(self) -> tuple[torch.Tensor, ...]:
        return () if self._rework is None else self._rework.remember(self._sight.how.wanted.places, self._side)

    def remember(self) -> tuple[torch.Tensor, ...]:
        """A memory of nothing."""
        return (*self._made(), *self._sight.remember(self._device))

    def look(self, rgb: torch.Tensor, memory: tuple[torch.Tensor, ...], number: int) -> tuple[Seen, torch.Tensor]:
        """All faces of the pictures, and which of them are to be worked on, (N, K) bool."""
        seen = self._sight(rgb, memory[self._worked :], number)
        return seen, seen.faces.valid if seen.nobody else seen.faces.valid & self._choose(seen)

    def __call__(self, rgb: torch.Tensor, memory: tuple[torch.Tensor, ...], number: int) -> torch.Tensor:
        """(N, 3, H, W); see `Sight` for the arguments."""
        seen, chosen = self.look(rgb, memory, number)
        made = memory[: self._worked]
        if seen.nobody:
            forget(made)
            return rgb
        out = rgb
        if self._rework is not None:
            before = seen.links[1] if len(seen.links) > 1 else torch.full_like(seen.links[0], NOBODY)
            out = self._rework(rgb, seen.faces.keep(chosen), before, made)
        return drawn(out, seen.faces, chosen) if self._debug else out
