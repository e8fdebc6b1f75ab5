"""A run whose memory gets short after it was planned, in a process of its own, since a limit stays for good.

    python pressed.py MIB GUARD CONFIG INPUT OUTPUT REPORT

The address space may grow by MIB from when it begins to render; GUARD is `guard` or `none`. No session ends before all
six were open at once, or one could not be: how they take turns on a busy machine does not count.
"""

from __future__ import annotations

import resource
import sys
import threading

import torch

from gpupipe.cli import execute, run
from gpupipe.cli.console import Console
from gpupipe.codecs.libav import LibavEncoder
from gpupipe.device.host import mapped_bytes
from gpupipe.render import guard, render
from gpupipe.render.lanes import Crew

mib, guarded, config, source, output, report = sys.argv[1:]
torch.set_num_threads(1)
torch.zeros(1).add_(1)  # its own threads and libraries are there before anything is measured


SESSIONS = 6
enough = threading.Event()


def meet() -> None:
    """Has encoders wait at their end for each other, until something goes wrong for the first time."""
    begin, end, halt, tell = LibavEncoder.__init__, LibavEncoder.finish, Crew.halt, guard.Guard._tell
    count = [0]

    def begun(self: LibavEncoder, *args: object) -> None:
        begin(self, *args)
        count[0] += 1
        if count[0] == SESSIONS:
            enough.set()

    def ended(self: LibavEncoder) -> object:
        enough.wait(200)
        return end(self)

    def halted(self: Crew, *args: object) -> None:
        enough.set()
        halt(self, *args)

    def told(self: guard.Guard, *args: object) -> None:
        enough.set()
        tell(self, *args)

    LibavEncoder.__init__, LibavEncoder.finish, Crew.halt, guard.Guard._tell = begun, ended, halted, told


def pressed(*args: object, **more: object) -> object:
    most = (mapped_bytes() or 0) + (int(mib) << 20)
    meet()
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    return render(*args, **more)


run.render = pressed
if guarded == "none":
    guard.smaller = lambda _: None
    guard.Guard.look = lambda *_: None
sys.exit(execute(["run", config, source, output, "--device", "cpu", "--report", report], Console()))
