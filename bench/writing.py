"""What writing costs at the speed of every decoder engine: nothing written, written by a thread, by another process.

    python bench/writing.py [--device cuda] [--recipe hevc] [--frames 24000] [--sessions 28] [--rounds 3]
                            [--encode mjpeg] [--small] [--json bench/results/writing_h200.json]

All are done in this process, in turns, on a clip in TMPDIR, which may be memory: decoders alone, then with warp,
overlay and encoder but no file, then whole runs to a MOV, written as `render.writer_process` does and as it is done
where there is none. Rows are medians, `times` are ratios of each round to its first row. For whole runs `user` and
`system` are the processor seconds of the thread that writes, or that gives the other process its work.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import threading
from collections import defaultdict
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # as the command line does; read when torch is loaded

from bench.matrix import small
from bench.measured import head, keep
from gpupipe.bench.chain import ENCODES, built_in, encoded
from gpupipe.bench.clip import RECIPES, make_clip
from gpupipe.bench.flow import Discard, Run, unwritten, written
from gpupipe.bench.subject import first_steps, open_subject
from gpupipe.render import writer_process
from gpupipe.render.codecs import encoder_maker

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpupipe.plan import Plan

STOP = threading.Event()


def whole(plan: Plan, *, apart: bool) -> Run:
    """A run to its file, written in this process or by one of its own."""
    with mock.patch.object(writer_process, "SESSIONS", 8 if apart else 1 << 30):
        return written(plan, STOP)


def processor() -> tuple[float, float]:
    """Seconds of this thread so far, in Python and libraries, and in the system."""
    stat = Path(f"/proc/self/task/{threading.get_native_id()}/stat").read_text(encoding="utf-8")
    user, system = stat.rpartition(")")[2].split()[11:13]
    ticks = os.sysconf("SC_CLK_TCK")
    return int(user) / ticks, int(system) / ticks


def cases(plan: Plan) -> dict[str, Callable[[], Run]]:
    """By name, in their order."""
    return {
        "decode": lambda: unwritten(first_steps(plan, 0), lambda _: Discard(), STOP),
        "encode": lambda: unwritten(plan, encoder_maker(plan), STOP),
        "by a thread": partial(whole, plan, apart=False),
        "by a process": partial(whole, plan, apart=True),
    }


def measured(plan: Plan, rounds: int, path: Path | None, report: dict[str, object]) -> None:
    """All rounds; the file is written after every run."""
    rates, times = defaultdict[str, list[float]](list), defaultdict[str, list[float]](list)
    spent = defaultdict[str, list[tuple[float, float]]](list)
    for _ in range(rounds):
        for name, run in cases(plan).items():
            before = processor()
            rate = run().rate
            user, system = (b - a for a, b in zip(before, processor(), strict=True))
            rates[name].append(rate)
            times[name].append(rate / rates["decode"][-1])
            spent[name].append((user, system))
            print(f"{name:14} {rate:8.1f} frames/s, {times[name][-1]:.3f}; user {user:.2f}, system {system:.2f} s",
                  flush=True)  # fmt: skip
            rows = {
                name: {"rate": median(rates[name]), "rates": rates[name], "times": median(times[name]),
                       "user": median(u for u, _ in spent[name]), "system": median(s for _, s in spent[name])}
                for name in rates
            }  # fmt: skip
            keep(path, report | {"rows": rows})


def main() -> None:
    """Makes the clip and measures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--recipe", choices=list(RECIPES), default="hevc")
    parser.add_argument("--encode", choices=list(ENCODES), default="mjpeg")
    parser.add_argument("--frames", type=int, default=24000)
    parser.add_argument("--sessions", type=int, default=28)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--small", action="store_true", help="small pictures: it is only tried whether it runs")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    if args.small:
        small(args.recipe)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_clip(folder / "clip.mp4", RECIPES[args.recipe], args.frames)
        config = encoded(built_in(folder), args.encode)
        subject = open_subject(config, folder / "clip.mp4", folder, device=args.device, frames=args.frames)
        plan = subject.plan(args.frames, sessions=args.sessions)
        report = {**head(args.device), "frames": args.frames, "sessions": plan.sessions}
        measured(plan, args.rounds, args.json, report)


if __name__ == "__main__":
    main()
