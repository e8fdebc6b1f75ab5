"""A process that asks a cache in FOLDER for an entry, builds it until a line comes on stdin, and prints whether it did."""

from __future__ import annotations

import sys
from pathlib import Path

from engine_keys import key

from gpupipe.engines.cache import EngineCache


def build(folder: Path) -> None:
    print("building", flush=True)  # noqa: T201
    (folder / "data").write_bytes(b"first half")
    sys.stdin.readline()
    (folder / "data").write_bytes(b"whole")


def say(line: str) -> None:
    print(line, flush=True)  # noqa: T201


place, fresh = EngineCache(Path(sys.argv[1]), say, patience=240).entry(key(), build)
print("built" if fresh else "found", (place / "data").read_text())  # noqa: T201
