"""What lanes note reaches the run's journal."""

from __future__ import annotations

from gpupipe.journal import Journal, Notes


def test_a_lane_is_heard() -> None:
    warned, said = [], []
    journal = Journal(lambda entry: warned.append(entry.code), said.append)
    notes = Notes(journal)
    notes.say("building for minutes")
    notes.warn("odd", "an odd thing", place="pts 3")
    assert (said, warned) == (["building for minutes"], ["odd"])
    (taken,) = notes.take()
    assert (taken.code, taken.places, notes.take()) == ("odd", ["pts 3"], ())
