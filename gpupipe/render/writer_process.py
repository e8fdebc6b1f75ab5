"""The output written by a process of its own, which reads encoded pictures where the lanes put them.

Thousands of pictures a second are too many for a thread here: it would ask for Python's lock for each, which dozens of
lanes want too, and wait for it longer than it writes. That process opens muxer and source by itself, from the plan.
"""

from __future__ import annotations

import mmap
import multiprocessing
import os
import subprocess
import time
from collections import deque
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING

from gpupipe.codecs.encoders import encoder_facts
from gpupipe.errors import MediaError
from gpupipe.media import provenance
from gpupipe.media.output import shown
from gpupipe.plan.stored import dump
from gpupipe.render import another_python
from gpupipe.render.feed import check_stop
from gpupipe.render.rows import counts, told
from gpupipe.render.slabs import memory_file

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from gpupipe.codecs.base import Packet
    from gpupipe.journal import Journal
    from gpupipe.plan import Plan
    from gpupipe.render.progress import StopFlag
    from gpupipe.render.slabs import Slabs
    from gpupipe.render.writer import Template, Writer

SESSIONS = 1 << 30
"""Decoders from which on a process of its own writes; none has so many, so it is off. Eight is what it is meant to be,
once the GPU tests have run with what `rows.heard` copies for files of several streams."""
ON_THE_WAY = 1 / 8
"""Of the slabs at most, in bytes of packets that are not written yet; then whoever gives more waits."""
_CODE = "from gpupipe.render.writer_served import serve; serve(*map(int, sys.argv[1:]))"
START = 60.0
"""Seconds that the process has to say that it is there."""
_LOOK, _LISTEN, _GOODBYE = 0.001, 0.2, 20.0
"""Seconds between looks whether there is room, and at the stop flag; seconds that the process has to end by itself."""


def suits(plan: Plan, slabs: Slabs | None) -> bool:
    """Whether a run has so many pictures that a process of its own should write them."""
    alone = encoder_facts(plan.encoder.encoder).alone
    return alone and plan.sessions >= SESSIONS and slabs is not None and slabs.file >= 0 and another_python.can_be()


class WriterProcess:
    """Meets `Writer` for an encoder to which every picture stands alone.

    Packets are held until they are written. What fails there is raised by one of the next calls, at last by `close`.

    Args:
        plan: what is run.
        path: of the file.
        slabs: where most packets' bytes lie.
        journal: gets what that process notices, at the end.
        stop: looked at while this waits.
        here: makes a writer of this process, for where that one does not begin.

    Raises OSError where it cannot be started.
    """

    def __init__(
        self, plan: Plan, path: Path, slabs: Slabs, *, journal: Journal, stop: StopFlag, here: Callable[[], Writer]
    ) -> None:
        self._path, self._journal, self._stop = path, journal, stop
        self._slabs, self._instead = slabs, here
        self._held: deque[tuple[int, int, list[Packet]]] = deque()
        """Number of the message, bytes and packets of what is on its way."""
        self._sent = self._bytes = 0
        self._most = int(slabs.size * ON_THE_WAY)
        self._whole = False
        job = dump(plan), str(path), slabs.size
        with ExitStack() as stack:
            counter = memory_file("gpupipe-written", mmap.PAGESIZE)
            if counter < 0:
                raise OSError("no memory for two processes")
            stack.callback(os.close, counter)
            self._written = counts(counter)
            self._pipe, there = multiprocessing.Pipe()
            stack.callback(there.close)
            self._process = another_python.start(_CODE, (there.fileno(), slabs.file, counter))
        with suppress(OSError):  # it has ended: `begin` finds out
            self._pipe.send(job)
        slabs.apart = True

    def begin(self, template: Template, packets: list[Packet]) -> Writer:
        """See `Writer`: the plan and the first packet describe the stream."""
        if (why := self._hindrance()) is None:
            return self
        self._journal.say(f"the output is written by the main process, since another one did not begin: {why}")
        self._slabs.apart = False
        self.abort()
        return self._instead().begin(template, packets)

    def _hindrance(self) -> str | None:
        """Waits for its first word; why there is none."""
        until = time.monotonic() + START
        try:
            while not self._pipe.poll(_LISTEN):
                check_stop(self._stop)
                if time.monotonic() > until:
                    return f"nothing was heard of it for {START:.0f} seconds"
            said = self._pipe.recv()
        except (OSError, EOFError):
            return f"it ended with code {self._code()}"
        return None if said is None else str(said[1])

    def write(self, packets: list[Packet]) -> None:
        """See `Writer`."""
        if not packets:
            return  # to send nothing is to say that it is over
        self._send(told(packets))
        size = sum([packet.size for packet in packets])
        self._sent += 1
        self._bytes += size
        self._held.append((self._sent, size, packets))
        self._let_go()
        if self._bytes > self._most:
            self._wait()

    def _send(self, message: bytes) -> None:
        try:
            self._pipe.send_bytes(message)
        except OSError:
            self._end()

    def _let_go(self) -> None:
        """Gives up packets that are written."""
        written, held = self._written[0], self._held
        while held and held[0][0] <= written:
            self._bytes -= held.popleft()[1]

    def _wait(self) -> None:
        while self._bytes > self._most:
            check_stop(self._stop)
            if self._pipe.poll():
                self._end()
            time.sleep(_LOOK)
            self._let_go()

    def _end(self) -> None:
        """Waits for its last words; raises what it failed with."""
        try:
            while not self._pipe.poll(_LISTEN):
                check_stop(self._stop)
            entries, error = self._pipe.recv()
        except (OSError, EOFError):
            code = self._code()
            check_stop(self._stop)  # what stops a run may end all its processes
            hint = "run it again; if the system ended it for want of memory, with fewer `sessions`"
            raise MediaError(
                f"the process that writes it ended with code {code}", where=shown(self._path), hint=hint
            ) from None
        for entry in entries:
            self._journal.add(entry)
        if error is not None:
            raise error

    def _code(self) -> int | None:
        """What it ended with; it is made to where it does not by itself. None where it hangs in the system."""
        with suppress(subprocess.TimeoutExpired):
            return self._process.wait(_GOODBYE)
        self._process.kill()
        with suppress(subprocess.TimeoutExpired):
            return self._process.wait(_GOODBYE)
        return None

    def close(self) -> None:
        """See `Writer`."""
        self._send(b"")
        self._end()
        self._whole = True
        self._held.clear()
        self._code()

    def abort(self) -> None:
        """See `Writer`."""
        if not self._whole and not self._pipe.closed:
            self._process.kill()
            self._code()
            for path in (self._path, provenance.beside(self._path)):
                with suppress(OSError):
                    path.unlink()
        self._held.clear()
        self._pipe.close()
