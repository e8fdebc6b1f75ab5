"""A network run by an engine, for any number of pictures of one size."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from gpupipe.engines.base import dtype_of
from gpupipe.engines.cache import EngineCache
from gpupipe.engines.identity import digest_of
from gpupipe.engines.select import Selector, candidates, named
from gpupipe.faces.found import filled
from gpupipe.journal import Journal
from gpupipe.models import folder

if TYPE_CHECKING:
    from torch import Tensor, nn

    from gpupipe.engines.base import Profile


def foreseen(network: nn.Module, profile: Profile, engine: str, origin: str) -> str | None:
    """The engine that `Batched` would take, where the caches know it; the network stays where it is."""
    selector, profile = _selector(network, profile, engine, origin, journal=Journal(), only_ask=True)
    return selector.foreseen(profile)


def _selector(
    network: nn.Module, profile: Profile, engine: str, origin: str, *,
    journal: Journal, name: str = "", only_ask: bool = False,
) -> tuple[Selector, Profile]:  # fmt: skip
    """And the profile as it is built."""
    plain = candidates(engine, profile.device) == (named("eager"),)
    digest = "" if plain else digest_of(network, origin)
    moved = network if only_ask else network.to(profile.device, dtype_of(profile.precision)).eval()
    selector = Selector(
        moved, digest, engine, EngineCache(folder.engines(), say=journal.say),
        say=lambda line: journal.say(f"{name}: {line}"),
        warn=lambda line: journal.warn("engine-left-out", f"{name}: {line}"),
    )  # fmt: skip
    least = 0 if profile.device != "cpu" else 1  # there may be one face
    return selector, replace(profile, least=least, same=True)


class Batched:
    """Called with (n, 3, h, w), it gives what the network gives, in batches of the one size that was built.

    On a GPU what comes out for a picture is the same to the last bit wherever it stands and whatever stands beside it,
    in every run: one shape and no measuring, since libraries choose algorithms by shape and by time. Faces are placed
    by the last digits of what a detector says in half precision; a tenth of a pixel shows where a mosaic has its edges.

    Args:
        network: takes R'G'B' 0..1 and gives one tensor.
        name: for words.
        profile: the one shape, precision and device; `batch` is the most that comes at once.
        engine: its name, or auto.
        origin: what the network was made from, beside its weights.
        journal: told what is built and what is left out.

    Raises EngineError where an engine that was named does not do it.
    """

    def __init__(
        self, network: nn.Module, name: str, profile: Profile, engine: str, *, origin: str, journal: Journal
    ) -> None:
        selector, self._profile = _selector(network, profile, engine, origin, journal=journal, name=name)
        self._fixed = profile.device != "cpu"
        with torch.inference_mode():
            self._built = selector(self._profile)
        self.engine = self._built.engine
        """Which it is."""

    def __call__(self, pictures: Tensor) -> Tensor:
        """In the network's precision."""
        batch = self._profile.batch
        ready = pictures.to(self._profile.dtype)
        parts = [self._run(ready[first : first + batch]) for first in range(0, len(ready), batch)]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _run(self, part: Tensor) -> Tensor:
        if self._fixed or not self._built.flexible:
            return self._built.run(filled(part, self._profile.batch))[: len(part)]
        return self._built.run(part)
