"""What was just compiled runs once in a process of its own: machine code that crashes must not take a render along."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from gpupipe.engines.base import Profile, layout_of
from gpupipe.engines.packages import network_in
from gpupipe.errors import EngineError

if TYPE_CHECKING:
    from collections.abc import Sequence

_PATIENCE = 300.0
"""Seconds; a process with torch and a GPU takes some three to ten on a machine that is not busy."""
_CHILD = ("-P", "-c", "from gpupipe.engines.trial import main; main()")
"""-P: a `torch.py` in the folder where a run is started is not torch."""


def tried(package: Path, profile: Profile, command: Sequence[str] = _CHILD) -> bool:
    """Loads a package and runs it on zeros, elsewhere; whether that went well.

    Only a crash and a hang are judged: what raises there does so here as well, where it can be told apart (short
    memory, a GPU that takes one process alone), and pixels are compared by `select`.

    Raises:
        EngineError: the process was killed by a signal, or did not come to its end.
    """
    if not sys.executable:  # an embedded interpreter has none that could be started
        return False
    asked = [sys.executable, *command, str(package), json.dumps(asdict(profile))]
    found = os.pathsep.join(path or str(Path.cwd()) for path in sys.path)
    try:
        done = subprocess.run(  # noqa: S603  our own interpreter and code
            asked, stdin=subprocess.DEVNULL, capture_output=True, timeout=_PATIENCE, check=False,
            env=os.environ | {"PYTHONPATH": found},
            start_new_session=True,  # Ctrl-C, which a terminal sends to all, is no crash, and what is kept would say so
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        message = f"what torch compiled does not come to its end when it is tried ({_PATIENCE:.0f} s)"
        raise EngineError(message, where=str(package)) from error
    except OSError:
        return False
    if done.returncode < 0:
        number = -done.returncode
        named = number in {one.value for one in signal.Signals}  # not all of the real-time ones have names
        name = signal.Signals(number).name if named else f"signal {number}"
        raise EngineError(f"what torch compiled crashes when it is tried ({name})", where=str(package))
    return done.returncode == 0


def main() -> None:
    """The process of its own: a package's path and a profile as arguments."""
    import torch  # noqa: PLC0415  see `base.Engine`

    profile = Profile(**json.loads(sys.argv[2]))
    with torch.inference_mode():
        run = network_in(Path(sys.argv[1]), profile, layout_of(profile))
        run(torch.zeros(profile.shape, dtype=profile.dtype, device=profile.device)).cpu()
