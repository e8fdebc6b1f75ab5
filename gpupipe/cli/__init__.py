"""The command line: one thin file a verb. The only place that prints, exits or reads the environment."""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

import gpupipe
from gpupipe.cli import bug
from gpupipe.cli.console import Console
from gpupipe.errors import GpupipeError
from gpupipe.models import folder

if TYPE_CHECKING:
    from types import FrameType

VERBS = (
    "run", "batch", "plan", "status", "clean", "segment", "join", "farm", "preview", "probe", "doctor", "sample",
    "bench", "models",
)  # fmt: skip
DONE, USAGE, BUG, WARNED, INTERRUPTED = 0, 2, 3, 4, 130  # others: `errors`


class Verbs(click.Group):
    """Imports a verb's module only when it is asked for: `gpupipe probe` need not pay for `run`."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """In the order in which people meet them."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """The command of that verb, or None."""
        if cmd_name not in VERBS:
            return None
        command: click.Command = importlib.import_module(f"gpupipe.cli.{cmd_name}").command
        return command


_EXIT_CODES = """\b
Exit codes: 0 done, 1 the source or the config is bad, 2 wrong command line,
3 a bug in gpupipe, 4 done with warnings under --strict, 5 the volume or the GPU
failed, 6 this machine lacks what is asked for, 7 out of memory, 8 the farm is
lost, 130 interrupted."""


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"]}, epilog=_EXIT_CODES)
@click.version_option(gpupipe.__version__, prog_name="gpupipe")
def cli() -> None:
    """Decode, transform and re-encode video on an NVIDIA GPU, or on the CPU by the same rules."""


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:  # noqa: ARG001
    raise KeyboardInterrupt


def _choose_cache() -> None:
    if (base := os.environ.get("XDG_CACHE_HOME", "")).startswith("/"):
        folder.choose(Path(base) / "gpupipe")


def execute(arguments: list[str], console: Console) -> int:
    """Runs one command line and returns its exit code; never raises."""
    _choose_cache()
    try:
        code = cli.main(args=arguments, prog_name="gpupipe", standalone_mode=False, obj=console)
    except click.ClickException as error:
        error.show()
        return USAGE
    except GpupipeError as error:
        console.error(str(error), error.exit_code)
        return error.exit_code
    except (KeyboardInterrupt, click.Abort):
        console.error("interrupted", INTERRUPTED)
        return INTERRUPTED
    except Exception as error:  # noqa: BLE001  (the last line of defence)
        console.error(bug.report(error), BUG)
        return BUG
    return code if isinstance(code, int) else DONE


def _standard_streams() -> None:
    """Opens those of the three that the caller closed: else the next file to be opened, the output, would be stderr."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, which is this one
            setattr(sys, name, os.fdopen(number, "r" if number == 0 else "w", closefd=False))


def _keep_stdout() -> None:
    """Codec libraries print to the C stdout (NVDEC: "Decode Error occurred"); what was asked for must stay clean."""
    try:
        own = os.dup(1)
    except OSError:  # closed by whoever started us
        return
    os.dup2(2, 1)
    sys.stdout = os.fdopen(own, "w", encoding=sys.stdout.encoding, errors="backslashreplace", closefd=False)


def main() -> NoReturn:
    """Entry point of `gpupipe`."""
    # Threads of torch's CPU kernels would spin while they wait. Beside codec threads, or other jobs of a farm machine,
    # that takes the cores from those who have work. OpenMP reads this once, when torch is loaded.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    _choose_cache()
    if "TORCHINDUCTOR_CACHE_DIR" not in os.environ:  # else it is lost with /tmp at the next start of the machine
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder.engines() / "inductor")
    _standard_streams()
    _keep_stdout()
    signal.signal(signal.SIGTERM, _interrupt)
    gc.set_threshold(100_000, 20, 20)  # loading torch makes a million objects, none of them garbage
    _leave(execute(sys.argv[1:], Console()))


def _leave(code: int) -> NoReturn:
    """Ends the process without taking the interpreter apart: with torch loaded that costs half a second."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)
