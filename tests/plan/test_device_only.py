"""`memory: device_only` refuses every plan in which a pixel would be copied to or from the host."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gpupipe.config import parse_config
from gpupipe.errors import PlanError
from gpupipe.media.probe import probe
from gpupipe.plan import Plan, make_plan

if TYPE_CHECKING:
    from pathlib import Path

NVJPEG = {"codec": "mjpeg", "encoder": "nvjpeg"}
X264 = {"codec": "h264", "encoder": "libx264"}
WARP = [{"warp": {"rotate": 1}}]
H264, MPEG2 = "start_at_10s_2b_sar1137_800.mp4", "ps_h264_most_pts_dts_missing.mpeg"


def plan(source: Path, output: Path, video: dict, stages: list, device: str = "cuda") -> Plan:
    config = {"memory": "device_only", "stages": stages, "output": {"video": video, "audio": "none"}}
    return make_plan(parse_config(config), probe(source), output, device=device)


@pytest.mark.parametrize("stages", [[], WARP, [{"fps": {"rate": 30}}]])
def test_pixels_that_stay_on_the_gpu_are_planned(gpu, corpus: Path, tmp_path: Path, stages: list) -> None:
    gpu(7, 100 << 30)
    made = plan(corpus / "files" / H264, tmp_path / "o.mov", NVJPEG, stages)
    assert (made.decoder, made.encoder.encoder) == ("nvdec", "nvjpeg")
    assert not {"upload", "download"} & {step.kind for step in made.steps}


@pytest.mark.parametrize(
    ("name", "video", "stages", "says"),
    [
        (H264, X264, WARP, "pixels would pass through host memory: libx264 runs on the CPU"),
        (H264, X264, [], "pixels would pass through host memory: libx264 runs on the CPU"),
        (MPEG2, NVJPEG, WARP, "pixels would pass through host memory: decoded on the CPU"),
        (MPEG2, NVJPEG, [], "pixels would pass through host memory: decoded on the CPU"),
    ],
)
def test_a_pixel_copy_is_refused_in_one_line(
    gpu, corpus: Path, tmp_path: Path, name: str, video: dict, stages: list, says: str
) -> None:
    gpu(7, 100 << 30)
    with pytest.raises(PlanError) as caught:
        plan(corpus / "files" / name, tmp_path / "o.mov", video, stages)
    assert str(caught.value).startswith(f"memory: {says} (use ")
    assert "memory: auto" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_without_a_gpu_it_is_refused(corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="memory: device_only needs a GPU"):
        plan(corpus / "files" / H264, tmp_path / "o.mov", X264, [], device="cpu")
