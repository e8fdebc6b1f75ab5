"""Which convolutions of a network may compute in 8 bits on a clip, and in what ranges: measured on its own pictures.

A layer has one range for all of its input, since that is what the hardware has, while channels differ a hundredfold.
So channels are balanced: divided by what their weights are multiplied by, near top^a / weight^(1 - a) for each, as
SmoothQuant (Xiao et al. 2022, arXiv 2211.10438, eq. 4) and cross-layer equalisation (Nagel et al. 2019, arXiv
1906.04721) have it. How far, and whether the range is cut, is tried layer by layer and taken from the error of the
layer's own output. Correcting biases gave 0.2 dB on the cards' networks, and is left out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import nn

from gpupipe.engines.check import agreement
from gpupipe.errors import EngineError
from gpupipe.models.quantised import Convolution, quantisable, quantised
from gpupipe.models.recipe import OCTAVE, Layer, Recipe

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpupipe.models.recipe import Numbers

Parts = tuple[torch.Tensor, ...]
"""Of one picture, equal in size: what it is measured by where measuring all of it takes too long."""
Pairs = tuple[tuple[tuple[torch.Tensor, torch.Tensor], ...], ...]
"""Pictures, each as parts and what the network makes of them."""
SLACK = 6.0
"""dB that one picture may be below all of them together."""
WORTH = 0.5
"""Share of the multiply-adds below which 8 bits are not worth their loss."""
_BALANCES, _CUTS = (1.0, 0.75, 0.5), (1.0, 0.7, 0.5, 0.35)
"""What is tried: how much of the balance goes by activations, and what part of the whole range is kept."""
_PATCH = 40
"""Side of what is kept of a layer's input to try on: the middle, and around the largest value."""
_TOLD_BY = 3
"""Pictures that the layers' sensitivity is measured on."""
_FURTHEST = 8
"""Most powers of two that a channel is moved by."""


@dataclass(frozen=True)
class Use:
    """What a convolution was seen to do."""

    name: str
    module: nn.Conv2d
    tops: torch.Tensor
    """Largest magnitude of each input channel."""
    work: int
    """Multiply-adds on all pictures."""
    patches: tuple[torch.Tensor, ...]
    """Of its inputs."""


def calibrate(
    network: nn.Module, seen: Sequence[torch.Tensor], held_out: Sequence[Parts], numbers: Numbers, least: float
) -> Recipe:
    """The recipe with the most multiply-adds in 8 bits that keeps the pictures held out at `least` dB.

    That is of all of them together, as PSNR of a clip is, while each alone keeps `SLACK` less.

    The first and the last convolution stay in floats. Where all others lose too much, those stay in floats too that
    alone lose the most for their work, as few as do (found by bisection).

    Args:
        network: in fp32, evaluation mode.
        seen: pictures that ranges and sensitivities are measured on, each 1 x C x H x W.
        held_out: others, which the result is measured on, picture by picture.
        numbers: `int8` or `fp8`.
        least: dB for a range of 1 against fp32.

    Raises:
        EngineError: it has no such convolutions, or too few of them do; one line says what was measured.
    """
    uses = watched(network, seen)
    inner = [use for use in uses[1:-1] if quantisable(use.module)]
    if not inner:
        raise EngineError(f"it has no convolutions for {numbers} between its first and its last")
    trial = _Trial(
        network, uses, {use.name: layer_of(use, numbers) for use in inner}, _pairs(network, held_out), numbers
    )
    found = whole = trial(inner)
    if not _kept(whole, least):
        found = _with_fewer(
            trial, _least_sensitive_first(trial, inner, _pairs(network, [(one,) for one in seen[:_TOLD_BY]])), least
        )
    if found.share < WORTH:
        part = f"{found.share:.0%} of the multiply-adds in it keep" if found.layers else "no part of it keeps"
        raise EngineError(f"{numbers} gives {whole.decibels:.1f} dB of {least:g}, and {part} that")
    return found


def _pairs(network: nn.Module, pictures: Sequence[Parts]) -> Pairs:
    return tuple(tuple((x, network(x)) for x in parts) for parts in pictures)


def _kept(recipe: Recipe, least: float) -> bool:
    return recipe.decibels >= least and recipe.worst >= least - SLACK


def _figure(decibels: float) -> float:
    return round(max(min(decibels, 200.0), -200.0), 2)


def _together(decibels: Sequence[float]) -> float:
    """Of equal parts: errors add up, decibels do not."""
    error = sum(10 ** (-found / 10) for found in decibels) / len(decibels)
    return math.inf if error == 0 else -10 * math.log10(error)


@dataclass(frozen=True)
class _Trial:
    """Makes and measures recipes of one network."""

    network: nn.Module
    uses: Sequence[Use]
    layers: dict[str, Layer]
    held_out: Pairs
    numbers: Numbers

    def recipe(self, some: Sequence[Use], measured: Sequence[float] = (0.0,)) -> Recipe:
        """With these convolutions in 8 bits, and what that gave for each picture."""
        share = sum(use.work for use in some) / sum(use.work for use in self.uses)
        return Recipe(
            numbers=self.numbers, layers=tuple(self.layers[use.name] for use in some), convolutions=len(self.uses),
            share=round(share, 4), decibels=_figure(_together(measured)),
            worst=_figure(min(measured)), pictures=len(self.held_out),
        )  # fmt: skip

    def agreements(self, some: Sequence[Use], pairs: Pairs) -> list[float]:
        """Of each picture, in dB."""
        network = quantised(self.network, self.recipe(some))
        return [_together([agreement(network(x), wanted) for x, wanted in parts]) for parts in pairs]

    def __call__(self, some: Sequence[Use]) -> Recipe:
        """The recipe, measured on the pictures held out."""
        return self.recipe(some, self.agreements(some, self.held_out))


def _least_sensitive_first(trial: _Trial, uses: Sequence[Use], pairs: Pairs) -> list[Use]:
    """By the error that a convolution alone makes, for each multiply-add that it saves."""
    cost = {}
    for use in uses:
        error = sum(10 ** (-found / 10) for found in trial.agreements([use], pairs))
        cost[use.name] = error / use.work
    return sorted(uses, key=lambda use: cost[use.name])  # stable: the network's order decides where they are alike


def _with_fewer(trial: _Trial, ordered: Sequence[Use], least: float) -> Recipe:
    """As many of `ordered` from its beginning on as keep `least` dB; none where one alone is too much."""
    found, enough, beyond = trial.recipe([]), 0, len(ordered)  # `beyond` of them are known to be too many
    while beyond - enough > 1:
        count = (enough + beyond) // 2
        tried = trial(ordered[:count])
        if _kept(tried, least):
            found, enough = tried, count
        else:
            beyond = count
    return found


def watched(network: nn.Module, pictures: Sequence[torch.Tensor]) -> list[Use]:
    """Every convolution in the order in which it runs first."""
    tops: dict[nn.Conv2d, torch.Tensor] = {}
    work: dict[nn.Conv2d, int] = {}
    patches: dict[nn.Conv2d, list[torch.Tensor]] = {}

    def watch(module: nn.Module, inputs: tuple[torch.Tensor, ...], out: torch.Tensor) -> None:
        assert isinstance(module, nn.Conv2d)
        top = inputs[0].float().abs().amax((0, 2, 3))
        tops[module] = torch.maximum(tops[module], top) if module in tops else top
        work[module] = work.get(module, 0) + out.numel() * module.weight[0].numel()
        patches.setdefault(module, []).extend(_patches(inputs[0]))

    names = {module: name for name, module in network.named_modules() if isinstance(module, nn.Conv2d)}
    hooks = [module.register_forward_hook(watch) for module in names]
    try:
        for picture in pictures:
            network(picture)
    finally:
        for hook in hooks:
            hook.remove()
    return [Use(names[module], module, top, work[module], tuple(patches[module])) for module, top in tops.items()]


def _patches(x: torch.Tensor) -> list[torch.Tensor]:
    height, width = x.shape[-2:]
    row, column = divmod(int(x.abs().amax((0, 1)).argmax()), width)
    middles = ((height // 2, width // 2), (row, column))
    corners = [
        [max(0, min(m - _PATCH // 2, s - _PATCH)) for m, s in zip(at, (height, width), strict=True)] for at in middles
    ]
    return [x[..., top : top + _PATCH, left : left + _PATCH].clone() for top, left in corners]


def layer_of(use: Use, numbers: Numbers) -> Layer:
    """What gives the least error of the layer's own output on its patches.

    Ranges have four digits: what another processor computes differs in the seventh, and is to be the same recipe.
    """
    tops = use.tops.double().clamp(min=max(float(use.tops.max()) * 1e-6, 1e-9))
    if numbers == "fp8":  # a float's precision is that of its own size: nothing to balance, nothing to cut
        return Layer(name=use.name, top=_rounded(float(tops.max())))
    weights = use.module.weight.detach().double().abs().amax((0, 2, 3))
    weights = weights.clamp(min=max(float(weights.max()) * 1e-6, 1e-9))
    wanted = [_output(use.module, patch) for patch in use.patches]
    found: list[tuple[float, Layer]] = []
    for part in _BALANCES:
        powers = part * tops.log2() - (1 - part) * weights.log2()
        steps = ((powers - powers.median()).clamp(-_FURTHEST, _FURTHEST) * OCTAVE).round()
        balance, top = tuple(int(step) for step in steps), float((tops / (steps / OCTAVE).exp2()).max())
        for cut in _CUTS:
            layer = Layer(name=use.name, top=_rounded(top * cut), balance=balance)
            tried = Convolution(use.module, layer, numbers).eval()
            errors = [
                float((_output(tried, patch) - exact).double().square().sum())
                for patch, exact in zip(use.patches, wanted, strict=True)
            ]
            found.append((sum(errors), layer))
    return min(found, key=lambda pair: pair[0])[1]


def _output(module: nn.Module, patch: torch.Tensor) -> torch.Tensor:
    made: torch.Tensor = module(patch)
    return made


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")
