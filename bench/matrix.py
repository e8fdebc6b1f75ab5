"""`gpupipe bench` of one entry of the matrix, every figure kept as soon as it is known.

    python bench/matrix.py h264|hevc|hevc10-4k|x264 [--device cuda] [--frames N] [--runs 3] [--only ROWS] [--small]
                           [--json FILE]

FILE holds the report when it is whole, and until then what `measure` has said: {"partial": {label: [rates]}}.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import threading
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # as the command line does; read when torch is loaded

from gpupipe.bench import RECIPES, Request, bench
from gpupipe.bench.text import lines

ALL = "decode,convert-2,encode,whole,encoder-alone,decode-1,steps-1"
MATRIX: dict[str, tuple[str, str, int, str]] = {
    "h264": ("h264", "mjpeg", 9000, f"{ALL},host-pipe,host-pipe-threads"),
    "hevc": ("hevc", "mjpeg", 36000, ALL),
    "hevc10-4k": ("hevc10-4k", "mjpeg", 4200, "decode,convert-2"),
    "x264": ("h264", "x264", 1200, "whole,encoder-alone"),
}
"""By name: codec of the clip, encoder, frames, rows. A session is planned for every 300 frames, and 14 on an H200.

What is done once a run, until the file has its name, is some 0.3 s: of HEVC in 12,000 frames a seventh of the time."""
CHECKED = 12
"""Pictures that are compared with the CPU's before anything is timed; 30 take half a minute of a machine's time."""
SAID = re.compile(r"run \d+ of \d+: (.*): ([0-9.]+) frames a second")


def small(codec: str) -> None:
    """Makes a recipe's pictures small."""
    RECIPES[codec] = replace(RECIPES[codec], width=320, height=180, bitrate=400_000)


class Kept:
    """Prints what is said, and writes the figures in it."""

    def __init__(self, path: Path | None, name: str) -> None:
        self._path, self._name = path, name
        self._partial: dict[str, list[float]] = {}

    def __call__(self, line: str) -> None:
        """Told by `bench`."""
        print(f"{self._name}: {line}", flush=True)
        found = SAID.fullmatch(line)
        if found is not None and self._path is not None:
            self._partial.setdefault(found[1], []).append(float(found[2]))
            self._path.write_text(json.dumps({"partial": self._partial}), encoding="utf-8")


def main() -> None:
    """One entry."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=list(MATRIX))
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--frames", type=int, help="of the clip")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--only", help="these rows, as for `gpupipe bench`; `all` for all of them")
    parser.add_argument("--small", action="store_true", help="small pictures: it is only tried whether it runs")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    codec, encode, frames, only = MATRIX[args.name]
    if args.small:
        small(codec)
    frames, only = args.frames or frames, args.only or only
    only = "" if only == "all" else only
    # Written to memory, what is measured is no disk.
    place = f"TMPDIR={os.environ['TMPDIR']} " if "TMPDIR" in os.environ else ""
    command = f"{place}gpupipe bench --codec {codec} --encode {encode} --frames {frames} --runs {args.runs}"
    request = Request(
        command + (f" --only {only}" if only else ""), encode=encode, recipe=codec, device=args.device, frames=frames,
        runs=args.runs, only=tuple(filter(None, only.split(","))), checked=CHECKED,
    )  # fmt: skip
    report = bench(request, say=Kept(args.json, args.name), stop=threading.Event())
    if args.json is not None:
        args.json.write_text(report.to_json(), encoding="utf-8")
    print("\n".join(lines(report)), flush=True)


if __name__ == "__main__":
    main()
