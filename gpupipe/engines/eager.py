"""The network as it is, an operator at a time: what there always is, and what others are checked against."""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING

from gpupipe.engines.base import Engine, Network, Profile, arithmetic, laid_out, layout_of

if TYPE_CHECKING:
    from pathlib import Path

    import torch
    from torch import nn


class Eager(Engine):
    """Meets `base.Engine`."""

    name, recipe, builds, delay, flexible = "eager", 1, False, 0.0, True

    def absent(self, device: str) -> str | None:
        """Never: see `base.Engine`."""
        del device
        return None

    def versions(self) -> dict[str, str]:
        """See `base.Engine`."""
        return {"torch": version("torch")}

    def build(self, network: nn.Module, profile: Profile, folder: Path) -> None:
        """Nothing: see `base.Engine`."""

    def load(self, network: nn.Module, profile: Profile, folder: Path) -> Network:
        """See `base.Engine`."""
        del folder
        layout = layout_of(profile)
        ready = laid_out(network, layout)

        def run(x: torch.Tensor) -> torch.Tensor:
            with arithmetic(profile):
                out: torch.Tensor = ready(x.contiguous(memory_format=layout))
            return out

        return run
