"""What a network runs on in one run: made up once, where it begins, and held to by all who render pieces of it."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpupipe.engines.select import named
from gpupipe.errors import CapabilityError, EngineError

if TYPE_CHECKING:
    from collections.abc import Iterator

_HINT = "install it, or begin anew by --restart"


@dataclass(frozen=True, slots=True)
class Choice:
    """All that `auto` leaves to the machine and that shows in pixels.

    Engines differ by what `check.LEAST` allows, visible or not; batches and tiles in the last bits of a float.
    """

    network: str
    """Its name in its stage."""
    engine: str
    precision: str
    batch: int
    """Pictures, or windows, at once: engines are built for it, and shorter batches are filled up."""
    tile: int | None
    """Side of what is kept of a window; None where pictures go through whole."""
    versions: tuple[tuple[str, str], ...]
    """Of the engine's libraries, by name."""
    stage: int = 0
    """Of which stage of the plan, counted from 0 without what the planner puts between them."""


def versions_of(engine: str) -> tuple[tuple[str, str], ...]:
    """Of its libraries, by name, as they are here."""
    return tuple(sorted(named(engine).versions().items()))


@contextmanager
def holding(choice: Choice | None, device: str) -> Iterator[None]:
    """Around the making of a network that is to run as it was chosen elsewhere, or before.

    Raises CapabilityError, in one line that says what is missing, where it cannot here: something else would be seen
    in the picture from here on.
    """
    if choice is None:
        yield
        return
    where, begun = f"model {choice.network}", f"the run was begun on engine {choice.engine}"
    if why := _missing(choice, device):
        raise CapabilityError(f"{begun}, and here {why}", where=where, hint=_HINT)
    try:
        yield
    except EngineError as error:
        raise CapabilityError(f"{begun}, and here {error.message}", where=where, hint=_HINT) from error


def _missing(choice: Choice, device: str) -> str | None:
    try:
        engine = named(choice.engine)
    except StopIteration:
        return "there is none of that name"
    if (why := engine.absent(device)) is not None:
        return why
    before, now = dict(choice.versions), engine.versions()
    for name in sorted({*before, *now}):
        if before.get(name) != now.get(name):
            return f"{name} is {now.get(name, 'not installed')}, it was {before.get(name, 'not installed')}"
    return None
