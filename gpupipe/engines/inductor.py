"""Inductor, torch's compiler: kernels written and measured for one shape, kept as a shared library or as its cache."""

from __future__ import annotations

import shutil
import threading
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from gpupipe.device.host import short_of_memory
from gpupipe.engines.base import NOTE, Network, Profile, arithmetic, laid_out, layout_of
from gpupipe.engines.packages import network_in
from gpupipe.engines.trial import tried
from gpupipe.errors import EngineError, first_line

if TYPE_CHECKING:
    from pathlib import Path

    import torch
    from torch import nn

_PACKAGE, _ARTIFACTS = "network.pt2", "artifacts"
_COMPILERS = ("g++", "clang++", "c++")
_MODES = {"cuda": "max-autotune-no-cudagraphs", "cpu": "default"}
_FASTER_BUILD: dict[str, Any] = {}
"""Settings of inductor for tests, whose networks need no speed."""
_ALONE = threading.Lock()
"""Of builds: the folder that a process compiles into is set for all its threads."""


class Inductor:
    """Meets `base.Engine`.

    The folder holds an AOTInductor package: a shared library that is loaded in milliseconds and runs without Python. It
    takes a C++ compiler and, for a GPU, CUDA's headers. It is tried in a process of its own first. Where it cannot be
    made, or crashes there, `torch.compile` is used, and the folder holds torch's portable compile cache
    (`torch.compiler.save_cache_artifacts`): generated code, kernels and what was measured, so that a second process
    takes seconds where the first took minutes.
    """

    name, recipe, builds, flexible = "inductor", 4, True, False

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
            try:
                _package(network, profile, folder / _PACKAGE)
                tried(folder / _PACKAGE, profile)
            except Exception as error:  # compilers raise what they like
                if short_of_memory(error):
                    raise
                (folder / _PACKAGE).unlink(missing_ok=True)
                why = f"AOTInductor's package is left out, torch.compile is used: {first_line(error)}\n"
                (folder / NOTE).write_text(why, encoding="utf-8")
            else:
                return
            _keep_artifacts(network, profile, folder / _ARTIFACTS)

    def load(self, network: nn.Module, profile: Profile, folder: Path) -> Network:
        """See `base.Engine`."""
        import torch  # noqa: PLC0415  see `base.Engine`

        if (folder / _PACKAGE).is_file():
            return network_in(folder / _PACKAGE, profile, layout_of(profile))
        if torch.compiler.load_cache_artifacts((folder / _ARTIFACTS).read_bytes()) is None:
            raise EngineError("torch does not read what it kept of a compiled network", where=str(folder))
        return _compiled(network, profile)


def _package(network: nn.Module, profile: Profile, path: Path) -> None:
    """In a compile cache of its own.

    Torch names what it compiles by graph and shape: a process that builds the same network with other weights at the
    same time writes the same library, and whoever packs it may pack half of it, or the other's weights.
    """
    from torch._inductor.utils import fresh_cache  # noqa: PLC0415  see `base.Engine`

    failed: Exception | None = None
    with fresh_cache():  # which keeps its folder, and says so, where an exception leaves it
        try:
            _compile_package(network, profile, path)
        except Exception as error:  # compilers raise what they like  # noqa: BLE001
            failed = error
    if failed is not None:
        raise failed


def _compile_package(network: nn.Module, profile: Profile, path: Path) -> None:
    import torch  # noqa: PLC0415  see `base.Engine`
    from torch._inductor import aoti_compile_and_package, list_mode_options  # noqa: PLC0415

    layout = layout_of(profile)
    options = {**list_mode_options(_MODES[torch.device(profile.device).type]), **_FASTER_BUILD}
    with torch.inference_mode(mode=False), torch.no_grad(), arithmetic(profile):  # an export asks for versions
        example = torch.zeros(profile.shape, dtype=profile.dtype, device=profile.device)
        exported = torch.export.export(laid_out(network, layout), (example.contiguous(memory_format=layout),))
        aoti_compile_and_package(exported, package_path=str(path), inductor_configs=options)


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

    layout = layout_of(profile)
    mode = _MODES[torch.device(profile.device).type]
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
