"""Grades through a .cube lookup table."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

from gpupipe.ops.cube import Cube, read_cube
from gpupipe.stages import base

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from gpupipe.format import FrameFormat


class Lut3dSettings(base.Settings):
    """The table and how to read between its points."""

    file: str
    """A .cube file with a 3D table, a 1D table or both; relative to the current directory."""
    interpolation: Literal["tetrahedral", "trilinear"] = "tetrahedral"


class Lut3d(base.Stage):
    """Looks R'G'B' up as it is, in the source's own primaries and transfer: choose a table made for them.

    Values beyond the table's domain (0..1 where it does not say) take the value at its edge. Computed in float32.
    """

    Settings: ClassVar[type[base.Settings]] = Lut3dSettings
    working: ClassVar[base.Working] = "rgb"

    def __init__(self, settings: Lut3dSettings) -> None:
        self.settings = settings
        self._cube: Cube | None = None
        self._steps: list[Callable[[torch.Tensor], torch.Tensor]] = []

    def _read(self) -> Cube:
        if self._cube is None:
            self._cube = read_cube(Path(self.settings.file))
        return self._cube

    def output_format(self, source: FrameFormat) -> FrameFormat:
        """The source's own. Raises PlanError, naming file and line, where the table cannot be read."""
        self._read()
        return source

    def notes(self, source: FrameFormat) -> tuple[str, ...]:
        """Says which table it is."""
        del source
        cube = self._read()
        sizes = [f"{len(t.values)} points {d}" for t, d in ((cube.curve, "1D"), (cube.lattice, "3D")) if t is not None]
        return (f"lut3d: {cube.title or Path(self.settings.file).name}, {' then '.join(sizes)}",)

    def prepare(self, source: FrameFormat) -> None:
        """Puts the table on `source.device`."""
        import torch  # noqa: PLC0415  not needed to plan

        from gpupipe.ops.lut import Curve, Lattice3d  # noqa: PLC0415  imports torch

        cube, device = self._read(), torch.device(source.device)
        self._steps = [Curve(cube.curve, device)] if cube.curve else []
        if cube.lattice:
            self._steps.append(Lattice3d(cube.lattice, self.settings.interpolation, device))

    def __call__(self, planes: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        """The graded picture, one (N, 3, H, W) tensor."""
        rgb = planes[0].float()
        for step in self._steps:
            rgb = step(rgb)
        return (rgb.to(planes[0].dtype),)


STAGE = Lut3d
