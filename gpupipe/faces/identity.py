"""Who a face is: embeddings of crops, and of a reference picture."""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from typing import TYPE_CHECKING

import av
import numpy as np
import torch

from gpupipe.engines.base import Profile, arithmetic
from gpupipe.errors import PlanError, first_line
from gpupipe.faces.align import crops, similarity
from gpupipe.faces.found import listed
from gpupipe.faces.templates import template
from gpupipe.models import folder

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from torch import Tensor, nn

    from gpupipe.engines.base import Precision
    from gpupipe.faces.found import Faces
    from gpupipe.faces.templates import Template

_LARGEST = 1280


class Identity:
    """Embeddings of all faces of some pictures at once.

    Args:
        network: (F, 3, S, S) R'G'B' 0..255 to (F, E).
        name: of the template that it wants.
        size: S.
        device: where it runs.
        precision: of its arithmetic.
        together: faces at once on a GPU, see `engine.Batched`.
    """

    def __init__(
        self, network: nn.Module, name: Template, size: int, device: torch.device, precision: Precision,
        *, together: int = 1,
    ) -> None:  # fmt: skip
        self._profile = Profile(together, size, size, precision, str(device), same=True)
        self._network, self._size = network.to(device, self._profile.dtype).eval(), size
        self.device = device
        self._target = torch.from_numpy(template(name, size)).to(device)
        with torch.inference_mode():
            self.width = int(self._run(torch.zeros(1, 3, size, size, device=device)).shape[1])

    def __call__(self, rgb: Tensor, faces: Faces, number: int) -> Tensor:
        """(N, K, E) float32 of all faces, of which there are `number`; zeros where there is none."""
        count, places = faces.valid.shape
        out = torch.zeros(count * places, self.width, device=rgb.device)
        if not number:
            return out.view(count, places, -1)
        points, together = faces.points.flatten(0, 1), 0 if self.device.type == "cpu" else self._profile.batch
        for order in listed(faces.valid, number, together):
            matrix = similarity(points[order], self._target)
            seen = crops(rgb, order.div(places, rounding_mode="floor"), matrix, self._size).clamp(0, 1) * 255
            out.index_copy_(0, order, self._run(seen))
        return out.view(count, places, -1)

    def _run(self, seen: Tensor) -> Tensor:
        """(F, E) float32 of (F, 3, S, S)."""
        with arithmetic(self._profile):
            return self._network(seen.to(self._profile.dtype)).float()  # type: ignore[no-any-return]


def picture_of(path: Path, where: str) -> tuple[Tensor, str]:
    """(1, 3, H, W) R'G'B' 0..1 of a still, no larger than it need be, and its SHA-256. Raises PlanError."""
    try:
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        with av.open(f"file:{path}") as container:
            frame = next(container.decode(video=0), None) if container.streams.video else None
    except (OSError, av.error.FFmpegError) as error:
        why = getattr(error, "strerror", None) or first_line(error)
        raise PlanError(f"cannot read the picture: {why}", where=f"{where}: {path}") from None
    if frame is None:
        raise PlanError("holds no picture", where=f"{where}: {path}")
    factor = min(1.0, _LARGEST / max(frame.width, frame.height))
    codes = frame.to_ndarray(format="rgb24", width=round(frame.width * factor), height=round(frame.height * factor))
    return torch.from_numpy(codes.astype(np.float32) / 255).permute(2, 0, 1)[None].contiguous(), digest


def reference(
    path: Path, find: Callable[[Tensor], Faces], identity: Identity, networks: str, where: str
) -> Tensor:  # fmt: skip
    """(E,) of the largest face in a picture, on the CPU; kept in the cache by the picture's content and `networks`.

    `networks` is a digest of all that finds and knows it.

    Raises PlanError where the picture cannot be read or shows no face.
    """
    rgb, digest = picture_of(path, where)
    kept = folder.weights().parent / "identities" / f"{digest[:32]}-{networks[:32]}.npy"
    try:
        return torch.from_numpy(np.load(kept, allow_pickle=False))
    except (OSError, ValueError, EOFError):
        pass
    faces = find(rgb)
    if not bool(faces.valid.any()):
        raise PlanError("no face is found in it", where=f"{where}: {path}", hint="use a larger, frontal picture")
    best = torch.where(faces.valid, faces.sides, -1.0).argmax(1)
    found = identity(rgb.to(faces.boxes.device), faces, int(faces.valid.sum()))[0, int(best)].cpu()
    _keep(kept, found)
    return found


def _keep(path: Path, found: Tensor) -> None:
    """For the next time; where that cannot be written it is found anew."""
    part = path.with_name(f".{path.name}-{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with part.open("wb") as file:
            np.save(file, found.numpy())
        part.replace(path)
    except OSError:
        with suppress(OSError):
            part.unlink()
