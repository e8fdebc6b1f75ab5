from __future__ import annotations

import io
from fractions import Fraction

import av
import numpy as np
import pytest
import torch

from gpupipe.codecs import nvjpeg
from gpupipe.codecs.base import EncoderSettings
from gpupipe.color import ColorSpec, Matrix, Range
from gpupipe.device.cuda import CudaLane
from gpupipe.format import PIXEL_FORMATS, FrameFormat
from gpupipe.frame import FrameBatch

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize(("width", "height"), [(640, 360), (321, 241)])
def test_pictures_come_back(width: int, height: int) -> None:
    source = FrameFormat(
        PIXEL_FORMATS["gbrp"], width, height, ColorSpec(Matrix.BT470BG, 1, 1, Range.FULL), device="cuda:0"
    )
    asked = EncoderSettings("mjpeg", "nvjpeg", source, Fraction(1, 25), Fraction(25), 95, None, None)
    assert nvjpeg.supports(source) is None
    lane = CudaLane("cuda:0")
    encoder = nvjpeg.NvjpegEncoder(asked, lane)
    y, x = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    rgb = torch.stack([(x * 255 // width), (y * 255 // height), ((x + y) * 255 // (width + height))]).to(torch.uint8)
    pictures = torch.stack([rgb, rgb.flip(2), rgb.flip(1)])
    with lane.active():
        r, g, b = pictures.cuda().unbind(1)
    packets = encoder.encode(FrameBatch(source, (5, 6, 9), Fraction(1, 25), (g, b, r), ready=lane.record()))
    assert [(p.pts, p.dts) for p in packets] == [(5, 5), (6, 6), (9, 9)]
    template = encoder.template(packets).codec_context
    assert (template.pix_fmt, template.width, template.height) == ("yuvj444p", width, height)
    for packet, want in zip(packets, pictures, strict=True):
        frame = next(av.open(io.BytesIO(bytes(packet)), format="mjpeg").decode(video=0))
        got = frame.reformat(format="rgb24", src_colorspace="ITU601", src_color_range="JPEG").to_ndarray()
        error = np.mean((got.astype(float) - want.permute(1, 2, 0).numpy()) ** 2)
        assert 10 * np.log10(255**2 / error) > 36
