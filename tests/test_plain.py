"""Plans and reports as JSON's own types."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction

import pytest

from gpupipe.plain import parsed, plain


def test_what_is_no_part_of_a_repr_is_left_out() -> None:
    @dataclass
    class Piece:
        start: Fraction
        index: list[int] = field(default_factory=list, repr=False)

    assert plain(Piece(Fraction(1, 3), [1] * 1000)) == {"start": "1/3"}


@pytest.mark.parametrize("text", ["[" * 200_000, '{"a":' * 200_000, "", "\ud800", "[" + "9" * 5000 + "]", b"\xff"])
def test_what_is_no_json_is_one_kind_of_error(text: str | bytes) -> None:
    with pytest.raises(ValueError):
        parsed(text)
