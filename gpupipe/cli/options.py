"""Arguments that verbs share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpupipe.device import NAMES

if TYPE_CHECKING:
    from collections.abc import Callable

PATH = click.Path(path_type=Path, readable=False)  # who may read what is said by whoever opens it


def _device(ctx: click.Context, parameter: click.Parameter, value: str | None) -> str | None:  # noqa: ARG001
    if value is not None and not NAMES.fullmatch(value):
        raise click.BadParameter(f"a device is auto, cpu, cuda or cuda:N, not {value!r}")
    return value


device = click.option("--device", callback=_device, help="auto, cpu, cuda or cuda:N; overrides the config.")
overwrite = click.option("--overwrite", is_flag=True, help="Replace an output that exists.")
strict = click.option(
    "--strict", is_flag=True, help="Warnings known before work are errors; later ones give exit code 4."
)
restart = click.option("--restart", is_flag=True, help="Throw away what a stopped run has kept, and begin anew.")
log_file = click.option("--log-file", type=PATH, help="Add all that is said to the end of this file.")


def talk(command: Callable[..., object]) -> Callable[..., object]:
    """How much is said, and in which form."""
    quiet = click.option("--quiet", is_flag=True, help="Nothing on stderr but errors.")
    log = click.option(
        "--log", type=click.Choice(["text", "json"]), default="text", help="Form of what goes to stderr."
    )
    return quiet(log(command))


def job(command: Callable[..., object]) -> Callable[..., object]:
    """CONFIG [INPUT] [OUTPUT] and the options of `run` and `plan`."""
    decorators: list[Callable[[Callable[..., object]], Callable[..., object]]] = [
        click.argument("config", type=PATH),
        click.argument("input", type=PATH, required=False),
        click.argument("output", type=PATH, required=False),
        device,
        overwrite,
        strict,
        talk,
    ]
    for decorate in reversed(decorators):
        command = decorate(command)
    return command


as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
