"""What it costs to be watched: a run with progress, metrics and report beside the same run with none of them.

    python bench/observers.py [--device cpu|cuda] [--rounds 9] [--frames N] [--json bench/results/observers_cpu.json]

Both are done in this process, in turn, and compared round by round: processor time of the whole process (user and
system, all threads) and wall time. Processor time is the one to trust where other programs share the machine. The plain
run has not even the clocks of its lanes. The watched one draws its progress on a pseudo-terminal, is scraped once a
second by another process, and is recorded for a report, whose writing after the run is a fixed cost and told apart.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack, contextmanager
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

from gpupipe.bench.clip import RECIPES, make_clip
from gpupipe.bench.machine import machine
from gpupipe.bench.record import Spread
from gpupipe.cli.console import Console
from gpupipe.cli.progress import reporting
from gpupipe.config import parse_config
from gpupipe.journal import Journal
from gpupipe.media.probe import probe
from gpupipe.metrics import Exporter
from gpupipe.plan import Plan, make_plan
from gpupipe.render import RenderResult, Watch, render
from gpupipe.render.watch import LaneClock
from gpupipe.report.recorder import Recorder
from gpupipe.report.run import RunReport
from gpupipe.sample import make_sample

if TYPE_CHECKING:
    from collections.abc import Iterator

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # as the command line does; read when torch is loaded
X264 = {"encoder": "libx264", "preset": "medium"}
WARP = [{"warp": {"rotate": 1.5, "scale": 1.02}}]
CASES: dict[str, dict[str, dict[str, object]]] = {
    "cpu": {
        "small pictures in two lanes": {
            "segments": {"seconds": 2}, "sessions": 2, "resume": "off", "output": {"video": X264},
        },
        "warp": {"segments": "off", "stages": WARP, "output": {"video": X264}},
    },
    "cuda": {"warp to JPEG": {"stages": WARP, "output": {"video": {"codec": "mjpeg", "encoder": "nvjpeg"}}}},
}  # fmt: skip
SCRAPER = """
import sys, time, urllib.request
while True:
    urllib.request.urlopen(sys.argv[1], timeout=5).read()
    time.sleep(1)
"""


class Blind(Watch):
    """Sees nothing: lanes have no clocks, queues and segments are not counted."""

    __slots__ = ()

    def lane(self, name: str, state: str) -> LaneClock:
        """A clock that nobody winds."""
        return LaneClock(name, state)


@contextmanager
def terminal() -> Iterator[None]:
    """While it is entered stderr is a pseudo-terminal that another process reads."""
    master, slave = os.openpty()
    reader = subprocess.Popen(["cat"], stdin=master, stdout=subprocess.DEVNULL)
    before = sys.stderr
    with os.fdopen(slave, "w") as drawn:
        sys.stderr = drawn
        try:
            yield
        finally:
            sys.stderr = before
            os.close(master)
            reader.kill()
            reader.wait()


@contextmanager
def scraped(url: str) -> Iterator[None]:
    """While it is entered another process scrapes once a second."""
    scraper = subprocess.Popen([sys.executable, "-c", SCRAPER, url], stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        scraper.kill()
        scraper.wait()


def carried_out(plan: Plan, *, watched: bool) -> tuple[dict[str, float], Recorder | None, RenderResult]:
    """A run: seconds of wall and of processor time, and what was recorded of it."""
    watch, journal, stop = Watch() if watched else Blind(), Journal(), threading.Event()
    recorder = Recorder(watch, plan.device) if watched else None
    with ExitStack() as stack:
        if watched:
            exporter = stack.enter_context(Exporter(0, "127.0.0.1"))
            stack.enter_context(exporter.watching(plan, watch, journal))
            stack.enter_context(terminal())
            stack.enter_context(scraped(exporter.url))
        wall, cpu = time.perf_counter(), time.process_time()
        if recorder is not None:
            with reporting(Console(), watch, plan.device) as progress, recorder:
                result = render(plan, overwrite=True, journal=journal, stop=stop, watch=watch, progress=progress)
        else:
            result = render(plan, overwrite=True, journal=journal, stop=stop, watch=watch)
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    return {"wall": round(wall, 4), "cpu": round(cpu, 4), "render": round(result.seconds, 4)}, recorder, result


def compared(plan: Plan, rounds: int) -> dict[str, object]:
    """Rounds of one of each, in either order by turns; the first is not counted."""
    pairs: list[dict[str, dict[str, float]]] = []
    for number in range(rounds + 1):
        pair: dict[str, dict[str, float]] = {}
        for watched in (False, True) if number % 2 else (True, False):
            figures, recorder, result = carried_out(plan, watched=watched)
            pair["watched" if watched else "plain"] = figures
            if recorder is not None:
                last = recorder, result
        pairs.append(pair)
    found: dict[str, object] = {"frames": last[1].frames}
    for what in ("cpu", "wall", "render"):
        ratio = Spread.of([pair["watched"][what] / pair["plain"][what] for pair in pairs[1:]])
        found[f"{what}_ratio"] = {
            "median": round(ratio.median, 4), "least": round(ratio.least, 4), "most": round(ratio.most, 4),
        }  # fmt: skip
        sums = [sum(pair[side][what] for pair in pairs[1:]) for side in ("watched", "plain")]
        found[f"{what}_ratio_of_sums"] = round(sums[0] / sums[1], 4)
    return {**found, "report": written(plan, *last), "pairs": pairs[1:]}


def written(plan: Plan, recorder: Recorder, result: RenderResult) -> dict[str, float]:
    """Seconds that the report of a run takes after it, page and JSON."""
    wall, cpu = time.perf_counter(), time.process_time()
    report = RunReport(plan, "", "", recorder, (), result)
    size = len(report.to_html()) + len(report.to_json())
    return {"wall": round(time.perf_counter() - wall, 3), "cpu": round(time.process_time() - cpu, 3), "bytes": size}


def clip_for(name: str, folder: Path, device: str, frames: int) -> Path:
    """Many small pictures where the observers weigh most, 720p for the CPU's stages, 1080p for a GPU."""
    path = folder / f"{name.split(maxsplit=1)[0]}.mov"
    if device != "cpu":
        path = path.with_suffix(".mp4")
        make_clip(path, RECIPES["h264"], frames)
    elif name.startswith("small"):
        make_sample(path, seconds=frames // 25, size=(320, 180), rate=Fraction(25))
    else:
        make_sample(path, seconds=max(1, frames // 250), size=(1280, 720), rate=Fraction(25))
    return path


def main() -> None:
    """Runs, prints and writes the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=list(CASES), default="cpu")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--frames", type=int, help="of the clip; by default what takes some seconds")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    frames = args.frames or {"cpu": 1000, "cuda": 6000}[args.device]
    cases: dict[str, object] = {}
    with tempfile.TemporaryDirectory() as name:
        for case, config in CASES[args.device].items():
            clip = clip_for(case, Path(name), args.device, frames)
            plan = make_plan(parse_config(config), probe(clip), Path(name) / f"o{clip.suffix}", device=args.device)
            cases[case] = found = compared(plan, args.rounds)
            told = ", ".join(f"{what} {found[f'{what}_ratio']}" for what in ("cpu", "wall", "render"))
            print(f"{case}: watched / plain: {told}; the report afterwards: {found['report']}", flush=True)
    if args.json:
        here = machine("cpu" if args.device == "cpu" else "cuda:0")
        facts = {
            "command": "python bench/observers.py " + " ".join(a for a in sys.argv[1:] if "json" not in a),
            "date": dt.datetime.now(dt.UTC).date().isoformat(),
            "machine": {"cpu": here.cpu, "cores": here.cores, "gpu": here.gpu, "driver": here.driver},
            "load": [round(value, 1) for value in os.getloadavg()],
            "versions": here.versions,
        }
        args.json.write_text(json.dumps({**facts, "cases": cases}, indent=1) + "\n")


if __name__ == "__main__":
    main()
