"""The faces of the next pictures: detected, carried on between detections, followed, bridged and calmed."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import torch

from gpupipe.faces.cuts import HEIGHT, WIDTH, cuts, luma, thumbnail
from gpupipe.faces.detect import STEP, Look, Wanted, faces_of, shown
from gpupipe.faces.follow import NOBODY, Likeness, at_lag, bridged, chains
from gpupipe.faces.found import Faces, filled, joined, nothing
from gpupipe.faces.motion import Motion, Pyramid, forth, motion, pyramid
from gpupipe.faces.smooth import Calm, averaged, smoothed

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    PerFace = Callable[[Tensor, Faces, int], Tensor]


class Following(NamedTuple):
    """How faces are found and followed."""

    look: Look
    wanted: Wanted
    every: int = 1
    """A detector sees every so manieth picture, and the first of each shot."""
    alike: Likeness = Likeness(0.2)
    hold: int = 3
    """Pictures for which a face that is missed goes on."""
    calm: Calm | None = Calm()
    ask: bool = True
    """Read once a batch whether there is any face at all, and leave out what follows one where there is none. Without
    that nothing is read where a detector sees every picture, so that all of it can be captured in a CUDA Graph."""

    @property
    def window(self) -> int:
        """Pictures that a face is known from."""
        return self.calm.window if self.calm else 2

    @property
    def lead(self) -> int:
        """Pictures before that a result depends on: the window, gaps before it, and the detection before those."""
        return self.window - 1 + (self.hold + 1 if self.hold else 1) + self.every - 1


class Seen(NamedTuple):
    """Faces of N pictures, and how each is known."""

    faces: Faces
    """(N, K)."""
    links: Tensor
    """(window, N, K), see `follow.chains`."""
    embeddings: Tensor
    """(N, K, E): means along the chains."""
    nobody: bool = False
    """Known to be empty."""


class Sight:
    """Goes over consecutive pictures of one piece of a run. Its memory is tensors of fixed sizes.

    Args:
        detector: (n, 3, h, w) R'G'B' 0..255 to CenterFace's four maps.
        how: what is looked for.
        size: width and height of the pictures.
        refine: (pictures, faces (n, K), how many) to better points (n, K, 5, 2).
        embed: the same to embeddings (n, K, E); None where nobody asks who they are.
        width: E.
    """

    def __init__(
        self, detector: Callable[[Tensor], tuple[Tensor, ...]], how: Following, size: tuple[int, int],
        *, refine: PerFace | None = None, embed: PerFace | None = None, width: int = 0,
    ) -> None:  # fmt: skip
        self._detector, self.how, self._size = detector, how, size
        self._refine, self._embed, self._width = refine, embed, width

    def remember(self, device: torch.device) -> tuple[Tensor, ...]:
        """Memory of nothing: faces of the last pictures, which of them began a shot, the last one's looks."""
        how = self.how
        faces = nothing(how.lead, how.wanted.places, device, self._width)
        high, wide = (-(-side // STEP) * STEP for side in (how.look.height, how.look.width))
        atlas = pyramid(torch.zeros(1, high, wide, device=device), how.look).atlas
        shot = torch.zeros(how.lead, dtype=torch.bool, device=device)
        return (*faces.tensors(), shot, torch.zeros(HEIGHT, WIDTH, device=device), atlas)

    def __call__(self, rgb: Tensor, memory: tuple[Tensor, ...], number: int) -> Seen:
        """Faces of the next pictures; the memory is changed.

        Args:
            rgb: (N, 3, H, W).
            memory: from `remember`.
            number: of the first of the pictures in the run; it decides which are detected in.
        """
        how = self.how
        *faces, shot, last, atlas = memory
        before = Faces(*faces)
        small = shown(rgb, how.look)
        now = pyramid(luma(small) / 255, how.look)
        earlier = now._replace(atlas=torch.cat((atlas, now.atlas)))
        thumbnails = thumbnail(now.atlas[:, 0, : how.look.height, : how.look.width])  # not the black around it
        new = cuts(thumbnails, last)
        found, known = self._found(rgb, small, before, earlier, new, number)
        nobody = how.ask and not known and not bool(found.valid.any() | before.valid.any())
        if not nobody:
            move = motion(found, now, earlier.rows(slice(0, -1)))
            sure = (move.found & ~new[:, None])[..., None].to(torch.float32)
            found = replace(found, motion=torch.cat((move.turn, move.shift, sure), -1))
        every, starts = joined((before, found), 0), torch.cat((shot, new))
        for old, fresh in zip(memory, (*every.tensors(), starts, thumbnails[-1], now.atlas[-1:]), strict=True):
            old.copy_(fresh[len(fresh) - len(old) :])
        if nobody:
            recent = every.map(lambda x: x[len(x) - len(rgb) :])
            links = torch.full((how.window, *recent.valid.shape), NOBODY, device=rgb.device)
            return Seen(recent, links, recent.embeddings, nobody=True)
        return self._followed(every, starts.cumsum(0), len(rgb))

    def _followed(self, every: Faces, shots: Tensor, count: int) -> Seen:
        how = self.how
        if how.hold:
            every = bridged(every, shots, how.alike, how.hold, self._size)
        links = chains(at_lag(every, shots, 1, how.alike), len(shots) - count, how.window)
        recent = every.map(lambda x: x[len(x) - count :])
        faces = smoothed(every, links, how.calm) if how.calm else recent
        return Seen(faces, links, averaged(every.embeddings, links))

    def _found(  # noqa: PLR0917  all of one batch
        self, rgb: Tensor, small: Tensor, before: Faces, light: Pyramid, new: Tensor, number: int
    ) -> tuple[Faces, int]:
        """Faces of every picture, and how many a detector is known to have found; 0 where nobody asked."""
        every = self.how.every
        if every == 1:
            return self._detected(rgb, small)
        # One small read for each batch: a new shot cannot wait for its turn to be looked at.
        fresh = new.tolist()
        due = [(number + row) % every == 0 or fresh[row] for row in range(len(rgb))]
        rows = [row for row in range(len(rgb)) if due[row]]
        found, known = before.map(lambda x: torch.cat((x[-1:], x.new_zeros(len(rgb), *x.shape[1:])))), 0
        places = torch.arange(len(rgb), device=rgb.device)
        if rows:
            index = _of(places, rows)
            seen, known = self._detected(rgb[index], small[index])
            found = _laid(found, index + 1, seen)
        waiting = [row for row in range(len(rgb)) if not due[row]]
        if not known and not bool(found.valid.any()):
            waiting = []  # nobody to be carried on
        wide = len(rgb) // every + 1  # in one shape: sums are ordered by it
        while waiting:  # all that follow a picture whose faces are known at once
            ready = [row for row in waiting if row == 0 or row - 1 not in waiting][:wide]
            index = filled(_of(places, ready), wide)
            source = found.map(lambda x, i=index: x[i])  # type: ignore[misc]
            here, there = light.rows(index), light.rows(index + 1)
            gone, count = carried(source, motion(source, here, there)), len(ready)
            found = _laid(found, index[:count] + 1, gone.map(lambda x, n=count: x[:n]))  # type: ignore[misc]
            waiting = [row for row in waiting if row not in ready]
        return found.map(lambda x: x[1:]), known

    def _detected(self, rgb: Tensor, small: Tensor) -> tuple[Faces, int]:
        found = faces_of(self._detector(small), self.how.look, self.how.wanted)
        if self._refine is None and self._embed is None:
            return found, 0
        number = int(found.valid.sum())  # a small read: networks run on faces, not on places
        if number and self._refine is not None:
            found = replace(found, points=self._refine(rgb, found, number))
        if self._embed is not None:
            found = replace(found, embeddings=self._embed(rgb, found, number))
        return found, number


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
