"""Contract of the nvJPEG encoder, driven by a named double of the library."""

from __future__ import annotations

import gc
import io
import shutil
import tempfile
from fractions import Fraction

import av
import numpy as np
import pytest
import torch
from nvjpeg_double import NvjpegDouble

from gpupipe.codecs import nvjpeg, nvjpeg_library
from gpupipe.codecs.base import EncoderSettings
from gpupipe.codecs.intra import copied
from gpupipe.codecs.nvjpeg_batch import batch_function
from gpupipe.color import ChromaLocation, ColorSpec, Matrix, Range
from gpupipe.config import parse_config
from gpupipe.device.compiled import COMPILERS, compiled
from gpupipe.device.cpu import CpuLane
from gpupipe.errors import DeviceError, PlanError
from gpupipe.format import PIXEL_FORMATS, FrameFormat
from gpupipe.frame import FrameBatch
from gpupipe.media.probe import probe
from gpupipe.plan import make_plan

COLOR = ColorSpec(Matrix.BT470BG, 1, 1, Range.FULL, ChromaLocation.CENTER)


def settings(pixels: str = "yuv420p", width: int = 64, height: int = 48, **changes: object) -> EncoderSettings:
    base = {
        "codec": "mjpeg", "encoder": "nvjpeg", "time_base": Fraction(1, 90000), "rate": Fraction(25), "quality": None,
        "bitrate": None, "preset": None,
        "input_format": FrameFormat(PIXEL_FORMATS[pixels], width, height, COLOR, sample_aspect=Fraction(16, 11)),
    }  # fmt: skip
    return EncoderSettings(**{**base, **changes})


def smooth(asked: EncoderSettings, count: int) -> tuple[torch.Tensor, ...]:
    """Planes of gradients, each picture another one."""
    source, planes = asked.input_format, []
    for index, (high, wide) in enumerate(source.pixels.plane_shapes(source.width, source.height)):
        y, x = torch.meshgrid(torch.arange(high) / high, torch.arange(wide) / wide, indexing="ij")
        slope = (x, y, 1 - x)[index]
        planes.append(torch.stack([40 + 150 * slope + 4 * (n % 8) for n in range(count)]).to(torch.uint8))
    return tuple(planes)


def test_file_has_times_and_jpegs_colour(tmp_path, ffprobe, ffmpeg) -> None:
    asked = settings()
    encoder = nvjpeg.NvjpegEncoder(asked, CpuLane(), library=NvjpegDouble())
    times, planes = (0, 3600, 9000, 9090), smooth(asked, 4)
    packets = encoder.encode(FrameBatch(asked.input_format, times, asked.time_base, planes, durations=(3600,) * 4))
    assert encoder.finish() == []
    assert [(p.pts, p.dts, p.is_keyframe, p.duration) for p in packets] == [(t, t, True, 3600) for t in times]
    path = tmp_path / "out.mov"
    with av.open(str(path), "w") as out:
        stream = out.add_stream_from_template(encoder.template(packets), opaque=True)
        for packet in packets:
            packet.stream = stream
            out.mux(packet)
    probed = ffprobe(path, "-show_streams", "-show_frames", "-show_entries", "frame=pts_time")
    stream = probed["streams"][0]
    assert (stream["codec_name"], stream["width"], stream["height"]) == ("mjpeg", 64, 48)
    assert (stream["pix_fmt"], stream["color_range"], stream["color_space"]) == ("yuvj420p", "pc", "bt470bg")
    assert (stream["color_primaries"], stream["color_transfer"]) == ("bt709", "bt709")
    assert stream["chroma_location"] == "center"
    assert stream["sample_aspect_ratio"] == "16:11"
    assert [float(f["pts_time"]) for f in probed["frames"]] == pytest.approx([t / 90000 for t in times], abs=0.0006)
    ffmpeg("-i", path, "-fps_mode", "passthrough", "-f", "rawvideo", "-pix_fmt", "yuvj420p", tmp_path / "out.yuv")
    decoded = np.fromfile(tmp_path / "out.yuv", np.uint8).reshape(4, -1).astype(int)
    given = np.concatenate([plane.reshape(4, -1).numpy() for plane in planes], axis=1)
    assert abs(decoded - given).max() <= 3


@pytest.fixture(params=["a call a batch", "a call a picture"])
def way(request, monkeypatch) -> str:
    """With what C makes of a batch, where there is a compiler, and without."""
    if request.param == "a call a picture":
        monkeypatch.setattr("gpupipe.codecs.nvjpeg_coder.batch_function", lambda: None)
    elif not any(map(shutil.which, COMPILERS)):
        pytest.skip("no C compiler")
    return request.param


@pytest.mark.parametrize("pixels", ["yuv420p", "yuv422p", "yuv444p"])
@pytest.mark.parametrize("count", [1, nvjpeg.STATES - 1, 2 * nvjpeg.STATES + 1])
def test_every_picture_of_any_batch_comes_back(pixels: str, count: int, way: str) -> None:
    asked = settings(pixels, 33, 19)
    double = NvjpegDouble()
    encoder = nvjpeg.NvjpegEncoder(asked, CpuLane(), library=double)
    planes = smooth(asked, count + 2)
    padded = tuple(torch.nn.functional.pad(plane, (0, 5)) for plane in planes)  # rows of another pitch
    pitched = tuple(wide[..., : plane.shape[-1]] for wide, plane in zip(padded, planes, strict=True))
    packets = encoder.encode(FrameBatch(asked.input_format, tuple(range(count)), asked.time_base, pitched))
    assert len(packets) == count
    encoder.encode(FrameBatch(asked.input_format, (0,), asked.time_base, pitched))  # memory of packets is their own
    for number, packet in enumerate(packets):
        frame = next(av.open(io.BytesIO(bytes(packet)), format="mjpeg").decode(video=0))
        assert frame.format.name == f"yuvj{pixels[3:]}"
        for plane, want in zip(frame.planes, planes, strict=True):
            got = np.frombuffer(plane, np.uint8).reshape(-1, plane.line_size)[: plane.height, : plane.width]
            assert abs(got.astype(int) - want[number].numpy()).max() <= 4


def test_packets_lie_where_they_are_put(way: str) -> None:
    asked, places = settings(), []

    def keep(data: np.ndarray, spans: list[tuple[int, int]]) -> list[memoryview]:
        places.extend(copied(data, spans))
        return places[-len(spans) :]

    encoder = nvjpeg.NvjpegEncoder(asked, CpuLane(), library=NvjpegDouble())
    count = nvjpeg.STATES + 3
    batch = FrameBatch(asked.input_format, tuple(range(count)), asked.time_base, smooth(asked, count))
    packets = encoder.encode_into(batch, keep)
    addresses = [np.frombuffer(place, np.uint8).ctypes.data for place in places]
    assert [(p.buffer_ptr, p.size) for p in packets] == list(zip(addresses, map(len, places), strict=True))
    assert [bytes(p) for p in packets] == [bytes(p) for p in encoder.encode(batch)]


def test_settings_reach_the_library_and_states_are_given_back() -> None:
    double = NvjpegDouble()
    encoder = nvjpeg.NvjpegEncoder(settings(quality=83, options={"huffman": "optimal"}), CpuLane(), library=double)
    assert double.settings == {"Quality": 83, "OptimizedHuffman": 1, "SamplingFactors": 2}
    assert len(double.alive) == nvjpeg.STATES + 1  # and the parameters
    del encoder
    gc.collect()
    assert double.alive == set()


@pytest.mark.parametrize(("changes", "text"), [
    ({"quality": 0}, "1 to 100, not 0"), ({"quality": 101}, "1 to 100"), ({"bitrate": 1000}, "no rate control"),
    ({"options": {"restart": "4"}}, "no option 'restart'"), ({"options": {"huffman": "best"}}, "no huffman 'best'"),
])  # fmt: skip
def test_what_it_cannot_do_is_an_error(changes: dict, text: str) -> None:
    with pytest.raises(PlanError, match=text):
        nvjpeg.NvjpegEncoder(settings(**changes), CpuLane(), library=NvjpegDouble())


def test_wrong_input_format_is_an_error() -> None:
    source = settings().input_format.with_(pixels=PIXEL_FORMATS["nv12"])
    with pytest.raises(PlanError, match="does not take nv12"):
        nvjpeg.NvjpegEncoder(settings(input_format=source), CpuLane(), library=NvjpegDouble())


def test_a_failed_call_is_one_line_with_the_status_by_name(way: str) -> None:
    asked = settings()
    encoder = nvjpeg.NvjpegEncoder(asked, CpuLane(), library=NvjpegDouble(fail_at=nvjpeg.STATES + 2))
    with pytest.raises(DeviceError) as caught:
        encoder.encode(FrameBatch(asked.input_format, tuple(range(5)), asked.time_base, smooth(asked, 5)))
    assert "nvJPEG failed: EXECUTION_FAILED in nvjpegEncodeYUV" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_without_room_for_them_they_are_coded_again(monkeypatch) -> None:
    asked, double = settings(), NvjpegDouble()
    if batch_function() is None:
        pytest.skip("no C compiler")
    encoder = nvjpeg.NvjpegEncoder(asked, CpuLane(), library=double)
    plenty = encoder.encode(FrameBatch(asked.input_format, tuple(range(16)), asked.time_base, smooth(asked, 16)))
    before, encoder._coder._pinned._buffer = double.calls_made, torch.empty(500, dtype=torch.uint8)
    again = encoder.encode(FrameBatch(asked.input_format, tuple(range(16)), asked.time_base, smooth(asked, 16)))
    assert [bytes(p) for p in again] == [bytes(p) for p in plenty]
    assert double.calls_made > before + 16


def test_a_gpu_that_fails_meanwhile_is_one_line() -> None:
    asked, double = settings(), NvjpegDouble()
    if batch_function() is None:
        pytest.skip("no C compiler")
    encoder = nvjpeg.NvjpegEncoder(asked, CpuLane(), library=double)
    double.fail_wait = 1
    with pytest.raises(DeviceError, match="CUDA error 700"):
        encoder.encode(FrameBatch(asked.input_format, (0,), asked.time_base, smooth(asked, 1)))


def test_without_a_compiler_or_with_one_that_fails_there_is_no_function(monkeypatch, tmp_path) -> None:
    (tmp_path / "wrong.c").write_text("int f(void) { return x; }")
    (tmp_path / "right.c").write_text("int f(void) { return 7; }")
    assert compiled(tmp_path / "wrong.c") is None
    if any(map(shutil.which, COMPILERS)):
        assert compiled(tmp_path / "right.c").f() == 7
    monkeypatch.setattr(shutil, "which", lambda _: None)
    compiled.cache_clear()
    assert compiled(tmp_path / "right.c") is None
    compiled.cache_clear()


def test_where_one_compiler_is_broken_another_is_taken(monkeypatch, tmp_path) -> None:
    (tmp_path / "right.c").write_text("int f(void) { return 7; }")
    working = shutil.which("gcc")
    if working is None:
        pytest.skip("no gcc")
    monkeypatch.setattr(shutil, "which", {"cc": "/bin/false", "gcc": working}.get)
    compiled.cache_clear()
    assert compiled(tmp_path / "right.c").f() == 7
    compiled.cache_clear()


def test_without_a_folder_for_temporary_files_there_is_no_function(monkeypatch, tmp_path) -> None:
    (tmp_path / "right.c").write_text("int f(void) { return 7; }")
    monkeypatch.setattr(shutil, "which", lambda _: "/bin/true")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    compiled.cache_clear()
    assert compiled(tmp_path / "right.c") is None
    compiled.cache_clear()


def test_a_file_that_is_no_library_is_told(tmp_path, monkeypatch) -> None:
    broken = tmp_path / nvjpeg_library.NAMES[0]
    broken.write_bytes(b"not a library")
    monkeypatch.setattr(nvjpeg_library, "_candidates", lambda: iter([str(broken), "libnothing.so.13"]))
    nvjpeg_library._load.cache_clear()
    try:
        assert "cannot be loaded" in str(nvjpeg_library.missing())
        with pytest.raises(DeviceError, match="cannot be loaded"):
            nvjpeg_library.load()
        monkeypatch.setattr(nvjpeg_library, "_candidates", lambda: iter(["libnothing.so.13"]))
        nvjpeg_library._load.cache_clear()
        assert nvjpeg_library.missing() == "libnvjpeg is not installed"
    finally:
        nvjpeg_library._load.cache_clear()


@pytest.fixture
def with_gpu(monkeypatch) -> None:
    """A plan for a machine whose GPU decodes nothing and has nvJPEG."""
    monkeypatch.setattr(nvjpeg, "supports", lambda *_: None)
    monkeypatch.setattr("gpupipe.plan.machine.pick_device", lambda _: "cuda:0")


@pytest.mark.parametrize(("clip", "video", "pixels"), [
    ("start_at_10s_2b_sar1137_800.mp4", {}, "yuv420p"),
    ("start_at_10s_2b_sar1137_800.mp4", {"pixel_format": "yuv444p"}, "yuv444p"),
    ("odd_321x241_vp9_10bit.mp4", {}, "yuv420p"), ("prores_422_proxy.mov", {}, "yuv422p"),
])  # fmt: skip
def test_plan_converts_to_what_jfif_means(with_gpu, corpus, tmp_path, clip, video, pixels) -> None:
    config = parse_config({"output": {"video": {"codec": "mjpeg", "encoder": "nvjpeg", **video}}})
    plan = make_plan(config, probe(corpus / "files" / clip), tmp_path / "x.mov")
    got, source = plan.encoder.input_format, plan.source.video.format
    assert got.pixels.name == pixels
    assert (got.width, got.height) == (source.width, source.height)
    assert (got.color.matrix, got.color.range) == (Matrix.BT470BG, Range.FULL)
    assert (got.color.primaries, got.color.transfer) == (source.color.primaries, source.color.transfer)
    if got.pixels.chroma_shift != (0, 0):
        assert got.color.chroma_location == ChromaLocation.CENTER
    assert plan.steps[-1].kind == "convert"
    assert plan.steps[-1].target.color.chroma_location == got.color.chroma_location
