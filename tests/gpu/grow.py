"""Runs many frames and prints, as JSON, memory of the process and of the GPU on the way: python grow.py CLIP MODE FOLDER."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from contextlib import ExitStack
from pathlib import Path

import torch

from gpupipe.bench.flow import Discard
from gpupipe.config import parse_config
from gpupipe.journal import Journal
from gpupipe.media.probe import probe
from gpupipe.plan import make_plan
from gpupipe.render import render
from gpupipe.render.segmented import start_lanes

LOGO = str(Path(__file__).resolve().parents[2] / "configs/assets/logo.png")
STAGES = [{"warp": {"rotate": 1.5, "scale": 1.02}}, {"overlay": {"image": LOGO, "opacity": 0.6, "margin": 32}}]
OUTPUTS = {"discard": {"codec": "mjpeg", "encoder": "nvjpeg"}, "nvjpeg": {"codec": "mjpeg", "encoder": "nvjpeg"},
           "x264": {"codec": "h264", "encoder": "libx264", "preset": "ultrafast"}}  # fmt: skip


def resident() -> int:
    """Bytes of this process in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def alone() -> bool:
    """Whether no other process uses the GPU, whose memory is counted as a whole."""
    command = ["nvidia-smi", "--query-compute-apps=pid", "--format=csv,noheader", "--id=0"]
    return len(subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()) <= 1


def main() -> None:
    clip, mode, folder = Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
    config = parse_config({"stages": STAGES, "output": {"video": OUTPUTS[mode], "audio": "none"}})
    suffix = "mp4" if mode == "x264" else "mov"
    plan = make_plan(config, probe(clip), folder / f"out.{suffix}", device="cuda")
    torch.cuda.init()
    idle, by_itself = torch.cuda.mem_get_info()[0], alone()
    marks: list[tuple[int, int, int, int]] = []

    def mark(frames: int) -> None:
        if not marks or frames >= marks[-1][0] + 250:
            used = idle - torch.cuda.mem_get_info()[0]
            marks.append((frames, resident(), torch.cuda.memory_reserved(), used))

    stop = threading.Event()
    if mode == "discard":
        done = 0
        with ExitStack() as stack:
            board = start_lanes(plan, stack, Journal(), lambda _: Discard(), stop)
            for _, part in board.in_order(stop):
                done += part.frames
                mark(done)
    else:
        done = render(plan, overwrite=True, journal=Journal(), stop=stop, progress=lambda now: mark(now.frames)).frames
    told = {"frames": done, "sessions": plan.sessions, "planned": plan.device_bytes, "marks": marks}
    print(json.dumps({**told, "alone": by_itself and alone()}))  # noqa: T201  for the test that started it


if __name__ == "__main__":
    main()
