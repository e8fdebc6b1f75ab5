"""`gpupipe preview`: pictures of a run without the run."""

from __future__ import annotations

from itertools import chain
from math import ceil, sqrt
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpupipe.cli.job import prepare
from gpupipe.cli.options import PATH, device
from gpupipe.config import load_config
from gpupipe.media.output import OutputFile, describe_os_error
from gpupipe.render.stills import moments, spread, stills

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpupipe.cli.console import Console
    from gpupipe.plan import Plan
    from gpupipe.render.stills import Still

THUMBNAIL = 480
"""Pixels: width of a picture on a contact sheet."""
_ANY = Path("preview.mkv")
"""Stands for the output where neither config nor command line name one: pixels do not depend on it."""


def _times(ctx: click.Context, parameter: click.Parameter, value: str | None) -> tuple[str, ...]:  # noqa: ARG001
    return tuple(filter(None, (word.strip() for word in (value or "").split(","))))


def _picture(ctx: click.Context, parameter: click.Parameter, value: Path) -> Path:  # noqa: ARG001
    if value.suffix.lower() not in (".png", ".html"):
        raise click.BadParameter(f"a preview is a .png or a .html, not {value.name!r}")
    return value


@click.command(name="preview", short_help="Look at pictures as a run would make them.")
@click.argument("config", type=PATH)
@click.argument("input", type=PATH, required=False)
@click.option("--at", callback=_times, metavar="TIME[,TIME]", help="As `range.start` takes it: 12.5, 00:01:02.5, ...")
@click.option("--contact", type=click.IntRange(1, 100), help="A sheet of so many pictures, evenly over the range.")
@click.option("-o", "--output", type=PATH, required=True, callback=_picture, help="A PNG, or a page with sliders.")
@click.option("--show", type=click.Choice(["both", "before", "after"]), default="both", show_default=True,
              help="What a PNG holds.")  # fmt: skip
@device
@click.option("--overwrite", is_flag=True, help="Replace a file that exists.")
@click.option("--quiet", is_flag=True, help="Nothing on stderr but errors.")
@click.pass_obj
def command(
    console: Console,
    *,
    config: Path,
    input: Path | None,  # noqa: A002  (click names the parameter as the user sees it)
    at: tuple[str, ...],
    contact: int | None,
    output: Path,
    show: str,
    device: str | None,
    overwrite: bool,
    quiet: bool,
) -> None:
    """Write what CONFIG makes of INPUT at some times: exactly the pixels that `gpupipe run` would encode.

    Shown is the first picture at or after each TIME. A PNG has a row for each, before and after side by side, 16 bits
    deep where the pictures are deeper than 8; R'G'B' in their own primaries and transfer.
    """
    if bool(at) == bool(contact):
        raise click.UsageError("give --at TIME[,TIME] or --contact N")
    console.quiet = quiet
    with OutputFile(output, overwrite=overwrite, inputs=tuple(filter(None, (input, config)))) as target:
        result = load_config(config).output.path or _ANY
        plan = prepare(config, input, Path(result), device=device, strict=False, say=console.say)
        if at:
            found = stills(plan, moments(at, plan))
        else:  # of a file that is shorter than it says, or of few pictures, what there is
            each = {still.pts: still for still in stills(plan, spread(contact or 1, plan), beyond=True)}
            found = tuple(each.values())
        page = output.suffix.lower() == ".html"
        content = _page(found, plan, config) if page else _png(found, show, small=contact is not None)
        try:
            target.path.write_bytes(content)
        except OSError as error:
            raise describe_os_error(error, target.name) from None
        target.commit()
    console.say(f"done: {output}: at {', '.join(f'{float(still.seconds):.3f} s' for still in found)}")


def _page(found: Sequence[Still], plan: Plan, config: Path) -> bytes:
    from gpupipe.report.page import comparison, preview_page  # noqa: PLC0415  only where a page is wanted

    steps = ", ".join(step.name for step in plan.steps if step.kind == "stage") or "no stages"
    subtitle = f"{config} ({steps}); as {plan.encoder.encoder} would get it"
    return preview_page(plan.source.path.name, subtitle, [comparison(still) for still in found]).encode(
        errors="backslashreplace"
    )


def _png(found: Sequence[Still], show: str, *, small: bool) -> bytes:
    from gpupipe.report.image import png, reduced, rgb, sheet  # noqa: PLC0415  imports torch

    shown = {"before": ("before",), "after": ("after",), "both": ("before", "after")}[show]
    rows = [[rgb(getattr(still, which)) for which in shown] for still in found]
    if small:
        columns = max(1, ceil(sqrt(len(rows))) // len(shown))
        cells = [[reduced(picture, THUMBNAIL) for picture in row] for row in rows]
        rows = [list(chain.from_iterable(cells[n : n + columns])) for n in range(0, len(cells), columns)]
    one = len(rows) == 1 and len(rows[0]) == 1
    return png(rows[0][0] if one else sheet(rows), found[0].after.format.color)
