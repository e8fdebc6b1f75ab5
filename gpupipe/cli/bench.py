"""`gpupipe bench`: how fast a config runs here, part by part."""

from __future__ import annotations

import re
import shlex
from contextlib import ExitStack
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from gpupipe.bench import ENCODES, RECIPES, Report, Request, bench
from gpupipe.bench.chart import chart as chart_of
from gpupipe.bench.chart import obstacle
from gpupipe.bench.text import lines
from gpupipe.bench.text import markdown as markdown_of
from gpupipe.cli.job import whose_keys
from gpupipe.cli.options import PATH, device
from gpupipe.cli.stop import stopping
from gpupipe.config import MOST_SESSIONS, load_config
from gpupipe.media.output import OutputFile, describe_os_error

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpupipe.cli.console import Console

_CONTENTS: dict[str, Callable[[Report], bytes]] = {
    "json": lambda report: report.to_json().encode(),
    "markdown": lambda report: markdown_of(report).encode(),
    "chart": chart_of,
}
_NOT_ASKED = {*_CONTENTS, "overwrite", "quiet"}


def _numbers(ctx: click.Context, parameter: click.Parameter, value: str | None) -> tuple[int, ...]:  # noqa: ARG001
    words = value.split(",") if value else []
    if not all(re.fullmatch(r"[1-9][0-9]?", word) and int(word) <= MOST_SESSIONS for word in words):
        raise click.BadParameter(f"numbers of sessions are 1 to {MOST_SESSIONS}, such as 1,7,14, not {value!r}")
    return tuple(map(int, words))


def _names(ctx: click.Context, parameter: click.Parameter, value: str | None) -> tuple[str, ...]:  # noqa: ARG001
    return tuple(filter(None, value.split(","))) if value else ()


@click.command(name="bench", short_help="Measure how fast a config runs here, part by part.")
@click.argument("config", type=PATH, required=False)
@click.option("--input", type=PATH, help="Measure on this file; by default on a generated clip.")
@click.option("--codec", type=click.Choice(list(RECIPES)), default="h264", help="Of the generated clip.")
@click.option("--frames", type=click.IntRange(30), help="Of the clip; at most so many of INPUT.")
@click.option("--encode", type=click.Choice(list(ENCODES)), help="Instead of the config's encoder.")
@click.option("--sessions", callback=_numbers, metavar="N,N,...", help="Numbers of decoders to try.")
@click.option("--only", callback=_names, metavar="ROW,ROW,...", help="Measure only these rows.")
@click.option("--runs", type=click.IntRange(1, 99), default=3, show_default=True, help="Of each row.")
@device
@click.option("--json", type=PATH, help="Write all figures to this file.")
@click.option("--markdown", type=PATH, help="Write the table to this file.")
@click.option("--chart", type=PATH, help="Draw the figures into this PNG.")
@click.option("--overwrite", is_flag=True, help="Replace files that exist.")
@click.option("--quiet", is_flag=True, help="Nothing on stderr but errors.")
@click.pass_obj
def command(
    console: Console,
    *,
    config: Path | None,
    input: Path | None,  # noqa: A002  (click names the parameter as the user sees it)
    codec: str,
    frames: int | None,
    encode: str | None,
    sessions: tuple[int, ...],
    only: tuple[str, ...],
    runs: int,
    device: str | None,
    json: Path | None,
    markdown: Path | None,
    chart: Path | None,
    overwrite: bool,
    quiet: bool,
) -> None:
    """Measure CONFIG, or a warp and an overlay where none is given, and print a table.

    \b
    Rows: decode        decoders alone, nothing done with the frames
          each step     the same and all steps up to this one
          encode        encoded, not written
          whole         `gpupipe run`, to a file
          encoder-alone the encoder, fed from memory
          cpu           the same config on the CPU
          host-pipe     libav, numpy, GPU, numpy, libav: the usual way

    What comes out is checked first; then each row is warmed up and timed RUNS times, round by round.
    """  # noqa: D301  (\b is click's)
    console.quiet = quiet
    settings = None if config is None else load_config(config)
    if input is None and settings is not None and settings.input is not None:
        input = Path(settings.input)  # noqa: A001
    request = Request(_command_line(), settings, encode, input, codec, device, frames, runs, sessions, only)
    files = {name: path for name, path in zip(_CONTENTS, (json, markdown, chart), strict=True) if path is not None}
    if "chart" in files and (why := obstacle()):
        console.warning("no-chart", f"the chart is left out: {why}")
        del files["chart"]
    stop, inputs = Event(), tuple(filter(None, (input, config)))
    with ExitStack() as stack:
        outputs = {
            name: stack.enter_context(OutputFile(path, overwrite=overwrite, inputs=inputs))
            for name, path in files.items()
        }
        stack.enter_context(stopping(stop, console))
        stack.enter_context(whose_keys(config or Path("the built-in chain")))
        report = bench(request, say=console.say, stop=stop)
        for name, output in outputs.items():
            _write(output, _CONTENTS[name](report))
    console.data(lines(report))


def _command_line() -> str:
    """What was asked for, without where the report goes."""
    context = click.get_current_context()
    words = ["gpupipe", "bench"]
    for parameter in context.command.params:
        name = str(parameter.name)
        if context.get_parameter_source(name) != ParameterSource.COMMANDLINE or name in _NOT_ASKED:
            continue
        value = context.params[name]
        text = ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
        words += [text] if isinstance(parameter, click.Argument) else [f"--{name}", text]
    return shlex.join(words)


def _write(output: OutputFile, content: bytes) -> None:
    try:
        output.path.write_bytes(content)
    except OSError as error:
        raise describe_os_error(error, output.name) from None
    output.commit()
