"""One node of an ONNX graph while it is turned into a callable."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpupipe.errors import MediaError

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch

    from gpupipe.models.graph import Numbers


class Node:
    """What a builder asks for. Attributes and weights it takes are ticked off, so nothing is passed over in silence.

    Args:
        op: operator, as ONNX names it.
        where: file and node, for errors.
        opset: version of the operator set.
        inputs: names of values, "" for one left out.
        outputs: names of values.
        attributes: Python values by name; tensors as torch tensors.
        constants: tensors known when reading.
    """

    def __init__(
        self,
        op: str,
        where: str,
        *,
        opset: int,
        inputs: list[str],
        outputs: list[str],
        attributes: dict[str, Any],
        constants: Mapping[str, torch.Tensor],
    ) -> None:
        self.op, self.where, self.opset, self.inputs, self.outputs = op, where, opset, inputs, outputs
        self._attributes, self._constants = attributes, constants
        self.taken: set[int] = set()
        self.host: set[int] = set()

    def wrong(self, message: str) -> MediaError:
        """An error that names the node."""
        return MediaError(message, where=self.where)

    def get(self, name: str, default: Any = None) -> Any:
        """An attribute, ticked off."""
        return self._attributes.pop(name, default)

    def peek(self, name: str) -> Any:
        """An attribute, not ticked off."""
        return self._attributes.get(name)

    def only(self, name: str, *allowed: Any) -> None:
        """Ticks off an attribute that may be missing or one of `allowed`; the first is ONNX's default."""
        value = self.get(name, allowed[0])
        if value not in allowed:
            raise self.wrong(f"{name}={value!r} is not read, only {', '.join(repr(one) for one in allowed)}")

    def has(self, index: int) -> bool:
        """Whether the node has that input."""
        return index < len(self.inputs) and self.inputs[index] != ""

    def weight(self, index: int) -> torch.Tensor | None:
        """A constant input, or None where it is computed or left out."""
        return self._constants.get(self.inputs[index]) if self.has(index) else None

    def take(self, index: int) -> torch.Tensor | None:
        """A constant input that the callable keeps, so it is not passed to it."""
        value = self.weight(index)
        if value is not None:
            self.taken.add(index)
        return value

    def on_host(self, *indices: int) -> None:
        """Says which inputs the callable wants as Python numbers."""
        self.host.update(indices)

    def fixed(self, index: int) -> Numbers:
        """A constant input as Python numbers, kept by the callable. Raises MediaError where it is computed."""
        if not self.has(index):
            return None
        value = self.take(index)
        if value is None:
            raise self.wrong(f"its input {self.inputs[index]!r} is computed while it runs; only a fixed one is read")
        return value.tolist()

    def done(self) -> None:
        """Raises MediaError for an attribute that no builder asked for."""
        if self._attributes:
            raise self.wrong(f"the attribute {min(self._attributes)} of {self.op} is not read")
