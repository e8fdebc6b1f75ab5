"""That `quality` reaches libav's encoders with a quantiser scale: each step of it must change the picture."""

from __future__ import annotations

from fractions import Fraction

import av
import numpy as np
import pytest

from gpupipe.codecs.base import EncoderSettings
from gpupipe.codecs.libav import LibavEncoder
from gpupipe.color import ColorSpec, Matrix, Range
from gpupipe.format import PIXEL_FORMATS, FrameFormat
from gpupipe.frame import FrameBatch


@pytest.mark.parametrize(
    ("codec", "encoder", "pixels", "scale"),
    [
        ("mjpeg", "mjpeg", "yuv420p", (95, 80, 60, 40, 20)),
        ("mpeg2video", "mpeg2video", "yuv420p", (1, 2, 4, 10, 31)),
        ("mpeg4", "mpeg4", "yuv420p", (1, 2, 4, 10, 31)),
        ("prores", "prores_ks", "yuv422p10le", (1, 2, 4, 16, 64)),
    ],
)
def test_quality_is_the_quantiser_scale(codec, encoder, pixels, scale) -> None:
    """From fine to coarse every packet is smaller."""
    range_ = Range.FULL if codec == "mjpeg" else Range.LIMITED
    source = FrameFormat(PIXEL_FORMATS[pixels], 320, 240, ColorSpec(Matrix.BT709, 1, 1, range_))
    noise = np.random.default_rng(0).integers(0, 256, (240, 320, 3)).astype(np.uint8)
    sizes = []
    for quality in scale:
        asked = EncoderSettings(codec, encoder, source, Fraction(1, 25), Fraction(25), quality, None, None)
        coder = LibavEncoder(asked)
        name = "yuvj420p" if codec == "mjpeg" else pixels
        frame = av.VideoFrame.from_ndarray(noise, format="rgb24").reformat(format=name)
        packets = coder.encode(FrameBatch(source, (0,), asked.time_base, native=frame)) + coder.finish()
        sizes.append(packets[0].size)
        coder.close()
    assert sizes == sorted(set(sizes), reverse=True)
    assert sizes[0] > 2 * sizes[-1]
