"""A run whose memory gets short after it was planned, in a process of its own, since a limit stays for good.

    python pressed.py MIB GUARD CONFIG INPUT OUTPUT REPORT

The address space may grow by MIB from when it begins to render; GUARD is `guard` or `none`.
"""

from __future__ import annotations

import resource
import sys

import torch

from gpupipe.cli import execute, run
from gpupipe.cli.console import Console
from gpupipe.device.host import mapped_bytes
from gpupipe.render import guard, render

mib, guarded, config, source, output, report = sys.argv[1:]
torch.set_num_threads(1)
torch.zeros(1).add_(1)  # its own threads and libraries are there before anything is measured


def pressed(*args: object, **more: object) -> object:
    most = (mapped_bytes() or 0) + (int(mib) << 20)
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    return render(*args, **more)


run.render = pressed
if guarded == "none":
    guard.smaller = lambda _: None
    guard.Guard.look = lambda *_: None
sys.exit(execute(["run", config, source, output, "--device", "cpu", "--report", report], Console()))
