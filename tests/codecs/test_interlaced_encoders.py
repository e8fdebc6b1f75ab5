"""That every encoder the table says keeps fields opens for an interlaced picture, and keeps them."""

from __future__ import annotations

from fractions import Fraction

import av
import numpy as np
import pytest

from gpupipe.codecs.base import EncoderSettings
from gpupipe.codecs.encoders import ENCODERS
from gpupipe.codecs.libav import LibavEncoder, encoder_name
from gpupipe.color import ColorSpec, Matrix, Range
from gpupipe.format import PIXEL_FORMATS, FrameFormat
from gpupipe.frame import FrameBatch

PIXELS = {"prores_ks": "yuv422p10le", "prores_aw": "yuv422p10le", "dnxhd": "yuv422p", "huffyuv": "yuv422p"}
OPTIONS = {"dnxhd": {"b": "120M"}}


@pytest.mark.parametrize("row", [r for r in ENCODERS if r.fields and not r.on_device], ids=lambda row: row.name)
def test_fields_apart_stay_apart(row) -> None:
    """One field dark, the other bright: means of the decoded rows are as far apart as they were."""
    pixels, width, height = PIXELS.get(row.name, "yuv420p"), 1440, 1080
    range_ = Range.FULL if row.name == "mjpeg" else Range.LIMITED
    source = FrameFormat(PIXEL_FORMATS[pixels], width, height, ColorSpec(Matrix.BT709, 1, 1, range_), field_order="tt")
    asked = EncoderSettings(
        row.codecs[0], row.name, source, Fraction(1, 25), Fraction(25), None, None, None, OPTIONS.get(row.name, {})
    )
    coder = LibavEncoder(asked)
    grey = np.full((height, width), 60, np.uint8)
    grey[1::2] = 180
    name = encoder_name(row.name, source)
    frame = av.VideoFrame.from_ndarray(grey, format="gray").reformat(format=name)
    packets = coder.encode(FrameBatch(source, (0,), asked.time_base, native=frame)) + coder.finish()
    reader = av.CodecContext.create(row.codecs[0], "r")
    template = coder.template(packets).codec_context
    reader.extradata, reader.codec_tag = template.extradata, template.codec_tag
    reader.width, reader.height, reader.pix_fmt = width, height, name
    shown = [one for packet in (*packets, None) for one in reader.decode(packet)]
    coder.close()
    rows = shown[0].to_ndarray()[:height, :width].astype(float).mean(axis=1)
    given = frame.to_ndarray()[:height, :width].astype(float).mean(axis=1)
    assert np.abs(rows - given).max() < (given.max() - given.min()) / 10
