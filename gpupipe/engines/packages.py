"""AOTInductor's packages, loaded: what is in one is machine code, and stays in the process.

Torch (2.13) leaves the shared library of a package mapped when its loader is gone, and maps another copy, weights
included, for every loader: a file in the folder for temporary files that is only freed when the process ends. A library
that is unloaded while something still points into it would be worse. So what nobody runs any more is kept, and run
again where the same package is wanted.
"""

from __future__ import annotations

import atexit
import weakref
from collections import defaultdict
from contextlib import nullcontext
from typing import TYPE_CHECKING, NamedTuple, Protocol

from gpupipe.engines.base import Network, Profile, arithmetic
from gpupipe.errors import EngineError, first_line

if TYPE_CHECKING:
    from pathlib import Path

    import torch

_KEPT = 64 << 20
"""Bytes of a package above which its weights are worth more than its copies in the folder for temporary files."""


class _Key(NamedTuple):
    """A package as it was when it was loaded, and where it runs."""

    path: str
    inode: int
    changed: int
    size: int
    device: str


class _Loader(Protocol):
    """What of `torch._C._aoti.AOTIModelPackageLoader` is used; one thread at a time may run it."""

    def run(self, inputs: list[torch.Tensor], /) -> list[torch.Tensor]: ...


_idle: defaultdict[_Key, list[_Loader]] = defaultdict(list)
atexit.register(_idle.clear)  # while there is still a driver to give memory back to


def network_in(path: Path, profile: Profile, layout: torch.memory_format) -> Network:
    """The network in a package; each call gives one that runs by itself, so that several threads may have one each.

    Args:
        path: a `.pt2` file that nobody writes to any more.
        profile: what it was compiled for.
        layout: how the pictures lay when it was compiled.

    Raises:
        EngineError: it cannot be read or loaded.
    """
    key = _key(path, profile)
    idle = _idle[key]
    try:
        loader = idle.pop()
    except IndexError:
        loader = _loaded(path, profile)

    def run(x: torch.Tensor) -> torch.Tensor:
        with arithmetic(profile):
            out: torch.Tensor = loader.run([x.contiguous(memory_format=layout)])[0]
        return out

    if key.size <= _KEPT:
        weakref.finalize(run, idle.append, loader).atexit = False
    return run


def _key(path: Path, profile: Profile) -> _Key:
    try:
        found = path.stat()
    except OSError as error:
        raise EngineError(f"cannot read what was compiled: {error.strerror}", where=str(path)) from error
    return _Key(str(path.resolve()), found.st_ino, found.st_mtime_ns, found.st_size, profile.device)


def _loaded(path: Path, profile: Profile) -> _Loader:
    import torch  # noqa: PLC0415  see `base.Engine`

    device = torch.device(profile.device)
    index, on_gpu = -1 if device.index is None else device.index, device.type == "cuda"
    for last in (not on_gpu, True):
        try:  # what `torch._inductor.aoti_load_package` wraps, without the seconds that importing it takes
            with torch.cuda.device(device) if on_gpu else nullcontext():  # it sets the thread's device and leaves it so
                loader: _Loader = torch._C._aoti.AOTIModelPackageLoader(  # noqa: SLF001
                    str(path), "model", True, 1, index
                )  # True: without locks and events of its own, which a CUDA Graph under capture does not bear
                return loader
        except RuntimeError as error:
            if last:
                message = f"torch does not load what it compiled: {first_line(error)}"
                raise EngineError(message, where=str(path)) from error
            torch.cuda.empty_cache()  # it takes memory past torch, which may hold all that is free
    raise AssertionError
