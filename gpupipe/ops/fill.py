"""A flat colour as the codes of a pixel format; no torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpupipe.color import LUMA_COEFFICIENTS, Matrix, Range
from gpupipe.errors import PlanError
from gpupipe.ops.levels import component_levels

if TYPE_CHECKING:
    from gpupipe.format import FrameFormat

NAMES = {
    "black": (0, 0, 0),
    "white": (255, 255, 255),
    "gray": (128, 128, 128),
    "grey": (128, 128, 128),
    "red": (255, 0, 0),
    "lime": (0, 255, 0),
    "green": (0, 128, 0),
    "blue": (0, 0, 255),
    "yellow": (255, 255, 0),
    "cyan": (0, 255, 255),
    "magenta": (255, 0, 255),
    "orange": (255, 165, 0),
}
"""CSS colours worth a name."""


def parse_color(text: str) -> tuple[int, int, int]:
    """`#rrggbb` or a name to 8-bit R, G, B. Raises ValueError."""
    if text.lower() in NAMES:
        return NAMES[text.lower()]
    digits = text.removeprefix("#")
    if len(digits) != 6 or not text.startswith("#") or not set(digits.lower()) <= set("0123456789abcdef"):
        raise ValueError(f'a color is "#rrggbb" (in quotes: YAML takes # for a comment) or one of {", ".join(NAMES)}')
    return int(digits[:2], 16), int(digits[2:4], 16), int(digits[4:], 16)


def color_codes(rgb: tuple[int, int, int], source: FrameFormat, where: str) -> tuple[tuple[float, ...], ...]:
    """Codes of a colour, for each plane tensor of `source` one value a component, as stored in memory.

    `rgb` is 8-bit R'G'B' in the source's own primaries and transfer. Formulas: H.273, section 8.3. Raises PlanError for
    a colourful colour in a matrix that gpupipe has no arithmetic for; black, white and grey have no chroma in any.
    """
    pixels = source.pixels
    red, green, blue = (v / 255 for v in rgb)
    if pixels.layout == "float":
        return ((red, green, blue),)
    spec, _ = source.color.resolved(pixels.family, source.width, source.height)

    def code(value: float, index: int) -> float:
        level = component_levels(pixels, spec.range or Range.LIMITED, index)
        exact = level.scale * value + level.offset
        return float(min(max(int(exact + 0.5), 0), level.top) << pixels.msb_shift)

    if pixels.family == "rgb":
        return ((code(green, 1),), (code(blue, 2),), (code(red, 0),))
    luma, cb, cr = _ycc((red, green, blue), spec.matrix, where)
    if pixels.family == "gray":
        return ((code(luma, 0),),)
    u, v = code(cb, 1), code(cr, 2)
    return ((code(luma, 0),), (u, v)) if pixels.layout == "semiplanar" else ((code(luma, 0),), (u,), (v,))


def _ycc(rgb: tuple[float, float, float], matrix: Matrix, where: str) -> tuple[float, float, float]:
    """Y' in 0..1, Cb and Cr in -0.5..0.5."""
    red, green, blue = rgb
    if red == green == blue:
        return red, 0.0, 0.0
    if matrix not in LUMA_COEFFICIENTS:
        raise PlanError(f"no arithmetic for colours in {matrix.name}", where=where, hint="black, white and grey work")
    kr, kb = LUMA_COEFFICIENTS[matrix]
    luma = kr * red + (1 - kr - kb) * green + kb * blue
    return luma, (blue - luma) / (2 * (1 - kb)), (red - luma) / (2 * (1 - kr))
