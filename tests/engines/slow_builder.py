"""A process that asks a cache for an entry whose build takes a while: FOLDER SECONDS; prints whether it built."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from engine_keys import key

from gpupipe.engines.cache import EngineCache


def build(folder: Path) -> None:
    print("building", flush=True)  # noqa: T201
    (folder / "data").write_bytes(b"first half")
    time.sleep(float(sys.argv[2]))
    (folder / "data").write_bytes(b"whole")


said: list[str] = []
place, fresh = EngineCache(Path(sys.argv[1]), said.append, patience=30).entry(key(), build)
print("built" if fresh else "found", (place / "data").read_text(), *said)  # noqa: T201
