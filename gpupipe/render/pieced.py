"""A plan carried out by other processes than the one that made it: segments here and there, then the join."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpupipe.errors import MediaError
from gpupipe.plan.placed import with_places
from gpupipe.render.choices import settle
from gpupipe.render.kept import join as join_kept
from gpupipe.render.kept import joined_before, render_missing, telling
from gpupipe.render.ledger import Ledger
from gpupipe.render.pieces import BadPieceError
from gpupipe.render.short import short_memory

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from gpupipe.journal import Journal
    from gpupipe.plan import Plan
    from gpupipe.render.pieces import Piece
    from gpupipe.render.progress import Meter, Outcome, StopFlag

_SHOWN = 8
"""Missing segments that an error names."""


def segments(
    plan: Plan, indices: Sequence[int], *, journal: Journal, stop: StopFlag, meter: Meter, folder: Path | None = None
) -> list[Piece]:
    """Renders some segments into the ledger, as far as they are not there; any number of processes may do so at once.

    Args:
        plan: cut, with a ledger.
        indices: which segments, from 0.
        journal: told of damage and repairs.
        stop: looked at all the time.
        meter: counts what is rendered.
        folder: another place for the ledger, where the files are fetched from.

    Raises what `render.render` raises.
    """
    wanted = sorted(set(indices))
    if wanted and not 0 <= wanted[0] <= wanted[-1] < len(plan.segments):
        raise MediaError(f"the plan has segments 0 to {len(plan.segments) - 1}", where=f"segment {wanted[-1]}")
    plan = with_places(plan)
    with Ledger(plan, shared=True, folder=folder) as ledger, telling(ledger), short_memory():
        ledger.begin(only=wanted)
        if any(index not in ledger.pieces for index in wanted):
            settle(ledger, journal)
        render_missing(ledger, journal, stop, meter=meter, only=wanted)
        return [ledger.pieces[index] for index in wanted]


def join(
    plan: Plan, *, overwrite: bool, journal: Journal, stop: StopFlag, meter: Meter, named: Callable[[], None]
) -> Outcome:
    """Writes the output from a ledger that lacks nothing.

    Args:
        plan: whose segments are all rendered.
        overwrite: whether a file of the output's name may be replaced.
        journal: told of damage and repairs, of all segments.
        stop: looked at all the time.
        meter: counts.
        named: called when the output has its name and the ledger is still there.

    Raises MediaError where segments are missing or were damaged, and what `render.render` raises.
    """
    with Ledger(plan) as ledger:
        if (done := joined_before(ledger, named)) is not None:
            return done
        ledger.begin()
        _complete(ledger)
        for piece in ledger.pieces.values():
            for entry in piece.warnings:
                journal.add(entry)
        with telling(ledger), short_memory():
            try:
                return join_kept(ledger, overwrite=overwrite, journal=journal, stop=stop, meter=meter, named=named)
            except BadPieceError:
                _complete(ledger)
                raise


def _complete(ledger: Ledger) -> None:
    missing = ledger.missing()
    if missing:
        more = ", ..." if len(missing) > _SHOWN else ""
        raise MediaError(
            f"{len(missing)} of {len(ledger.plan.segments)} segments are missing: "
            f"{', '.join(map(str, missing[:_SHOWN]))}{more}",
            where=str(ledger.folder),
            hint="render them by `gpupipe segment PLAN N`, then join again",
        )
