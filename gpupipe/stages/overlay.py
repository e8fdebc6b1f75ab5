"""Lays a still picture with alpha (a logo, a slate, a burn-in) over every frame."""

from __future__ import annotations

import stat
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple

import av
import numpy as np
from pydantic import Field

from gpupipe.errors import PlanError
from gpupipe.stages import base

if TYPE_CHECKING:
    import numpy.typing as npt
    import torch

    from gpupipe.format import FrameFormat

_WHERE = "stages.overlay"
Anchor = Literal[
    "top-left", "top", "top-right", "left", "center", "right", "bottom-left", "bottom", "bottom-right"
]  # fmt: skip


class OverlaySettings(base.Settings):
    """What is laid over the frame, and where."""

    image: str
    """A picture that libav can read, 8 or 16 bit, with straight alpha or none; relative to the current directory."""
    anchor: Anchor = "top-left"
    margin: int = Field(default=0, ge=0)
    """Pixels between the picture and the edges it is anchored to."""
    x: int = 0
    """Pixels further to the right (negative: left)."""
    y: int = 0
    """Pixels further down (negative: up)."""
    opacity: float = Field(default=1.0, ge=0, le=1)
    scale: float = Field(default=1.0, gt=0, le=64)
    """Resized by Lanczos, alpha-weighted so that no colour of transparent pixels bleeds in."""


class _Placement(NamedTuple):
    """Where the part of the image that is seen lies: in the frame and in the image."""

    x: int
    y: int
    width: int
    height: int
    left: int
    top: int


class Overlay(base.Stage):
    """Alpha-over in R'G'B' (not linear light): the picture's code values are taken for the frame's own colour space.

    Over a frame that has alpha itself, the result covers what either covers.
    """

    Settings: ClassVar[type[base.Settings]] = OverlaySettings
    working: ClassVar[base.Working] = "rgb"
    alpha: ClassVar[base.Alpha] = "given"
    fresh: ClassVar[bool] = True

    def __init__(self, settings: OverlaySettings) -> None:
        self.settings = settings
        self._image: npt.NDArray[np.float32] | None = None
        self._top: tuple[torch.Tensor, torch.Tensor] | None = None
        self._place = _Placement(0, 0, 0, 0, 0, 0)
        self._alpha, self._owned = 0, False

    def own(self) -> None:
        """See `base.Stage`."""
        self._owned = True

    def _read(self) -> npt.NDArray[np.float32]:
        """(h, w, 4) R'G'B'A, 0..1, at the file's own size."""
        if self._image is None:
            self._image = _read_rgba(self.settings.image)
        return self._image

    def _size(self) -> tuple[int, int]:
        height, width = self._read().shape[:2]
        return max(1, round(width * self.settings.scale)), max(1, round(height * self.settings.scale))

    def output_format(self, source: FrameFormat) -> FrameFormat:
        """The source's own. Raises PlanError where the image cannot be read or lies wholly outside of the frame."""
        place = self._placement(source)
        if place.width <= 0 or place.height <= 0:
            message = f"{self.settings.image} lies wholly outside of the {source.width}x{source.height} frame"
            raise PlanError(message, where=_WHERE, hint="check anchor, margin, x and y")
        return source

    def notes(self, source: FrameFormat) -> tuple[str, ...]:
        """Says where the image is cut by the frame's edge."""
        (width, height), place, notes = self._size(), self._placement(source), []
        if (place.width, place.height) != (width, height):
            cut = f"{place.width}x{place.height}"
            notes.append(f"overlay: {width}x{height} image is cut to {cut} by the frame's edge")
        if source.alpha:
            notes.append("overlay: where the image covers, alpha is as much as either covers")
        return tuple(notes)

    def _placement(self, source: FrameFormat) -> _Placement:
        settings, (width, height) = self.settings, self._size()
        x = _start(settings.anchor, ("left", "right"), source.width - width, settings.margin) + settings.x
        y = _start(settings.anchor, ("top", "bottom"), source.height - height, settings.margin) + settings.y
        left, top = max(0, -x), max(0, -y)
        seen = (min(width, source.width - x) - left, min(height, source.height - y) - top)
        return _Placement(x + left, y + top, *seen, left, top)

    def prepare(self, source: FrameFormat) -> None:
        """Puts colour and alpha on `source.device` in the working precision."""
        import torch  # noqa: PLC0415  not needed to plan

        place = self._place = self._placement(source)
        self._alpha = source.alpha
        rgba = torch.from_numpy(self._read()).permute(2, 0, 1)
        if self.settings.scale != 1.0:
            rgba = _scaled(rgba, *self._size())
        seen = rgba[:, place.top : place.top + place.height, place.left : place.left + place.width]
        dtype = torch.float16 if source.pixels.name == "rgbf16" else torch.float32
        alpha = (seen[3:] * self.settings.opacity).to(source.device, dtype)
        self._top = (seen[:3].to(source.device, dtype).contiguous(), alpha.contiguous())

    def __call__(self, planes: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        """The frame with the image over it, one (N, 3, H, W) tensor, and alpha; pixels elsewhere are untouched.

        It is the tensor that came in, where that is this stage's `own`.
        """
        from gpupipe.ops.blend import alpha_over, over_alpha  # noqa: PLC0415  imports torch

        assert self._top is not None, "prepare() first"
        if self._alpha:
            picture, below = planes
            return over_alpha((picture, below), self._alpha, *self._top, (self._place.y, self._place.x))
        return (alpha_over(planes[0], *self._top, self._place.y, self._place.x, in_place=self._owned),)


def _start(anchor: str, ends: tuple[str, str], room: int, margin: int) -> int:
    """First pixel on one axis: at the near end, the far end or, where the anchor names neither, in the middle."""
    words = anchor.split("-")
    if ends[0] in words:
        return margin
    return room - margin if ends[1] in words else room // 2


def _read_rgba(name: str) -> npt.NDArray[np.float32]:
    """The first picture of a file. Raises PlanError where there is none."""
    frame = None
    try:
        if not stat.S_ISREG(Path(name).stat().st_mode):
            raise PlanError("cannot read the image: it is not a file", where=name, hint="name one picture")
        with av.open(f"file:{name}") as container:  # as a URL, so that `a:b.png` is no protocol
            if container.streams.video:
                frame = next(container.decode(video=0), None)
    except (OSError, av.error.FFmpegError) as error:
        why = getattr(error, "strerror", None) or error
        raise PlanError(f"cannot read the image: {why}", where=name, hint="check the path") from None
    if frame is None:
        raise PlanError("holds no picture", where=name, hint="overlay takes a PNG, TIFF or other still picture")
    deep = any(component.bits > 8 for component in frame.format.components)
    codes = frame.to_ndarray(format="rgba64le" if deep else "rgba")
    return codes.astype(np.float32) / np.float32(65535 if deep else 255)


def _scaled(rgba: torch.Tensor, width: int, height: int) -> torch.Tensor:
    """(4, h, w) to the new size, colour weighted by alpha while it is resampled."""
    import torch  # noqa: PLC0415  not needed to plan

    from gpupipe.ops.lattice import AxisMap  # noqa: PLC0415
    from gpupipe.ops.resample import Resampler  # noqa: PLC0415  imports torch

    def axis(source: int, target: int) -> AxisMap:
        step = Fraction(source, target)
        return AxisMap(source, target, (step - 1) / 2, step)

    weighted = torch.cat((rgba[:3] * rgba[3:], rgba[3:]))
    out = weighted.new_empty((4, height, width))
    x, y = axis(rgba.shape[2], width), axis(rgba.shape[1], height)
    Resampler(x, y, "lanczos", torch.device("cpu")).into(weighted, out)
    alpha = out[3:].clamp(0, 1)
    return torch.cat(((out[:3] / alpha.clamp(min=1e-6)).clamp(0, 1), alpha))


STAGE = Overlay
