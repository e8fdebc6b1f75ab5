"""Turns, scales, shears, shifts or pins the corners of the picture; the frame keeps its size.

Coordinates are pixels, x to the right and y down, and the centre of the top left pixel is (0, 0), as in OpenCV:
matrices of `cv2.getRotationMatrix2D` and `cv2.getPerspectiveTransform` can be pasted.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field, model_validator

from gpupipe.errors import PlanError
from gpupipe.stages import base

if TYPE_CHECKING:
    import numpy.typing as npt
    import torch

    from gpupipe.format import FrameFormat

_WHERE = "stages.warp"
Number = Annotated[float, Field(allow_inf_nan=False)]
Pair = Annotated[tuple[Number, Number], Field(strict=False)]  # YAML has lists only
Row = Annotated[tuple[Number, Number, Number], Field(strict=False)]
_ABOUT_CENTRE = ("rotate", "scale", "shear", "translate", "center")


class WarpSettings(base.Settings):
    """A `matrix`, or four `corners`, or scale, shear, rotate and translate, done in this order about `center`."""

    matrix: Annotated[tuple[Row, ...], Field(strict=False, min_length=2, max_length=3)] | None = None
    """2x3 or 3x3, takes input coordinates to output coordinates."""
    corners: Annotated[tuple[Pair, Pair, Pair, Pair], Field(strict=False)] | None = None
    """Where the corner pixels go: top left, top right, bottom right, bottom left."""
    rotate: Number = 0.0
    """Degrees, counter-clockwise as seen."""
    scale: Number | Pair = 1.0
    """One factor, or one across and one down."""
    shear: Pair = (0.0, 0.0)
    """x grows by the first times y, y by the second times x."""
    translate: Pair = (0.0, 0.0)
    """Pixels to the right and down."""
    center: Pair | None = None
    """The picture's centre where not given."""
    filter: Literal["nearest", "bilinear", "bicubic"] = "bilinear"
    """bicubic is Keys' with a = -0.75. None of them widens: shrink with `resize`."""
    border: Literal["edge", "reflect", "constant"] = "edge"
    """What is seen beyond the picture: its edge pixels, its mirror image, or black; of alpha likewise, 0 for black."""

    @model_validator(mode="after")
    def _one_way(self) -> WarpSettings:
        ways = [name for name in ("matrix", "corners") if getattr(self, name) is not None]
        ways += [name for name in _ABOUT_CENTRE if getattr(self, name) != type(self).model_fields[name].default]
        if len(ways) > 1 and (set(ways) & {"matrix", "corners"}):
            raise ValueError(f"{' and '.join(ways)} exclude each other; give a matrix, corners, or the rest")
        if 0 in (self.scale if isinstance(self.scale, tuple) else (self.scale,)):
            raise ValueError("scale 0 leaves no picture")
        return self


class Warp(base.Stage):
    """Samples along a grid made once. Half precision pixels are sampled in float32 (see `ops.warp.sample`)."""

    Settings: ClassVar[type[base.Settings]] = WarpSettings
    working: ClassVar[base.Working] = "rgb"
    alpha: ClassVar[base.Alpha] = "given"
    fresh: ClassVar[bool] = True
    keeps_fields: ClassVar[bool] = False

    def __init__(self, settings: WarpSettings) -> None:
        self.settings = settings
        self._grid: torch.Tensor | None = None
        self._alpha = 0

    def output_format(self, source: FrameFormat) -> FrameFormat:
        """The source's own. Raises PlanError where the map cannot be undone."""
        self._matrix(source.width, source.height)
        return source

    def notes(self, source: FrameFormat) -> tuple[str, ...]:
        """Says what is lost where the picture shrinks."""
        matrix = self._matrix(source.width, source.height)
        area = abs(np.linalg.det(matrix[:2, :2] / matrix[2, 2])) if matrix[2, 2] else 1.0
        notes = []
        if area < 0.25:
            small = f"{math.sqrt(area):.2f} of its size"
            notes.append(f"warp: the picture shrinks to {small} without a low pass; resize first")
        if source.alpha:
            beyond = "0" if self.settings.border == "constant" else f"that of the {self.settings.border}"
            notes.append(f"warp: colours are weighted by alpha, which is {beyond} beyond the picture")
        return tuple(notes)

    def _matrix(self, width: int, height: int) -> npt.NDArray[np.float64]:
        """3x3, input to output coordinates."""
        settings = self.settings
        if settings.matrix is not None:
            matrix = np.array([*settings.matrix, *[(0.0, 0.0, 1.0)] * (3 - len(settings.matrix))], dtype=np.float64)
        elif settings.corners is not None:
            matrix = _pinned(settings.corners, width, height)
        else:
            matrix = _about_centre(settings, settings.center or ((width - 1) / 2, (height - 1) / 2))
        ahead = [float(matrix[2] @ (x, y, 1.0)) for x, y in _corner_pixels(width, height)]
        if np.linalg.matrix_rank(matrix) < 3 or min(ahead) * max(ahead) <= 0:
            message = "the map folds the picture to a line, or turns part of it behind the viewer"
            raise PlanError(message, where=_WHERE, hint="check matrix or corners")
        return matrix

    def prepare(self, source: FrameFormat) -> None:
        """Makes the grid on `source.device`."""
        import torch  # noqa: PLC0415  not needed to plan

        from gpupipe.ops.warp import sampling_grid  # noqa: PLC0415  imports torch

        matrix = self._matrix(source.width, source.height)
        self._alpha = source.alpha
        self._grid = sampling_grid(matrix, source.width, source.height, torch.device(source.device))

    def __call__(self, planes: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        """The sampled picture, one (N, 3, H, W) tensor, and alpha."""
        from gpupipe.ops.warp import sample, weighted_sample  # noqa: PLC0415  imports torch

        assert self._grid is not None, "prepare() first"
        how = (self._grid, self.settings.filter, self.settings.border)
        if self._alpha:
            return weighted_sample(planes, self._alpha, *how)
        return (sample(planes[0], *how),)


def _about_centre(settings: WarpSettings, center: tuple[float, float]) -> npt.NDArray[np.float64]:
    angle = math.radians(settings.rotate)
    scale_x, scale_y = settings.scale if isinstance(settings.scale, tuple) else (settings.scale, settings.scale)
    turn = np.array([[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]])  # y runs down
    shear = np.array([[1.0, settings.shear[0]], [settings.shear[1], 1.0]])
    matrix = np.eye(3)
    matrix[:2, :2] = turn @ shear @ np.diag([scale_x, scale_y])
    matrix[:2, 2] = np.array(center) + np.array(settings.translate) - matrix[:2, :2] @ np.array(center)
    return matrix


def _corner_pixels(width: int, height: int) -> tuple[tuple[float, float], ...]:
    return (0.0, 0.0), (width - 1.0, 0.0), (width - 1.0, height - 1.0), (0.0, height - 1.0)


def _pinned(corners: tuple[tuple[float, float], ...], width: int, height: int) -> npt.NDArray[np.float64]:
    """The projective map that takes the corner pixels to `corners`: eight linear equations, last element 1."""
    rows, values = [], []
    for (x, y), (u, v) in zip(_corner_pixels(width, height), corners, strict=True):
        rows += [[x, y, 1, 0, 0, 0, -u * x, -u * y], [0, 0, 0, x, y, 1, -v * x, -v * y]]
        values += [u, v]
    try:
        solution = np.linalg.solve(np.array(rows, dtype=np.float64), np.array(values, dtype=np.float64))
    except np.linalg.LinAlgError:
        raise PlanError("three of the corners lie on a line", where=_WHERE, hint="check corners") from None
    return np.append(solution, 1.0).reshape(3, 3)


STAGE = Warp
