"""From libav's pixel formats, of which there are hundreds, to those that gpupipe has arithmetic for."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from gpupipe.codecs.matte import alpha_bits
from gpupipe.format import PIXEL_FORMATS, PixelFormat, pixel_format, without_alpha

if TYPE_CHECKING:
    from av.video.format import VideoFormat


def losses(native: VideoFormat) -> tuple[str, ...]:
    """What of the picture of libav's `native` gpupipe cannot carry: what lies below 12 bits."""
    depth = max((c.bits for c in native.components if not c.is_alpha), default=8)
    return (f"{depth} bit cut to 12",) if depth > 12 else ()


def nearest_pixels(native: VideoFormat) -> tuple[PixelFormat, tuple[str, ...]]:
    """The format gpupipe works in for libav's `native`, and what is lost or changed on the way there."""
    exact = pixel_format(without_alpha(native.name) or native.name)
    if exact is not None:
        return exact, ()
    parts = [c for c in native.components if not c.is_alpha]
    depth = max((c.bits for c in parts), default=8)
    suffix = {8: "", 10: "10le", 12: "12le"}[8 if depth <= 8 else 10 if depth <= 10 else 12]
    sx, sy = (
        (round(math.log2(native.width / parts[1].width)), round(math.log2(native.height / parts[1].height)))
        if len(parts) == 3 and native.width >= 8 and native.height >= 8
        else (0, 0)
    )
    if native.is_rgb or native.has_palette:
        name = "gbrp"
    elif len(parts) < 3:
        name = "gray"
    else:
        name = "yuv420p" if sx and sy else "yuv422p" if sx else "yuv444p"
    alpha = 0 if native.has_palette else alpha_bits(native)  # few palettes hold any
    changes = [f"alpha ({alpha} bit) apart"] if alpha else []
    changes += losses(native)
    extra = f", {', '.join(changes)}" if changes else ""
    return PIXEL_FORMATS[name + suffix], (f"pixel format {native.name} is worked on as {name + suffix}{extra}",)
