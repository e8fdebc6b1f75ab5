"""Scales the picture on the decoder's own planes, chroma siting, fields and display aspect kept."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, ClassVar, Literal

from gpupipe.errors import PlanError
from gpupipe.stages import base

if TYPE_CHECKING:
    import torch

    from gpupipe.format import FrameFormat
    from gpupipe.ops.alpha import WeightedRegrid
    from gpupipe.ops.regrid import Regrid, Window

_WHERE = "stages.resize"
_LARGEST = 65536
_SAME_ASPECT = Fraction(1, 200)


class ResizeSettings(base.Settings):
    """The new size in pixels."""

    width: int = -1
    """-1 follows the height in the picture's own proportion; -N does and rounds to a multiple of N."""
    height: int = -1
    filter: Literal["lanczos", "bicubic", "bilinear", "area", "nearest"] = "lanczos"
    """lanczos has a = 3, bicubic is Catmull-Rom, area averages just what a pixel covers; all widen when shrinking."""
    fit: Literal["stretch", "contain", "cover"] = "stretch"
    """stretch: exactly this size. contain: the largest size inside the box, even sides, no bars. cover: fills the box
    and cuts what stands over, evenly on both sides. The last two need both sides."""


class Resize(base.Stage):
    """Interlaced pictures are scaled field by field, each at its own phase.

    The display aspect ratio is kept: the sample aspect changes where the two sides scale differently. A change of less
    than half a per cent comes from rounding to whole pixels, and then the sample aspect stays as it was.
    """

    Settings: ClassVar[type[base.Settings]] = ResizeSettings
    working: ClassVar[base.Working] = "any"
    alpha: ClassVar[base.Alpha] = "given"

    def __init__(self, settings: ResizeSettings) -> None:
        self.settings = settings
        self._regrid: Regrid | WeightedRegrid | None = None

    def output_format(self, source: FrameFormat) -> FrameFormat:
        """The source's format at the new size. Raises PlanError where that is no size."""
        width, height = self._size(source)
        if (
            source.interlaced
            and height != source.height
            and min(height, source.height) < 2 << source.pixels.chroma_shift[1]
        ):
            raise PlanError(f"{source.height} or {height} lines are too few for two fields", where=_WHERE)
        return source.with_(width=width, height=height, sample_aspect=self._sample_aspect(source, width, height))

    def notes(self, source: FrameFormat) -> tuple[str, ...]:
        """Says how interlaced pictures are treated and what becomes of the sample aspect."""
        target = self.output_format(source)
        notes = []
        if source.interlaced and target.height != source.height:
            notes.append("resize: interlaced, so each field is scaled on its own")
        if source.alpha and self.settings.filter != "nearest":
            notes.append("resize: colours are weighted by alpha")
        if target.sample_aspect != source.sample_aspect:
            aspect = f"{target.sample_aspect.numerator}:{target.sample_aspect.denominator}"
            notes.append(f"resize: sample aspect becomes {aspect}, so that the picture keeps its shape")
        return tuple(notes)

    def _size(self, source: FrameFormat) -> tuple[int, int]:
        width, height = self.settings.width, self.settings.height
        if width < 0 and height < 0:
            raise PlanError(
                "needs a width, a height or both", where=_WHERE, hint="for example {width: 1280, height: -2}"
            )
        if self.settings.fit != "stretch" and min(width, height) < 0:
            raise PlanError(f"fit {self.settings.fit} needs both width and height", where=_WHERE)
        if width < 0:
            width = _follow(Fraction(height * source.width, source.height), -width)
        elif height < 0:
            height = _follow(Fraction(width * source.height, source.width), -height)
        if self.settings.fit == "contain" and width and height:
            scale = min(Fraction(width, source.width), Fraction(height, source.height))
            width, height = (
                min(box, _follow(side * scale, 2)) for box, side in ((width, source.width), (height, source.height))
            )
        if not (0 < width <= _LARGEST and 0 < height <= _LARGEST):
            raise PlanError(
                f"{width}x{height} is no picture size", where=_WHERE, hint=f"sides are 1 to {_LARGEST} pixels"
            )
        return width, height

    def _sample_aspect(self, source: FrameFormat, width: int, height: int) -> Fraction:
        if self.settings.fit == "cover":
            return source.sample_aspect
        before = source.sample_aspect or Fraction(1)
        exact = before * Fraction(source.width * height, source.height * width)
        for plain in (before, Fraction(1)):
            if abs(exact / plain - 1) < _SAME_ASPECT:
                return source.sample_aspect if plain == before else plain
        return exact

    def _window(self, source: FrameFormat, width: int, height: int) -> Window:
        from gpupipe.ops.regrid import Window  # noqa: PLC0415  imports torch

        scale_x, scale_y = Fraction(source.width, width), Fraction(source.height, height)
        if self.settings.fit == "cover":
            scale_x = scale_y = min(scale_x, scale_y)
        return Window((source.width - scale_x * width) / 2, (source.height - scale_y * height) / 2, scale_x, scale_y)

    def prepare(self, source: FrameFormat) -> None:
        """Makes the weights of every plane on `source.device`."""
        from gpupipe.ops.alpha import WeightedRegrid  # noqa: PLC0415  imports torch
        from gpupipe.ops.regrid import Regrid  # noqa: PLC0415  imports torch

        target = self.output_format(source)
        window = self._window(source, target.width, target.height)
        mixes = source.alpha and self.settings.filter != "nearest"
        self._regrid = (WeightedRegrid if mixes else Regrid)(source, target, window, self.settings.filter)

    def __call__(self, planes: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        """Scaled planes; integers are rounded to nearest and clamped to the depth."""
        assert self._regrid is not None, "prepare() first"
        return self._regrid(planes)


def _follow(exact: Fraction, multiple: int) -> int:
    """The nearest multiple (halves up), at least one."""
    return max(multiple, int(exact / multiple + Fraction(1, 2)) * multiple)


STAGE = Resize
