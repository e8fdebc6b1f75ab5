"""Turns the picture as the container's display matrix says, flips included, so that the matrix can be dropped."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple

from pydantic import model_validator

from gpupipe.color import ChromaLocation
from gpupipe.errors import PlanError
from gpupipe.ops.lattice import PlaneLattice, chroma_lattice, plane_lattices
from gpupipe.stages import base

if TYPE_CHECKING:
    import torch

    from gpupipe.color import ColorSpec
    from gpupipe.format import FieldOrder, FrameFormat
    from gpupipe.ops.regrid import Regrid

_WHERE = "stages.orient"
_SWAPPED: dict[FieldOrder, FieldOrder] = {"tt": "bb", "bb": "tt", "tb": "bt", "bt": "tb"}
_PLAIN = {True: "auto", False: "carry", "auto": "auto", "on": "auto", "off": "carry", "carry": "carry"}


class Turn(NamedTuple):
    """Rows and columns swapped first, then mirrored left to right, then top to bottom."""

    transpose: bool = False
    hflip: bool = False
    vflip: bool = False


class OrientSettings(base.Settings):
    """`orient: auto` or `orient: off`, or with the key `mode`."""

    mode: Literal["auto", "carry"] = "auto"
    """auto turns the pixels; carry (also written off) leaves them and copies the display matrix."""
    matrix: tuple[int, ...] | None = None
    """The source's display matrix, filled in by the plan: nine fixed point numbers as in libavutil/display.h."""

    @model_validator(mode="before")
    @classmethod
    def _plain(cls, value: object) -> object:
        """YAML reads a bare `off` as false and `on` as true."""
        if isinstance(value, dict) and isinstance(value.get("mode"), (bool, str)):
            return {**value, **cls._plain(value["mode"])}  # type: ignore[operator]
        if not isinstance(value, (bool, str)):
            return value
        if value not in _PLAIN:
            raise ValueError(f"orient is auto, off or carry, not {value!r}")
        return {"mode": _PLAIN[value]}

    @model_validator(mode="after")
    def _nine(self) -> OrientSettings:
        if self.matrix is not None and len(self.matrix) != 9:
            raise ValueError(f"a display matrix has nine numbers, not {len(self.matrix)}")
        return self


class Orient(base.Stage):
    """A pure permutation of samples, except that 4:2:2 turned by a quarter has its chroma resampled to stay 4:2:2."""

    Settings: ClassVar[type[base.Settings]] = OrientSettings
    working: ClassVar[base.Working] = "any"
    alpha: ClassVar[base.Alpha] = "given"

    def __init__(self, settings: OrientSettings) -> None:
        self.settings = settings
        self.automatic = settings.mode == "auto"
        self.geometry = self.from_display_matrix(settings.matrix) if settings.matrix and self.automatic else Turn()
        """What is done; None where the matrix is no multiple of a quarter turn, which only carrying it can keep."""
        self._regrid: Regrid | None = None
        self._semiplanar = False

    @staticmethod
    def from_display_matrix(matrix: tuple[int, ...]) -> Turn | None:
        """What a player does with (a, b, u, c, d, v, x, y, w), which takes (p, q) to (ap + cq, bp + dq).

        Scale and translation have no bearing on a turn and are ignored. None where it is no multiple of a quarter turn.
        Source: libavutil/display.h.
        """
        a, b, c, d = matrix[0], matrix[1], matrix[3], matrix[4]
        if a and d and not b and not c:
            return Turn(transpose=False, hflip=a < 0, vflip=d < 0)
        if b and c and not a and not d:
            return Turn(transpose=True, hflip=c < 0, vflip=b < 0)
        return None

    @property
    def turn(self) -> Turn:
        """`geometry`, or PlanError where there is none."""
        if self.geometry is None:
            hint = "set `orient: off` to carry it as it is"
            raise PlanError("the display matrix is no multiple of a quarter turn", where=_WHERE, hint=hint)
        return self.geometry

    def output_format(self, source: FrameFormat) -> FrameFormat:
        """Size, sample aspect, field order and chroma location after the turn. Raises PlanError if it ruins fields."""
        order = source.field_order
        if source.interlaced and self.turn.transpose:
            hint = "deinterlace it with another program first (gpupipe has no deinterlacer), or set `orient: off`"
            raise PlanError("a quarter turn would ruin interlaced pictures", where=_WHERE, hint=hint)
        if source.interlaced and self.turn.vflip:
            if source.height % (2 << source.pixels.chroma_shift[1]):
                raise PlanError(
                    f"{source.height} lines cannot be flipped field by field", where=_WHERE, hint="crop first"
                )
            order = _SWAPPED[order]
        turned = source.with_(field_order=order)
        if self.turn.transpose:
            aspect = 1 / source.sample_aspect if source.sample_aspect else Fraction(0)
            turned = turned.with_(width=source.height, height=source.width, sample_aspect=aspect)
        return turned.with_(color=self._color(source, turned)[0])

    def notes(self, source: FrameFormat) -> tuple[str, ...]:
        """Says what becomes of chroma siting and 4:2:2."""
        if self._resamples(source):
            return (
                f"orient: chroma of {source.pixels.name} is resampled (bicubic): turned as it is, it would be 4:4:0",
            )
        if not self._color(source, self.output_format(source))[1]:
            return ("orient: chroma now sits where no tag can say; tagged as the nearest, half a luma pixel off",)
        return ()

    def _resamples(self, source: FrameFormat) -> bool:
        shift = source.pixels.chroma_shift
        return self.turn.transpose and shift[0] != shift[1]

    def _chroma(self, source: FrameFormat) -> PlaneLattice:
        """Where the chroma samples of `source` lie in the turned picture."""
        chroma, width, height = plane_lattices(source)[1], source.width, source.height
        if self.turn.transpose:
            chroma, width, height = chroma.transposed, height, width
        x = chroma.x.flipped(width) if self.turn.hflip else chroma.x
        return PlaneLattice(x, chroma.y.flipped(height) if self.turn.vflip else chroma.y)

    def _color(self, source: FrameFormat, turned: FrameFormat) -> tuple[ColorSpec, bool]:
        """Colour tags with the chroma location after the turn, and whether that is exact."""
        color, shift = source.color, source.pixels.chroma_shift
        if shift == (0, 0) or self._resamples(source) or not any(self.turn):
            return color, True
        actual = self._chroma(source)
        before = color.resolved(source.pixels.family, source.width, source.height)[0].chroma_location

        def distance(location: ChromaLocation) -> Fraction:
            tagged = chroma_lattice(turned.width, turned.height, shift, location)
            return abs(tagged.x.first - actual.x.first) + abs(tagged.y.first - actual.y.first)

        order = sorted(ChromaLocation, key=lambda location: location is not before)  # on a tie the tag stays
        best = min(order, key=distance)
        return (color if best is before else replace(color, chroma_location=best)), distance(best) == 0

    def prepare(self, source: FrameFormat) -> None:
        """Makes the chroma weights where 4:2:2 is turned by a quarter."""
        self._semiplanar = source.pixels.layout == "semiplanar"
        if self._resamples(source):
            from gpupipe.ops.regrid import Regrid, Window  # noqa: PLC0415  imports torch

            target = self.output_format(source).with_(field_order="progressive")
            luma, chroma = plane_lattices(target)[0], self._chroma(source)
            lattices = (luma, chroma, chroma, *((luma,) if source.alpha else ()))
            self._regrid = Regrid(target, target, Window(), "bicubic", lattices=lattices)

    def __call__(self, planes: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        """Planes of the turned picture, rows packed."""
        turned = tuple(self._turn(plane, -3 if self._semiplanar and i == 1 else -2) for i, plane in enumerate(planes))
        return self._regrid(turned) if self._regrid else turned

    def _turn(self, plane: torch.Tensor, rows: int) -> torch.Tensor:
        """One plane, whose dimension `rows` are its rows and the next its columns."""
        import torch  # noqa: PLC0415  not needed to plan

        bits = torch.int16 if plane.dtype == torch.uint16 else plane.dtype  # CUDA has few kernels for uint16
        moved = plane.view(bits)
        if self.turn.transpose:
            moved = moved.transpose(rows, rows + 1)
        flips = [axis for axis, flip in ((rows, self.turn.vflip), (rows + 1, self.turn.hflip)) if flip]
        return (moved.flip(flips) if flips else moved).contiguous().view(plane.dtype)


STAGE = Orient
