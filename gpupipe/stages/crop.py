"""Cuts a rectangle out of the picture, exactly where it was asked for, chroma included."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, ClassVar

from gpupipe.errors import PlanError
from gpupipe.stages import base

if TYPE_CHECKING:
    import torch

    from gpupipe.format import FrameFormat
    from gpupipe.ops.regrid import Regrid

_WHERE = "stages.crop"


class CropSettings(base.Settings):
    """What is kept, in pixels from the top left corner."""

    width: int | None = None
    """All that is right of x where not given."""
    height: int | None = None
    """All that is below y where not given."""
    x: int | None = None
    """Centred where not given, rounded down so that chroma samples are kept as they are."""
    y: int | None = None


class Crop(base.Stage):
    """Luma is always cut. Chroma is cut where the corner falls on a chroma sample, and else moved by part of a sample.

    An interlaced picture keeps its fields: y and height must be multiples of two lines a chroma line.
    """

    Settings: ClassVar[type[base.Settings]] = CropSettings
    working: ClassVar[base.Working] = "any"
    alpha: ClassVar[base.Alpha] = "given"

    def __init__(self, settings: CropSettings) -> None:
        self.settings = settings
        self._regrid: Regrid | None = None

    def output_format(self, source: FrameFormat) -> FrameFormat:
        """The source's format at the new size. Raises PlanError where the rectangle is empty or leaves the picture."""
        _, _, width, height = self._rectangle(source)
        return source.with_(width=width, height=height)

    def notes(self, source: FrameFormat) -> tuple[str, ...]:
        """Says where chroma has to be resampled."""
        x, y, _, _ = self._rectangle(source)
        step_x, step_y = _alignment(source, fields=False)
        if x % step_x or y % step_y:
            return (
                f"crop: ({x}, {y}) lies between chroma samples of {source.pixels.name}: chroma is resampled (bicubic)",
            )
        return ()

    def _rectangle(self, source: FrameFormat) -> tuple[int, int, int, int]:
        """x, y, width, height, all checked."""
        steps = _alignment(source, fields=source.interlaced)
        x, width = _span(self.settings.x, self.settings.width, source.width, steps[0], ("x", "width"))
        y, height = _span(self.settings.y, self.settings.height, source.height, steps[1], ("y", "height"))
        if source.interlaced and (y % steps[1] or height % steps[1]):
            raise PlanError(
                f"y {y} and height {height} would tear the two fields of interlaced {source.pixels.name} apart",
                where=_WHERE,
                hint=f"make both multiples of {steps[1]}",
            )
        return x, y, width, height

    def prepare(self, source: FrameFormat) -> None:
        """Makes the slices, and the weights where chroma has to move."""
        from gpupipe.ops.regrid import Regrid, Window  # noqa: PLC0415  imports torch

        x, y, _, _ = self._rectangle(source)
        self._regrid = Regrid(source, self.output_format(source), Window(Fraction(x), Fraction(y)), "bicubic")

    def __call__(self, planes: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        """Planes of the rectangle: views of what came in, except for chroma that has to move."""
        assert self._regrid is not None, "prepare() first"
        return self._regrid(planes)


def _alignment(source: FrameFormat, *, fields: bool) -> tuple[int, int]:
    """Luma pixels a chroma sample, across and down; twice as many down where there are two fields."""
    shift_x, shift_y = source.pixels.chroma_shift
    return 1 << shift_x, (2 if fields else 1) << shift_y


def _span(start: int | None, length: int | None, size: int, step: int, keys: tuple[str, str]) -> tuple[int, int]:
    """Start and length on one axis. Raises PlanError where they do not lie in 0 .. size."""
    if length is None:
        start = start or 0
        length = size - start
    if length <= 0:
        raise PlanError(
            f"{keys[1]} {length} leaves no picture", where=_WHERE, hint=f"the picture's {keys[1]} is {size}"
        )
    if start is None:
        start = max(0, (size - length) // 2 // step * step)
    if start < 0 or start + length > size:
        message = (
            f"{keys[0]} {start} and {keys[1]} {length} go beyond the edge of the picture, whose {keys[1]} is {size}"
        )
        raise PlanError(message, where=_WHERE, hint="use pad to enlarge it")
    return start, length


STAGE = Crop
