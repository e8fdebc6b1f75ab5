"""Exact colour arithmetic in float64, written from ITU-T H.273 and independent of gpupipe.ops: the oracle of these tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch

    from gpupipe.format import FrameFormat

KR_KB = {
    "BT709": (0.2126, 0.0722),
    "FCC": (0.30, 0.11),
    "BT470BG": (0.299, 0.114),
    "SMPTE170M": (0.299, 0.114),
    "SMPTE240M": (0.212, 0.087),
    "BT2020_NCL": (0.2627, 0.0593),
}
SITING = {
    "left": (0, 0.5),
    "center": (0.5, 0.5),
    "topleft": (0, 0),
    "top": (0.5, 0),
    "bottomleft": (0, 1),
    "bottom": (0.5, 1),
}


def rgb_from_ycc(ycc: list[np.ndarray], matrix: str) -> list[np.ndarray]:
    """Solves the defining equations as a 3x3 system."""
    return list(np.einsum("ij,jnhw->inhw", np.linalg.inv(_forward(matrix)), np.stack(ycc)))


def ycc_from_rgb(rgb: list[np.ndarray], matrix: str) -> list[np.ndarray]:
    return list(np.einsum("ij,jnhw->inhw", _forward(matrix), np.stack(rgb)))


def _forward(matrix: str) -> np.ndarray:
    kr, kb = KR_KB[matrix]
    y = np.array([kr, 1 - kr - kb, kb])
    return np.stack([y, (np.array([0, 0, 1.0]) - y) / (2 * (1 - kb)), (np.array([1.0, 0, 0]) - y) / (2 * (1 - kr))])


def scale_offset(depth: int, limited: bool, chroma: bool) -> tuple[float, float]:
    if limited:
        return (224 if chroma else 219) * 2.0 ** (depth - 8), (128 if chroma else 16) * 2.0 ** (depth - 8)
    return 2.0**depth - 1, 2.0 ** (depth - 1) if chroma else 0.0


def to_codes(values: list[np.ndarray], depth: int, limited: bool, yuv: bool) -> list[np.ndarray]:
    """Code values before rounding, clamped to what the depth holds."""
    out = []
    for i, value in enumerate(values):
        scale, offset = scale_offset(depth, limited, yuv and i > 0)
        out.append(np.clip(value * scale + offset, 0, 2**depth - 1))
    return out


def from_codes(codes: list[np.ndarray], depth: int, limited: bool, yuv: bool) -> list[np.ndarray]:
    levels = [scale_offset(depth, limited, yuv and i > 0) for i in range(len(codes))]
    return [(c.astype(np.float64) - offset) / scale for c, (scale, offset) in zip(codes, levels, strict=True)]


def _weights(at_in: np.ndarray, at_out: np.ndarray, reach: float) -> np.ndarray:
    """Triangle of half-width `reach`; the edge sample is repeated beyond the edge."""
    step = at_in[1] - at_in[0] if len(at_in) > 1 else reach
    extended = np.arange(-8, len(at_in) + 8)
    w = np.maximum(0, 1 - np.abs(at_in[0] + extended * step - at_out[:, None]) / reach)
    folded = np.zeros((len(at_out), len(at_in)))
    for column, index in enumerate(np.clip(extended, 0, len(at_in) - 1)):
        folded[:, index] += w[:, column]
    return folded / folded.sum(axis=1, keepdims=True)


def _axis(count_in: int, count_out: int, a: tuple[int, float], b: tuple[int, float], interlaced: bool) -> np.ndarray:
    """Weights (out, in) from siting a = (samples' distance in luma pixels, offset) to siting b."""
    at_in, at_out = np.arange(count_in) * a[0] + a[1], np.arange(count_out) * b[0] + b[1]
    if not interlaced or min(count_in, count_out) < 2 or a == b:
        return _weights(at_in, at_out, max(a[0], b[0]))
    full = np.zeros((count_out, count_in))
    for parity in (0, 1):  # a field sees its own lines only, which lie twice as far apart
        full[parity::2, parity::2] = _weights(at_in[parity::2], at_out[parity::2], 2 * max(a[0], b[0]))
    return full


def resample(x: np.ndarray, size: tuple[int, int], a: tuple, b: tuple, interlaced: bool) -> np.ndarray:
    """x: (N, H, W); a, b: ((distance x, offset x), (distance y, offset y))."""
    horizontal = _axis(x.shape[2], size[0], a[0], b[0], interlaced=False)
    vertical = _axis(x.shape[1], size[1], a[1], b[1], interlaced=interlaced)
    return vertical @ x.astype(np.float64) @ horizontal.T


def siting(shift: tuple[int, int], location: str) -> tuple[tuple[int, float], tuple[int, float]]:
    dx, dy = SITING[location]
    return (1 << shift[0], dx if shift[0] else 0.0), (1 << shift[1], dy if shift[1] else 0.0)


FULL = ((1, 0.0), (1, 0.0))


def components(planes: tuple[torch.Tensor, ...], name: str) -> list[np.ndarray]:
    """Codes (or float values) as Y, Cb, Cr or R, G, B, by libav's description of the format."""
    arrays = [p.cpu().numpy() for p in planes]
    if name.startswith("rgbf"):
        return [arrays[0][:, i].astype(np.float64) for i in range(3)]
    msb = {"p010le": 6, "p012le": 4, "yuv444p10msble": 6, "yuv444p12msble": 4}.get(name, 0)
    arrays = [a.astype(np.int64) >> msb for a in arrays]
    if name in ("nv12", "p010le", "p012le"):
        return [arrays[0], arrays[1][..., 0], arrays[1][..., 1]]
    return [arrays[2], arrays[0], arrays[1]] if name.startswith("gbrp") else arrays


def convert(planes: tuple[torch.Tensor, ...], source: FrameFormat, target: FrameFormat) -> list[np.ndarray]:
    """Components in `target` (a FrameFormat, like `source`; both with every tag said), before rounding."""
    a, b = source.pixels, target.pixels
    size, fields = (source.width, source.height), source.interlaced
    values = components(planes, a.name)
    if a.layout != "float":
        values = from_codes(values, a.depth, source.color.range == "limited", a.family == "yuv")
    chroma_out = tuple(reversed(b.plane_shapes(*size)[1][:2])) if b.family == "yuv" else size
    sited_in, sited_out = (siting(f.pixels.chroma_shift, f.color.chroma_location) for f in (source, target))
    if a.family == "gray":
        values = (
            [values[0]] * 3 if b.family == "rgb" else [values[0], *[np.zeros((len(values[0]), *chroma_out[::-1]))] * 2]
        )
    elif "yuv" in (a.family, b.family) and (
        a.family == "rgb" or b.family == "rgb" or source.color.matrix != target.color.matrix
    ):
        if a.family == "yuv":
            values[1:] = [resample(v, size, sited_in, FULL, fields) for v in values[1:]]
            values = rgb_from_ycc(values, source.color.matrix.name)
        if b.family != "rgb":
            values = ycc_from_rgb(values, target.color.matrix.name)
            values[1:] = [resample(v, chroma_out, FULL, sited_out, fields) for v in values[1:]]
    elif a.family == "rgb" and b.family == "gray":
        values = ycc_from_rgb(values, target.color.matrix.name)
    elif a.family == b.family == "yuv":
        values[1:] = [resample(v, chroma_out, sited_in, sited_out, fields) for v in values[1:]]
    if b.family == "gray":
        values = values[:1]
    return (
        values if b.layout == "float" else to_codes(values, b.depth, target.color.range == "limited", b.family == "yuv")
    )
