"""A network read from a file: callables that take and give named values, one after the other."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import nn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    import torch

Numbers = int | float | bool | list[int] | list[float] | list[bool] | None
"""What stays on the host while the network runs: shapes, axes, scales. Sizes of the picture may be torch.SymInt."""
MOST_INPUTS = 4


@dataclass(frozen=True)
class Step:
    """A layer or function, the names of what it takes (in order) and of what it gives."""

    run: Callable[..., Any]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


class Graph(nn.Module):
    """Takes and gives tensors in the order of `inputs` and `outputs`; one output alone comes without its tuple.

    A value is let go after its last use, so memory is what the network needs and not the sum of its layers.

    Args:
        inputs: names of what `forward` takes.
        outputs: names of what it gives.
        steps: sorted, each after those whose values it takes.
        constants: tensors by name; they move and change precision with the module.
        numbers: host values by name.
        names: what the file calls constants, where that is not the name that steps have for them.
        sizes: of each input, as the file says; None where it leaves one open.
    """

    def __init__(
        self,
        inputs: Sequence[str],
        outputs: Sequence[str],
        steps: Iterable[Step],
        constants: Mapping[str, torch.Tensor],
        numbers: Mapping[str, Numbers],
        *,
        names: Mapping[str, str] | None = None,
        sizes: Sequence[Sequence[int | None]] = (),
    ) -> None:
        super().__init__()
        if len(inputs) > MOST_INPUTS:
            raise ValueError(f"more than {MOST_INPUTS} inputs")
        self.sizes = tuple(tuple(one) for one in sizes)
        self.inputs, self.outputs, self._steps = tuple(inputs), tuple(outputs), tuple(steps)
        self.layers = nn.ModuleList(step.run for step in self._steps if isinstance(step.run, nn.Module))
        places = iter(range(len(self.layers)))
        self._places = tuple(next(places) if isinstance(step.run, nn.Module) else None for step in self._steps)
        used = {name for step in self._steps for name in step.inputs} | set(self.outputs)
        self._buffers_of = {name: f"constant_{i}" for i, name in enumerate(n for n in constants if n in used)}
        for name, buffer in self._buffers_of.items():
            self.register_buffer(buffer, constants[name])
        self._numbers = {name: value for name, value in numbers.items() if name in used}
        called = {value.data_ptr(): (names or {}).get(name, name) for name, value in constants.items()}
        kept = self.state_dict().items()
        self.weights = {called[value.data_ptr()]: own for own, value in kept if value.data_ptr() in called}
        """The file's names of weights to those in `state_dict`, for weights that are kept as they are in the file."""
        self._spent = _last_uses(self._steps, self.outputs)

    def forward(
        self,
        x: torch.Tensor,
        second: torch.Tensor | None = None,
        third: torch.Tensor | None = None,
        fourth: torch.Tensor | None = None,
    ) -> Any:
        """The outputs; raises ValueError where the number of inputs is wrong."""
        given = [value for value in (x, second, third, fourth) if value is not None]  # names: for torch.export's sake
        values: dict[str, Any] = dict(zip(self.inputs, given, strict=True))
        values.update(self._numbers)
        for name, buffer in self._buffers_of.items():
            values[name] = getattr(self, buffer)
        for step, place, spent in zip(self._steps, self._places, self._spent, strict=True):
            run = step.run if place is None else self.layers[place]  # a layer may have been replaced
            out = run(*[values[name] for name in step.inputs])
            if len(step.outputs) == 1:
                values[step.outputs[0]] = out
            else:
                values.update(zip(step.outputs, out, strict=True))
            for name in spent:
                del values[name]
        results = tuple(values[name] for name in self.outputs)
        return results[0] if len(results) == 1 else results

    def followed(self) -> list[tuple[int, int]]:
        """Places in `layers` of pairs: the second takes what the first gives and nothing else, and nobody else does."""
        return [(fed[0], place) for place, fed in self.fed().items() if len(fed) == 1 and fed[0] is not None]

    def fed(self) -> dict[int, tuple[int | None, ...]]:
        """By place in `layers`: those of the layers whose results it takes and nobody else, each their only one.

        In the order of its inputs; None for an input that somebody else takes, too, or that no layer gives alone.
        """
        takers = Counter(name for step in self._steps for name in step.inputs) + Counter(self.outputs)
        giver = {
            step.outputs[0]: place
            for step, place in zip(self._steps, self._places, strict=True)
            if len(step.outputs) == 1 and takers[step.outputs[0]] == 1
        }
        return {
            place: tuple(giver.get(name) for name in step.inputs)
            for step, place in zip(self._steps, self._places, strict=True)
            if place is not None
        }


def _last_uses(steps: tuple[Step, ...], kept: tuple[str, ...]) -> list[tuple[str, ...]]:
    """For each step, what nobody wants after it."""
    seen, spent = set(kept), []
    for step in reversed(steps):
        fresh = dict.fromkeys(name for name in (*step.inputs, *step.outputs) if name not in seen)
        seen.update(fresh)
        spent.append(tuple(fresh))
    return spent[::-1]
