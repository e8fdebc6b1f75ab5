"""What measurements share: a call as a CUDA Graph, `gpupipe run` as a process of its own, and the file they leave."""

from __future__ import annotations

import datetime as dt
import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import torch

from gpupipe.bench.machine import machine
from gpupipe.collector import no_collection

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")
ROOT = Path(__file__).resolve().parents[1]


def captured(call: Callable[[], T]) -> tuple[torch.cuda.CUDAGraph, T]:
    """A graph of what `call` does and what a replay writes to; made on a stream of its own, as captures must be."""
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            call()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with no_collection(), torch.cuda.graph(graph):  # see `device.graph.captured`
        kept = call()
    return graph, kept


def run(config: Path, clip: Path, output: Path, *, device: str, cache: Path) -> dict[str, object]:
    """Frames, seconds until the first and frames a second from then on; or `failed`, the end of what was said.

    And what explains a slow one: the engine of each network, notices of the plan, warnings of the run.

    `cache` is the folder that holds `gpupipe/` with weights and engines.
    """
    paths = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    done = subprocess.run(
        [sys.executable, "-m", "gpupipe", "run", str(config), str(clip), str(output), "--json", "--overwrite",
         "--device", device],
        env=os.environ | {"XDG_CACHE_HOME": str(cache), "PYTHONPATH": paths}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    if done.returncode:
        return {"failed": done.stderr[-500:]}
    told = json.loads(done.stdout)
    result = told["result"]
    rate = result["frames"] / (result["seconds"] - result["startup"])
    return {
        "frames": result["frames"], "startup": result["startup"], "rate": rate,
        "engines": {model["name"]: model["engine"] for model in told["models"]},
        "warnings": [one["message"] for one in (*told["notices"], *told["warnings"])],
    }  # fmt: skip


def head(device: str) -> dict[str, object]:
    """How a report begins: the command, the time and the machine."""
    return {
        "command": " ".join(["python", *sys.argv]),
        "date": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        "machine": asdict(machine(device)),
    }


def keep(path: Path | None, report: dict[str, object]) -> None:
    """Writes a report, where it is wanted."""
    if path is not None:
        path.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
