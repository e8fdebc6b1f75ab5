"""The warp's sampling by one kernel beside grid_sample on the same pictures.

    python bench/warp.py [--device cuda] [--size 1920x1080] [--batch 16] [--json FILE]

Microseconds a picture of each, replayed from a CUDA Graph on a GPU (the median of several), beside what memory alone
would need to read and write every picture once. On the CPU there is no kernel, and both are grid_sample.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # as the command line does; read when torch is loaded

import numpy as np
import torch
from torch.nn.functional import grid_sample

from gpupipe.device import open_lane
from gpupipe.device.replay import Replay
from gpupipe.device.timing import seconds_of
from gpupipe.ops import warp

if TYPE_CHECKING:
    from collections.abc import Callable

BANDWIDTH = 4.3e12  # bytes a second that a copy on an H200 moved
TURN, SCALE = 1.5, 1.02


def turned(width: int, height: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    """About the middle."""
    angle = np.deg2rad(TURN)
    turn = SCALE * np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    middle = np.array([(width - 1) / 2, (height - 1) / 2])
    return np.vstack([np.column_stack([turn, middle - turn @ middle]), [0, 0, 1]])


def plain(rgb: torch.Tensor, grid: torch.Tensor, border: str) -> torch.Tensor:
    """By torch, whose grid and pictures must be of one kind."""
    padding = {"edge": "border", "reflect": "reflection", "constant": "zeros"}[border]
    grids = grid.expand(len(rgb), -1, -1, -1)
    return grid_sample(rgb.float(), grids, padding_mode=padding, align_corners=False).to(rgb.dtype)


def microseconds(work: Callable[[], torch.Tensor], device: str, count: int) -> float:
    """A picture."""
    return 1e6 * seconds_of(Replay(work, open_lane(device)), device, rounds=50) / count


def main() -> None:
    """All borders."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--size", default="1920x1080")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    device = "cuda:0" if args.device == "cuda" else args.device
    width, height = map(int, args.size.split("x"))
    pixels = torch.float32 if device == "cpu" else torch.float16
    grid = warp.sampling_grid(turned(width, height), width, height, torch.device(device))
    rgb = torch.rand((args.batch, 3, height, width), device=device).to(pixels)
    rows: dict[str, dict[str, float]] = {}
    least = 1e6 * 2 * rgb.numel() * rgb.element_size() / args.batch / BANDWIDTH
    borders: tuple[warp.Border, ...] = ("edge", "reflect", "constant")
    for border in borders:
        ways = {
            "kernel": partial(warp.sample, rgb, grid, "bilinear", border),
            "grid_sample": partial(plain, rgb, grid, border),
        }
        rows[border] = {name: microseconds(work, device, args.batch) for name, work in ways.items()}
        rows[border]["times"] = rows[border]["grid_sample"] / rows[border]["kernel"]
        print(f"{border:9}" + "".join(f"  {name} {value:8.2f}" for name, value in rows[border].items()), flush=True)
    print(f"memory alone {least:.2f} us a picture")
    if args.json is not None:
        args.json.write_text(json.dumps({"rows": rows, "memory_us": least}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
