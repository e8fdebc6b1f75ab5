"""A network over whole pictures, in windows and batches as large as memory allows, and smaller when it runs out."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal, TypeVar

import torch

from gpupipe.device import release
from gpupipe.device.host import short_of_memory
from gpupipe.device.room import capturing, taken_by
from gpupipe.engines.base import Profile, dtype_of
from gpupipe.engines.sizes import Shape, Sizes, smaller
from gpupipe.errors import EngineError, ShortMemoryError
from gpupipe.events import happened
from gpupipe.models.tile import cut, keep, padded

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpupipe.engines.base import Network, Precision
    from gpupipe.engines.select import Built

T = TypeVar("T")


class Running:
    """Called with pictures, N x 3 x H x W of `shape`'s size, it gives N x 3 x (scale * H) x (scale * W) in their dtype.

    Args:
        make: builds the network for a profile.
        shape: of network and pictures.
        sizes: what to begin with.
        device: `cpu` or `cuda:N`.
        precision: of the network.
        numbers: of its quantised convolutions.
        warn: told in words when memory ran out and what follows.
    """

    def __init__(
        self, make: Callable[[Profile], Built], shape: Shape, sizes: Sizes, *,
        device: str, precision: Precision, warn: Callable[[str], None], numbers: Literal["", "int8", "fp8"] = "",
    ) -> None:  # fmt: skip
        self._make, self._shape, self._warn = make, shape, warn
        self._device, self.precision, self.sizes = device, precision, sizes
        self._numbers = numbers
        self._built: Built | None = None

    @property
    def engine(self) -> str:
        """Its name; empty before there is one."""
        return self._built.engine if self._built else ""

    @property
    def profile(self) -> Profile:
        """What its network is built for, as sizes are now."""
        high, wide = self._shape.tiling(self.sizes.tile).window
        return Profile(self.sizes.batch, high, wide, self.precision, self._device, numbers=self._numbers)

    @property
    def how(self) -> str:
        """The engine and its precision, in words."""
        numbers = f"{self._numbers} and {self.precision}" if self._numbers else self.precision
        return f"{self._built.engine if self._built else 'no engine yet'} in {numbers}"

    def prepare(self) -> None:
        """Builds the network for the sizes at hand. Raises EngineError, and ShortMemoryError."""
        self._lasting(self._ready)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """See the class. Where memory runs out it goes on with less at once, from the same pictures."""
        return self._lasting(lambda: self._run(x))

    def _lasting(self, call: Callable[[], T]) -> T:
        while True:
            try:
                return call()
            except (RuntimeError, MemoryError, EngineError) as error:
                if not short_of_memory(error) or capturing(self._device):  # a spoilt capture cannot be gone on with
                    raise
            self._shrink()  # behind the handler, whose error keeps what was made so far alive

    def _ready(self) -> Built:
        if self._built is None:
            self._built = self._make(self.profile)
        return self._built

    def _shrink(self) -> None:
        before, tile = self.sizes, self.sizes.tile
        if before.batch > 1:
            self.sizes = replace(before, batch=before.batch // 2)
        else:
            less = smaller(self._shape, tile)
            if less is None:
                message = f"out of memory on {self._device} even with {before}"
                raise ShortMemoryError(message, hint="end other programs that use it")
            self.sizes = replace(before, tile=less)
        self._built = None
        release(self._device)
        change = f"out of memory with {before}; it goes on with {self.sizes}"
        happened("smaller-batches" if self.sizes.tile == tile else "smaller-tiles", change)
        self._warn(change)

    def _run(self, x: torch.Tensor) -> torch.Tensor:
        built, shape, batch = self._ready(), self._shape, self.sizes.batch
        plan = shape.tiling(self.sizes.tile)
        source = padded(x.to(dtype_of(self.precision)), plan)
        if plan.whole and source.shape == x.shape and len(x) == batch:  # all of it is wanted as it is
            return built.run(source).to(x.dtype).contiguous()
        out = x.new_empty((*x.shape[:2], shape.height * shape.scale, shape.width * shape.scale))
        pairs = [(n, row, column) for n in range(len(x)) for row, column in plan.pieces]
        for first in range(0, len(pairs), batch):
            group = pairs[first : first + batch]
            if plan.whole:
                windows = source[first : first + batch]
            else:
                windows = torch.cat([cut(source[n : n + 1], plan, row, column) for n, row, column in group])
            # The last again, so that there is one shape only: calls are captured in CUDA Graphs, and TensorRT must have
            # run once outside of one after each change of shape.
            if len(group) < batch and not (built.flexible and self._device == "cpu"):
                more = windows[-1:].expand(batch - len(group), -1, -1, -1)
                windows = torch.cat((windows, more))
            done = built.run(windows)
            if plan.whole:
                keep(done[: len(group)], out[first : first + batch], *plan.pieces[0], shape.scale)
                continue
            for n, (picture, row, column) in enumerate(group):
                keep(done[n], out[picture], row, column, shape.scale)
        return out


def pixel_bytes(network: Network, profile: Profile) -> float:
    """What a network takes for each input pixel, measured."""
    x = torch.rand(profile.shape, device=profile.device).to(profile.dtype)
    network(x)  # what is made once is not counted
    return taken_by(lambda: network(x), profile.device) / (profile.batch * profile.height * profile.width)
