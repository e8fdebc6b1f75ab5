"""Where samples lie: every plane of a picture as a regular lattice in picture coordinates, exactly.

Picture coordinates are luma pixels, origin at the top left corner of the picture: luma sample i sits at i + 1/2.
Siting follows ITU-T H.273 Chroma420SampleLocType; 4:2:2 and 4:1:1 take its horizontal half. In an interlaced frame the
lines of each field lie where they lie in the frame (H.264 figure 6-2), so a field is every second line of the lattice.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from gpupipe.color import ChromaLocation

if TYPE_CHECKING:
    from gpupipe.format import FrameFormat

_HALF = Fraction(1, 2)
_HORIZONTALLY_COSITED = (ChromaLocation.LEFT, ChromaLocation.TOP_LEFT, ChromaLocation.BOTTOM_LEFT)
_TOP = (ChromaLocation.TOP_LEFT, ChromaLocation.TOP)
_BOTTOM = (ChromaLocation.BOTTOM_LEFT, ChromaLocation.BOTTOM)


@dataclass(frozen=True, slots=True)
class Lattice:
    """Samples of one plane along one axis: sample k sits at `first + k * pitch` in picture coordinates."""

    first: Fraction
    pitch: Fraction
    count: int

    def field(self, parity: int) -> Lattice:
        """Every second sample, from the first (top field, 0) or the second (bottom field, 1)."""
        return Lattice(self.first + parity * self.pitch, 2 * self.pitch, (self.count + 1 - parity) // 2)

    def flipped(self, size: int) -> Lattice:
        """The lattice after a mirror of a picture that is `size` pixels wide (or high)."""
        return Lattice(size - self.first - (self.count - 1) * self.pitch, self.pitch, self.count)


@dataclass(frozen=True, slots=True)
class PlaneLattice:
    """Both axes of a plane."""

    x: Lattice
    y: Lattice

    @property
    def transposed(self) -> PlaneLattice:
        """With rows and columns swapped."""
        return PlaneLattice(self.y, self.x)


def chroma_lattice(width: int, height: int, shift: tuple[int, int], location: ChromaLocation) -> PlaneLattice:
    """Lattice of a chroma plane of a picture of that size; `shift` is log2 of the subsampling."""
    step_x, step_y = Fraction(1 << shift[0]), Fraction(1 << shift[1])
    x = _HALF if location in _HORIZONTALLY_COSITED else step_x / 2
    y = _HALF if location in _TOP else step_y - _HALF if location in _BOTTOM else step_y / 2
    return PlaneLattice(
        Lattice(x if shift[0] else _HALF, step_x, -(-width >> shift[0])),
        Lattice(y if shift[1] else _HALF, step_y, -(-height >> shift[1])),
    )


def plane_lattices(source: FrameFormat) -> tuple[PlaneLattice, ...]:
    """One lattice a plane tensor of `source`, in order, alpha last. An unknown chroma location is resolved."""
    luma = PlaneLattice(Lattice(_HALF, Fraction(1), source.width), Lattice(_HALF, Fraction(1), source.height))
    alpha = (luma,) if source.alpha else ()
    pixels = source.pixels
    if pixels.layout == "float" or pixels.family == "gray":
        return (luma, *alpha)
    if pixels.family == "rgb":
        return (luma, luma, luma, *alpha)
    location = source.color.resolved(pixels.family, source.width, source.height)[0].chroma_location
    assert location is not None
    chroma = chroma_lattice(source.width, source.height, pixels.chroma_shift, location)
    return (luma, chroma, *alpha) if pixels.layout == "semiplanar" else (luma, chroma, chroma, *alpha)


@dataclass(frozen=True, slots=True)
class AxisMap:
    """Which source position each target sample takes its value from: sample k looks at `start + k * step`.

    Positions are in source samples, whose centres are the integers.
    """

    source: int
    target: int
    start: Fraction
    step: Fraction

    @property
    def is_slice(self) -> bool:
        """Whether every target sample is a source sample, so that nothing need be computed."""
        inside = 0 <= self.start <= self.source - self.target
        return self.step == 1 and self.start.denominator == 1 and inside


def map_axis(source: Lattice, target: Lattice, offset: Fraction, scale: Fraction) -> AxisMap:
    """The map between two lattices, where target picture coordinate t shows source coordinate `offset + scale * t`."""
    start = (offset + scale * target.first - source.first) / source.pitch
    return AxisMap(source.count, target.count, start, scale * target.pitch / source.pitch)
