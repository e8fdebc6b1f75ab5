"""How many encode lanes nvJPEG wants, and how many encoder states in each: alone, beside decoders, and to a file.

    python bench/nvjpeg.py [--frames 6000] [--lanes 2 3 4 6] [--states 4 8 16] [--codec h264] [--runs 3]

Medians after a warm-up, beside decode only and the chain with its output dropped: frames a second, least and most.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import threading
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # as the command line does; read when torch is loaded

from gpupipe.bench import alone
from gpupipe.bench.chain import built_in
from gpupipe.bench.clip import RECIPES, make_clip
from gpupipe.bench.flow import Discard, Run, unwritten, written
from gpupipe.bench.subject import open_subject
from gpupipe.codecs import nvjpeg
from gpupipe.render import segmented
from gpupipe.render.codecs import encoder_maker

if TYPE_CHECKING:
    from collections.abc import Callable

STOP = threading.Event()


def row(name: str, runs: int, run: Callable[[], Run]) -> None:
    """Measures and prints one row."""
    run()
    rates = [run().rate for _ in range(runs)]
    print(f"{name:45} {statistics.median(rates):8.0f}  {min(rates):.0f} to {max(rates):.0f}", flush=True)


def use(lanes: int, states: int) -> None:
    """Sets both, wherever they are read."""
    for module in (segmented, alone):
        module.ENCODE_LANES = lanes  # type: ignore[attr-defined]
    nvjpeg.states = lambda *_: states


def main() -> None:
    """Makes the clip, measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frames", type=int, default=6000)
    parser.add_argument("--lanes", type=int, nargs="+", default=[2, 3, 4, 6])
    parser.add_argument("--states", type=int, nargs="+", default=[4, 8, 16])
    parser.add_argument("--codec", choices=list(RECIPES), default="h264")
    parser.add_argument("--runs", type=int, default=3)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as name:
        folder = Path(name)
        make_clip(folder / "clip.mp4", RECIPES[args.codec], args.frames)
        subject = open_subject(built_in(folder), folder / "clip.mp4", folder, device="cuda", frames=args.frames)
        plan = subject.plan()
        row("decode only", args.runs, lambda: unwritten(replace(plan, steps=()), lambda _: Discard(), STOP))
        row("output dropped", args.runs, lambda: unwritten(plan, lambda _: Discard(), STOP))
        kept = alone.keep(subject.plan(alone.pictures_kept(plan)), STOP)
        for states in args.states:
            for lanes in args.lanes:
                use(lanes, states)
                make = encoder_maker(plan)
                what = f"{lanes} lanes of {states} states"
                row(f"{what}, alone", args.runs, lambda: alone.encoder_alone(plan, kept, args.frames))
                row(f"{what}, nothing written", args.runs, partial(unwritten, plan, make, STOP))
                row(f"{what}, to a MOV", args.runs, lambda: written(plan, STOP))


if __name__ == "__main__":
    main()
