"""What libav says of an error: PyAV's exceptions carry a number, the reason stands in libav's log."""

from __future__ import annotations

import os
import re
import tempfile
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import av.logging

from gpupipe.collector import no_collection

if TYPE_CHECKING:
    from collections.abc import Iterator

_LOG = threading.Lock()
_STDERR = threading.Lock()
"""Of two at once the second would put back the file of the first."""
Lines = list[tuple[int, str, str]]
_LIBRARY = re.compile(rb"\s*(Svt|x26[45])\S* ?\[\w+\] ?:")
"""How lines of SVT-AV1 and x265 begin: `Svt[error]: `, `x265 [warning]: `."""


@contextmanager
def captured_log(level: int) -> Iterator[Lines]:
    """Turns libav's log on and catches it; PyAV's own level is put back afterwards.

    Its callback needs the GIL, so nobody may wait for a thread of libav with the GIL held meanwhile: whoever drops a
    decoder flushes it first (`LibavDecoder.close`), and the garbage collector, which the callback itself may start and
    which would free forgotten ones, rests.
    """
    with _LOG, no_collection(), av.logging.Capture(local=False) as others, av.logging.Capture() as mine:
        before, skipping = av.logging.get_level(), av.logging.get_skip_repeated()
        av.logging.set_skip_repeated(v=False)  # else the same reason would be heard once a process
        av.logging.set_level(level)
        av.logging.set_libav_level(level)
        try:
            yield mine
        finally:
            av.logging.set_level(before)
            av.logging.set_skip_repeated(skipping)
            av.logging.set_libav_level(av.logging.INFO)  # libav's default; PyAV cannot read the level
            others.clear()


@contextmanager
def captured_stderr() -> Iterator[list[str]]:
    """Catches what libraries print to the terminal past everybody (SVT-AV1 does); the lines are there afterwards.

    All that this process says meanwhile comes by there. What no library can have said, such as a line of another file
    of a batch, is only late.
    """
    lines: list[str] = []
    with _STDERR, tempfile.TemporaryFile() as file:
        own = os.dup(2)
        os.dup2(file.fileno(), 2)
        try:
            yield lines
        finally:
            os.dup2(own, 2)
            os.close(own)
            file.seek(0)
            for said in file.read().splitlines(keepends=True):
                if _LIBRARY.match(said):
                    lines.append(said.decode(errors="replace").rstrip("\r\n"))
                else:
                    _put_back(said)


def _put_back(said: bytes) -> None:
    with suppress(OSError):  # nobody reads it any more
        while said:
            said = said[os.write(2, said) :]


def reason(lines: Lines, otherwise: str) -> str:
    """The error lines of a log in one, `otherwise` where there are none."""
    said = dict.fromkeys(" ".join(text.split()) for level, _, text in lines if level <= av.logging.ERROR)
    return "; ".join(text.rstrip(".") for text in said if text)[:300] or otherwise
