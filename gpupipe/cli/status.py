"""`gpupipe status`: how far a run is that keeps its segments."""

from __future__ import annotations

import time
from itertools import groupby
from typing import TYPE_CHECKING

import click

from gpupipe.cli.options import PATH, as_json
from gpupipe.cli.words import ago, size
from gpupipe.errors import MediaError
from gpupipe.plain import plain
from gpupipe.render.status import Status, status

if TYPE_CHECKING:
    from pathlib import Path

    from gpupipe.cli.console import Console


@click.command(name="status", short_help="How far a stopped or running job is.")
@click.argument("output", type=PATH)
@click.option("--verify", is_flag=True, help="Read and hash every segment, as a run does before it goes on.")
@as_json
@click.pass_obj
def command(console: Console, *, output: Path, verify: bool, as_json: bool) -> None:
    """Say what OUTPUT.gpupipe holds: segments done and missing, what failed, whether a run is at work.

    It only looks, and may be asked while a run goes on.
    """
    found = status(output, thorough=verify)
    if found.folder is None and not found.written:
        raise MediaError("there is neither an output nor a ledger", where=str(output), hint="check the path")
    if as_json:
        facts = plain(found)
        assert isinstance(facts, dict)
        console.json({**facts, "missing": found.missing})
    else:
        console.data(lines(found))


def lines(found: Status) -> list[str]:
    """One fact a line."""
    there = "written" if found.written else "not written yet"
    out = [f"output   {found.output}: {there}"]
    if found.folder is None:
        return [*out, "ledger   none: the run is over, or keeps nothing"]
    share = f" ({100 * found.frames // found.expected} %)" if found.expected else ""
    age = ago(time.time() - found.touched)
    out.append(f"ledger   {found.folder}: {size(found.size)}, last written {age} ago")
    out.append(f"segments {len(found.done)} of {found.segments} done")
    out.append(f"frames   {found.frames} of {found.expected}{share}, {found.bytes / 1e6:.1f} MB")
    if found.missing:
        out.append(f"missing  {ranges(found.missing)}")
    if found.damaged:
        out.append(f"damaged  {ranges(found.damaged)}: rendered again by the next run")
    out.append(f"begun    {found.begun or 'unknown'}, last segment finished {found.last or 'never'}")
    out += [f"trouble  {text}" for text in found.failures]
    idle = "nobody is at work on it; the same command goes on, `gpupipe clean` removes it"
    next_ = "a run is at work on it" if found.busy else idle
    return [*out, f"now      {next_}"]


def ranges(numbers: tuple[int, ...]) -> str:
    """`0-3, 7`."""
    out = []
    for _, group in groupby(enumerate(numbers), lambda pair: pair[1] - pair[0]):
        run = [number for _, number in group]
        out.append(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}")
    return ", ".join(out)
