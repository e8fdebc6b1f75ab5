"""Runs a plan on the CPU and prints, as JSON, the memory of the process on the way: python grow.py CLIP OUTPUT CONFIG."""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path

from gpupipe.config import parse_config
from gpupipe.journal import Journal
from gpupipe.media.probe import probe
from gpupipe.plan import make_plan
from gpupipe.render import progress, render


def resident() -> int:
    """Bytes of this process in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def main() -> None:
    plan = make_plan(parse_config(json.loads(sys.argv[3])), probe(Path(sys.argv[1])), Path(sys.argv[2]), device="cpu")
    marks: list[tuple[int, int]] = []
    progress.INTERVAL = 0.0  # every frame or part
    done = render(
        plan, overwrite=True, journal=Journal(), stop=threading.Event(),
        progress=lambda now: marks.append((now.frames, resident())),
    )  # fmt: skip
    print(json.dumps({"frames": done.frames, "segments": len(plan.segments), "marks": marks}))  # noqa: T201  for the test


if __name__ == "__main__":
    main()
