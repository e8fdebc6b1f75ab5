"""`gpupipe plan`: what `run` would do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from gpupipe.cli.job import prepare
from gpupipe.cli.options import as_json, job

if TYPE_CHECKING:
    from pathlib import Path

    from gpupipe.cli.console import Console


@click.command(name="plan", short_help="Print what `run` would do, and why.")
@job
@as_json
@click.pass_obj
def command(
    console: Console,
    *,
    config: Path,
    input: Path | None,  # noqa: A002  (click names the parameter as the user sees it)
    output: Path | None,
    device: str | None,
    overwrite: bool,  # noqa: ARG001  (the same arguments as `run`)
    strict: bool,
    quiet: bool,
    log: str,
    as_json: bool,
) -> None:
    """Print what `gpupipe run` would do with these arguments, and why; do nothing.

    INPUT and OUTPUT override the config. Relative paths start from the current directory.
    """
    console.quiet, console.json_log = quiet, log == "json"
    plan = prepare(config, input, output, device=device, strict=strict)
    if as_json:
        console.json(plan.to_json())
    else:
        console.data(plan.lines())
    for notice in plan.warnings:
        console.warning(notice.code, notice.message)
