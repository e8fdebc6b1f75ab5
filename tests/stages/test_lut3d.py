"""lut3d against ffmpeg's filter of the same name, float64 interpolation, and broken files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from stills import ffmpeg_raw, picture, plan, run

from gpupipe.errors import PlanError

if TYPE_CHECKING:
    from pathlib import Path

RGB = picture("rgbf32", 64, 48)


def cube(path: Path, size: int = 9, head: str = "", seed: int = 1) -> np.ndarray:
    """Writes a random table; returns it as [blue][green][red]."""
    values = np.random.default_rng(seed).random((size, size, size, 3)).astype(np.float32)
    rows = "\n".join(" ".join(f"{v:.9g}" for v in row) for row in values.reshape(-1, 3))
    path.write_text(f'TITLE "a look"\n# made for a test\n\nLUT_3D_SIZE {size}\n{head}{rows}\n')
    return values


def pixels(low: float = 0.0, high: float = 1.0) -> torch.Tensor:
    rgb = torch.rand((1, 3, 48, 64), generator=torch.Generator().manual_seed(3)) * (high - low) + low
    rgb[0, :, 0, :9] = torch.linspace(0, 1, 9)  # greys: ties between the axes
    rgb[0, :, 1, :3] = torch.eye(3)
    return rgb


@pytest.mark.parametrize("interpolation", ["trilinear", "tetrahedral"])
@pytest.mark.parametrize("span", [(0.0, 1.0), (-0.3, 1.4)])
def test_agrees_with_ffmpeg(tmp_path: Path, interpolation: str, span: tuple[float, float]) -> None:
    cube(tmp_path / "look.cube")
    rgb = pixels(*span)
    ours, _ = run("lut3d", {"file": str(tmp_path / "look.cube"), "interpolation": interpolation}, RGB, (rgb,))
    data = rgb[0, [1, 2, 0]].numpy().tobytes()  # gbr
    arguments = ["-f", "rawvideo", "-pix_fmt", "gbrpf32le", "-s", "64x48", "-i", "-"]
    graph = f"lut3d=file={tmp_path}/look.cube:interp={interpolation}"
    raw = ffmpeg_raw([*arguments, "-vf", graph, "-pix_fmt", "gbrpf32le"], data)
    theirs = np.frombuffer(raw, dtype=np.float32).reshape(3, 48, 64)[[2, 0, 1]]
    np.testing.assert_allclose(ours[0][0].numpy(), theirs, atol=2e-5)


def test_domain(tmp_path: Path) -> None:
    """A table that says out = in over its own domain, so any point inside must come back."""
    size, low, high = 5, np.array([-0.25, 0.0, 0.1]), np.array([1.5, 2.0, 0.9])
    grid = np.linspace(0, 1, size)
    rows = [low + (high - low) * (r, g, b) for b in grid for g in grid for r in grid]
    text = "\n".join(" ".join(f"{v:.9g}" for v in row) for row in rows)
    head = f"DOMAIN_MIN {' '.join(map(str, low))}\nDOMAIN_MAX {' '.join(map(str, high))}\n"
    (tmp_path / "id.cube").write_text(f"LUT_3D_SIZE {size}\n{head}{text}\n")
    rgb = pixels(-0.5, 2.2)
    bounds = torch.tensor(np.stack([low, high])).float().view(2, 1, 3, 1, 1)
    for interpolation in ("trilinear", "tetrahedral"):
        settings = {"file": str(tmp_path / "id.cube"), "interpolation": interpolation}
        (ours,), _ = run("lut3d", settings, RGB, (rgb,))
        torch.testing.assert_close(ours, rgb.clamp(bounds[0], bounds[1]), atol=1e-5, rtol=0)


def test_curves_alone_and_before_the_table(tmp_path: Path) -> None:
    curve = np.random.default_rng(2).random((17, 3))
    lines = "\n".join(" ".join(f"{v:.9g}" for v in row) for row in curve)
    (tmp_path / "curve.cube").write_text(f"LUT_1D_SIZE 17\nLUT_1D_INPUT_RANGE 0.0 2.0\n{lines}\n")
    rgb = pixels(-0.1, 2.3)
    (ours,), _ = run("lut3d", {"file": str(tmp_path / "curve.cube")}, RGB, (rgb,))
    expected = np.stack([np.interp(rgb[0, c].numpy(), np.linspace(0, 2, 17), curve[:, c]) for c in range(3)])
    np.testing.assert_allclose(ours[0].numpy(), expected, atol=1e-5)

    cube(tmp_path / "look.cube", 3)
    table = (tmp_path / "look.cube").read_text().split("LUT_3D_SIZE 3\n")[1]
    both = f"LUT_1D_SIZE 17\nLUT_1D_INPUT_RANGE 0.0 2.0\nLUT_3D_SIZE 3\n{lines}\n{table}"
    (tmp_path / "both.cube").write_text(both)
    (together,), _ = run("lut3d", {"file": str(tmp_path / "both.cube")}, RGB, (rgb,))
    (after,), _ = run("lut3d", {"file": str(tmp_path / "look.cube")}, RGB, (ours,))
    torch.testing.assert_close(together, after, atol=1e-5, rtol=0)
    assert "17 points 1D then 3 points 3D" in plan("lut3d", {"file": str(tmp_path / "both.cube")}, RGB)[1][0]


def test_batches_halves_and_title(tmp_path: Path) -> None:
    cube(tmp_path / "look.cube")
    settings = {"file": str(tmp_path / "look.cube")}
    rgb = torch.cat((pixels(), pixels().flip(3)))
    (ours,), _ = run("lut3d", settings, RGB, (rgb,))
    torch.testing.assert_close(ours[0], ours[1].flip(2), atol=1e-6, rtol=0)
    (half,), _ = run("lut3d", settings, picture("rgbf16", 64, 48), (rgb.half(),))
    (again,), _ = run("lut3d", settings, RGB, (rgb.half().float(),))
    torch.testing.assert_close(half, again.half())
    assert "a look" in plan("lut3d", settings, RGB)[1][0]


@pytest.mark.parametrize(
    ("text", "words", "line"),
    [
        ("LUT_3D_SIZE 1\n", "2 to 256", 1),
        ("# x\nLUT_3D_SIZE two\n", "2 to 256", 2),
        ("LUT_3D_SIZE 2\nLUT_3D_SIZE 2\n", "twice", 2),
        ("LUT_3D_SIZE 2\n0 0 0\n0 0\n", "3 finite numbers", 3),
        ("LUT_3D_SIZE 2\n0 0 nan\n", "3 finite numbers", 2),
        ("LUT_3D_SIZE 2\n0 0 x\n", "3 finite numbers", 2),
        ("LUT_3D_SIZE 2\nDOMAIN_MIN 0 0\n", "3 finite numbers", 2),
        ("LUT_3D_SIZ 2\n", "unknown keyword LUT_3D_SIZ", 1),
        ("LUT_3D_SIZE 2\n" + "0 0 0\n" * 7, "7 rows .* 8", 8),
        ("LUT_3D_SIZE 2\nDOMAIN_MIN 1 1 1\n" + "0 0 0\n" * 8, "empty", None),
        ("", "no LUT_3D_SIZE", None),
    ],
)
def test_errors_name_file_and_line(tmp_path: Path, text: str, words: str, line: int | None) -> None:
    path = tmp_path / "broken.cube"
    path.write_text(text)
    with pytest.raises(PlanError, match=words) as caught:
        plan("lut3d", {"file": str(path)}, RGB)
    assert caught.value.where == (str(path) if line is None else f"{path}:{line}")


def test_files_that_are_none(tmp_path: Path) -> None:
    for path in (tmp_path / "missing.cube", tmp_path):
        with pytest.raises(PlanError, match="cannot read the LUT"):
            plan("lut3d", {"file": str(path)}, RGB)
    noise = tmp_path / "noise.cube"
    noise.write_bytes(bytes(range(256)) * 4)
    with pytest.raises(PlanError):
        plan("lut3d", {"file": str(noise)}, RGB)
