"""Constants of the bitstream, SMPTE RDD 36:2015; no torch.

Quantisation weights are data of the encoder (they travel in every frame header); these are the ones in common use.
"""

from __future__ import annotations

PROGRESSIVE_SCAN = (
    0, 1, 8, 9, 2, 3, 10, 11, 16, 17, 24, 25, 18, 19, 26, 27, 4, 5, 12, 20, 13, 6, 7, 14, 21, 28, 29, 22, 15, 23, 30,
    31, 32, 33, 40, 48, 41, 34, 35, 42, 49, 56, 57, 50, 43, 36, 37, 44, 51, 58, 59, 52, 45, 38, 39, 46, 53, 60, 61, 54,
    47, 55, 62, 63,
)  # fmt: skip
"""Raster position (8 * v + u) of each coefficient of a block, in the order of the stream."""
INTERLACED_SCAN = (
    0, 8, 1, 9, 16, 24, 17, 25, 2, 10, 3, 11, 18, 26, 19, 27, 32, 40, 33, 34, 41, 48, 56, 49, 42, 35, 43, 50, 57, 58,
    51, 59, 4, 12, 5, 6, 13, 20, 28, 21, 14, 7, 15, 22, 29, 36, 44, 37, 30, 23, 31, 38, 45, 52, 60, 53, 46, 39, 47, 54,
    61, 62, 55, 63,
)  # fmt: skip

Codebook = tuple[int, int, int]
"""(Rice order, exp-Golomb order, number of prefix zeros at which Rice codes end)."""

FIRST_DC: Codebook = (5, 6, 1)
DC: tuple[Codebook, ...] = ((0, 1, 1), (1, 2, 1), (2, 3, 2), (3, 4, 1))
"""By the magnitude of the difference before, 3 and more alike; the second block of a slice takes the last."""
_R2, _R1, _R0 = (2, 3, 1), (1, 2, 1), (0, 1, 1)
_R1_LONG, _R0_LONG, _R0_LONGEST, _R0_STEEP = (1, 2, 2), (0, 1, 2), (0, 1, 3), (0, 2, 3)
RUN: tuple[Codebook, ...] = (
    _R0_LONGEST, _R0_LONGEST, _R0_LONG, _R0_LONG, _R0, *[_R1_LONG] * 4, *[_R1] * 6, _R2,
)  # fmt: skip
"""By the run before, 15 and more alike; FIRST_RUN stands for it at the start of a slice."""
LEVEL: tuple[Codebook, ...] = (_R0, _R0_STEEP, _R0_LONG, _R0_LONGEST, _R0, *[_R1] * 4, _R2)
"""By the magnitude before, 9 and more alike (there is none for 0); FIRST_LEVEL stands for it at the start."""
FIRST_RUN, FIRST_LEVEL = 4, 2

MAX_QUANTISER = 224
SLICE_MACROBLOCKS = 8
"""Macroblocks a slice; what is left of a row is cut into slices of 4, 2 and 1."""


def scale_of(quantiser: int) -> int:
    """The factor on the weights that a slice's quantiser index 1..224 stands for."""
    return quantiser if quantiser <= 128 else (quantiser - 96) * 4


PROXY_LUMA = (
    4, 7, 9, 11, 13, 14, 15, 63,
    7, 7, 11, 12, 14, 15, 63, 63,
    9, 11, 13, 14, 15, 63, 63, 63,
    11, 11, 13, 14, 63, 63, 63, 63,
    11, 13, 14, 63, 63, 63, 63, 63,
    13, 14, 63, 63, 63, 63, 63, 63,
    13, 63, 63, 63, 63, 63, 63, 63,
    63, 63, 63, 63, 63, 63, 63, 63,
)  # fmt: skip
PROXY_CHROMA = (
    4, 7, 9, 11, 13, 14, 63, 63,
    7, 7, 11, 12, 14, 63, 63, 63,
    9, 11, 13, 14, 63, 63, 63, 63,
    *PROXY_LUMA[24:],
)  # fmt: skip
LT = (
    4, 5, 6, 7, 9, 11, 13, 15,
    5, 5, 7, 8, 11, 13, 15, 17,
    6, 7, 9, 11, 13, 15, 15, 17,
    7, 7, 9, 11, 13, 15, 17, 19,
    7, 9, 11, 13, 14, 16, 19, 23,
    9, 11, 13, 14, 16, 19, 23, 29,
    9, 11, 13, 15, 17, 21, 28, 35,
    11, 13, 16, 17, 21, 28, 35, 41,
)  # fmt: skip
STANDARD = (
    4, 4, 5, 5, 6, 7, 7, 9,
    4, 4, 5, 6, 7, 7, 9, 9,
    5, 5, 6, 7, 7, 9, 9, 10,
    5, 5, 6, 7, 7, 9, 9, 10,
    5, 6, 7, 7, 8, 9, 10, 12,
    6, 7, 7, 8, 9, 10, 12, 15,
    6, 7, 7, 9, 10, 11, 14, 17,
    7, 7, 9, 10, 11, 14, 17, 21,
)  # fmt: skip
HQ = (
    *[4] * 31, 5,
    *[4] * 6, 5, 5,
    *[4] * 5, 5, 5, 6,
    *[4] * 4, 5, 5, 6, 7,
    *[4] * 4, 5, 6, 7, 7,
)  # fmt: skip
XQ_LUMA = (
    *[2] * 31, 3,
    *[2] * 6, 3, 3,
    *[2] * 5, 3, 3, 3,
    *[2] * 4, 3, 3, 3, 4,
    *[2] * 4, 3, 3, 4, 4,
)  # fmt: skip
