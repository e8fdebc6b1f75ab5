"""The GPU tests and the throughput matrix in one call, for a machine with a GPU; prints the tables last.

    python bench/device.py [--no-tests] [--tests "EXPRESSION"] [--jobs N]
                           [--matrix NAME ...] [--frames N] [--runs N] [--only ROW]

Every entry of the matrix is one `gpupipe bench`; its report goes to bench/results/gpu_NAME.json as soon as it is whole.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import threading
from pathlib import Path

from gpupipe.bench import Report, Request, bench
from gpupipe.bench.text import lines

ROOT = Path(__file__).resolve().parents[1]
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # as the command line does; read when torch is loaded
MATRIX: dict[str, tuple[str, str, int]] = {
    "h264": ("h264", "mjpeg", 6000),
    "hevc": ("hevc", "mjpeg", 9000),
    "hevc10-4k": ("hevc10-4k", "mjpeg", 3000),
    "x264": ("h264", "x264", 900),
}
"""By name: codec of the clip, encoder, frames."""


def measure(name: str, args: argparse.Namespace) -> Report:
    """One entry, written as soon as it is measured."""
    codec, encode, frames = MATRIX[name]
    frames = args.frames or frames
    command = f"gpupipe bench --codec {codec} --encode {encode} --frames {frames} --runs {args.runs}"
    if args.only:
        command += f" --only {args.only}"
    only = tuple(filter(None, args.only.split(",")))
    request = Request(command, encode=encode, recipe=codec, device="cuda", frames=frames, runs=args.runs, only=only)
    report = bench(request, say=lambda line: print(f"{name}: {line}", flush=True), stop=threading.Event())
    (args.out / f"gpu_{name}.json").write_text(report.to_json(), encoding="utf-8")
    return report


def main() -> None:
    """Tests, then figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--no-tests", action="store_true")
    parser.add_argument("--tests", default="", help="pytest -k")
    parser.add_argument("--jobs", type=int, default=1, help="tests side by side")
    parser.add_argument("--matrix", nargs="*", default=list(MATRIX), choices=list(MATRIX))
    parser.add_argument("--frames", type=int, help="of every clip")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--only", default="", help="these rows, as for `gpupipe bench`")
    parser.add_argument("--out", type=Path, default=ROOT / "bench/results")
    args = parser.parse_args()
    failed = 0
    if not args.no_tests:
        options = ["-m", "gpu and not nvenc", "-q", "-p", "no:cacheprovider", "-k", args.tests, "tests"]
        if args.jobs > 1:  # by pytest-xdist
            options += ["-n", str(args.jobs), "--dist", "worksteal"]
        command = [sys.executable, "-m", "pytest", *options]
        failed = subprocess.run(command, cwd=ROOT, check=False).returncode
    reports = [measure(name, args) for name in args.matrix]
    for report in reports:
        print("\n".join(("", *lines(report))), flush=True)
    sys.exit(failed)


if __name__ == "__main__":
    main()
