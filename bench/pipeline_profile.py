"""Where the time of a pipeline goes: kernels, copies and waits by thread, and who has Python's lock.

    python bench/pipeline_profile.py [--encode prores_torch] [--recipe h264] [--frames 15000] [--seconds 2]
                                     [--device cuda] [--small] [--json FILE]

Runs of decode, warp, overlay and encoder, nothing written: one as it is, one of which torch.profiler sees so many
seconds (CUPTI: kernels and copies of the GPU, calls of the CUDA runtime of all threads), and two that py-spy looks
into, where there is one. In the first, a thread that wakes every 2 ms says how long it waits for Python's lock. The
summary is printed and, beside FILE, written as text.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # as the command line does; read when torch is loaded

from bench.matrix import small
from gpupipe.bench.chain import ENCODES, built_in, encoded
from gpupipe.bench.clip import RECIPES, make_clip
from gpupipe.bench.flow import Run, unwritten
from gpupipe.bench.subject import open_subject
from gpupipe.render.codecs import encoder_maker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from gpupipe.plan import Plan

STOP = threading.Event()
FIRST = 4200
"""Frames of the first run."""
SETTLED = 0.7
"""Seconds after the start of a run at which it is looked at: lanes are full by then."""
PY_SPY = next((p for p in (shutil.which("py-spy"), ".tools/py-spy") if p and Path(p).exists()), None)


class Lock:
    """How late a thread wakes that sleeps for 2 ms, while it is entered: what it waits beyond is for Python's lock."""

    def __init__(self) -> None:
        self.late: list[float] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, name="lock-probe", daemon=True)

    def _look(self) -> None:
        while not self._over.is_set():
            began = time.perf_counter()
            time.sleep(0.002)
            self.late.append(time.perf_counter() - began - 0.002)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(5)

    def words(self) -> str:
        """Median, 95th of 100 and most, in milliseconds."""
        late = sorted(1000 * one for one in self.late) or [0.0]
        return f"{statistics.median(late):.2f} / {late[int(0.95 * (len(late) - 1))]:.2f} / {late[-1]:.2f} ms"


def threads() -> dict[int, str]:
    """Names of this process's Python threads, by every number that a tool may call them by."""
    found: dict[int, str] = {}
    for thread in threading.enumerate():
        for number in (thread.native_id, thread.ident, (thread.ident or 0) & 0xFFFFFFFF):
            found[number or 0] = thread.name
    return found


def beside(run: Callable[[], Run], look: Callable[[], None], *, lanes: bool) -> Run:
    """A run with a look into it by another thread, once its lanes, where it has any, are at work."""

    def waits() -> None:
        deadline = time.monotonic() + (20 if lanes else 0)
        while time.monotonic() < deadline and not any(t.name.startswith("runner") for t in threading.enumerate()):
            time.sleep(0.02)
        time.sleep(SETTLED)
        look()

    looker = threading.Thread(target=waits, name="looker", daemon=True)
    looker.start()
    try:
        return run()
    finally:
        looker.join(90)


def carried_out(plan: Plan) -> Run:
    """All of a plan but the file."""
    return unwritten(plan, encoder_maker(plan), STOP)


def profiled(run: Callable[[], Run], seconds: float, *, cuda: bool) -> tuple[Run, list[Any], dict[int, str]]:
    """A run, and what torch.profiler saw of some seconds of it."""
    from torch.profiler import ProfilerActivity, profile  # noqa: PLC0415

    # Calls of the runtime are told under CUDA alone too, and Python's own operators are not asked for.
    activities = [ProfilerActivity.CUDA if cuda else ProfilerActivity.CPU]
    seen: list[Any] = []
    names: dict[int, str] = {}
    with profile(activities=activities):  # the first one takes some seconds, more than the run
        pass

    def look() -> None:
        with profile(activities=activities, acc_events=True) as profiler:
            time.sleep(seconds)
            names.update(threads())
        seen.extend(profiler.profiler.kineto_results.events())

    return beside(run, look, lanes=cuda), seen, names


def covered(spans: Iterable[tuple[int, int]]) -> int:
    """Nanoseconds that lie in at least one span."""
    total, end = 0, 0
    for begin, stop in sorted(spans):
        total += max(0, stop - max(begin, end))
        end = max(end, stop)
    return total


def summary(events: Sequence[Any], names: dict[int, str], seconds: float) -> list[str]:
    """Of torch.profiler's events: kernels and copies by their time, calls by thread."""
    device = [e for e in events if str(e.device_type()).endswith(("CUDA", "PrivateUse1"))]
    calls = [e for e in events if not str(e.device_type()).endswith("CUDA") and e.name().startswith("cu")]
    lines = []
    if device:
        first, last = min(e.start_ns() for e in device), max(e.start_ns() + e.duration_ns() for e in device)
        span = max(1, last - first)
        busy = covered((e.start_ns(), e.start_ns() + e.duration_ns()) for e in device)
        computed = [e for e in device if not e.name().startswith("Mem")]
        kernels = covered((e.start_ns(), e.start_ns() + e.duration_ns()) for e in computed)
        streams = {e.device_resource_id() for e in device}
        share = 100 * busy / span
        lines.append(f"GPU over {span / 1e9:.2f} s: kernels in {100 * kernels / span:.0f} %, they or copies in "
                     f"{share:.0f} %, idle {100 - share:.0f} %; {len(streams)} streams")  # fmt: skip
    lines += _table("kernels and copies", device, lambda e: e.name(), seconds, 22)
    lines += _table("calls of the CUDA runtime", calls, lambda e: e.name(), seconds, 14)
    waits = [e for e in calls if "Synchronize" in e.name() or "Memcpy" in e.name() or "Launch" in e.name()]
    lines += _table("calls by thread", waits, lambda e: f"{_thread(e, names)}  {e.name()}", seconds, 30)
    return lines


def _thread(event: Any, names: dict[int, str]) -> str:
    for number in (event.device_resource_id(), event.start_thread_id()):
        if number in names:
            return names[number]
    return f"thread {event.device_resource_id()}"


def _table(title: str, events: Iterable[Any], key: Callable[[Any], str], seconds: float, most: int) -> list[str]:
    spent: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for event in events:
        entry = spent[key(event)]
        entry[0] += event.duration_ns() / 1e6
        entry[1] += 1
    rows = sorted(spent.items(), key=lambda item: -item[1][0])[:most]
    lines = [f"{title}: ms a second, number a second, us each"]
    return lines + [f"  {ms / seconds:9.1f} {count / seconds:9.0f} {1000 * ms / count:9.1f}  {name[:90]}"
                    for name, (ms, count) in rows]  # fmt: skip


def spied(run: Callable[[], Run], seconds: float, folder: Path, *, lock: bool, lanes: bool) -> list[str]:
    """What py-spy sees: of whoever holds Python's lock, or of all threads that are on a processor."""
    if PY_SPY is None:
        return ["py-spy is not here: nobody knows who holds Python's lock"]
    raw = folder / "spy.txt"
    whole = max(1, round(seconds))
    command = [PY_SPY, "record", "--pid", str(os.getpid()), "--rate", "250", "--duration", str(whole), "--nonblocking",
               "--format", "raw", "--output", str(raw), "--threads", *(["--gil"] if lock else [])]  # fmt: skip
    said: list[str] = []

    def look() -> None:
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            said.append(f"py-spy: {error}")
            return
        if not raw.exists():
            said.append(f"py-spy: {done.stderr.strip()[-300:]}")

    beside(run, look, lanes=lanes)
    if not raw.exists():
        return said
    samples = [line.rpartition(" ")[::2] for line in raw.read_text(encoding="utf-8").splitlines()]
    raw.unlink()
    counted = [(stack.split(";"), int(number)) for stack, number in samples if number.isdigit()]
    total = 250 * whole
    lines = [f"py-spy, {'who holds the lock' if lock else 'threads that run'}: per cent of the time"]
    for title, at in (("by thread", 0), ("by place", -1)):
        places: dict[str, int] = defaultdict(int)
        for stack, number in counted:
            places[stack[at]] += number
        lines.append(f"  {title}: all {100 * sum(places.values()) / total:.0f}")
        best = sorted(places.items(), key=lambda item: -item[1])[: 16 if title == "by place" else 8]
        lines += [f"  {100 * number / total:6.1f}  {name[:110]}" for name, number in best]
    return lines


def main() -> None:
    """Makes the clip, runs, tells."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--encode", choices=list(ENCODES), default="prores_torch")
    parser.add_argument("--recipe", choices=list(RECIPES), default="h264")
    parser.add_argument("--frames", type=int, default=15000, help="of the clip; no more are used than needed")
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--small", action="store_true", help="small pictures: it is only tried whether it runs")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    if args.small:
        small(args.recipe)
    told: list[str] = []
    figures: dict[str, object] = {"encode": args.encode}

    def say(*lines: str) -> None:
        told.extend(lines)
        print("\n".join(lines), flush=True)
        if args.json is not None:
            args.json.write_text(json.dumps(figures | {"told": told}, indent=1), encoding="utf-8")
            args.json.with_suffix(".txt").write_text("\n".join(told) + "\n\n", encoding="utf-8")

    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as name:
        folder = Path(name)
        make_clip(folder / "clip.mp4", RECIPES[args.recipe], args.frames)
        config = encoded(built_in(folder), args.encode)
        subject = open_subject(config, folder / "clip.mp4", folder, device=args.device, frames=args.frames)
        plan = subject.plan(min(args.frames, FIRST))
        cuda = plan.device != "cpu"
        with Lock() as lock:
            found = carried_out(plan)
        figures["rate"] = found.rate
        say(f"##### {args.recipe} -> warp, overlay -> {plan.encoder.encoder}: {found.rate:.0f} frames/s, "
            f"{found.cores:.1f} cores, start-up {found.startup:.2f} s; {plan.sessions} sessions, batch {plan.batch}",
            f"late by the lock (median / 95 % / most): {lock.words()}")  # fmt: skip
        enough = int(found.rate * (SETTLED + args.seconds + 1.5))  # so that it runs for as long as it is looked at
        run = partial(carried_out, subject.plan(max(1, min(args.frames, enough))))
        under, events, names = profiled(run, args.seconds, cuda=cuda)
        figures["rate_profiled"] = under.rate
        say(f"under torch.profiler: {under.rate:.0f} frames/s", *summary(events, names, args.seconds))
        say(*spied(run, args.seconds, folder, lock=True, lanes=cuda))
        say(*spied(run, args.seconds, folder, lock=False, lanes=cuda))


if __name__ == "__main__":
    main()
