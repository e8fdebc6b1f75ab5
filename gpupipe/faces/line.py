"""From pictures to pictures: faces seen, chosen, worked on, laid back, and drawn where that is asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpupipe.faces.draw import drawn

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from gpupipe.faces.found import Faces
    from gpupipe.faces.rework import Rework
    from gpupipe.faces.sight import Seen, Sight

    Chooser = Callable[[Seen], torch.Tensor]


class Line:
    """Called with the next pictures of a piece of a run.

    Args:
        sight: finds and follows faces.
        choose: which of them are worked on, (N, K) bool.
        rework: works on them; None where nothing is to be done.
        device: where all of it runs.
        debug: draw what was found.
    """

    def __init__(
        self, sight: Sight, choose: Chooser, rework: Rework | None, device: torch.device, *, debug: bool
    ) -> None:  # fmt: skip
        self._sight, self._choose, self._rework, self._device, self._debug = sight, choose, rework, device, debug

    def remember(self) -> tuple[torch.Tensor, ...]:
        """A memory of nothing."""
        return self._sight.remember(self._device)

    def chosen(
        self, rgb: torch.Tensor, memory: tuple[torch.Tensor, ...], number: int
    ) -> tuple[Faces, torch.Tensor | None]:
        """All faces of the pictures, and which of them are to be worked on; None where there are none at all."""
        seen = self._sight(rgb, memory, number)
        return seen.faces, None if seen.nobody else seen.faces.valid & self._choose(seen)

    def __call__(self, rgb: torch.Tensor, memory: tuple[torch.Tensor, ...], number: int) -> torch.Tensor:
        """(N, 3, H, W); see `Sight` for the arguments."""
        faces, chosen = self.chosen(rgb, memory, number)
        if chosen is None:
            return rgb
        out = rgb if self._rework is None else self._rework(rgb, faces.keep(chosen))
        return drawn(out, faces, chosen) if self._debug else out
