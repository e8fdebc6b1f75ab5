"""Chosen faces taken out of the pictures, worked on, and laid back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch.nn import functional

from gpupipe.faces import colour, poisson
from gpupipe.faces.align import apply, crops, pixels, similarity
from gpupipe.faces.choose import back_to_front
from gpupipe.faces.found import Faces, filled
from gpupipe.faces.masks import cover, unit_of
from gpupipe.faces.paste import Mask, Places, Region, extent, paste_all
from gpupipe.faces.templates import Template, template

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

    from gpupipe.device.replay import Recorder


@dataclass(frozen=True, slots=True)
class Cut:
    """How faces are cut out."""

    template: Template
    size: int
    extent: float


@dataclass(frozen=True, slots=True)
class Laying:
    """How they are laid back."""

    mask: Mask
    match: bool = False
    """Whether they get the colours of what they cover."""
    poisson: bool = False
    """Whether they keep their gradients only, and light and colour come from around them."""
    steady: float = 0.0
    """Part of the same face one picture before that is mixed in, against flicker; as it was before mixing, so that
    nothing older is in it."""


def numbers(valid: Tensor, spans: Tensor, size: tuple[int, int]) -> Tensor:
    """(3,) int64 on the device: faces of the batch, most faces of a picture, pixels that the largest one spans."""
    widest = torch.where(valid, spans, 0.0).amax().ceil().clamp(max=float(max(size)))
    count = valid.sum()
    return torch.stack((count, valid.sum(1).amax(), widest.to(count.dtype)))


class _Ready(NamedTuple):
    """Faces in the order in which they are laid back."""

    sequence: Tensor
    """(N, K) places that they had."""
    faces: tuple[Tensor, ...]
    links: Tensor
    matrix: Tensor
    """(N, K, 2, 3) float64, picture to crop."""
    told: Tensor
    """See `numbers`."""


class Rework:
    """Called with pictures and the faces to be worked on, it gives new pictures; the old ones stay as they are.

    Args:
        cut: how faces are cut out.
        work: what is done to crops (F, 3, S, S), one after the other; R'G'B' 0..1, the side may change.
        laying: how they are laid back.
        size: width and height of the pictures.
        device: where.
        together: crops that are worked on at once, fewer being filled up, so that sums and products of matrices come
            out the same whatever else there is; 0 for all that come.
    """

    def __init__(
        self, cut: Cut, work: Sequence[Callable[[Tensor], Tensor]], laying: Laying, size: tuple[int, int],
        device: torch.device, *, together: int = 0,
    ) -> None:  # fmt: skip
        self._cut, self._work, self._laying, self._size = cut, tuple(work), laying, size
        self._target = torch.from_numpy(template(cut.template, cut.size, cut.extent)).to(device)
        self._together = together
        self._order: Callable[..., _Ready] = self._ordered
        self._do: Callable[..., Tensor] = self._done

    def record(self, recorder: Recorder, faces: Faces) -> None:
        """From now on what reads nothing is replayed, for as many faces; see `sight.Sight.record`."""
        count, places = faces.valid.shape
        links = torch.zeros(count, places, dtype=torch.int64, device=faces.valid.device)
        self._order = recorder(self._ordered, links, *faces.tensors())
        side = self._cut.size
        crop = torch.zeros(self._together, 3, side, side, device=links.device)
        matrix = self._order.result.matrix[0, :1].repeat(self._together, 1, 1)
        points = self._target.to(torch.float32).repeat(self._together, 1, 1)
        self._do = recorder(self._done, crop, matrix, points)

    def remember(self, places: int, side: int) -> tuple[Tensor, ...]:
        """Memory of nothing: the last picture's faces by place, as they were made, and which there are.

        Args:
            places: K.
            side: of crops when all work is done.
        """
        if not self._laying.steady:
            return ()
        device = self._target.device
        made = torch.zeros(places, 3, side, side, device=device)
        return made, torch.zeros(places, dtype=torch.bool, device=device)

    def __call__(self, rgb: Tensor, faces: Faces, links: Tensor, memory: tuple[Tensor, ...]) -> Tensor:
        """(N, 3, H, W) in the pictures' own dtype; the same tensor where there is nothing to do.

        Args:
            rgb: the pictures.
            faces: (N, K); the valid ones are worked on.
            links: (N, K) places of the same faces in the pictures before, see `follow.chains`.
            memory: from `remember`; changed.
        """
        ready = self._order(links, *faces.tensors())
        sequence, links, matrix, faces = ready.sequence, ready.links, ready.matrix, Faces(*ready.faces)
        # The one small read of a batch: without it every place of every picture would be worked on.
        many, deepest, span = ready.told.tolist()
        if not many:
            forget(memory)
            return rgb
        places = faces.valid.shape[1]
        order = torch.argsort((~faces.valid).flatten().to(torch.uint8), stable=True)[:many]
        picture, flat = order.div(places, rounding_mode="floor"), matrix.flatten(0, 1)[order]
        before = crops(rgb, picture, flat, self._cut.size)
        after = self._worked(before, flat, faces.points.flatten(0, 1)[order])
        ratio = after.shape[-1] / self._cut.size
        rank = (faces.valid.flatten().cumsum(0) - 1).view(faces.valid.shape).clamp(min=0)
        if memory:
            made, there = memory
            own = torch.argsort(sequence, 1)  # by the places that links speak of
            bank = _Bank(torch.cat((made, after)), rank.gather(1, own) + places, faces.valid.gather(1, own), there)
            made.copy_(bank.made[bank.rank[-1]])
            after = bank.mixed(after, order, links, self._laying.steady)
            there.copy_(bank.valid[-1])
        region = Region(*(min(span + 2, side) for side in self._size))
        out = rgb.clone(memory_format=torch.contiguous_format)
        lie = Places(_resized(matrix, ratio), faces.points, faces.valid, rank)
        paste_all(out, after, lie, self._laying.mask, region, deepest=deepest)
        return out

    def _ordered(self, links: Tensor, *parts: Tensor) -> _Ready:
        faces = Faces(*parts)
        sequence = back_to_front(faces)
        faces = faces.take(sequence)
        matrix = similarity(faces.points, self._target)
        told = numbers(faces.valid, extent(matrix, self._cut.size), self._size)
        return _Ready(sequence, faces.tensors(), links.gather(1, sequence), matrix, told)

    def _worked(self, before: Tensor, matrix: Tensor, points: Tensor) -> Tensor:
        much = self._together
        if not much:
            return self._done(before, matrix, points)
        parts = zip(*(x.split(much) for x in (before, matrix, points)), strict=True)  # type: ignore[no-untyped-call]
        done = [self._do(*(filled(x, much) for x in part))[: len(part[0])].clone() for part in parts]
        return done[0] if len(done) == 1 else torch.cat(done)

    def _done(self, before: Tensor, matrix: Tensor, points: Tensor) -> Tensor:
        faces = before
        for call in self._work:
            faces = call(faces)
        laying = self._laying
        if not (laying.match or laying.poisson):
            return faces
        target, size = before, faces.shape[-1]
        if size != before.shape[-1]:
            target = functional.interpolate(before, size=(size, size), mode="bicubic", align_corners=False)
        unit = unit_of(pixels(size, faces.device), size).expand(len(faces), -1, -1, -1)
        outline = unit_of(apply(matrix, points), self._cut.size)
        mask = cover(laying.mask.shape, unit, outline, laying.mask.feather)
        if laying.match:
            faces = colour.matched(faces, target, mask)
        return poisson.blend(faces, target, (mask > 0.5).to(mask.dtype)) if laying.poisson else faces


def forget(memory: tuple[Tensor, ...]) -> None:
    """After pictures without faces nothing is remembered."""
    for tensor in memory[1:]:
        tensor.zero_()


class _Bank(NamedTuple):
    """All faces that were made: of the picture before the batch, then of the batch."""

    made: Tensor
    """(K + F, 3, S, S)."""
    rank: Tensor
    """(N, K) where a place's face is in it."""
    valid: Tensor
    """(N, K)."""
    there: Tensor
    """(K,): valid places of the picture before the batch."""

    def mixed(self, after: Tensor, order: Tensor, links: Tensor, part: float) -> Tensor:
        """Each face with a part of itself one picture before, where it was there."""
        count, places = self.valid.shape
        first = torch.arange(places, device=after.device).expand(1, places)
        rank = torch.cat((first, self.rank[:-1])).gather(1, links.clamp(min=0))
        known = torch.cat((self.there[None], self.valid[:-1])).gather(1, links.clamp(min=0)) & (links >= 0)
        weight = (known.flatten()[order].to(after.dtype) * part).view(-1, 1, 1, 1)
        assert rank.shape == (count, places), "a picture before each"
        return torch.lerp(after, self.made[rank.flatten()[order]], weight)


def _resized(matrix: Tensor, ratio: float) -> Tensor:
    """The transform to a crop of another size: edges stay where they are, and pixel centres lie half a pixel in."""
    if ratio == 1:
        return matrix
    moved = matrix * ratio
    moved[..., 2] += (ratio - 1) / 2
    return moved
