"""NVDEC against PyAV's CPU decoders: every sample of every picture, and every time."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

import av
import numpy as np
import pytest
from pictures import Clip, by_cpu, by_gpu, facts

from gpupipe.codecs import nvdec

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.gpu

REAL = [
    "vfr_63_frames_59_distinct_durations.mp4", "start_at_10s_2b_sar1137_800.mp4", "ts_pts_33bit_rollover_inside.ts",
    "editlist_video_starts_1s_after_audio.mp4", "rot_plus90_h264_aac.mp4", "rot180_3_frames.mov", "bt601_full_range.mp4",
    "fmp4_bogus_duration.mp4", "mkv_pgs_ac3.mkv", "cover_art_odd_763x1079.m4v", "audio_shorter_than_video_60fps.mp4",
    "sar_2_1_640x360.mp4", "crop_hevc_914x686_b4.ts", "hdr10plus_hevc_sei_mastering.mkv", "hlg_hevc_1080p_cropped_aac.mp4",
    "hevc_12bit_pq_320x180.mp4", "mvhevc_90fps_1934x2160.mov", "odd_321x241_vp9_10bit.mp4",
     "reschange_848x464_to_424x232.h264", "matrix_transpose_flip_not_just_rotate.mp4",
]  # fmt: skip


def same(cpu: Clip, gpu: Clip) -> None:
    assert len(gpu.planes) == len(cpu.planes)
    assert gpu.sizes == cpu.sizes
    for number, (a, b) in enumerate(zip(cpu.planes, gpu.planes, strict=True)):
        for name, want, got in zip("YUV", a, b, strict=True):
            assert np.array_equal(want, got), f"picture {number}, plane {name}"


@pytest.mark.parametrize("name", REAL)
def test_real_files_are_identical(name: str, clips: Path) -> None:
    with av.open(str(clips / name)) as container:
        stream = container.streams.video[0]
        assert nvdec.supports(facts(stream), 0, stream) is None
    cpu, gpu = by_cpu(clips / name), by_gpu(clips / name)
    same(cpu, gpu)
    assert gpu.times == cpu.times
    assert len(gpu.journal) == 0


GENERATED = [
    ("libx264", "yuv420p", 322, 182, {"bf": "3", "x264-params": "b-pyramid=2:ref=4"}),
    ("libx265", "yuv420p", 322, 182, {"x265-params": "log-level=none:bframes=4"}),
    ("libx265", "yuv420p10le", 320, 180, {"x265-params": "log-level=none:bframes=4:open-gop=1:keyint=8"}),
    ("libx265", "yuv420p12le", 320, 180, {"x265-params": "log-level=none"}),
    ("libx265", "yuv444p", 322, 181, {"x265-params": "log-level=none"}),
    ("libx265", "yuv444p10le", 321, 181, {"x265-params": "log-level=none"}),
    ("libx265", "yuv444p12le", 320, 180, {"x265-params": "log-level=none"}),
    ("libvpx-vp9", "yuv420p", 321, 181, {"auto-alt-ref": "1", "lag-in-frames": "16", "b": "500k"}),
    ("libvpx", "yuv420p", 322, 182, {"auto-alt-ref": "1", "lag-in-frames": "16", "b": "500k"}),
]  # fmt: skip


@pytest.fixture
def generated(tmp_path: Path):
    def make(encoder: str, pixels: str, width: int, height: int, options: dict[str, str]) -> Path:
        path = tmp_path / "clip.mkv"
        random = np.random.default_rng(7)
        noise = random.integers(0, 40, (height + 64, width + 64, 3), dtype=np.uint8)
        with av.open(str(path), "w") as out:
            stream = out.add_stream(encoder, rate=25, options=options)
            stream.width, stream.height, stream.pix_fmt = width, height, pixels
            stream.time_base = Fraction(1, 1000)
            stream.codec_context.time_base = Fraction(1, 1000)
            for number in range(30):
                picture = noise[number : number + height, number * 2 : number * 2 + width] + np.uint8(number * 4 + 30)
                frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(picture), format="rgb24").reformat(
                    format=pixels
                )
                frame.pts, frame.time_base = number * 40 + (number % 3) * 7, Fraction(1, 1000)  # VFR
                out.mux(stream.encode(frame))
            out.mux(stream.encode(None))
        return path

    return make


@pytest.mark.parametrize("case", GENERATED, ids=lambda c: f"{c[0]}-{c[1]}-{c[2]}x{c[3]}")
def test_generated_files_are_identical(case: tuple, generated) -> None:
    path = generated(*case)
    cpu, gpu = by_cpu(path), by_gpu(path)
    same(cpu, gpu)
    assert gpu.times == cpu.times
    assert len(gpu.planes) == 30


OPEN = [
    GENERATED[2],
    (
        "libx264",
        "yuv420p",
        322,
        182,
        {"x264-params": "open-gop=1:keyint=8:min-keyint=8:bframes=3:b-adapt=0:scenecut=0"},
    ),
]


@pytest.mark.parametrize("case", OPEN, ids=lambda c: c[0])
def test_a_file_that_begins_in_an_open_group_is_identical(case: tuple, generated, tmp_path: Path) -> None:
    """The pictures behind its first key frame refer to what was cut away: libav leaves them out."""
    path, packets, keys = tmp_path / "rest.mkv", 0, 0
    with av.open(str(generated(*case))) as container, av.open(str(path), "w") as out:
        stream = container.streams.video[0]
        copy = out.add_stream_from_template(stream)
        for packet in container.demux(stream):
            keys += packet.is_keyframe and packet.size > 0
            if packet.size and keys > 1:
                packet.stream = copy
                out.mux(packet)
                packets += 1
    cpu, gpu = by_cpu(path), by_gpu(path)
    assert packets > len(cpu.planes) > 10, "nothing is left out, so nothing is tested"
    same(cpu, gpu)
    assert gpu.times == cpu.times
    assert len(gpu.journal) == 0


REFUSED = [
    ("h264_high10.mp4", "h264 4:2:0 10-bit"), ("hdr10_av1_container_mastering_cll.mp4", "av1"),
    ("prores_422_proxy.mov", "prores"), ("mkv_chapters_h264_444_start_neg.mkv", "h264 4:4:4"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "reason"), REFUSED)
def test_what_hopper_cannot_decode_is_named(name: str, reason: str, clips: Path) -> None:
    with av.open(str(clips / name)) as container:
        stream = container.streams.video[0]
        assert reason in str(nvdec.supports(facts(stream), 0, stream))


def test_damage_is_reported_and_does_not_end_the_run(clips: Path) -> None:
    cpu, gpu = by_cpu(clips / "corrupt_bad_nal_sizes.mp4"), by_gpu(clips / "corrupt_bad_nal_sizes.mp4")
    assert abs(len(cpu.planes) - len(gpu.planes)) <= 2
    assert "decode-error" in gpu.journal.entries


def test_pictures_hidden_by_an_edit_list_stay_hidden(tmp_path: Path) -> None:
    path = tmp_path / "edited.mp4"
    with av.open(str(path), "w", options={"avoid_negative_ts": "disabled"}) as out:
        stream = out.add_stream("libx264", rate=25, options={"bf": "2"})
        stream.width, stream.height, stream.pix_fmt = 320, 180, "yuv420p"
        stream.time_base = stream.codec_context.time_base = Fraction(1, 1000)
        for number in range(20):
            frame = av.VideoFrame.from_ndarray(np.full((270, 320), number * 10 + 16, np.uint8), format="yuv420p")
            frame.pts, frame.time_base = (number - 5) * 40, Fraction(1, 1000)
            out.mux(stream.encode(frame))
        out.mux(stream.encode(None))
    cpu, gpu = by_cpu(path), by_gpu(path)
    assert len(cpu.planes) == 15, "the clip hides nothing, so nothing is tested"
    same(cpu, gpu)
    assert gpu.times == cpu.times
    assert len(gpu.journal) == 0
