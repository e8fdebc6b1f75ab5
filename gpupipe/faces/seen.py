"""How faces are looked for, and what is known of them then."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gpupipe.faces.follow import Likeness
from gpupipe.faces.smooth import Calm

if TYPE_CHECKING:
    from torch import Tensor

    from gpupipe.faces.detect import Look, Wanted
    from gpupipe.faces.found import Faces


class Following(NamedTuple):
    """How faces are found and followed."""

    look: Look
    wanted: Wanted
    every: int = 1
    """A detector sees every so manieth picture, and the first of each shot."""
    alike: Likeness = Likeness(0.2)
    hold: int = 3
    """Pictures for which a face that is missed goes on."""
    calm: Calm | None = Calm()

    @property
    def window(self) -> int:
        """Pictures that a face is known from."""
        return self.calm.window if self.calm else 2

    @property
    def lead(self) -> int:
        """Pictures before that a result depends on: the window, gaps before it, and the detection before those."""
        return self.window - 1 + (self.hold + 1 if self.hold else 1) + self.every - 1


class Seen(NamedTuple):
    """Faces of N pictures, and how each is known."""

    faces: Faces
    """(N, K)."""
    links: Tensor
    """(window, N, K), see `follow.chains`."""
    embeddings: Tensor
    """(N, K, E): means along the chains."""
    nobody: bool = False
    """Known to be empty."""
