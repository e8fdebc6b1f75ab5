"""Runs gpupipe and kills or holds it at a moment that is named: `killed.py RECORD WHAT COUNT WHEN gpupipe's words`.

RECORD gets the number of each segment as soon as its file has its name. WHAT is a function of `MOMENTS`, COUNT after how
many calls of it, and WHEN `before` or `after` the last of them, or `held`: after it, by SIGSTOP. `-` kills at none.
"""

from __future__ import annotations

import itertools
import os
import signal
import sys
import threading
from pathlib import Path

from gpupipe import cli
from gpupipe.media.mux import Muxer
from gpupipe.media.output import OutputFile
from gpupipe.render import joined, kept
from gpupipe.render.ledger import Ledger
from gpupipe.render.pieces import PieceWriter

MOMENTS = {
    "add": (PieceWriter, "add"),  # in a segment
    "seal": (PieceWriter, "seal"),  # around the rename of a segment
    "finished": (Ledger, "finished"),
    "mux": (Muxer, "write_video"),  # in the join
    "close": (Muxer, "close"),
    "inspect": (kept, "inspect"),
    "joined": (Ledger, "joined"),  # around the rename of the output
    "commit": (OutputFile, "commit"),
    "unlink": (Path, "unlink"),  # in tidying up, too
}


SEALING = threading.RLock()
"""Held from the rename of a segment until its number is in RECORD: a kill in another lane does not come between."""


def trap(what: str, count: int, when: str) -> None:
    owner, name = MOMENTS[what]
    original, calls = getattr(owner, name), itertools.count(1)

    def trapped(*args: object, **kwargs: object) -> object:
        mine = next(calls)
        if mine == count and when == "before":
            with SEALING:
                os.kill(os.getpid(), signal.SIGKILL)
        result = original(*args, **kwargs)
        if mine == count:
            with SEALING:
                os.kill(os.getpid(), signal.SIGSTOP if when == "held" else signal.SIGKILL)
        return result

    setattr(owner, name, trapped)


def note(record: Path) -> None:
    seal = PieceWriter.seal

    def noted(self: PieceWriter, *args: object) -> object:
        with SEALING:
            piece = seal(self, *args)
            with record.open("a") as file:
                file.write(f"{self._path.stem}\n")
        return piece

    PieceWriter.seal = noted


if __name__ == "__main__":
    assert joined.inspect is kept.inspect
    record, what, count, when, *words = sys.argv[1:]
    note(Path(record))
    if what != "-":
        trap(what, int(count), when)
    sys.argv = ["gpupipe", *words]
    cli.main()
