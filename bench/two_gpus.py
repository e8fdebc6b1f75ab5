"""How much faster several GPUs of one machine are than one of them: `devices:` against its first device alone.

    python bench/two_gpus.py [--devices cuda:0,cuda:1] [--frames 36000] [--runs 3] [--codec h264] [--encode mjpeg]
                             [--folder /dev/shm] [--json bench/results/two_gpus.json]

Each run decodes a clip, warps it, lays an overlay over it, encodes (nvJPEG by default, quality 5, so that the disk has
little to do) and writes segments: by a process for each device, which one device gets too, so that both runs are alike.
The processes stay from run to run, as their start would take most of the time; it is shown apart. The clock goes from
the first segment that is handed out to the last one's record in the ledger; the whole run, with the join, is shown
beside it. Runs take turns; the figure is the ratio of the medians. The outputs of the first two must be the same bytes,
and so must all segments of every run. It wants 1.9 times for two.
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
from gpupipe.render.children import Child
from gpupipe.render.dispatch import Dispatch

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from concurrent.futures import Future

    from gpupipe.plan import Plan
    from gpupipe.render.ledger import Ledger
    from gpupipe.render.pieces import Piece
    from gpupipe.render.progress import Meter, StopFlag
    from gpupipe.render.seat import Seat

ROOT = Path(__file__).resolve().parents[1]
PATIENCE = 120.0
"""Seconds until a child has to be ready."""
VIDEO = {
    "mjpeg": {"codec": "mjpeg", "quality": 5},
    "x264": {"encoder": "libx264", "preset": "ultrafast", "quality": 30},
}
STAGES = [
    {"warp": {"rotate": 1.5, "scale": 1.03}},
    {"overlay": {"image": str(ROOT / "configs/assets/logo.png"), "anchor": "bottom-right", "margin": 24}},
]


@dataclass(eq=False)
class Lent:
    """Meets `Seat`: a child that is still wanted after the run."""

    child: Child
    name: str
    places: int

    def render(self, index: int) -> Future[Piece]:
        """See `Seat`."""
        return self.child.render(index)

    def shown(self) -> Mapping[int, int]:
        """See `Seat`."""
        return self.child.shown()

    def close(self) -> None:
        """The child stays."""


class Kept:
    """A child for each device, from the first run to the last."""

    def __init__(self, devices: tuple[str, ...]) -> None:
        self._devices = devices
        self._children: list[Child] = []
        self.start_seconds = 0.0
        """Until all had their decoders and graphs open."""

    def seats(self, ledger: Ledger) -> list[Lent]:
        """For the devices of a run, the first or all; waits for all. Ledgers have one folder and one digest."""
        if not self._children:
            began = time.perf_counter()
            self._children = [Child(ledger, device) for device in self._devices]
            for child in self._children:
                if not child.ready.wait(PATIENCE):
                    sys.exit(f"{child.name} is not ready after {PATIENCE:.0f} s")
            self.start_seconds = round(time.perf_counter() - began, 2)
        chosen = self._children[: len(ledger.plan.devices)]
        return [Lent(child, child.name, child.places) for child in chosen]

    def close(self) -> None:
        """Ends all."""
        for child in self._children:
            child.end()
        for child in self._children:
            child.wait()


class Ready:
    """Meets `Office`: all seats at once."""

    def __init__(self, seats: list[Lent]) -> None:
        self._seats = seats

    def fresh(self) -> Sequence[Seat]:
        """See `Office`."""
        seats, self._seats = self._seats, []
        return seats

    def lost(self, seat: Seat) -> None:
        """See `Office`."""
        sys.exit(f"not a fair run: {seat.name} was lost")


@dataclass
class Timed:
    """Meets `kept.Fill`; keeps the seconds from the first segment handed out to the last one in the ledger."""

    kept: Kept
    tells: list[str] = field(default_factory=list)
    seconds: float = 0.0
    hashes: tuple[str, ...] = ()
    """Of all segments."""

    def __call__(self, ledger: Ledger, journal: Journal, stop: StopFlag, meter: Meter) -> None:
        """See `Fill`."""
        seats, finished, last = Ready(self.kept.seats(ledger)), ledger.finished, 0.0

        def noted(index: int, piece: Piece) -> None:
            nonlocal last
            finished(index, piece)
            last = time.perf_counter()

        ledger.finished = noted  # type: ignore[method-assign]  # the clock looks when it is called
        began = time.perf_counter()
        Dispatch(ledger, seats, journal, self.tells.append).run(stop, meter)
        self.seconds = last - began
        self.hashes = tuple(piece.hash for _, piece in sorted(ledger.pieces.items()))


@dataclass(frozen=True)
class Row:
    """Medians of some runs."""

    devices: tuple[str, ...]
    frames: int
    frames_per_second: float
    """While segments were rendered."""
    spread: tuple[float, float]
    whole_seconds: float
    """With the join, to the output's name."""


def once(plan: Plan, devices: tuple[str, ...], kept: Kept) -> tuple[Timed, float, int]:
    """What was timed, seconds of the whole, and frames. The output stays until the next run."""
    timed = Timed(kept)
    began = time.perf_counter()
    result = render(
        replace(plan, devices=devices), overwrite=True, journal=Journal(), stop=threading.Event(), fill=timed
    )
    if timed.tells:
        sys.exit(f"not a fair run: {timed.tells[0]}")
    return timed, time.perf_counter() - began, result.frames


def compare(args: argparse.Namespace, folder: Path, kept: Kept) -> tuple[Row, Row]:
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
    segments: set[tuple[str, ...]] = set()
    for number in range(args.runs):
        for kind in kinds:
            timed, whole, frames = once(plan, kind, kept)
            whole -= 0 if number or kind != kinds[0] else kept.start_seconds
            seen[kind].append((timed.seconds, whole, frames))
            segments.add(timed.hashes)
            if not number:
                with plan.output.open("rb") as output:
                    outputs.add(hashlib.file_digest(output, "sha256").digest())
            print(f"{', '.join(kind)}: {frames / timed.seconds:.0f} frames/s", flush=True)
        if max(len(outputs), len(segments)) > 1:
            sys.exit("the outputs are not the same bytes")
        one, many = (row(kind, seen[kind]) for kind in kinds)
        keep(args, one, many, kept)
    return one, many


def keep(args: argparse.Namespace, one: Row, many: Row, kept: Kept) -> None:
    """Writes what is known so far."""
    report = {"runs": args.runs, "one": asdict(one), "all": asdict(many), "times": round(ratio(one, many), 3),
              "wanted": wanted(args), "start_seconds": kept.start_seconds,
              "machine": asdict(machine(args.devices[0]))}  # fmt: skip
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
    kept = Kept(args.devices)
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        try:
            one, many = compare(args, Path(folder), kept)
        finally:
            kept.close()
    times, least = ratio(one, many), wanted(args)
    for found in (one, many):
        print(f"{', '.join(found.devices)}: {found.frames_per_second:.0f} frames/s ({found.spread[0]:.0f} to "
              f"{found.spread[1]:.0f}), whole run {found.whole_seconds:.1f} s")  # fmt: skip
    print(f"{times:.2f} times, {least:.2f} wanted: {'reached' if times >= least else 'missed'}")
    sys.exit(times < least)


if __name__ == "__main__":
    main()
