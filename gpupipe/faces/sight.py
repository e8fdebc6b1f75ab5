"""The faces of the next pictures: detected, carried on between detections, followed, bridged and calmed."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import torch

from gpupipe.faces.cuts import HEIGHT, WIDTH, cuts, luma, thumbnail
from gpupipe.faces.detect import faces_of, shown
from gpupipe.faces.follow import NOBODY, at_lag, bridged, chains
from gpupipe.faces.found import PARTS, Faces, filled, joined, nothing
from gpupipe.faces.motion import Motion, Pyramid, forth, motion, pyramid
from gpupipe.faces.seen import Seen
from gpupipe.faces.smooth import averaged, smoothed

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from gpupipe.device.replay import Recorder
    from gpupipe.faces.refine import Refine
    from gpupipe.faces.seen import Following

    Parts = tuple[Tensor, ...]
    PerFace = Callable[[Tensor, Faces, int], Tensor]


class _Light(NamedTuple):
    """Pictures as they are looked at."""

    small: Tensor
    """(N, 3, h, w), see `detect.shown`."""
    atlas: Tensor
    """(N, 1, a, w), see `motion.Pyramid`."""
    thumbnails: Tensor
    new: Tensor
    """(N,) bool, see `cuts`."""


class _Settled(NamedTuple):
    """What follows from all that is known."""

    faces: Parts
    links: Tensor
    embeddings: Tensor
    memory: Parts
    """For the next pictures."""


class Sight:
    """Goes over consecutive pictures of one piece of a run. Its memory is tensors of fixed sizes.

    Args:
        detector: (n, 3, h, w) R'G'B' 0..255 to CenterFace's four maps.
        how: what is looked for.
        size: width and height of the pictures.
        refine: looks at faces again.
        embed: (pictures, faces (n, K), how many) to embeddings (n, K, E); None where nobody asks who they are.
        width: E.
    """

    def __init__(
        self, detector: Callable[[Tensor], tuple[Tensor, ...]], how: Following, size: tuple[int, int],
        *, refine: Refine | None = None, embed: PerFace | None = None, width: int = 0,
    ) -> None:  # fmt: skip
        self._detector, self.how, self._size = detector, how, size
        self._refine, self._embed, self.width = refine, embed, width
        self._pictures: Tensor | None = None
        self._light: Callable[..., _Light] = self._lit
        self._detect: Callable[..., Parts] = self._detected
        self._carry: Callable[..., Parts] = self._carried
        self._settle: Callable[..., _Settled] = self._settled

    def remember(self, device: torch.device) -> Parts:
        """Memory of nothing: faces of the last pictures, which of them began a shot, the last one's looks."""
        how = self.how
        faces = nothing(how.lead, how.wanted.places, device, self.width)
        wide, high = how.look.padded
        atlas = pyramid(torch.zeros(1, high, wide, device=device), how.look).atlas
        shot = torch.zeros(how.lead, dtype=torch.bool, device=device)
        return (*faces.tensors(), shot, torch.zeros(HEIGHT, WIDTH, device=device), atlas)

    def record(self, recorder: Recorder, rgb: Tensor) -> None:
        """From now on what reads nothing is replayed, for as many pictures of that size as `rgb` has.

        `rgb` becomes the memory that pictures are copied to.
        """
        how, memory = self.how, self.remember(rgb.device)
        light = self._light = recorder(self._lit, rgb, memory[-2])
        small, atlas, thumbnails, new = light.result
        if how.every > 1:
            small = small[: -(-len(rgb) // how.every)].clone()
        found = nothing(len(rgb), how.wanted.places, rgb.device, self.width)
        self._detect = recorder(self._detected, small)
        if how.every > 1:
            some = slice(0, self._abreast(len(rgb)))
            here = (atlas[some].clone() for _ in range(2))
            self._carry = recorder(self._carried, *here, *(x[some].clone() for x in found.tensors()))
        if self._refine is not None:
            self._refine.record(recorder, rgb)
        self._settle = recorder(self._settled, atlas, thumbnails, new, *found.tensors(), *memory)
        self._pictures = rgb

    def __call__(self, rgb: Tensor, memory: Parts, number: int) -> Seen:
        """Faces of the next pictures; the memory is changed. Where it is recorded they hold until the next call.

        Args:
            rgb: (N, 3, H, W).
            memory: from `remember`.
            number: of the first of the pictures in the run; it decides which are detected in.
        """
        *faces, shot, last, atlas = memory
        if self._pictures is not None and self._pictures.shape == rgb.shape:
            rgb = self._pictures.copy_(rgb)
        light = self._light(rgb, last)
        found, any_there = self._found(rgb, light, Faces(*faces), atlas, number)
        if not any_there:
            for old, fresh in ((last, light.thumbnails[-1]), (atlas, light.atlas[-1:])):
                old.copy_(fresh)
            shot.copy_(torch.cat((shot, light.new))[-len(shot) :])
            recent = nothing(len(rgb), self.how.wanted.places, rgb.device, self.width)
            links = torch.full((self.how.window, *recent.valid.shape), NOBODY, device=rgb.device)
            return Seen(recent, links, recent.embeddings, nobody=True)
        done = self._settle(light.atlas, light.thumbnails, light.new, *found.tensors(), *memory)
        for old, fresh in zip(memory, done.memory, strict=True):
            old.copy_(fresh)
        return Seen(Faces(*done.faces), done.links, done.embeddings)

    def _lit(self, rgb: Tensor, last: Tensor) -> _Light:
        how = self.how.look
        small = shown(rgb, how)
        atlas = pyramid(luma(small) / 255, how).atlas
        thumbnails = thumbnail(atlas[:, 0, : how.height, : how.width])  # not the black around it
        return _Light(small, atlas, thumbnails, cuts(thumbnails, last))

    def _pyramid(self, atlas: Tensor) -> Pyramid:
        return Pyramid(atlas, self.how.look.padded[1], self.how.look)

    def _settled(self, atlas: Tensor, thumbnails: Tensor, new: Tensor, *others: Tensor) -> _Settled:
        """All that follows from the faces of every picture, and from the memory: who is who, and where calmly."""
        how, many = self.how, len(atlas)
        found, before = Faces(*others[:PARTS]), Faces(*others[PARTS : 2 * PARTS])
        shot, _, past = others[2 * PARTS :]
        earlier = torch.cat((past, atlas[:-1]))
        move = motion(found, self._pyramid(atlas), self._pyramid(earlier))
        sure = (move.found & ~new[:, None])[..., None].to(torch.float32)
        found = replace(found, motion=torch.cat((move.turn, move.shift, sure), -1))
        every, starts = joined((before, found), 0), torch.cat((shot, new))
        kept = [x[len(x) - len(shot) :] for x in (*every.tensors(), starts)]
        memory = (*kept, thumbnails[-1], atlas[-1:])
        shots = starts.cumsum(0)
        if how.hold:
            every = bridged(every, shots, how.alike, how.hold, self._size)
        links = chains(at_lag(every, shots, 1, how.alike), len(shots) - many, how.window)
        recent = every.map(lambda x: x[len(x) - many :])
        faces = smoothed(every, links, how.calm) if how.calm else recent
        return _Settled(faces.tensors(), links, averaged(every.embeddings, links), memory)

    def _found(self, rgb: Tensor, light: _Light, before: Faces, past: Tensor, number: int) -> tuple[Faces, bool]:
        """Faces of every picture, and whether there are any in them or before."""
        how, many = self.how, len(rgb)
        due = list(range(many))
        if how.every > 1:
            # One small read for each batch: a new shot cannot wait for its turn to be looked at.
            fresh = light.new.tolist()
            due = [row for row in due if (number + row) % how.every == 0 or fresh[row]]
        found = self._seen(light.small, due) if due else nothing(many, how.wanted.places, rgb.device, self.width)
        # Another: networks run on faces and not on places, and where there is nobody nothing is left to be done.
        count, earlier = torch.stack((found.valid.sum(), before.valid.sum())).tolist()
        if count and self._refine is not None:
            found = replace(found, points=self._refine(rgb, found, count))
        if self._embed is not None:
            found = replace(found, embeddings=self._embed(rgb, found, count))
        if len(due) < many and (count or earlier):
            found = self._carried_on(found, before, light.atlas, past, due)
        return found, bool(count or earlier)

    def _seen(self, small: Tensor, due: list[int]) -> Faces:
        """Of all pictures; the others have none."""
        many, every = len(small), self.how.every
        if every == 1:
            return Faces(*self._detect(small))
        wide, places = -(-many // every), torch.arange(many, device=small.device)
        found = nothing(many, self.how.wanted.places, small.device, self.width)
        for first in range(0, len(due), wide):
            rows = _of(places, due[first : first + wide])
            seen = self._detect(small[filled(rows, wide)])
            found = _laid(found, rows, Faces(*(x[: len(rows)] for x in seen)))
        return found

    def _abreast(self, many: int) -> int:
        """Most pictures whose faces are carried on at once, in one shape: sums are ordered by it."""
        return many // self.how.every + 1

    def _carried_on(self, found: Faces, before: Faces, atlas: Tensor, past: Tensor, due: list[int]) -> Faces:
        """Faces of the pictures in between, from one to the next."""
        many, wide = len(atlas), self._abreast(len(atlas))
        found, light = joined((before.map(lambda x: x[-1:]), found), 0), torch.cat((past, atlas))
        places = torch.arange(many, device=atlas.device)
        waiting = [row for row in range(many) if row not in due]
        while waiting:  # all that follow a picture whose faces are known at once
            ready = [row for row in waiting if row == 0 or row - 1 not in waiting][:wide]
            index = filled(_of(places, ready), wide)
            source = found.map(lambda x, i=index: x[i])  # type: ignore[misc]
            gone = self._carry(light[index], light[index + 1], *source.tensors())
            count = len(ready)
            found = _laid(found, index[:count] + 1, Faces(*(x[:count] for x in gone)))
            waiting = [row for row in waiting if row not in ready]
        return found.map(lambda x: x[1:])

    def _carried(self, here: Tensor, there: Tensor, *faces: Tensor) -> Parts:
        found = Faces(*faces)
        return carried(found, motion(found, self._pyramid(here), self._pyramid(there))).tensors()

    def _detected(self, small: Tensor) -> Parts:
        found = faces_of(self._detector(small), self.how.look, self.how.wanted)
        if self.width:
            found = replace(found, embeddings=found.points.new_zeros(*found.valid.shape, self.width))
        return found.tensors()


def _of(places: Tensor, rows: list[int]) -> Tensor:
    """The rows as a tensor on the device, put together there: a copy of a list from the host would be waited for."""
    return torch.cat([places[row : row + 1] for row in rows])


def _laid(faces: Faces, rows: Tensor, other: Faces) -> Faces:
    """Some pictures' faces replaced."""
    return Faces(*(a.index_copy(0, rows, b) for a, b in zip(faces.tensors(), other.tensors(), strict=True)))


def carried(faces: Faces, move: Motion) -> Faces:
    """Faces where they went; those that were not found again are let go."""
    corners = forth(move, faces.centres, faces.boxes.view(*faces.valid.shape, 2, 2))
    grown = torch.linalg.vector_norm(move.turn, dim=-1, keepdim=True)
    half = (faces.boxes[..., 2:] - faces.boxes[..., :2]) / 2 * grown
    centre = corners.mean(2)
    return replace(
        faces,
        boxes=torch.cat((centre - half, centre + half), -1),
        points=forth(move, faces.centres, faces.points),
        valid=faces.valid & move.found,
    )
