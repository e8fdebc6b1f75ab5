"""What gpupipe costs on the CPU beside ffmpeg: paired runs of the same encode, wall time, median of the ratios.

    python bench/cpu_vs_ffmpeg.py [--pairs 5] [--seconds 16] [--json bench/results/cpu_vs_ffmpeg.json]

Two cases: a plain transcode, and one with a resize to 720p (ffmpeg's scale filter with the same kernel). Both sides use
libx264 with the same preset and CRF; the clip is generated. The outputs are checked (frame count, PSNR between the two)
before anything is timed.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import av

from gpupipe.bench.machine import machine
from gpupipe.bench.record import Spread

CASES = {
    "transcode": ("stages: []", []),
    "resize_720p": (
        "stages: [{resize: {width: 1280, height: 720, filter: bicubic}}]",
        ["-vf", "scale=1280:720:flags=bicubic"],
    ),
}
FFMPEG = ["ffmpeg", "-y", "-v", "error"]
VIDEO = "output: {video: {codec: h264, encoder: libx264, quality: 20, preset: medium}}\n"


def make_clip(path: Path, seconds: int) -> None:
    """A moving 1080p clip with detail and grain."""
    source = f"testsrc2=s=1920x1080:r=30:d={seconds},noise=alls=3:allf=t,format=yuv420p"
    subprocess.run(
        [*FFMPEG, "-f", "lavfi", "-i", source, "-c:v", "libx264", "-preset", "veryfast", "-crf", "14", path], check=True
    )


def commands(case: str, clip: Path, folder: Path) -> dict[str, list[str]]:
    """The two command lines of a case."""
    stages, filters = CASES[case]
    config = folder / f"{case}.yaml"
    config.write_text(f"{stages}\n{VIDEO}")
    ours = [sys.executable, "-m", "gpupipe", "run", str(config), str(clip), str(folder / f"{case}-gpupipe.mp4")]
    theirs = [*FFMPEG, "-i", str(clip), *filters, "-c:v", "libx264", "-preset", "medium", "-crf", "20"]
    return {
        "gpupipe": [*ours, "--device", "cpu", "--quiet", "--overwrite"],
        "ffmpeg": [*theirs, "-movflags", "+faststart", str(folder / f"{case}-ffmpeg.mp4")],
    }


def timed(command: list[str]) -> float:
    """Wall seconds of a command."""
    began = time.monotonic()
    subprocess.run(command, check=True)
    return time.monotonic() - began


def check(case: str, folder: Path, frames: int) -> dict[str, float | int]:
    """Both outputs hold every frame and show the same picture."""
    ours, theirs = folder / f"{case}-gpupipe.mp4", folder / f"{case}-ffmpeg.mp4"
    graph = "[0:v]settb=1/30,setpts=N[a];[1:v]settb=1/30,setpts=N[b];[a][b]psnr"
    run = subprocess.run(
        ["ffmpeg", "-v", "info", "-i", ours, "-i", theirs, "-lavfi", graph, "-f", "null", "-"],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    found = re.search(r"PSNR y:([\d.]+|inf)", run.stderr)
    with av.open(str(ours)) as container:
        counted = sum(1 for p in container.demux(video=0) if p.size)
    if counted != frames or found is None or float(found[1]) < 35:
        raise SystemExit(f"{case}: outputs differ: {counted} frames of {frames}, {found and found[0]}")
    return {
        "frames": counted,
        "psnr_y_between": min(float(found[1]), 100.0),
        "bytes_ratio": round(ours.stat().st_size / theirs.stat().st_size, 4),
    }


def main() -> None:
    """Runs, prints and writes the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=16)
    parser.add_argument("--case", choices=list(CASES), help="one of the cases; both where it is not given")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    results: dict[str, object] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        clip = folder / "clip.mp4"
        make_clip(clip, args.seconds)
        for case in [args.case] if args.case else CASES:
            both = commands(case, clip, folder)
            for command in both.values():
                timed(command)  # warm caches, and the outputs to check
            checked = check(case, folder, args.seconds * 30)
            pairs = [{side: round(timed(command), 3) for side, command in both.items()} for _ in range(args.pairs)]
            ratio = Spread.of([p["gpupipe"] / p["ffmpeg"] for p in pairs])
            results[case] = {
                "ratio_median": round(ratio.median, 3),
                "ratio_min": round(ratio.least, 3),
                "ratio_max": round(ratio.most, 3),
                "pairs": pairs,
                **checked,
            }
            print(
                f"{case:12} {ratio.median:.3f} of ffmpeg's wall time ({ratio.least:.3f} to {ratio.most:.3f})",
                flush=True,
            )
    if args.json:
        args.json.write_text(json.dumps({**facts(), "cases": results}, indent=1) + "\n")


def facts() -> dict[str, object]:
    """Machine, versions, command."""
    here = machine("cpu")
    ffmpeg = subprocess.run(["ffmpeg", "-version"], capture_output=True, text=True, check=True).stdout.split()[2]
    return {
        "command": "python bench/cpu_vs_ffmpeg.py " + " ".join(a for a in sys.argv[1:] if "json" not in a),
        "date": dt.datetime.now(dt.UTC).date().isoformat(),
        "machine": {"cpu": here.cpu, "cores": here.cores},
        "versions": {**here.versions, "ffmpeg": ffmpeg},
    }


if __name__ == "__main__":
    main()
