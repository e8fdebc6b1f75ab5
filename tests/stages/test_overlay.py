"""overlay against ffmpeg's filter of the same name and float64 arithmetic."""

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


def image(path: Path, width: int = 20, height: int = 12, deep: bool = False) -> np.ndarray:
    """Writes a PNG of random colour and alpha with ffmpeg; returns its codes (h, w, 4)."""
    kind, top = (np.dtype(">u2"), 65536) if deep else (np.dtype("u1"), 256)
    codes = np.random.default_rng(1).integers(0, top, (height, width, 4)).astype(kind)
    codes[:3, :4, 3], codes[3:6, :4, 3] = 0, top - 1
    form = "rgba64be" if deep else "rgba"
    arguments = [
        "-f",
        "rawvideo",
        "-pix_fmt",
        form,
        "-s",
        f"{width}x{height}",
        "-i",
        "-",
        "-y",
        "-frames:v",
        "1",
        str(path),
    ]
    ffmpeg_raw([*arguments, "-frames:v", "1", "-pix_fmt", form], codes.tobytes())
    return codes


def noise() -> torch.Tensor:
    """Whole 8-bit codes, so that ffmpeg can be given the same picture."""
    return torch.randint(0, 256, (1, 3, 48, 64), generator=torch.Generator().manual_seed(3)) / 255


def over(frame: np.ndarray, codes: np.ndarray, x: int, y: int, opacity: float, top: float) -> np.ndarray:
    out = frame.astype(np.float64)
    for j, i in np.ndindex(codes.shape[:2]):
        if 0 <= y + j < frame.shape[1] and 0 <= x + i < frame.shape[2]:
            alpha = opacity * codes[j, i, 3] / top
            out[:, y + j, x + i] = alpha * codes[j, i, :3] / top + (1 - alpha) * out[:, y + j, x + i]
    return out


PLACES = {
    "top-left": (3, 3), "top": (22, 3), "top-right": (41, 3), "left": (3, 18), "center": (22, 18), "right": (41, 18),
    "bottom-left": (3, 33), "bottom": (22, 33), "bottom-right": (41, 33),
}  # fmt: skip


@pytest.mark.parametrize("anchor", PLACES)
def test_lies_where_the_anchor_says(tmp_path: Path, anchor: str) -> None:
    codes = image(tmp_path / "logo.png")
    x, y = PLACES[anchor]
    frame = noise()
    settings = {"image": str(tmp_path / "logo.png"), "anchor": anchor, "margin": 3, "opacity": 0.7}
    (ours,), _ = run("overlay", settings, RGB, (frame,))
    np.testing.assert_allclose(ours[0].numpy(), over(frame[0].numpy(), codes, x, y, 0.7, 255), atol=1e-6)
    outside = torch.ones((48, 64), dtype=torch.bool)
    outside[y : y + 12, x : x + 20] = False
    assert torch.equal(ours[0][:, outside], frame[0][:, outside])


def test_agrees_with_ffmpeg(tmp_path: Path) -> None:
    image(tmp_path / "logo.png")
    frame = noise()
    (ours,), _ = run("overlay", {"image": str(tmp_path / "logo.png"), "x": 7, "y": 5}, RGB, (frame,))
    data = (frame[0, [1, 2, 0]] * 255).round().to(torch.uint8).numpy().tobytes()
    arguments = ["-f", "rawvideo", "-pix_fmt", "gbrp", "-s", "64x48", "-i", "-", "-i", str(tmp_path / "logo.png")]
    raw = ffmpeg_raw([*arguments, "-lavfi", "overlay=7:5:format=gbrp", "-frames:v", "1", "-pix_fmt", "gbrp"], data)
    theirs = np.frombuffer(raw, dtype=np.uint8).reshape(3, 48, 64)[[2, 0, 1]]
    assert np.abs(np.rint(ours[0].numpy() * 255) - theirs).max() <= 1  # ffmpeg rounds each product


def test_sixteen_bit_images_keep_their_depth(tmp_path: Path) -> None:
    codes = image(tmp_path / "deep.png", deep=True)
    frame = noise()
    (ours,), _ = run("overlay", {"image": str(tmp_path / "deep.png")}, RGB, (frame,))
    np.testing.assert_allclose(ours[0].numpy(), over(frame[0].numpy(), codes, 0, 0, 1, 65535), atol=1e-6)


def test_an_image_without_alpha_covers(tmp_path: Path) -> None:
    ffmpeg_raw(
        [
            "-f",
            "lavfi",
            "-i",
            "color=red:s=10x6,format=rgb24",
            "-frames:v",
            "1",
            "-y",
            str(tmp_path / "red.png"),
            "-frames:v",
            "1",
        ]
    )
    (ours,), _ = run("overlay", {"image": str(tmp_path / "red.png")}, RGB, (noise(),))
    assert ours[0, :, 2, 3].tolist() == pytest.approx([254 / 255, 0, 0], abs=0.01)


def test_cut_by_the_edge_is_noted(tmp_path: Path) -> None:
    codes = image(tmp_path / "logo.png", 100, 12)
    frame = noise()
    settings = {"image": str(tmp_path / "logo.png"), "x": -30, "y": -4}
    (ours,), _ = run("overlay", settings, RGB, (frame,))
    np.testing.assert_allclose(ours[0].numpy(), over(frame[0].numpy(), codes, -30, -4, 1, 255), atol=1e-6)
    assert "cut to 64x8" in plan("overlay", settings, RGB)[1][0]
    assert plan("overlay", {"image": str(tmp_path / "logo.png"), "anchor": "top", "scale": 0.5}, RGB)[1] == ()


def test_scaled_edges_take_no_colour_from_what_is_transparent(tmp_path: Path) -> None:
    """A green disc's worth of opaque pixels among transparent red ones: halved, nothing red may show."""
    codes = np.zeros((16, 16, 4), dtype=np.uint8)
    codes[..., 0], codes[4:11, 5:12] = 255, (0, 255, 0, 255)
    arguments = [
        "-f",
        "rawvideo",
        "-pix_fmt",
        "rgba",
        "-s",
        "16x16",
        "-i",
        "-",
        "-y",
        "-frames:v",
        "1",
        str(tmp_path / "g.png"),
    ]
    ffmpeg_raw([*arguments, "-frames:v", "1", "-pix_fmt", "rgba"], codes.tobytes())
    (ours,), _ = run("overlay", {"image": str(tmp_path / "g.png"), "scale": 0.5}, RGB, (torch.zeros((1, 3, 48, 64)),))
    assert float(ours[0, 0].max()) < 1e-3
    assert float(ours[0, 1, 3, 3]) > 0.9
    assert float(ours[0, :, 8:].max()) == 0


def test_half_precision(tmp_path: Path) -> None:
    codes = image(tmp_path / "logo.png")
    frame = noise()
    (ours,), _ = run("overlay", {"image": str(tmp_path / "logo.png")}, picture("rgbf16", 64, 48), (frame.half(),))
    np.testing.assert_allclose(ours[0].float().numpy(), over(frame[0].numpy(), codes, 0, 0, 1, 255), atol=2e-3)


def test_what_cannot_be_laid(tmp_path: Path) -> None:
    (tmp_path / "text.png").write_text("no picture")
    (tmp_path / "empty.png").write_bytes(b"")
    for name in ("text.png", "empty.png", "missing.png", "."):
        with pytest.raises(PlanError) as caught:
            plan("overlay", {"image": str(tmp_path / name)}, RGB)
        assert str(tmp_path / name) in str(caught.value)
    image(tmp_path / "logo.png")
    for settings in ({"x": 64}, {"y": -12}, {"anchor": "right", "margin": 200}):
        with pytest.raises(PlanError, match="wholly outside"):
            plan("overlay", {"image": str(tmp_path / "logo.png"), **settings}, RGB)
    for settings in ({"opacity": 1.5}, {"margin": -1}, {"scale": 0}, {"anchor": "middle"}, {"margin": 1.5}):
        with pytest.raises(ValueError, match="Input should"):
            plan("overlay", {"image": str(tmp_path / "logo.png"), **settings}, RGB)
