"""`gpupipe clean`: takes away what runs have kept that nobody goes on with."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from gpupipe.cli import DONE
from gpupipe.cli.options import PATH, as_json
from gpupipe.cli.words import ago, size
from gpupipe.errors import GpupipeError, MediaError
from gpupipe.plain import plain
from gpupipe.render.leftover import Leftover, find, remove

if TYPE_CHECKING:
    from pathlib import Path

    from gpupipe.cli.console import Console

LEFT = 1
"""Exit code where something that was to go is still there, or could not be looked at."""
_DAY = 24 * 3600


@click.command(name="clean", short_help="Remove what stopped jobs have kept.")
@click.argument("places", metavar="OUTPUT|DIR...", type=PATH, nargs=-1, required=True)
@click.option("--older-than", "days", type=click.FloatRange(min=0), default=0.0, metavar="DAYS",
              help="Only where nothing was written for so long.")  # fmt: skip
@click.option("--yes", is_flag=True, help="Remove them; without it they are only shown.")
@as_json
@click.pass_obj
def command(console: Console, *, places: tuple[Path, ...], days: float, yes: bool, as_json: bool) -> int:
    """Show the kept segments of OUTPUT, or of all outputs below DIR, with age and size, and remove them with --yes.

    What is removed has to be rendered again. A run that is at work keeps its own; segments that a queue renders one by
    one by `gpupipe segment` have nobody at work between two of them, so leave them some days. Outputs, and files that
    are not a run's own, stay.
    """
    now = time.time()
    refused: list[MediaError] = []
    there = {one.folder.resolve(): one for place in places for one in find(place, refused.append)}
    for text in dict.fromkeys(str(error) for error in refused):
        console.say(f"left out: {text}")
    found = [one for one in there.values() if now - one.touched >= days * _DAY]
    ended = {one.folder: _remove(console, one) if yes else "busy" if one.busy else "there" for one in found}
    if as_json:
        console.json([{**_facts(one), "state": ended[one.folder]} for one in found])
        return _code(ended, yes=yes, refused=bool(refused))
    for one in found:
        what = f"{one.segments} segments, {size(one.size)}, last written {ago(now - one.touched)} ago"
        console.data([f"{ended[one.folder]:8} {one.folder}: {what}"])
    gone = [one for one in found if ended[one.folder] == "removed"]
    total = size(sum(one.size for one in (gone if yes else found)))
    told = f"{len(gone)} of {len(found)} removed, {total}" if yes else f"{len(found)} found, {total}"
    console.say(told if yes or not found else f"{told}; --yes removes those that nobody is at work on")
    return _code(ended, yes=yes, refused=bool(refused))


def _remove(console: Console, one: Leftover) -> str:
    """What became of it; one that cannot go does not stop the others."""
    if one.busy:
        console.say(f"{one.output}: another run is at work on it")
        return "busy"
    try:
        whole = remove(one)
    except GpupipeError as error:
        console.say(str(error))
        return "left"
    if not whole:
        console.say(f"{one.folder}: it is not empty: what is no run's own, or may not be removed, was left in it")
    return "removed" if whole else "left"


def _code(ended: dict[Path, str], *, yes: bool, refused: bool) -> int:
    return LEFT if refused or (yes and any(state != "removed" for state in ended.values())) else DONE


def _facts(one: Leftover) -> dict[str, object]:
    facts = plain(one)
    assert isinstance(facts, dict)
    return dict(facts)
