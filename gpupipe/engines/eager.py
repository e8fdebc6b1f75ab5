"""The network as it is, an operator at a time: what there always is, and what others are checked against."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from gpupipe.engines.base import Network, Profile, arithmetic

if TYPE_CHECKING:
    from pathlib import Path

    from torch import nn


class Eager:
    """Meets `base.Engine`."""

    name, recipe, builds = "eager", 1, False

    def absent(self, device: str) -> str | None:
        """Never: see `base.Engine`."""
        del device
        return None

    def versions(self) -> dict[str, str]:
        """See `base.Engine`."""
        return {"torch": torch.__version__}

    def build(self, network: nn.Module, profile: Profile, folder: Path) -> None:
        """Nothing: see `base.Engine`."""

    def load(self, network: nn.Module, profile: Profile, folder: Path) -> Network:
        """See `base.Engine`."""
        del folder
        tensor_cores = profile.device.startswith("cuda")
        layout = torch.channels_last if tensor_cores else torch.contiguous_format
        ready = network.to(memory_format=layout)  # type: ignore[call-overload]  # it does take it

        def run(x: torch.Tensor) -> torch.Tensor:
            with arithmetic(profile):
                out: torch.Tensor = ready(x.contiguous(memory_format=layout))
            return out

        return run
