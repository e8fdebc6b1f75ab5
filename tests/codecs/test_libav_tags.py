"""That colour reaches what encoders write into each picture, whichever way the frame came."""

from __future__ import annotations

from fractions import Fraction

import av
import pytest
import torch

from gpupipe.codecs.base import EncoderSettings
from gpupipe.codecs.libav import LibavEncoder
from gpupipe.color import ColorSpec, Matrix, Range
from gpupipe.format import PIXEL_FORMATS, FrameFormat
from gpupipe.frame import FrameBatch

PQ = ColorSpec(Matrix.BT2020_NCL, 16, 9, Range.LIMITED)


def _batch(source: FrameFormat, untouched: bool) -> FrameBatch:
    if untouched:  # a decoder's frame whose bitstream says nothing: the container did
        native = av.VideoFrame(64, 64, source.pixels.name)
        return FrameBatch(source, (0,), Fraction(1, 25), native=native)
    planes = tuple(torch.full((1, 64, 64), 512, dtype=torch.uint16) for _ in range(3))
    return FrameBatch(source, (0,), Fraction(1, 25), planes)


@pytest.mark.parametrize("untouched", [True, False])
def test_prores_ks_writes_them_into_the_frame_header(untouched) -> None:
    """Bytes 14 to 16 of the frame header (SMPTE RDD 36): primaries, transfer, matrix; it starts behind size and `icpf`."""
    source = FrameFormat(PIXEL_FORMATS["yuv444p10le"], 64, 64, PQ)
    asked = EncoderSettings("prores", "prores_ks", source, Fraction(1, 25), Fraction(25), None, None, None)
    coder = LibavEncoder(asked)
    packets = coder.encode(_batch(source, untouched)) + coder.finish()
    coder.close()
    header = bytes(packets[0])[8:]
    assert tuple(header[14:17]) == (9, 16, 9)
