"""All that waits for a GPU, by phases: one command, each phase in its own time, what is known kept as soon as it is.

    python bench/device.py [PHASE ...] [--within SECONDS] [--out FOLDER] [--device cuda] [--quick]

Phases run one after another in the order given (all of bench/phases.py where none are); `tests+nvenc` run side by side.
A phase that takes more than its time, or more than is left of `--within`, is ended with all that it started, and the
next one runs. In FOLDER (`$OUT`, or bench/results/device) lie, at most three seconds old whenever this is ended:

    verdicts.txt    a line for each figure that an issue asks for: value, target, met or not
    results.json    every phase's own JSON under its name, whole or what there was of it
    failures.txt    failed tests with their tracebacks
    log.txt         what the phases printed
    profile.txt     where the time goes

`--quick --device cpu` tries whether everything runs, with a few frames, where there is no GPU.
Weights are taken from `.weights` and the still of faces from `.faces` in the repository, where they were carried along.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.ended import Program, all_of
from bench.phases import PHASES, Setting

ROOT = Path(__file__).resolve().parents[1]
LEAST = 8
"""Seconds below which no phase is begun."""
SHOWN = 40
"""Failed tests that are named at the end."""


class Desk:
    """What was found, and the files that tell it."""

    def __init__(self, out: Path, setting: Setting) -> None:
        self._out, self._setting = out, setting
        self._status: dict[str, str] = {}
        self._logs: dict[str, Path] = {}
        self._began = time.strftime("%Y-%m-%d %H:%M:%S")

    def run(self, names: list[str], left: float) -> None:
        """Phases side by side, each for as long as it may."""
        wanted = [name for name in names if self._setting.device != "cpu" or PHASES[name].on_cpu]
        for name in set(names) - set(wanted):
            self._status[name] = "needs a GPU"
        programs = {}
        for name in wanted:
            self._logs[name], self._status[name] = self._setting.work / f"{name}.log", "running"
            programs[name] = Program(PHASES[name].command(self._setting), ROOT, self._logs[name],
                                     min(PHASES[name].seconds, left), environment(self._setting))  # fmt: skip
        all_of(list(programs.values()), self.write)
        for name, program in programs.items():
            self._status[name] = f"{program.status} in {program.took:.0f} s"
        self.write()
        for name in names:
            print(f"== {name}: {self._status[name]}", flush=True)
            print("".join(f"{line}\n" for line in self.lines(name)), end="", flush=True)
            if name in programs and programs[name].status != "done":
                print("    " + "\n    ".join(self._log(name).splitlines()[-6:]), flush=True)

    def result(self, name: str) -> dict[str, Any]:
        """A phase's JSON so far."""
        try:
            found: dict[str, Any] = json.loads((self._setting.work / f"{name}.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):  # none yet, or it is just being written
            return {}
        return found

    def lines(self, name: str) -> list[str]:
        """What a phase shows."""
        try:
            return [str(verdict) for verdict in PHASES[name].judge(self.result(name))]
        except (KeyError, TypeError, ValueError) as error:
            return [f"-     {name}: its result cannot be judged: {error!r}"]

    def _log(self, name: str) -> str:
        log = self._logs.get(name)
        return log.read_text(encoding="utf-8", errors="replace") if log is not None and log.exists() else ""

    def failures(self) -> list[str]:
        """Names of failed tests."""
        return [test for name in self._status for test in self.result(name).get("failures", ())]

    def write(self) -> None:
        """Everything known, in FOLDER."""
        told = {name: {"status": status, "result": self.result(name)} for name, status in self._status.items()}
        texts = {
            "verdicts.txt": "".join(f"{line}\n" for name in told for line in self.lines(name)),
            "results.json": json.dumps({"began": self._began, "phases": told}, indent=1),
            "failures.txt": "".join(self._text(f"{name}.txt") for name in told if not name.startswith("profile")),
            "log.txt": "".join(f"{'#' * 30} {name}: {status}\n{self._log(name)[-400_000:]}\n"
                               for name, status in self._status.items()),
            "profile.txt": "".join(self._text(f"{name}.txt") for name in told if name.startswith("profile")),
        }  # fmt: skip
        for name, text in texts.items():
            if text:
                part = self._out / f"{name}.part"
                part.write_text(text, encoding="utf-8")
                part.replace(self._out / name)

    def _text(self, name: str) -> str:
        path = self._setting.work / name
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""


def environment(setting: Setting) -> dict[str, str]:
    """Of every phase."""
    paths = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    needed = {"GPUPIPE_REQUIRE_CUDA": "1"} if setting.device != "cpu" else {}
    return {**os.environ, "PYTHONPATH": paths, "PYTHONUNBUFFERED": "1", "OMP_WAIT_POLICY": "PASSIVE", **needed}


def arguments() -> argparse.Namespace:
    """Of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("phases", nargs="*", metavar="PHASE", help=", ".join(PHASES))
    parser.add_argument("--within", type=float, default=1e9, help="seconds for all of them")
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", ROOT / "bench/results/device")))
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--workers", type=int, default=11, help="tests side by side")
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args()
    args.steps = [step.split("+") for step in args.phases or PHASES]
    for name in (name for step in args.steps for name in step):
        if name not in PHASES:
            parser.error(f"there is no phase {name!r}: {', '.join(PHASES)}")
    return args


def main() -> None:
    """Phase after phase."""
    args, began = arguments(), time.monotonic()
    args.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="gpupipe-device-") as folder:
        work = Path(folder)
        cache, carried = work / "gpupipe", ROOT / ".weights"
        if carried.is_dir():
            shutil.copytree(carried, cache / "models")
        still = ROOT / ".faces/astronaut_512.png"
        still = still if still.exists() else ROOT.parent / "shared/corpus/faces/astronaut_512.png"
        desk = Desk(args.out, Setting(args.device, args.quick, work, cache, still, args.workers, ROOT))
        for step in args.steps:
            left = args.within - (time.monotonic() - began)
            if left < LEAST:
                print(f"== {' and '.join(step)}: no time is left", flush=True)
                continue
            desk.run(step, left)
        failed = desk.failures()
        print(f"\n{len(failed)} tests failed" + "".join(f"\n  {name}" for name in failed[:SHOWN]))
        print("".join(f"{line}\n" for step in args.steps for name in step for line in desk.lines(name)), end="")
        print(f"all in {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
