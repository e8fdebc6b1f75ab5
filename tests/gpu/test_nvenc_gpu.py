"""`gpupipe run` to NVENC by the real wheel: over the double in tests/nvenc_shim where that is built, else over the card."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import av
import pytest

pytestmark = [pytest.mark.gpu, pytest.mark.nvenc]

ROOT = Path(__file__).resolve().parents[2]
SHIM = ROOT / "tests" / "nvenc_shim" / "build" / "shim"
SOURCE = "start_at_10s_2b_sar1137_800.mp4"
STAGES = """
  - warp: {rotate: 1.5, scale: 1.02, filter: bicubic, border: edge}
  - overlay: {image: configs/assets/logo.png, anchor: bottom-right, margin: 8, opacity: 0.6}
"""


def convert(
    source: Path, output: Path, video: str, stages: str = STAGES, faults: str = ""
) -> subprocess.CompletedProcess[str]:
    config = output.with_suffix(".yaml")
    config.write_text(f"stages:{stages}\noutput:\n  video: {video}\n  audio: copy\n")
    env = {**os.environ, "NVENC_SHIM": faults}
    if SHIM.is_dir():
        env["LD_LIBRARY_PATH"] = f"{SHIM}:{env.get('LD_LIBRARY_PATH', '')}"
    command = [sys.executable, "-m", "gpupipe", "run", str(config), str(source), str(output)]
    return subprocess.run(command, capture_output=True, text=True, env=env, cwd=ROOT, check=False, timeout=60)


def packets(path: Path) -> tuple[list[int], list[int]]:
    """pts and dts of the video, as libav demuxes them."""
    with av.open(str(path)) as container:
        found = [p for p in container.demux(video=0) if p.size]
    return [p.pts for p in found if p.pts is not None], [p.dts for p in found if p.dts is not None]


@pytest.mark.parametrize("bf", [0, 2, 4])
@pytest.mark.parametrize("kind", ["h264:mp4", "hevc:mkv", "hevc10:mp4"])
def test_nvdec_to_nvenc_keeps_every_frame_and_time(clips: Path, tmp_path: Path, kind: str, bf: int) -> None:
    codec, container = kind.split(":")
    deep = ", pixel_format: p010le" if codec == "hevc10" else ""
    # The double needs a lookahead of B-frames + 1 for all the B-frames in HEVC (tests/nvenc_shim/README.md).
    options = f"{{bf: {bf}}}" if codec == "h264" or not bf else f"{{bf: {bf}, lookahead: {bf + 1}}}"
    video = f"{{codec: {codec[:4]}, encoder: nvenc{deep}, options: {options}}}"
    output = tmp_path / f"out.{container}"
    done = convert(clips / SOURCE, output, video)
    assert done.returncode == 0, done.stderr
    pts, dts = packets(output)
    assert len(set(pts)) == len(pts) == len(packets(clips / SOURCE)[0])
    assert dts == sorted(set(dts))
    assert (pts != sorted(pts)) == (bf > 0)


@pytest.mark.skipif(not SHIM.is_dir(), reason="faults need the double: make -C tests/nvenc_shim")
@pytest.mark.parametrize("asked", ["device", "memory", "preset", "frame=7"])
def test_a_fault_is_one_line_and_leaves_nothing(clips: Path, tmp_path: Path, asked: str) -> None:
    output = tmp_path / "out.mp4"
    done = convert(clips / SOURCE, output, "{codec: h264, encoder: nvenc}", faults=asked)
    assert done.returncode != 0
    assert not output.exists()
    assert "NVENC" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(not SHIM.is_dir(), reason="a late and slow encoder needs the double: make -C tests/nvenc_shim")
def test_a_late_and_slow_encoder_loses_nothing(clips: Path, tmp_path: Path) -> None:
    output = tmp_path / "out.mp4"
    done = convert(clips / SOURCE, output, "{codec: h264, encoder: nvenc, options: {bf: 0}}", faults="delay=2,slow=5")
    assert done.returncode == 0, done.stderr
    assert len(packets(output)[0]) == len(packets(clips / SOURCE)[0])
