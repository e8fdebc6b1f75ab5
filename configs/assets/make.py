"""Draws the two small files that the example configs use: `python configs/assets/make.py` writes them beside itself."""

from __future__ import annotations

from pathlib import Path

import av
import numpy as np

HERE = Path(__file__).parent


def logo(size: int = 96) -> None:
    """A white triangle in a ring, with soft edges in the alpha channel."""
    fine = 4 * size
    y, x = (np.mgrid[0:fine, 0:fine] + 0.5) / fine * 2 - 1
    radius = np.hypot(x, y)
    ring = (radius < 0.95) & (radius > 0.8)
    triangle = (x > -0.35) & (np.abs(y) < (0.6 - x) * 0.6)
    cover = (ring | triangle).reshape(size, 4, size, 4).mean((1, 3))
    rgba = np.full((size, size, 4), 255, np.uint8)
    rgba[..., 3] = np.rint(255 * cover)
    encoder = av.CodecContext.create("png", "w")
    encoder.width = encoder.height = size
    encoder.pix_fmt = "rgba"
    packets = [*encoder.encode(av.VideoFrame.from_ndarray(rgba, format="rgba")), *encoder.encode(None)]
    (HERE / "logo.png").write_bytes(b"".join(bytes(p) for p in packets))


def look(points: int = 5) -> None:
    """A warm look: a little contrast, lifted reds, lowered blues. Red varies fastest, as the .cube format wants."""
    lines = ['TITLE "warm"', f"LUT_3D_SIZE {points}"]
    for b in range(points):
        for g in range(points):
            for r in range(points):
                v = np.array([r, g, b]) / (points - 1)
                v = v + 0.02 * np.sin(2 * np.pi * (v - 0.5))
                v = np.clip(v * [1.0, 0.98, 0.92] + [0.02, 0.0, 0.0], 0, 1)
                lines.append(" ".join(f"{c:.4f}" for c in v))
    (HERE / "warm.cube").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    logo()
    look()
