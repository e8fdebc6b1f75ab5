"""What is known of a network in 8 bits on one clip: which convolutions, in what ranges, and how well that does."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

Numbers = Literal["int8", "fp8"]
"""Whole numbers of a range's 127th part, or floats of 4 bits exponent and 3 bits mantissa (E4M3)."""


OCTAVE = 4


class Layer(BaseModel):
    """How one convolution is rounded. Its weights' ranges follow from the weights."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    name: str
    """As `named_modules` has it."""
    top: float = Field(gt=0)
    """Largest magnitude of what comes in, once it is balanced."""
    balance: tuple[int, ...] = ()
    """For each input channel by how many steps, `OCTAVE` of them to a power of two, it is divided and its weights are
    multiplied; empty where nothing is balanced."""


class Recipe(BaseModel):
    """What `engines.calibrate` found for one network on one clip. The same recipe makes the same network everywhere."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    numbers: Numbers
    layers: tuple[Layer, ...]
    convolutions: int
    """How many the network has in all."""
    share: float
    """Part of all multiply-adds that is done in 8 bits."""
    decibels: float
    """Of all pictures held out together, against fp32 for a range of 1."""
    worst: float
    """Of the worst of them."""
    hardest: float | None = None
    """Of the part that has the most contrast in its picture, the worst of them."""
    pictures: int
    """How many were held out."""

    def __str__(self) -> str:
        hardest = "" if self.hardest is None else f", {self.hardest:.1f} dB where contrast is highest"
        found = (
            f"{self.decibels:.1f} dB on {self.pictures} pictures held out, {self.worst:.1f} dB in the worst{hardest}"
        )
        layers = f"{self.numbers} in {len(self.layers)} of {self.convolutions} convolutions"
        return f"{layers}, {self.share:.1%} of the multiply-adds; {found}"
