"""`gpupipe farm template`: the job for a studio's own queue."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click
import yaml

from gpupipe.cli.job import apart, prepare
from gpupipe.cli.options import PATH, job
from gpupipe.cli.plan import write_plan
from gpupipe.farm.openjd import template
from gpupipe.media.output import OutputFile, describe_os_error

if TYPE_CHECKING:
    from pathlib import Path

    from gpupipe.cli.console import Console
    from gpupipe.plain import Plain

_SUFFIXES = (".json", ".yaml", ".yml")


def _named(ctx: click.Context, parameter: click.Parameter, value: Path) -> Path:  # noqa: ARG001
    if value.suffix not in _SUFFIXES:
        raise click.BadParameter(f"a template's name ends in {', '.join(_SUFFIXES)}, not {str(value)!r}")
    return value


@click.command(name="template", short_help="Write an Open Job Description template.")
@job
@click.option("-o", "--to", type=PATH, required=True, callback=_named, metavar="FILE",
              help="The template, .yaml or .json; the plan goes beside it, as FILE.plan.")  # fmt: skip
@click.option("--together", type=click.IntRange(min=1), default=1, show_default=True, metavar="K",
              help="Segments a task.")  # fmt: skip
@click.pass_obj
def template_(
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
    to: Path,
    together: int,
) -> None:
    """Write the job that does what CONFIG says to INPUT and writes OUTPUT, for a queue that takes Open Job Description.

    One step renders segments, a task each, on hosts with a GPU where the plan takes one; a second one joins them. Hosts
    need gpupipe, and see the same files under the same paths. Tasks may be run again: what is there is not done twice.
    """
    console.quiet, console.json_log = quiet, log == "json"
    plan = prepare(config, input, output, device=device, strict=strict, keep=True, say=console.say)
    saved = to.with_name(f"{to.name}.plan")
    write_plan(plan, saved, config, overwrite=overwrite)
    _write(
        template(plan, saved.name, together=together, overwrite=overwrite), to, apart(plan, config), overwrite=overwrite
    )
    for notice in plan.warnings:
        console.warning(notice.code, notice.message)
    console.say(f"done: {to}: {len(plan.segments)} segments; the plan is {saved}")
    console.event("done", template=to, plan=saved, segments=len(plan.segments))


def _write(made: dict[str, Plain], path: Path, kept: tuple[Path, ...], *, overwrite: bool) -> None:
    text = json.dumps(made, indent=2) if path.suffix == ".json" else yaml.safe_dump(made, sort_keys=False, width=120)
    with OutputFile(path, overwrite=overwrite, inputs=kept) as target:
        try:
            target.path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise describe_os_error(error, path) from None
        target.commit()
