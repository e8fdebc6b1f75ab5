"""The GPU tests and the throughput matrix in one call, for a machine with a GPU; prints a short table last.

    python bench/device.py [--json FILE] [--frames 900] [--no-tests] [--tests "EXPRESSION"]

Every row is `render()` on a generated 1080p clip: frames a second of the whole run, demux to finished file, median of
three (CPU rows: one, on a quarter of the clip), after a warm-up. Frame counts are checked.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import threading
from fractions import Fraction
from pathlib import Path

import av
import numpy as np

from gpupipe.config import parse_config
from gpupipe.journal import Journal
from gpupipe.media.probe import probe
from gpupipe.plan import make_plan
from gpupipe.render import render

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # as the command line does; read when torch is loaded
ROOT = Path(__file__).resolve().parents[1]
LOGO = str(ROOT / "configs/assets/logo.png")
CHAIN: list[dict[str, object]] = [
    {"warp": {"rotate": 1.5, "scale": 1.02}},
    {"overlay": {"image": LOGO, "opacity": 0.6, "margin": 32}},
]
X264 = {"codec": "h264", "encoder": "libx264", "quality": 23, "preset": "veryfast"}
ROWS: dict[str, tuple[str, list[dict[str, object]], dict[str, object], str]] = {
    "nvdec -> x264 veryfast": ("cuda", [], X264, "mp4"),
    "nvdec -> warp, overlay -> x264 veryfast": ("cuda", CHAIN, X264, "mp4"),
    "nvdec -> nvjpeg": ("cuda", [], {"codec": "mjpeg", "quality": 90}, "mov"),
    "nvdec -> warp, overlay -> nvjpeg": ("cuda", CHAIN, {"codec": "mjpeg", "quality": 90}, "mov"),
    "cpu: libav -> x264 veryfast": ("cpu", [], X264, "mp4"),
    "cpu: libav -> warp, overlay -> x264 veryfast": ("cpu", CHAIN, X264, "mp4"),
}


def make_clip(path: Path, encoder: str, frames: int) -> None:
    """1080p30, moving gradients with grain, about 8 Mb/s, a key frame every second."""
    rng = np.random.default_rng(1)
    grain = rng.integers(-6, 7, (8, 1080, 1920), dtype=np.int16)
    x, y = np.meshgrid(np.arange(1920), np.arange(1080))
    with av.open(str(path), "w") as container:
        stream = container.add_stream(encoder, rate=30, options={"preset": "ultrafast", "g": "30"})
        if encoder == "libx265":
            stream.options = {**stream.options, "x265-params": "log-level=error"}
        assert isinstance(stream, av.VideoStream)
        stream.width, stream.height, stream.pix_fmt, stream.bit_rate = 1920, 1080, "yuv420p", 8_000_000
        stream.codec_context.time_base = Fraction(1, 30)
        for n in range(frames):
            luma = ((x + 4 * n) // 8 + (y - 2 * n) // 16) % 200 + 20
            picture = np.full((1620, 1920), 128, np.uint8)
            picture[:1080] = np.clip(luma + grain[n % 8], 16, 235)
            frame = av.VideoFrame.from_ndarray(picture, format="yuv420p")
            frame.pts = n
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))


def measure(clip: Path, row: str, folder: Path, frames: int) -> dict[str, object]:
    """Frames a second of one row."""
    device, stages, video, suffix = ROWS[row]
    config = parse_config({"stages": stages, "output": {"video": video}})
    output = folder / f"out.{suffix}"
    rates, runs = [], 3
    if device == "cpu":
        frames, runs = frames // 4, 1
        config = parse_config({"range": {"end": frames / 30}, "stages": stages, "output": {"video": video}})
    for attempt in range(runs + 1):
        plan = make_plan(config, probe(clip), output, device=device)
        result = render(plan, overwrite=True, journal=Journal(), stop=threading.Event())
        if result.frames != frames:
            raise SystemExit(f"{row}: {result.frames} frames, not {frames}")
        if attempt:
            rates.append(frames / result.seconds)
    return {
        "frames_per_second": round(statistics.median(rates), 1),
        "spread": [round(min(rates), 1), round(max(rates), 1)],
        "decoder": plan.decoder,
        "encoder": plan.encoder.encoder,
    }


def versions() -> dict[str, str]:
    """What took part."""
    import PyNvVideoCodec  # noqa: PLC0415
    import torch  # noqa: PLC0415
    import triton  # noqa: PLC0415

    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "av": av.__version__,
        "PyNvVideoCodec": PyNvVideoCodec.__version__,
        "gpu": torch.cuda.get_device_name(0),
    }


def main() -> None:
    """Tests, then figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--frames", type=int, default=900)
    parser.add_argument("--no-tests", action="store_true")
    parser.add_argument("--tests", default="")
    parser.add_argument("--codecs", nargs="+", default=["h264", "hevc"])
    parser.add_argument("--rows", default="", help="only rows that begin so")
    args = parser.parse_args()
    failed = 0
    if not args.no_tests:
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-m",
            "gpu",
            "-q",
            "-p",
            "no:cacheprovider",
            "-k",
            args.tests,
            "tests",
        ]
        failed = subprocess.run(command, cwd=ROOT, check=False).returncode
    table: dict[str, object] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for codec in args.codecs:
            encoder = {"h264": "libx264", "hevc": "libx265"}[codec]
            clip = folder / f"{codec}.mp4"
            make_clip(clip, encoder, args.frames)
            for row in filter(lambda name: name.startswith(args.rows), ROWS):
                figures = table[f"{codec}: {row}"] = measure(clip, row, folder, args.frames)
                print(f"{codec}: {row:50} {figures['frames_per_second']:8} frames/s  {figures['spread']}", flush=True)
    facts = {
        "command": " ".join(["python bench/device.py", *(a for a in sys.argv[1:] if not a.endswith(".json"))]),
        "date": dt.datetime.now(dt.UTC).date().isoformat(),
        "clip": f"generated 1080p30, {args.frames} frames",
        "versions": versions(),
        "rows": table,
    }
    if args.json:
        args.json.write_text(json.dumps(facts, indent=1) + "\n")
    sys.exit(failed)


if __name__ == "__main__":
    main()
