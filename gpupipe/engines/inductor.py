"""Inductor, torch's compiler: kernels written and measured for one shape, and kept as its cache."""

from __future__ import annotations

import shutil
import threading
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from gpupipe.device.host import short_of_memory
from gpupipe.engines.base import Engine, Network, Profile, arithmetic, laid_out, layout_of
from gpupipe.errors import EngineError, first_line

if TYPE_CHECKING:
    from pathlib import Path

    import torch
    from torch import nn

_ARTIFACTS = "artifacts"
_COMPILERS = ("g++", "clang++", "c++")
_MODES = {"cuda": "max-autotune-no-cudagraphs", "cpu": "default"}
_LIBRARIES: dict[str, dict[str, Any]] = {
    "cuda": {"max_autotune_conv_backends": "ATEN", "max_autotune_gemm_backends": "ATEN"}, "cpu": {},
}  # fmt: skip
"""Convolutions and matrix products are cuDNN's and cuBLAS'. Of Triton's templates those for convolutions lost in all
13 shapes of two networks, 2 to 40 times; those for products won up to a third of what is a small part, and each shape
took seconds to be measured: SR was built in 45 s, and is in 2; a detector of faces took more than three minutes."""
_FASTER_BUILD: dict[str, Any] = {}
"""Settings of inductor for tests, whose networks need no speed."""
_ALONE = threading.Lock()
"""Of builds: what torch compiles meanwhile is kept as the network's."""


class Inductor(Engine):
    """Meets `base.Engine`.

    The folder holds torch's portable compile cache (`torch.compiler.save_cache_artifacts`): generated code, kernels and
    what was measured, so that a second process takes a second where the first took a minute. AOTInductor's packages
    would load in milliseconds: on an H200 (torch 2.11) making one took another 80 s, and what was made of SR crashed.
    """

    name, recipe, builds, delay, flexible = "inductor", 8, True, 7.0, False

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
        with _ALONE:
            _keep_artifacts(network, profile, folder / _ARTIFACTS)

    def load(self, network: nn.Module, profile: Profile, folder: Path) -> Network:
        """See `base.Engine`."""
        import torch  # noqa: PLC0415  see `base.Engine`

        if torch.compiler.load_cache_artifacts((folder / _ARTIFACTS).read_bytes()) is None:
            raise EngineError("torch does not read what it kept of a compiled network", where=str(folder))
        from torch._inductor import config  # noqa: PLC0415  see `base.Engine`

        with config.patch(compile_threads=1):  # all is there: else it starts a process for each core to wait for it
            return _compiled(network, profile)


def _keep_artifacts(network: nn.Module, profile: Profile, path: Path) -> None:
    import torch  # noqa: PLC0415  see `base.Engine`
    from torch.compiler._cache import CacheArtifactManager  # noqa: PLC0415

    with CacheArtifactManager.with_fresh_cache():  # what else this process compiled is not ours
        _compiled(network, profile)
        saved = torch.compiler.save_cache_artifacts()
    if saved is None:
        raise EngineError("torch kept nothing of what it compiled")
    path.write_bytes(saved[0])


def _compiled(network: nn.Module, profile: Profile) -> Network:
    """Compiled, and run once, which is when torch does it."""
    import torch  # noqa: PLC0415  see `base.Engine`
    from torch._inductor import list_mode_options  # noqa: PLC0415

    from gpupipe.engines.fused import fused  # noqa: PLC0415  imports torch

    layout = layout_of(profile)
    kind = torch.device(profile.device).type
    options = {**list_mode_options(_MODES[kind]), **_LIBRARIES[kind], **_FASTER_BUILD}
    network = laid_out(fused(network, profile), layout)
    compiled: Network = torch.compile(network, fullgraph=True, dynamic=False, options=options)

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
