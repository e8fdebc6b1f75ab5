"""What an engine is: something that makes a network of one shape and precision run fast on one device."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import torch
    from torch import nn

Precision = Literal["fp32", "fp16", "bf16"]
_DTYPES: dict[str, str] = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}
Network = Callable[["torch.Tensor"], "torch.Tensor"]
"""N x C x H x W to N x C' x (scale * H) x (scale * W), on one device and in one dtype."""


def dtype_of(precision: Precision) -> torch.dtype:
    """Of a network's input, weights and output."""
    import torch  # noqa: PLC0415  engines are asked what they are when a plan is made, without torch

    found: torch.dtype = getattr(torch, _DTYPES[precision])
    return found


@dataclass(frozen=True, slots=True)
class Profile:
    """The one shape that is run, where, and in what precision."""

    batch: int
    height: int
    width: int
    precision: Precision
    device: str
    """`cpu` or `cuda:N`."""
    channels: int = 3
    least: int = 0
    """Smallest batch that comes beside `batch`; 0 where all are of that size."""
    numbers: Literal["", "int8", "fp8"] = ""
    """What quantised convolutions compute in, see `models.quantised`; empty where there are none."""
    same: bool = False
    """Whether every process has to compute the same to the last bit: no library may measure what is fastest here."""

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Of the network's input."""
        return (self.batch, self.channels, self.height, self.width)

    @property
    def dtype(self) -> torch.dtype:
        """Of the network's input, weights and output."""
        return dtype_of(self.precision)

    def __str__(self) -> str:
        numbers = f"{self.numbers} and {self.precision}" if self.numbers else self.precision
        return f"{self.batch} x {self.width}x{self.height} in {numbers} on {self.device}"


class Engine(Protocol):
    """One way to run networks; a base class for its one default.

    What it builds is files in a folder, which the cache keeps; it keeps nothing itself. Adding an engine is a module
    that meets this, and a line in `select.ENGINES`. Neither torch nor its own library is imported with the module.
    """

    name: str
    recipe: int
    """Counted up when what `build` writes changes, so that older entries of the cache are built anew."""
    builds: bool
    """Whether there is anything to build and to keep."""
    delay: float
    """Seconds, about, that a process takes to start with what is kept of it."""
    flexible: bool
    """Whether what was built for a profile takes batches from `least` on, too."""

    def absent(self, device: str) -> str | None:
        """Why it cannot be used on `device`, in words, or None; asks what is installed."""
        ...

    def versions(self) -> dict[str, str]:
        """Of every library that takes part: another version builds anew."""
        ...

    def suits(self, network: nn.Module, profile: Profile) -> bool:
        """Whether `auto` should try it on that network."""
        del network, profile
        return True

    def build(self, network: nn.Module, profile: Profile, folder: Path) -> None:
        """Writes what `load` needs into `folder`, which is empty. Raises EngineError, or an out of memory as it is."""
        ...

    def load(self, network: nn.Module, profile: Profile, folder: Path) -> Network:
        """The network, ready to run on pictures of the profile's shape.

        It may be called while a CUDA Graph is captured, once it has run before. Raises as `build` does.

        Args:
            network: as `build` got it, on the profile's device and in its dtype.
            profile: as `build` got it.
            folder: what `build` wrote; read only.
        """
        ...


@contextmanager
def arithmetic(profile: Profile) -> Iterator[None]:
    """Lets cuDNN measure its algorithms for each shape and keep the fastest; fp32 is fp32, not TF32.

    Where results have to be the `same`, cuDNN takes what it would for that shape without measuring: in half precision
    algorithms differ in the third digit, and two measurements need not come out alike.
    """
    import torch  # noqa: PLC0415  as above

    if not profile.device.startswith("cuda"):
        yield
        return
    _heard()
    with torch.backends.cudnn.flags(
        enabled=True, benchmark=not profile.same, deterministic=profile.same, allow_tf32=False, fp32_precision=None
    ):
        yield


@cache
def _heard() -> None:
    """Lets torch tell, and nobody hear, that it will have other words for TF32: some versions do so once a process."""
    import torch  # noqa: PLC0415  as above

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with torch.backends.cudnn.flags(enabled=True, allow_tf32=False, fp32_precision=None):
            pass


def layout_of(profile: Profile) -> torch.memory_format:
    """How weights and pictures lie best: tensor cores read channels last."""
    import torch  # noqa: PLC0415  as above

    return torch.channels_last if profile.device.startswith("cuda") else torch.contiguous_format


def laid_out(network: nn.Module, layout: torch.memory_format) -> nn.Module:
    """The same network with its weights in that layout; they stay what torch.export and torch.compile take."""
    import torch  # noqa: PLC0415  as above

    with torch.inference_mode(mode=False):  # what is made under it has no version, which exports ask for
        return network.to(memory_format=layout)  # type: ignore[no-any-return,call-overload]  # it does take it
