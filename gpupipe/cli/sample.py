"""`gpupipe sample`: a clip to try things on."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import TYPE_CHECKING

import click

from gpupipe.cli.options import PATH
from gpupipe.sample import make_sample

if TYPE_CHECKING:
    from pathlib import Path

    from gpupipe.cli.console import Console


def _size(ctx: click.Context, parameter: click.Parameter, value: str) -> tuple[int, int]:  # noqa: ARG001
    match = re.fullmatch(r"(\d{1,5})x(\d{1,5})", value)
    if not match:
        raise click.BadParameter(f"a size is WIDTHxHEIGHT, such as 1280x720, not {value!r}")
    return int(match[1]), int(match[2])


def _rate(ctx: click.Context, parameter: click.Parameter, value: str) -> Fraction:  # noqa: ARG001
    match = re.fullmatch(r"([1-9]\d{0,5})(?:/([1-9]\d{0,5}))?", value)
    if not match:
        raise click.BadParameter(f"a rate is frames a second, such as 25 or 24000/1001, not {value!r}")
    return Fraction(int(match[1]), int(match[2] or 1))


@click.command(name="sample", short_help="Write a test clip.")
@click.argument("output", metavar="OUT", type=PATH)
@click.option("--overwrite", is_flag=True, help="Replace a file that exists.")
@click.option("--seconds", type=click.IntRange(1, 3600), default=10, show_default=True)
@click.option("--size", callback=_size, default="1280x720", show_default=True)
@click.option("--rate", callback=_rate, default="25", show_default=True, help="Frames a second, a ratio too.")
@click.pass_obj
def command(
    console: Console, *, output: Path, overwrite: bool, seconds: int, size: tuple[int, int], rate: Fraction
) -> None:
    """Write a test clip to OUT (.mov, .mp4 or .mkv).

    H.264 and AAC, BT.709, timecode from 01:00:00:00, the number of each frame burnt in, colour bars, a gray ramp, a
    moving pattern, a tone and a blip at every second. Every run writes the same bytes.
    """
    make_sample(output, seconds=seconds, size=size, rate=rate, overwrite=overwrite)
    console.say(f"done: {output}: {seconds} s, {size[0]}x{size[1]}, {rate} frames a second")
