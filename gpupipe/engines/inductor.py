"""torch.compile: kernels written and measured for one shape; what it found out is kept in the cache's folder."""

from __future__ import annotations

import shutil
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import TYPE_CHECKING

from gpupipe.device.host import short_of_memory
from gpupipe.engines.base import Network, Profile, arithmetic, laid_out, layout_of
from gpupipe.errors import EngineError, first_line

if TYPE_CHECKING:
    from pathlib import Path

    import torch
    from torch import nn

_FILE = "artifacts"
_COMPILERS = ("g++", "clang++", "c++")


class Inductor:
    """Meets `base.Engine`.

    The folder holds torch's portable compile cache (`torch.compiler.save_cache_artifacts`): generated code, compiled
    kernels and what was measured, so that a second process takes seconds where the first took minutes.
    """

    name, recipe, builds, flexible = "inductor", 1, True, False

    def absent(self, device: str) -> str | None:
        """See `base.Engine`."""
        if not any(map(shutil.which, _COMPILERS)):
            return f"it needs a C++ compiler ({_COMPILERS[0]})"
        if device != "cpu" and find_spec("triton") is None:
            return "it needs triton"
        return None

    def versions(self) -> dict[str, str]:
        """See `base.Engine`."""
        found = {"torch": version("torch")}
        try:
            return found | {"triton": version("triton")}
        except PackageNotFoundError:
            return found

    def build(self, network: nn.Module, profile: Profile, folder: Path) -> None:
        """See `base.Engine`."""
        import torch  # noqa: PLC0415  see `base.Engine`
        from torch.compiler._cache import CacheArtifactManager  # noqa: PLC0415

        with CacheArtifactManager.with_fresh_cache():  # what else this process compiled is not ours
            _compiled(network, profile)
            saved = torch.compiler.save_cache_artifacts()
        if saved is None:
            raise EngineError("torch kept nothing of what it compiled")
        (folder / _FILE).write_bytes(saved[0])

    def load(self, network: nn.Module, profile: Profile, folder: Path) -> Network:
        """See `base.Engine`."""
        import torch  # noqa: PLC0415  see `base.Engine`

        if torch.compiler.load_cache_artifacts((folder / _FILE).read_bytes()) is None:
            raise EngineError("torch does not read what it kept of a compiled network", where=str(folder))
        return _compiled(network, profile)


def _compiled(network: nn.Module, profile: Profile) -> Network:
    """Compiled, and run once, which is when torch does it."""
    import torch  # noqa: PLC0415  see `base.Engine`

    layout = layout_of(profile)
    mode = "max-autotune-no-cudagraphs" if profile.device.startswith("cuda") else "default"
    compiled: Network = torch.compile(laid_out(network, layout), fullgraph=True, dynamic=False, mode=mode)

    def run(x: torch.Tensor) -> torch.Tensor:
        with arithmetic(profile):
            out: torch.Tensor = compiled(x.contiguous(memory_format=layout))
        return out

    try:
        run(torch.zeros(profile.shape, dtype=profile.dtype, device=profile.device))
    except Exception as error:  # compilers raise what they like
        if short_of_memory(error):
            raise
        raise EngineError(f"torch.compile failed: {first_line(error)}") from error
    return run
