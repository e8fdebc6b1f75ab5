"""The network as it is, but for layers that are known to be slow apart: those are one Triton kernel together."""

from __future__ import annotations

from importlib.metadata import version
from importlib.util import find_spec
from typing import TYPE_CHECKING

from gpupipe.engines.base import Engine
from gpupipe.engines.eager import Eager
from gpupipe.errors import EngineError

if TYPE_CHECKING:
    from pathlib import Path

    from torch import nn

    from gpupipe.engines.base import Network, Profile


class Triton(Engine):
    """Meets `base.Engine`. Nothing is built: Triton itself keeps the few kernels there are, see `fused`.

    Inductor gets the same kernels, and takes seconds where a process starts with it.
    """

    name, recipe, builds, delay, flexible = "triton", 1, False, 0.5, True

    def absent(self, device: str) -> str | None:
        """See `base.Engine`."""
        if device == "cpu":
            return "it is for GPUs"
        return None if find_spec("triton") is not None else "it needs triton"

    def versions(self) -> dict[str, str]:
        """See `base.Engine`."""
        return {"torch": version("torch"), "triton": version("triton")}

    def suits(self, network: nn.Module, profile: Profile) -> bool:
        """See `base.Engine`: whether there is such a layer."""
        from gpupipe.engines.fused import fusible  # noqa: PLC0415  imports torch

        return fusible(network, profile)

    def build(self, network: nn.Module, profile: Profile, folder: Path) -> None:
        """Nothing: see `base.Engine`."""

    def load(self, network: nn.Module, profile: Profile, folder: Path) -> Network:
        """See `base.Engine`."""
        from gpupipe.engines.fused import fusible, joined  # noqa: PLC0415  imports torch

        if not fusible(network, profile):
            raise EngineError(
                f"engine triton has no kernels for this network in {profile.precision}", hint="use `engine: auto`"
            )
        return Eager().load(joined(network), profile, folder)
