"""Puts the picture on a larger canvas of one colour."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Annotated, ClassVar

from pydantic import AfterValidator, Field

from gpupipe.errors import PlanError
from gpupipe.ops.fill import color_codes, parse_color
from gpupipe.ops.lattice import plane_lattices
from gpupipe.stages import base

if TYPE_CHECKING:
    import torch

    from gpupipe.format import FrameFormat
    from gpupipe.ops.lattice import Lattice
    from gpupipe.ops.regrid import Regrid

_WHERE = "stages.pad"


def _color(text: str) -> str:
    parse_color(text)
    return text


class PadSettings(base.Settings):
    """The canvas, in pixels."""

    width: int | None = None
    """The picture's own where not given."""
    height: int | None = None
    x: int | None = None
    """Where the picture's left edge comes to lie; centred where not given, on a chroma sample."""
    y: int | None = None
    color: Annotated[str, AfterValidator(_color)] = "black"
    """`"#rrggbb"` or a name: 8-bit R'G'B' in the source's own primaries and transfer, coded by its matrix and range."""
    opacity: float = Field(default=0.0, ge=0, le=1)
    """Alpha of the canvas beyond the picture, where the picture has alpha: nothing, unless something is wanted."""


class Pad(base.Stage):
    """Luma is always copied. Chroma is moved by part of a sample where the picture comes to lie between samples."""

    Settings: ClassVar[type[base.Settings]] = PadSettings
    working: ClassVar[base.Working] = "any"
    alpha: ClassVar[base.Alpha] = "given"

    def __init__(self, settings: PadSettings) -> None:
        self.settings = settings
        self._codes: tuple[tuple[float, ...], ...] = ()
        self._areas: tuple[tuple[slice, slice], ...] = ()
        self._shapes: tuple[tuple[int, ...], ...] = ()
        self._regrid: Regrid | None = None

    def output_format(self, source: FrameFormat) -> FrameFormat:
        """The source's format at the new size. Raises PlanError where the picture does not fit in."""
        _, _, width, height = self._rectangle(source)
        color_codes(parse_color(self.settings.color), source, _WHERE)
        return source.with_(width=width, height=height)

    def notes(self, source: FrameFormat) -> tuple[str, ...]:
        """Says where chroma has to be resampled."""
        x, y, _, _ = self._rectangle(source)
        notes = []
        if self._moves_chroma(source):
            notes.append(f"pad: ({x}, {y}) lies between samples of {source.pixels.name}: chroma is resampled (bicubic)")
        if source.alpha:
            notes.append(f"pad: alpha beyond the picture is {self.settings.opacity:g} (`opacity`)")
        return tuple(notes)

    def _rectangle(self, source: FrameFormat) -> tuple[int, int, int, int]:
        """x, y of the picture and the size of the canvas, all checked."""
        shift_x, shift_y = source.pixels.chroma_shift
        lines = (2 if source.interlaced else 1) << shift_y
        x, width = _place(self.settings.x, self.settings.width, source.width, 1 << shift_x, ("x", "width"))
        y, height = _place(self.settings.y, self.settings.height, source.height, lines, ("y", "height"))
        if source.interlaced and (y % lines or height % 2):
            message = f"y {y} and height {height} would tear the two fields of interlaced {source.pixels.name} apart"
            raise PlanError(message, where=_WHERE, hint=f"make y a multiple of {lines} and the height even")
        return x, y, width, height

    def _moves_chroma(self, source: FrameFormat) -> bool:
        x, y, _, _ = self._rectangle(source)
        return bool(x % (1 << source.pixels.chroma_shift[0]) or y % (1 << source.pixels.chroma_shift[1]))

    def prepare(self, source: FrameFormat) -> None:
        """Finds the codes of the colour and the area of each plane, and makes weights where chroma has to move."""
        from gpupipe.ops.regrid import Regrid, Window  # noqa: PLC0415  imports torch

        x, y, width, height = self._rectangle(source)
        target = source.with_(width=width, height=height)
        self._codes = color_codes(parse_color(self.settings.color), source, _WHERE)
        if source.alpha:
            self._codes += ((float(int(self.settings.opacity * ((1 << source.alpha) - 1) + 0.5)),),)
        self._shapes = target.plane_shapes
        grids = plane_lattices(target)
        self._areas = tuple((_inside(g.y, y, source.height), _inside(g.x, x, source.width)) for g in grids)
        if self._moves_chroma(source):
            self._regrid = Regrid(source, target, Window(Fraction(-x), Fraction(-y)), "bicubic")

    def __call__(self, planes: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        """Planes of the canvas."""
        moved = self._regrid(planes) if self._regrid else planes
        out = []
        for source, plane, area, codes, shape in zip(
            planes, moved, self._areas, self._codes, self._shapes, strict=True
        ):
            canvas = _canvas(source, shape, codes)
            where = (..., *area, slice(None)) if len(codes) == 2 else (..., *area)  # interleaved: components come last
            canvas[where] = plane[where] if self._regrid else plane
            out.append(canvas)
        return tuple(out)


def _canvas(like: torch.Tensor, shape: tuple[int, ...], codes: tuple[float, ...]) -> torch.Tensor:
    """(N, *shape) of one colour; `codes` run along dimension 1 (three components) or the last (two)."""
    canvas = like.new_empty((like.shape[0], *shape))
    for index, code in enumerate(codes):
        part = canvas if len(codes) == 1 else canvas[..., index] if len(codes) == 2 else canvas[:, index]
        part.fill_(code if canvas.is_floating_point() else int(code))
    return canvas


def _inside(lattice: Lattice, start: int, length: int) -> slice:
    """Samples that lie in start .. start + length in picture coordinates, the edges included."""
    first = -((lattice.first - start) // lattice.pitch)
    last = (start + length - lattice.first) // lattice.pitch
    return slice(max(0, first), min(lattice.count, last + 1))


def _place(start: int | None, size: int | None, picture: int, step: int, keys: tuple[str, str]) -> tuple[int, int]:
    """Where the picture begins and how large the canvas is on one axis. Raises PlanError where it does not fit."""
    size = (start or 0) + picture if size is None else size
    if start is None:
        start = (size - picture) // 2 // step * step
    if not 0 <= start <= size - picture:
        message = f"a picture with {keys[1]} {picture} at {keys[0]} {start} does not fit into {keys[1]} {size}"
        raise PlanError(message, where=_WHERE, hint="use crop or resize to make it smaller")
    return start, size


STAGE = Pad
