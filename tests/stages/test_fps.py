"""fps: which spellings of a rate are exact."""

from __future__ import annotations

from fractions import Fraction

import pytest

from gpupipe import stages

FPS = stages.load("fps")


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        (25, Fraction(25)),
        (25.0, Fraction(25)),
        (12.5, Fraction(25, 2)),
        ("24000/1001", Fraction(24000, 1001)),
        (23.976, Fraction(24000, 1001)),
        (29.97, Fraction(30000, 1001)),
        ("59.94", Fraction(60000, 1001)),
        (119.88, Fraction(120000, 1001)),
        ("1/2", Fraction(1, 2)),
    ],
)
def test_exact_rates(text: object, rate: Fraction) -> None:
    settings = FPS.Settings.model_validate({"rate": text})
    assert FPS(settings).rate == rate
    again = FPS.Settings.model_validate(settings.model_dump(mode="json"), strict=False)  # as the plan writes it
    assert again == settings


@pytest.mark.parametrize("text", [0, -25, 23.9, 29.971, "film", "1/0", True, [25], 100000, float("nan"), float("inf")])
def test_what_is_no_exact_rate(text: object) -> None:
    with pytest.raises(ValueError, match="rate"):
        FPS.Settings.model_validate({"rate": text})
