"""The same configs on both devices: the same frames, and right files by every road through the GPU."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING

import av
import numpy as np
import pytest

from gpupipe.config import parse_config
from gpupipe.errors import PlanError
from gpupipe.journal import Journal
from gpupipe.media.probe import probe
from gpupipe.plan import make_plan
from gpupipe.render import render

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.gpu

CLIPS = {
    "h264": "start_at_10s_2b_sar1137_800.mp4",
    "h264-rotated": "rot_plus90_h264_aac.mp4",
    "hevc-8": "crop_hevc_914x686_b4.ts",
    "hevc-10": "hlg_hevc_1080p_cropped_aac.mp4",
    "vp9-8": "alpha_vp9_vorbis.webm",
    "vp9-10-odd": "odd_321x241_vp9_10bit.mp4",
}
LOSSLESS = {"video": {"codec": "ffv1", "alpha": "drop", "options": {"level": 3}}}  # NVDEC gives none
STAGES = {
    "warp": [{"warp": {"rotate": 1.5, "scale": 1.02, "filter": "bicubic", "border": "edge"}}],
    "resize": [{"resize": {"width": 640, "height": 360, "filter": "lanczos"}}],
    "lut": [{"lut3d": {"file": "configs/assets/warm.cube"}}],
    "overlay": [
        {"overlay": {"image": "configs/assets/logo.png", "anchor": "bottom-right", "margin": 8, "opacity": 0.6}}
    ],
    "planes": [{"crop": {"width": 160, "height": 120, "x": 8, "y": 4}}, {"pad": {"width": 200, "height": 160}}],
}


def run(source: Path, output: Path, stages: list[dict], out: dict, device: str) -> Journal:
    journal = Journal()
    plan = make_plan(parse_config({"stages": stages, "output": out}), probe(source), output, device=device)
    render(plan, overwrite=False, journal=journal, stop=threading.Event())
    return journal


def decoded(path: Path) -> tuple[list[float], list[list[np.ndarray]]]:
    """Times, and planes scaled to 0..1, of every frame, decoded by PyAV."""
    times, pictures = [], []
    with av.open(str(path)) as container:
        for frame in container.decode(video=0):
            deep = frame.format.components[0].bits > 8
            planes = []
            for p in frame.planes:
                samples = np.frombuffer(bytes(p), np.uint16 if deep else np.uint8).reshape(p.height, -1)
                planes.append(samples[:, : p.width].astype(np.float64) / (2 ** frame.format.components[0].bits - 1))
            times.append(float(frame.time))
            pictures.append(planes)
    return times, pictures


def psnr(a: list[np.ndarray], b: list[np.ndarray]) -> float:
    error = np.mean(np.concatenate([((x - y) ** 2).ravel() for x, y in zip(a, b, strict=True)]))
    return 99.0 if error == 0 else float(-10 * np.log10(error))


@pytest.mark.parametrize("clip", CLIPS)
def test_without_stages_frames_are_identical(clips: Path, tmp_path: Path, clip: str) -> None:
    for device in ("cpu", "cuda"):
        run(clips / CLIPS[clip], tmp_path / f"{device}.mkv", [], LOSSLESS, device)
    (cpu_times, cpu), (gpu_times, gpu) = decoded(tmp_path / "cpu.mkv"), decoded(tmp_path / "cuda.mkv")
    assert gpu_times == cpu_times
    assert [psnr(a, b) for a, b in zip(cpu, gpu, strict=True)] == [99.0] * len(cpu)


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("clip", CLIPS)
def test_stages_give_the_same_frames_on_both_devices(clips: Path, tmp_path: Path, clip: str, stage: str) -> None:
    for device in ("cpu", "cuda"):
        run(clips / CLIPS[clip], tmp_path / f"{device}.mkv", STAGES[stage], LOSSLESS, device)
    (cpu_times, cpu), (gpu_times, gpu) = decoded(tmp_path / "cpu.mkv"), decoded(tmp_path / "cuda.mkv")
    assert gpu_times == cpu_times
    assert min(psnr(a, b) for a, b in zip(cpu, gpu, strict=True)) >= 50


@pytest.mark.parametrize(("codec", "encoder", "suffix"), [("mjpeg", "nvjpeg", "mov"), ("h264", "libx264", "mp4")])
def test_nvdec_stages_encoder_writes_a_right_file(
    clips: Path, tmp_path: Path, codec: str, encoder: str, suffix: str
) -> None:
    source, output = clips / CLIPS["h264"], tmp_path / f"out.{suffix}"
    stages = STAGES["warp"] + STAGES["overlay"]
    quality = {"quality": 99 if codec == "mjpeg" else 8}
    run(source, output, stages, {"video": {"codec": codec, "encoder": encoder, **quality}}, "cuda")
    run(source, tmp_path / "reference.mkv", stages, LOSSLESS, "cpu")
    (times, got), (expected_times, wanted) = decoded(output), decoded(tmp_path / "reference.mkv")
    assert len(got) == len(wanted) == 120
    assert np.allclose(np.subtract(times, times[0]), np.subtract(expected_times, expected_times[0]), atol=1e-3)
    if codec == "h264":
        assert min(psnr(a[:1], b[:1]) for a, b in zip(got, wanted, strict=True)) >= 40
        return
    # JPEG has a matrix and a range of its own, which swscale turns the reference to. With BT.601 taken for the source's
    # matrix it would be 39 dB of luma at most, with its range taken for full 29.
    with av.open(str(output)) as container:
        stream = container.streams.video[0]
        assert (stream.codec_context.pix_fmt, stream.codec_context.color_range) == ("yuvj420p", 2)
        assert stream.codec_context.colorspace == 5
    for picture, reference in zip(got, as_jpeg(tmp_path / "reference.mkv"), strict=True):
        y, u, v = (psnr([a], [b]) for a, b in zip(picture, reference, strict=True))
        assert (y >= 40, u >= 42, v >= 45) == (True, True, True)


def as_jpeg(path: Path) -> list[list[np.ndarray]]:
    """Planes of every frame as full-range BT.601, scaled to 0..1; swscale leaves the chroma where it is sited."""
    pictures = []
    with av.open(str(path)) as container:
        for frame in container.decode(video=0):
            turned = frame.reformat(
                format="yuv420p", src_colorspace="ITU709", dst_colorspace="ITU601", src_color_range="MPEG",
                dst_color_range="JPEG",
            )  # fmt: skip
            samples = [np.frombuffer(bytes(p), np.uint8).reshape(p.height, -1)[:, : p.width] for p in turned.planes]
            pictures.append([plane / 255 for plane in samples])
    return pictures


def test_nvenc_is_refused_in_the_plan_with_one_line(clips: Path, tmp_path: Path) -> None:
    with pytest.raises(PlanError) as caught:
        run(clips / CLIPS["h264"], tmp_path / "x.mp4", [], {"video": {"codec": "h264", "encoder": "nvenc"}}, "cuda")
    assert "NVENC" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_what_nvdec_cannot_take_is_decoded_on_the_cpu_and_uploaded(clips: Path, tmp_path: Path) -> None:
    plan = make_plan(
        parse_config({"stages": STAGES["warp"]}), probe(clips / "h264_high10.mp4"), tmp_path / "x.mkv", device="cuda"
    )
    assert plan.decoder == "libav"
    assert [s.kind for s in plan.steps][:1] == ["upload"]
    assert json.dumps(plan.to_json())
    journal = Journal()
    result = render(plan, overwrite=False, journal=journal, stop=threading.Event())
    assert result.frames == 30


def test_device_only_refuses_a_pixel_copy(clips: Path, tmp_path: Path) -> None:
    config = parse_config({"memory": "device_only", "stages": STAGES["warp"]})
    with pytest.raises(PlanError, match="host memory"):
        make_plan(config, probe(clips / CLIPS["h264"]), tmp_path / "x.mp4", device="cuda")
