"""That colour reaches what encoders write into each picture, whichever way the frame came."""

from __future__ import annotations

from fractions import Fraction

import av
import numpy as np
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


@pytest.mark.parametrize(
    ("matrix", "fields", "shown"),
    [(Matrix.BT2020_NCL, "progressive", "bt2020nc"), (Matrix.BT2020_NCL, "tt", "bt2020nc"),
     (Matrix.BT709, "progressive", "bt709")],
)  # fmt: skip
def test_dnxhr_says_its_matrix(matrix, fields, shown, ffprobe, tmp_path) -> None:
    """What ffprobe reads off the frames, from a file whose container says nothing of colour."""
    size = (1920, 1080) if fields != "progressive" else (320, 192)
    source = FrameFormat(
        PIXEL_FORMATS["yuv422p10le"], *size, ColorSpec(matrix, 16, 9, Range.LIMITED), field_order=fields
    )
    options = {"profile": "dnxhr_hqx"} if fields == "progressive" else {"b": "185M"}
    asked = EncoderSettings("dnxhd", "dnxhd", source, Fraction(1, 25), Fraction(25), None, None, None, options)
    coder = LibavEncoder(asked)
    flat = av.VideoFrame.from_ndarray(np.full(size[::-1], 90, np.uint8), format="gray").reformat(format="yuv422p10le")
    packets = coder.encode(FrameBatch(source, (0,), asked.time_base, native=flat))
    packets += coder.finish()
    coder.close()
    path = tmp_path / "bare.dnxhd"
    path.write_bytes(b"".join(bytes(packet) for packet in packets))
    halves = (0, len(bytes(packets[0])) // 2) if fields != "progressive" else (0,)
    assert {bytes(packets[0])[at + 0x2C] & 6 for at in halves} == {2 if matrix == Matrix.BT2020_NCL else 0}
    frames = ffprobe(path, "-show_frames", "-f", "dnxhd")["frames"]
    assert [one["color_space"] for one in frames] == [shown]
