"""What it costs to be watched: a run with progress, metrics and report beside the same run with none of them.

    python bench/observers.py [--device cpu|cuda] [--rounds 9] [--shares 3] [--frames N]
                              [--json bench/results/observers_cpu.json]

Both are done in this process, in turn, and compared round by round: processor time of the whole process (user and
system, all threads) and wall time. The plain run has not even the clocks of its lanes. The watched one draws its
progress on a pseudo-terminal, is scraped every five seconds by another process, and is recorded for a report, whose
writing after the run is a fixed cost and told apart.

Where other programs share the machine both ratios scatter by more than what is measured. `accounted` does not: the
processor time of the observers' own threads, and of the lanes' clocks (switches counted, times what one takes), over
that of the whole process. It leaves out only what they cost others by sharing the interpreter and caches. Observers
work by the clock, so the share grows where a run gets little of the machine: `per_second` is their processor time a
second of wall time, to be compared with the cores that a run keeps busy.
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
from collections import Counter
from contextlib import ExitStack, contextmanager
from fractions import Fraction
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Self

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
from gpupipe.render import RenderResult, Watch, render, watch
from gpupipe.render.watch import LaneClock
from gpupipe.report.recorder import Recorder
from gpupipe.report.run import RunReport
from gpupipe.sample import make_sample

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

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
COMPARED = ("cpu", "wall", "render", "flow")
"""Processor time, wall time, that of the run, and of it that in which frames flow: what throughput is of."""
SCRAPER = """
import sys, time, urllib.request
while True:
    urllib.request.urlopen(sys.argv[1], timeout=5).read()
    time.sleep(5)
"""


class Account:
    """Processor time of every thread that ends while it is entered, by what the thread is for."""

    def __init__(self) -> None:
        self.seconds: Counter[str] = Counter()
        self._body = threading.Thread._bootstrap_inner  # type: ignore[attr-defined]  # noqa: SLF001  run is overridden

    def __enter__(self) -> Self:
        body, account = self._body, self

        def counted(thread: threading.Thread) -> None:
            try:
                body(thread)
            finally:
                account.seconds[purpose(thread)] += time.thread_time()  # type: ignore[assignment]

        threading.Thread._bootstrap_inner = counted  # type: ignore[attr-defined]  # noqa: SLF001
        return self

    def __exit__(self, *_: object) -> None:
        threading.Thread._bootstrap_inner = self._body  # type: ignore[attr-defined]  # noqa: SLF001


def purpose(thread: threading.Thread) -> str:
    """`report`, `progress`, `metrics`, or `run` for the run's own."""
    name = thread.name
    if name == "recorder":
        return "report"
    if type(thread).__name__ == "_RefreshThread":  # rich's
        return "progress"
    return "metrics" if "serve_forever" in name or "process_request" in name or name == "metrics-end" else "run"


def clock_seconds() -> float:
    """Processor time of one switch of a lane's clock."""
    clock, calls = LaneClock("lane", "a"), 200_000
    began = time.process_time()
    for _ in range(calls // 2):
        clock.enter("b")
        clock.enter("a")
    return (time.process_time() - began) / calls


class Counting(LaneClock):
    """Counts its switches."""

    switches = 0

    def enter(self, state: str) -> str:
        """See `LaneClock`."""
        Counting.switches += 1
        return super().enter(state)


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
    """While it is entered another process scrapes every five seconds, three times as often as is usual."""
    scraper = subprocess.Popen([sys.executable, "-c", SCRAPER, url], stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        scraper.kill()
        scraper.wait()


def carried_out(plan: Plan, *, watched: bool) -> tuple[dict[str, float], Recorder | None, RenderResult]:
    """A run: seconds of wall and of processor time, and what was recorded of it."""
    seen, journal, stop = Watch() if watched else Blind(), Journal(), threading.Event()
    recorder = Recorder(seen, plan.device) if watched else None
    with ExitStack() as stack:
        if watched:
            exporter = stack.enter_context(Exporter(0, "127.0.0.1"))
            stack.enter_context(exporter.watching(plan, seen, journal))
            stack.enter_context(terminal())
            stack.enter_context(scraped(exporter.url))
        wall, cpu = time.perf_counter(), time.process_time()
        if recorder is not None:
            with reporting(Console(), seen, plan.device) as progress, recorder:
                result = render(plan, overwrite=True, journal=journal, stop=stop, watch=seen, progress=progress)
        else:
            result = render(plan, overwrite=True, journal=journal, stop=stop, watch=seen)
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    flow = result.seconds - result.startup
    figures = {"wall": wall, "cpu": cpu, "render": result.seconds, "flow": flow}
    return {what: round(seconds, 4) for what, seconds in figures.items()}, recorder, result


def accounted(plan: Plan) -> dict[str, float]:
    """A watched run: shares of the process's processor time, and seconds a second of wall time."""
    Counting.switches = 0
    ordinary, watch.LaneClock = watch.LaneClock, Counting  # type: ignore[misc]
    try:
        with Account() as account:
            figures, _, _ = carried_out(plan, watched=True)
    finally:
        watch.LaneClock = ordinary  # type: ignore[misc]
    parts: dict[str, float] = {name: account.seconds[name] for name in ("progress", "metrics", "report")}
    parts["clocks"] = Counting.switches * clock_seconds()
    parts["all"] = sum(parts.values())
    shares = {name: round(seconds / figures["cpu"], 5) for name, seconds in parts.items()}
    return {**shares, "per_second": round(parts["all"] / figures["wall"], 5)}


def compared(plan: Plan, rounds: int, shares: int, keep: Callable[[dict[str, object]], None]) -> dict[str, object]:
    """Rounds of one of each, in either order by turns; the first is not counted. `keep` gets what is known so far."""
    pairs: list[dict[str, dict[str, float]]] = []
    found: dict[str, object] = {}
    for number in range(rounds + 1):
        pair: dict[str, dict[str, float]] = {}
        for watched in (False, True) if number % 2 else (True, False):
            figures, recorder, result = carried_out(plan, watched=watched)
            pair["watched" if watched else "plain"] = figures
            if recorder is not None:
                last = recorder, result
        pairs.append(pair)
        if number:
            found = {"frames": last[1].frames, **ratios(pairs[1:]), "pairs": pairs[1:]}
            keep(found)
    seen = [accounted(plan) for _ in range(shares)]
    found["accounted"] = {name: median(share[name] for share in seen) for name in seen[0]}
    keep(found)
    return {**found, "report": written(plan, *last)}


def ratios(pairs: list[dict[str, dict[str, float]]]) -> dict[str, object]:
    """Watched over plain."""
    found: dict[str, object] = {}
    for what in COMPARED:
        ratio = Spread.of([pair["watched"][what] / pair["plain"][what] for pair in pairs])
        found[f"{what}_ratio"] = {
            "median": round(ratio.median, 4), "least": round(ratio.least, 4), "most": round(ratio.most, 4),
        }  # fmt: skip
        sums = [sum(pair[side][what] for pair in pairs) for side in ("watched", "plain")]
        found[f"{what}_ratio_of_sums"] = round(sums[0] / sums[1], 4)
    return found


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
    parser.add_argument("--shares", type=int, default=3, help="runs in which the observers' own time is accounted for")
    parser.add_argument("--frames", type=int, help="of the clip; by default what takes some seconds")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    frames = args.frames or {"cpu": 1000, "cuda": 6000}[args.device]
    cases: dict[str, object] = {}

    def keep(case: str, found: dict[str, object]) -> None:
        cases[case] = found
        if args.json:
            args.json.write_text(json.dumps({**facts(args.device), "cases": cases}, indent=1) + "\n")

    with tempfile.TemporaryDirectory() as name:
        for case, config in CASES[args.device].items():
            clip = clip_for(case, Path(name), args.device, frames)
            plan = make_plan(parse_config(config), probe(clip), Path(name) / f"o{clip.suffix}", device=args.device)
            found = compared(plan, args.rounds, args.shares, partial(keep, case))
            keep(case, found)
            told = ", ".join(f"{what} {found[f'{what}_ratio']}" for what in COMPARED)
            print(f"{case}: accounted {found['accounted']}; watched / plain: {told}", flush=True)
            print(f"{case}: the report afterwards: {found['report']}", flush=True)


def facts(device: str) -> dict[str, object]:
    """What was asked, when and where."""
    here = machine("cpu" if device == "cpu" else "cuda:0")
    return {
        "command": "python bench/observers.py " + " ".join(a for a in sys.argv[1:] if "json" not in a),
        "date": dt.datetime.now(dt.UTC).date().isoformat(),
        "machine": {"cpu": here.cpu, "cores": here.cores, "gpu": here.gpu, "driver": here.driver},
        "load": [round(value, 1) for value in os.getloadavg()],
        "versions": here.versions,
    }


if __name__ == "__main__":
    main()
