"""Which face of one picture is which of another: overlap, likeness, gaps bridged, all from a few pictures back."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch.nn import functional

from gpupipe.faces.detect import overlaps
from gpupipe.faces.found import joined, take

if TYPE_CHECKING:
    from torch import Tensor

    from gpupipe.faces.found import Faces

NOBODY = -1


class Likeness(NamedTuple):
    """When two faces are the same."""

    overlap: float
    """Least intersection over union of their boxes."""
    distance: float = float("inf")
    """Largest distance of their embeddings, where there are any."""


def partners(now: Faces, before: Faces, alike: Likeness, possible: Tensor) -> Tensor:
    """(T, K) int64: for each face of `now` its place in `before`, or NOBODY.

    Two faces are partners where each is the other's best overlap: no order, no state, nothing to be settled.

    Args:
        now: (T, K) faces.
        before: (T, K) faces of earlier pictures, one for each of `now`.
        alike: what it takes.
        possible: (T,) bool, whether the two pictures belong to one shot.
    """
    score = overlaps(now.boxes, before.boxes)
    allowed = now.valid[:, :, None] & before.valid[:, None, :] & possible[:, None, None] & (score > alike.overlap)
    if now.embeddings.shape[-1]:
        allowed &= torch.cdist(now.embeddings, before.embeddings) <= alike.distance
    score = torch.where(allowed, score, 0.0)
    best, back = score.argmax(2), score.argmax(1)
    own = torch.arange(score.shape[1], device=score.device)
    return torch.where((back.gather(1, best) == own) & allowed.any(2), best, NOBODY)


def at_lag(faces: Faces, shots: Tensor, lag: int, alike: Likeness) -> Tensor:
    """(T, K): partners of each picture's faces in the picture `lag` before; NOBODY in the first `lag` pictures.

    For neighbours boxes are first moved to where the face was seen to come from, however fast it is.
    """
    now, before = (faces.map(lambda x, s=part: x[s]) for part in (slice(lag, None), slice(None, -lag)))  # type: ignore[misc]
    if lag == 1:
        now = replace(now, boxes=now.boxes + (now.motion[..., 2:4] * now.motion[..., 4:]).repeat(1, 1, 2))
    found = partners(now, before, alike, shots[lag:] == shots[:-lag])
    return torch.cat((found.new_full((min(lag, len(shots)), found.shape[1]), NOBODY), found))


def bridged(faces: Faces, shots: Tensor, alike: Likeness, hold: int, size: tuple[int, int]) -> Faces:
    """Faces that were missed for up to `hold` pictures put back where they went, at the places that are free.

    A face of picture t - g that has a partner in none of t - g + 1 .. t is shown in t, moved on by what it moved last.
    What comes out for t depends on pictures t - hold - 1 .. t only.

    Args:
        faces: (T, K) of consecutive pictures.
        shots: (T,) number of each picture's shot.
        alike: what makes two faces the same.
        hold: pictures.
        size: width and height; what has left them is let go.
    """
    total, places = faces.valid.shape
    lags = range(1, min(hold, total - 1) + 1)
    seen = {lag: _seen(at_lag(faces, shots, lag, alike)) for lag in lags}
    step = _step(faces, at_lag(faces, shots, 1, alike)) if total > 1 else None
    parts = [faces]
    for lag in lags:
        lost = faces.valid[:-lag] & (shots[lag:] == shots[:-lag])[:, None]
        for n in range(1, lag + 1):
            lost = lost & ~seen[n][n : total - lag + n]
        assert step is not None, "a lag needs two pictures"
        guess = _moved(faces.map(lambda x, n=lag: x[:-n]), step[:-lag] * lag)  # type: ignore[misc]
        x, y = guess.centres.unbind(-1)
        inside = (x >= 0) & (x < size[0]) & (y >= 0) & (y < size[1])
        late = replace(guess, valid=lost & inside, motion=torch.zeros_like(guess.motion))
        parts.append(late.map(lambda x, n=lag: torch.cat((x.new_zeros(n, *x.shape[1:]), x))))  # type: ignore[misc]
    return joined(parts, 1).packed(places)


def _seen(found: Tensor) -> Tensor:
    """(T, K) bool: which places of the earlier picture are somebody's partner, at the row of the later one."""
    hits = torch.zeros(found.shape[0], found.shape[1] + 1, dtype=torch.bool, device=found.device)
    return hits.scatter(1, found + 1, value=True)[:, 1:]


def _step(faces: Faces, found: Tensor) -> Tensor:
    """(T, K, 2): how far each face came since the picture before; 0 where it is new."""
    before = torch.cat((faces.centres[:1], faces.centres[:-1]))
    moved = faces.centres - take(before, found.clamp(min=0))
    return torch.where((found >= 0)[..., None], moved, 0.0)


def _moved(faces: Faces, by: Tensor) -> Faces:
    return replace(faces, boxes=faces.boxes + by.repeat(1, 1, 2), points=faces.points + by[:, :, None])


def chains(found: Tensor, first: int, length: int) -> Tensor:
    """(length, N, K): places of each face in its own picture (0), the one before (1), ...; NOBODY from its start on.

    Args:
        found: (T, K) partners in the picture before.
        first: number of pictures that only lead in; chains are made for the others.
        length: pictures of a chain, at most first + 1.
    """
    total, places = found.shape
    # A place behind the last stands for nobody and leads to itself, so that each link is one look-up.
    steps = functional.pad(torch.where(found >= 0, found, places), (0, 1), value=places)
    here = torch.arange(places, device=found.device).expand(total - first, places)
    links = [here]
    for back in range(length - 1):
        here = steps[first - back : total - back].gather(1, here)
        links.append(here)
    every = torch.stack(links)
    return torch.where(every < places, every, NOBODY)
