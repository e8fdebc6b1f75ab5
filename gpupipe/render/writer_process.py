"""The output written by a process of its own, which reads encoded pictures where the lanes put them.

Thousands of pictures a second are too many for a thread here: it would ask for Python's lock for each, which dozens of
lanes want too, and wait for it longer than it writes. That process opens muxer and source by itself, from the plan.
"""

from __future__ import annotations

import mmap
import multiprocessing
import os
import struct
import subprocess
import sys
import time
from collections import deque
from typing import TYPE_CHECKING

from gpupipe.codecs.encoders import encoder_facts
from gpupipe.errors import MediaError
from gpupipe.media.output import shown
from gpupipe.plan.stored import dump
from gpupipe.render.feed import check_stop
from gpupipe.render.slabs import memory_file

if TYPE_CHECKING:
    from pathlib import Path

    from gpupipe.codecs.base import Packet
    from gpupipe.journal import Journal
    from gpupipe.plan import Plan
    from gpupipe.render.progress import StopFlag
    from gpupipe.render.slabs import Slabs
    from gpupipe.render.writer import Template

SESSIONS = 8
"""Decoders from which on their pictures may be more than a thread writes."""
ON_THE_WAY = 1 / 8
"""Of the slabs at most, in bytes of packets that are not written yet; then whoever gives more waits."""
COUNT = struct.Struct("<q")
ROW = struct.Struct("<qqqqq")
"""A packet: where its bytes lie in the slabs (-1: they follow the rows), how many, pts, dts, duration."""
WRITTEN = struct.Struct("<q")
"""Messages that are written, in a page of memory of both processes: to be read without asking."""
_CODE = """import sys; sys.path[:] = {!r}
from gpupipe.render.writer_served import serve; serve(*map(int, sys.argv[1:]))"""
_LOOK, _GOODBYE = 0.001, 20.0
"""Seconds between looks whether there is room; seconds that the process has to end by itself."""


def suits(plan: Plan, slabs: Slabs | None) -> bool:
    """Whether a run has so many pictures that a process of its own should write them."""
    alone = encoder_facts(plan.encoder.encoder).alone
    return alone and plan.sessions >= SESSIONS and slabs is not None and slabs.file >= 0


class WriterProcess:
    """Meets `Writer` for an encoder to which every picture stands alone.

    Packets are held until they are written. What fails there is raised by one of the next calls, at last by `close`.

    Args:
        plan: what is run.
        path: of the file.
        slabs: where most packets' bytes lie.
        journal: gets what that process notices, at the end.
        stop: looked at while this waits.
    """

    def __init__(self, plan: Plan, path: Path, slabs: Slabs, journal: Journal, stop: StopFlag) -> None:
        self._path, self._journal, self._stop = path, journal, stop
        self._held: deque[tuple[int, int, list[Packet]]] = deque()
        """Number of the message, bytes and packets of what is on its way."""
        self._sent = self._bytes = 0
        self._most = int(slabs.size * ON_THE_WAY)
        counter = memory_file("gpupipe-written", mmap.PAGESIZE)
        self._written = mmap.mmap(counter, mmap.PAGESIZE)
        self._here, there = multiprocessing.Pipe()
        files = there.fileno(), slabs.file, counter
        code = _CODE.format(sys.path)  # not multiprocessing's own way, which would run the user's script once more
        try:
            self._process = subprocess.Popen(  # noqa: S603  this very Python
                [sys.executable, "-c", code, *map(str, files)], pass_fds=files, stdin=subprocess.DEVNULL
            )
        finally:
            there.close()
            os.close(counter)
        slabs.apart = True
        self._here.send((dump(plan), str(path), slabs.size))

    def begin(self, template: Template, packets: list[Packet]) -> None:
        """See `Writer`: the plan and the first packet describe the stream."""

    def write(self, packets: list[Packet]) -> None:
        """See `Writer`."""
        if not packets:
            return  # to send nothing is to say that it is over
        rows, loose, size = [], [], 0
        for packet in packets:
            at = getattr(packet, "at", -1)  # of `codecs.intra.Placed`
            if at < 0:
                loose.append(bytes(packet))
            rows.append(ROW.pack(at, packet.size, packet.pts, packet.dts, packet.duration))
            size += packet.size
        self._send(COUNT.pack(len(rows)) + b"".join(rows + loose))
        self._sent += 1
        self._bytes += size
        self._held.append((self._sent, size, packets))
        self._let_go()
        if self._bytes > self._most:
            self._wait()

    def _send(self, message: bytes) -> None:
        try:
            self._here.send_bytes(message)
        except OSError:
            self._end()

    def _let_go(self) -> None:
        """Gives up packets that are written."""
        (written,), held = WRITTEN.unpack_from(self._written), self._held
        while held and held[0][0] <= written:
            self._bytes -= held.popleft()[1]

    def _wait(self) -> None:
        while self._bytes > self._most:
            check_stop(self._stop)
            if self._process.poll() is not None or self._here.poll():
                self._end()
            time.sleep(_LOOK)
            self._let_go()

    def _end(self) -> None:
        """Takes its last words; raises what it failed with."""
        try:
            entries, error = self._here.recv()
        except (OSError, EOFError):
            raise MediaError(
                f"the process that writes it ended with code {self._process.wait(_GOODBYE)}", where=shown(self._path),
                hint="run it again",
            ) from None  # fmt: skip
        for entry in entries:
            self._journal.add(entry)
        if error is not None:
            raise error

    def close(self) -> None:
        """See `Writer`."""
        self._send(b"")
        self._end()
        self._held.clear()
        self._process.wait(_GOODBYE)

    def abort(self) -> None:
        """See `Writer`."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait(_GOODBYE)
            self._path.unlink(missing_ok=True)
        self._held.clear()
        self._here.close()
