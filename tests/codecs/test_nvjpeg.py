"""Contract of the nvJPEG encoder, driven by a named double of torchvision's encode_jpeg."""

from __future__ import annotations

from fractions import Fraction

import av
import pytest
import torch
from nvenc_double import jpeg_double

from gpupipe.codecs import nvjpeg
from gpupipe.codecs.base import EncoderSettings
from gpupipe.color import ColorSpec, Matrix, Range
from gpupipe.device.cpu import CpuLane
from gpupipe.errors import PlanError
from gpupipe.format import PIXEL_FORMATS, FrameFormat
from gpupipe.frame import FrameBatch


def settings(**changes: object) -> EncoderSettings:
    color = ColorSpec(Matrix.BT470BG, 1, 1, Range.FULL)
    base = {
        "codec": "mjpeg", "encoder": "nvjpeg", "time_base": Fraction(1, 90000), "rate": Fraction(25), "quality": None,
        "bitrate": None, "preset": None,
        "input_format": FrameFormat(PIXEL_FORMATS["gbrp"], 64, 48, color, sample_aspect=Fraction(16, 11)),
    }  # fmt: skip
    return EncoderSettings(**{**base, **changes})


@pytest.mark.parametrize("suffix", ["mov", "mkv"])
def test_file_has_times_and_jpegs_colour(suffix, tmp_path, ffprobe) -> None:
    asked = settings()
    encoder = nvjpeg.NvjpegEncoder(asked, CpuLane(), encode_jpeg=jpeg_double)
    times = [0, 3600, 9000, 9090]
    packets = []
    for pts in times:
        planes = tuple(torch.full((1, 48, 64), v, dtype=torch.uint8) for v in (40, 200, 120))  # G, B, R
        packets += encoder.encode(FrameBatch(asked.input_format, (pts,), asked.time_base, planes, durations=(3600,)))
    assert encoder.finish() == []
    assert [(p.pts, p.dts, p.is_keyframe, p.duration) for p in packets] == [(t, t, True, 3600) for t in times]
    path = tmp_path / f"out.{suffix}"
    with av.open(str(path), "w") as out:
        stream = out.add_stream_from_template(encoder.template(packets), opaque=True)
        for packet in packets:
            packet.stream = stream
            out.mux(packet)
    probed = ffprobe(path, "-show_streams", "-show_frames", "-show_entries", "frame=pts_time")
    stream = probed["streams"][0]
    assert (stream["codec_name"], stream["width"], stream["height"]) == ("mjpeg", 64, 48)
    assert stream["pix_fmt"] == "yuvj444p"
    assert stream["color_range"] == "pc"
    assert stream["color_space"] == "bt470bg"
    if suffix == "mov":
        assert stream["sample_aspect_ratio"] == "16:11"
        assert (stream["color_primaries"], stream["color_transfer"]) == ("bt709", "bt709")
    assert [float(f["pts_time"]) for f in probed["frames"]] == pytest.approx([t / 90000 for t in times], abs=0.0006)
    with av.open(str(path)) as back:
        rgb = (
            next(back.decode(video=0))
            .reformat(format="rgb24", src_colorspace="ITU601", src_color_range="JPEG")
            .to_ndarray()
        )
    assert abs(rgb.astype(int) - [120, 40, 200]).max() <= 4  # R, G, B as they went in


@pytest.mark.parametrize(("changes", "text"), [
    ({"quality": 0}, "1 to 100, not 0"), ({"quality": 101}, "1 to 100"), ({"bitrate": 1000}, "no rate control"),
    ({"options": {"huffman": "optimal"}}, "takes no options"),
])  # fmt: skip
def test_what_it_cannot_do_is_an_error(changes: dict, text: str) -> None:
    with pytest.raises(PlanError, match=text):
        nvjpeg.NvjpegEncoder(settings(**changes), CpuLane(), encode_jpeg=jpeg_double)


def test_wrong_input_format_is_an_error() -> None:
    source = settings().input_format.with_(pixels=PIXEL_FORMATS["nv12"])
    with pytest.raises(PlanError, match="does not take nv12"):
        nvjpeg.NvjpegEncoder(settings(input_format=source), CpuLane(), encode_jpeg=jpeg_double)
