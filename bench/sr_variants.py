"""Super-resolution by inductor with other settings, and in batches: is there a faster way than the one that is taken?

    python bench/sr_variants.py [--device cuda:0] [--size 1920x1080] [--cache FOLDER] [--variants NAME ...]
                                [--json FILE]

Each row is as one of bench/models.py, beside eager. `conv triton` makes convolutions by Triton's template alone, whose
bias and PReLU are in the same kernel, where cuDNN's are followed by another one over the whole picture.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # as the command line does; read when torch is loaded

import torch

from bench.measured import head, keep
from bench.models import CLIP, Subject, best, row, words
from gpupipe.engines import inductor
from gpupipe.engines.base import Precision, Profile
from gpupipe.models import folder
from gpupipe.models.card import find

VARIANTS: dict[str, tuple[str, int, dict[str, Any]]] = {
    "eager": ("eager", 1, {}),
    "as it is": ("inductor", 1, {}),
    "conv triton": ("inductor", 1, {"max_autotune_conv_backends": "TRITON"}),
    "frozen": ("inductor", 1, {"freezing": True}),
    "two at once": ("inductor", 2, {}),
}
"""Engine, batch, and settings of inductor."""


def main() -> None:
    """Row by row."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--size", default="1920x1080")
    parser.add_argument("--cache", type=Path)
    parser.add_argument("--variants", nargs="*", default=list(VARIANTS), choices=list(VARIANTS))
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    width, height = map(int, args.size.split("x"))
    precision: Precision = "fp32" if args.device == "cpu" else "fp16"
    rows: list[dict[str, object]] = []
    eager = None
    with tempfile.TemporaryDirectory() as scratch, torch.inference_mode():
        cache = args.cache or Path(scratch) / "gpupipe"
        folder.choose(cache)
        for number, name in enumerate(args.variants):
            engine, batch, settings = VARIANTS[name]
            inductor._FASTER_BUILD = settings  # noqa: SLF001  made for tests, where it does the same
            subject = Subject(find(CLIP), Profile(batch, height, width, precision, args.device), cache)
            made = row(subject, engine, Path(scratch) / str(number))
            eager = best(made) if engine == "eager" else eager
            mine = best(made)
            made.times_eager = eager / mine if eager is not None and mine is not None else None
            print(f"{name:12} {words(made)}", flush=True)
            rows.append({"variant": name, **asdict(made)})
            keep(args.json, {**head(args.device), "rows": rows})


if __name__ == "__main__":
    main()
