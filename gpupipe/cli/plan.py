"""`gpupipe plan`: what `run` would do."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from gpupipe.cli.job import apart, prepare
from gpupipe.cli.options import PATH, as_json, job
from gpupipe.media.output import OutputFile, describe_os_error
from gpupipe.plan.stored import dump

if TYPE_CHECKING:
    from pathlib import Path

    from gpupipe.cli.console import Console
    from gpupipe.plan import Plan


@click.command(name="plan", short_help="Print what `run` would do, and why.")
@job
@click.option("--save", type=PATH, metavar="FILE", help="Write the plan to FILE, for `gpupipe segment` and `join`.")
@as_json
@click.pass_obj
def command(
    console: Console,
    *,
    config: Path,
    input: Path | None,  # noqa: A002  (click names the parameter as the user sees it)
    output: Path | None,
    device: str | None,
    overwrite: bool,
    strict: bool,
    quiet: bool,
    log: str,
    save: Path | None,
    as_json: bool,
) -> None:
    """Print what `gpupipe run` would do with these arguments, and why; do nothing.

    A plan that is saved is cut into segments, as `resume: keep` has it, which any machine may render.

    INPUT and OUTPUT override the config. Relative paths start from the current directory.
    """
    console.quiet, console.json_log = quiet, log == "json"
    plan = prepare(config, input, output, device=device, strict=strict, keep=save is not None, say=console.say)
    if save is not None:
        write_plan(plan, save, config, overwrite=overwrite)
    if as_json:
        console.json(plan.to_json())
    else:
        console.data(plan.lines())
    for notice in plan.warnings:
        console.warning(notice.code, notice.message)


def write_plan(plan: Plan, path: Path, config: Path, *, overwrite: bool) -> None:
    """Raises MediaError where the file cannot be written, or is one that the run reads or writes."""
    with OutputFile(path, overwrite=overwrite, inputs=apart(plan, config)) as target:
        try:
            target.path.write_text(json.dumps(dump(plan), indent=1) + "\n", encoding="utf-8")
        except OSError as error:
            raise describe_os_error(error, path) from None
        target.commit()
