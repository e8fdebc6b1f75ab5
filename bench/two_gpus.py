"""How much faster several GPUs of one machine are than one of them: `devices:` against its first device alone.

    python bench/two_gpus.py [--devices cuda:0,cuda:1] [--frames 36000] [--runs 3] [--codec h264] [--encode mjpeg]
                             [--folder /dev/shm] [--json bench/results/two_gpus.json]

Each run decodes a clip, warps it, lays an overlay over it, encodes (nvJPEG by default, quality 30, so that the disk has
little to do) and writes segments: by a process for each device, which one device gets too, so that both runs are alike.
The clock goes from when all of them have their decoders and graphs open to the last segment; the whole run, with start
and join, is shown beside it. Runs take turns; the figure is the ratio of the medians. Both outputs must be the same
bytes. It wants 1.9 times for two.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import statistics
import sys
import tempfile
import threading
import time
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # as the command line does; read when torch is loaded

from gpupipe.bench.clip import RECIPES, make_clip
from gpupipe.bench.machine import machine
from gpupipe.config import parse_config
from gpupipe.journal import Journal
from gpupipe.media.probe import probe
from gpupipe.plan import make_plan
from gpupipe.render import render
from gpupipe.render.children import Children
from gpupipe.render.dispatch import Dispatch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpupipe.plan import Plan
    from gpupipe.render.ledger import Ledger
    from gpupipe.render.progress import Meter, StopFlag
    from gpupipe.render.seat import Seat

ROOT = Path(__file__).resolve().parents[1]
VIDEO = {
    "mjpeg": {"codec": "mjpeg", "quality": 30},
    "x264": {"encoder": "libx264", "preset": "ultrafast", "quality": 30},
}
STAGES = [
    {"warp": {"rotate": 1.5, "scale": 1.03}},
    {"overlay": {"image": str(ROOT / "configs/assets/logo.png"), "anchor": "bottom-right", "margin": 24}},
]


class Together(Children):
    """Gives its children when all of them are open, so that the clock of all begins at once."""

    def fresh(self) -> Sequence[Seat]:
        """See `Office`."""
        return super().fresh() if all(child.ready.is_set() for child in self._children) else ()


@dataclass
class Timed:
    """Meets `kept.Fill`; keeps the seconds from when all children are open to the last segment."""

    tells: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def __call__(self, ledger: Ledger, journal: Journal, stop: StopFlag, meter: Meter) -> None:
        """See `Fill`."""
        children, opened = Together(ledger), meter.open

        def begin() -> None:
            opened()
            self.seconds = -time.perf_counter()

        meter.open = begin  # type: ignore[method-assign]  # called when the first seats are there
        try:
            Dispatch(ledger, children, journal, self.tells.append).run(stop, meter)
            self.seconds += time.perf_counter()
        finally:
            children.close()


@dataclass(frozen=True)
class Row:
    """Medians of some runs."""

    devices: tuple[str, ...]
    frames: int
    frames_per_second: float
    """While segments were rendered."""
    spread: tuple[float, float]
    whole_seconds: float
    """From the start of the first process to the output's name."""


def once(plan: Plan, devices: tuple[str, ...]) -> tuple[float, float, int]:
    """(seconds while segments were rendered, of the whole, frames). The output stays until the next run."""
    timed = Timed()
    began = time.perf_counter()
    result = render(
        replace(plan, devices=devices), overwrite=True, journal=Journal(), stop=threading.Event(), fill=timed
    )
    if timed.tells:
        sys.exit(f"not a fair run: {timed.tells[0]}")
    return timed.seconds, time.perf_counter() - began, result.frames


def compare(args: argparse.Namespace, folder: Path) -> tuple[Row, Row]:
    """One device and all, in turn."""
    clip = folder / "clip.mp4"
    make_clip(clip, RECIPES[args.codec], args.frames)
    device = args.devices[0]
    config = {"segments": {"seconds": args.seconds}, "resume": "keep", "stages": STAGES,
              "output": {"video": VIDEO[args.encode]}}  # fmt: skip
    plan = make_plan(parse_config(config), probe(clip), folder / "out.mov", device=device)
    print("\n".join(plan.lines()), flush=True)
    kinds = ((device,), args.devices)
    seen: dict[tuple[str, ...], list[tuple[float, float, int]]] = {kind: [] for kind in kinds}
    outputs: set[bytes] = set()
    for _ in range(args.runs):
        for kind in kinds:
            seen[kind].append(once(plan, kind))
            with plan.output.open("rb") as output:
                outputs.add(hashlib.file_digest(output, "sha256").digest())
            print(f"{', '.join(kind)}: {seen[kind][-1][2] / seen[kind][-1][0]:.0f} frames/s", flush=True)
        if len(outputs) > 1:
            sys.exit("the outputs are not the same bytes")
        one, many = (row(kind, seen[kind]) for kind in kinds)
        keep(args, one, many)
    return one, many


def keep(args: argparse.Namespace, one: Row, many: Row) -> None:
    """Writes what is known so far."""
    report = {"runs": args.runs, "one": asdict(one), "all": asdict(many), "times": round(ratio(one, many), 3),
              "wanted": wanted(args), "machine": asdict(machine(args.devices[0]))}  # fmt: skip
    args.json.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")


def ratio(one: Row, many: Row) -> float:
    """How many times as fast all are."""
    return many.frames_per_second / one.frames_per_second


def wanted(args: argparse.Namespace) -> float:
    """At least so many times."""
    return 0.95 * len(args.devices)


def row(devices: tuple[str, ...], runs: list[tuple[float, float, int]]) -> Row:
    """Of the runs of one kind."""
    rates = sorted(frames / seconds for seconds, _, frames in runs)
    whole = statistics.median(whole for _, whole, _ in runs)
    return Row(devices, runs[0][2], round(statistics.median(rates), 1), (round(rates[0], 1), round(rates[-1], 1)),
               round(whole, 2))  # fmt: skip


def main() -> None:
    """Both rows, the ratio, and the machine."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--devices", type=lambda text: tuple(text.split(",")), default=("cuda:0", "cuda:1"))
    parser.add_argument("--frames", type=int, default=36000)
    parser.add_argument("--seconds", type=float, default=5.0, help="of a segment")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--codec", choices=list(RECIPES), default="h264")
    parser.add_argument("--encode", choices=list(VIDEO), default="mjpeg")
    parser.add_argument("--folder", type=Path, default=Path("/dev/shm"), help="for the clip and what is written")
    parser.add_argument("--json", type=Path, default=ROOT / "bench/results/two_gpus.json")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        one, many = compare(args, Path(folder))
    times, least = ratio(one, many), wanted(args)
    for found in (one, many):
        print(f"{', '.join(found.devices)}: {found.frames_per_second:.0f} frames/s ({found.spread[0]:.0f} to "
              f"{found.spread[1]:.0f}), whole run {found.whole_seconds:.1f} s")  # fmt: skip
    print(f"{times:.2f} times, {least:.2f} wanted: {'reached' if times >= least else 'missed'}")
    sys.exit(times < least)


if __name__ == "__main__":
    main()
