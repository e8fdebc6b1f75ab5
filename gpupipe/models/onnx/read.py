"""From an ONNX file to a `Graph`: parsed, constants computed, every node looked up in tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import onnx
import torch
from google.protobuf.message import DecodeError
from onnx import external_data_helper, numpy_helper

from gpupipe.errors import MediaError, first_line
from gpupipe.models.graph import Graph, Numbers, Step
from gpupipe.models.onnx import arithmetic, layers, resize, shapes, sizes
from gpupipe.models.onnx.node import Node

if TYPE_CHECKING:
    from pathlib import Path

OPERATORS = arithmetic.OPERATORS | shapes.OPERATORS | layers.OPERATORS | resize.OPERATORS
_MIXING = {"Add", "Sub", "Mul", "Div", "Pow"}
_OURS = {"", "ai.onnx"}


def read(path: Path) -> Graph:
    """The network in evaluation mode, floating values in fp32; inputs and outputs in the order of the file.

    Heights, widths and batches stay dynamic as far as the file itself computes with them; `torch.export` takes it.

    Raises:
        MediaError: the file cannot be parsed, lacks its external weights, or holds what is not read (the node and
            operator are named).
    """
    model = _parse(path)
    opset = next((entry.version for entry in model.opset_import if entry.domain in _OURS), 0)
    where = str(path)
    try:
        constants = {tensor.name: _tensor(tensor, path) for tensor in model.graph.initializer}
        return _Reading(where, opset, constants).graph(model.graph, path)
    except MediaError as error:
        error.message = error.message.replace("\n", " ")  # names in a file may hold anything
        error.where = None if error.where is None else error.where.replace("\n", " ")
        raise
    except (ValueError, TypeError, KeyError, RuntimeError, IndexError, OverflowError) as error:
        raise MediaError(f"is not read: {first_line(error)}", where=where) from error


def _parse(path: Path) -> onnx.ModelProto:
    try:
        model = onnx.load(str(path), load_external_data=False)
    except OSError as error:
        raise MediaError(f"cannot be read: {error.strerror}", where=str(path)) from error
    except (DecodeError, ValueError) as error:
        raise MediaError("is no ONNX file", where=str(path)) from error
    if not model.graph.node or not model.graph.output:
        raise MediaError("is no ONNX file: it holds no graph", where=str(path))
    if model.graph.sparse_initializer:
        raise MediaError("sparse weights are not read", where=str(path))
    return model


def _tensor(tensor: onnx.TensorProto, path: Path) -> torch.Tensor:
    """Its values, floating ones as fp32; values outside the file lie in its own folder."""
    if external_data_helper.uses_external_data(tensor):
        name = external_data_helper.ExternalDataInfo(tensor).location
        try:
            external_data_helper.load_external_data_for_tensor(tensor, str(path.parent))
        except (OSError, onnx.checker.ValidationError) as error:
            missing = not (path.parent / name).is_file()
            why = "which is not there" if missing else first_line(error)
            hint = f"put it beside {path.name}" if missing else None
            raise MediaError(f"its weights {tensor.name!r} are in {name}, {why}", where=str(path), hint=hint) from error
    value = torch.from_numpy(numpy_helper.to_array(tensor).copy())
    return value.float() if value.is_floating_point() else value


class _Reading:
    """What is known of each value while nodes are read: a tensor, a number on the host, or only that it will be."""

    def __init__(self, where: str, opset: int, constants: dict[str, torch.Tensor]) -> None:
        self._where, self._opset, self._constants = where, opset, constants
        self._numbers: dict[str, Numbers] = {}
        self._on_host: set[str] = set()
        self._known: set[str] = {""}
        self._steps: list[Step] = []

    def graph(self, graph: onnx.GraphProto, path: Path) -> Graph:
        taken = [value for value in graph.input if value.name not in self._constants]
        inputs = [value.name for value in taken]
        outputs = [value.name for value in graph.output]
        self._known |= {*inputs, *self._constants}
        for number, proto in enumerate(graph.node):
            self._add(self._node(proto, number, path))
        missing = [name for name in outputs if name not in self._known]
        if missing:
            raise MediaError(f"no node computes the output {missing[0]!r}", where=self._where)
        if self._on_host & set(outputs):
            raise MediaError("gives a size, not a tensor", where=self._where)
        made = Graph(inputs, outputs, self._steps, self._constants, {"": None} | self._numbers, sizes=_sizes(taken))
        return made.eval().requires_grad_(requires_grad=False)

    def _node(self, proto: onnx.NodeProto, number: int, path: Path) -> Node:
        where = f"{self._where}: node {proto.name or number} ({proto.op_type})"
        if proto.domain not in _OURS:
            raise MediaError(f"operators of {proto.domain} are not read", where=where)
        unknown = [name for name in proto.input if name not in self._known]
        if unknown:
            raise MediaError(f"its input {unknown[0]!r} is not computed before it", where=where)
        self._known.update(proto.output)
        attributes = {attribute.name: _attribute(attribute, where, path) for attribute in proto.attribute}
        outputs = [name for name in proto.output if name]
        return Node(
            proto.op_type,
            where,
            opset=self._opset,
            inputs=list(proto.input),
            outputs=outputs,
            attributes=attributes,
            constants=self._constants,
        )

    def _add(self, node: Node) -> None:
        if node.op == "Constant":
            self._constants[node.outputs[0]] = _constant(node)
            return
        host = self._host(node)
        table = sizes.FROM_TENSOR if host and node.op in sizes.FROM_TENSOR else sizes.OPERATORS if host else OPERATORS
        if node.op not in table:
            of = " of sizes" if host else ""
            raise node.wrong(f"the operator {node.op}{of} is not read (operator set {self._opset})")
        step = self._step(node, table[node.op](node), host=host)
        if not host and all(name in self._constants or name in self._numbers for name in step.inputs):
            self._fold(node, step)
            return
        if host:
            self._on_host.update(node.outputs)
        self._steps.append(step)

    def _host(self, node: Node) -> bool:
        """Whether a node works on sizes: it looks at a shape, or computes from shapes and small constants alone."""
        if node.op in sizes.FROM_TENSOR:
            return True
        computed = [name for name in node.inputs if name and name not in self._constants]
        if not computed or not set(computed) <= self._on_host:
            return False
        if node.op == "ConstantOfShape":
            value = node.peek("value")
            return value is not None and not value.is_floating_point()
        return node.op in sizes.OPERATORS and all(
            self._constants[n].dim() < 2 for n in node.inputs if n in self._constants
        )

    def _step(self, node: Node, run: Any, *, host: bool) -> Step:
        node.done()
        names: list[str] = []
        for index, name in enumerate(node.inputs):
            if index in node.taken:
                continue
            if (host or index in node.host) and name in self._constants:
                self._numbers[f"#{name}"] = self._constants[name].tolist()
                names.append(f"#{name}")
            elif index in node.host and name and name not in self._on_host:
                raise node.wrong(f"its input {name!r} is computed from the picture; only sizes and constants are read")
            elif not host and index not in node.host and name in self._on_host and not self._mixes(node):
                raise node.wrong(f"the operator {node.op} on sizes is not read")
            else:
                names.append(name)
        while names and not names[-1]:
            names.pop()
        return Step(run, tuple(names), tuple(node.outputs))

    def _mixes(self, node: Node) -> bool:
        """Whether a node works on a tensor and a size, as in x / sqrt(width)."""
        tensors = [name for name in node.inputs if name not in self._constants and name not in self._on_host]
        return node.op in _MIXING and bool(tensors)

    def _fold(self, node: Node, step: Step) -> None:
        """Computes what depends on constants alone."""
        values = [
            self._constants.get(name) if name in self._constants else self._numbers.get(name) for name in step.inputs
        ]
        with torch.no_grad():
            out = step.run(*values)
        parts = [out] if len(node.outputs) == 1 else list(out)
        for name, part in zip(node.outputs, parts, strict=True):
            self._constants[name] = part.contiguous().clone()


def _sizes(values: list[onnx.ValueInfoProto]) -> list[list[int | None]]:
    sides = [value.type.tensor_type.shape.dim for value in values]
    return [[side.dim_value if side.HasField("dim_value") else None for side in one] for one in sides]


def _constant(node: Node) -> torch.Tensor:
    for name in ("value", "value_float", "value_floats", "value_int", "value_ints"):
        value = node.get(name)
        if value is not None:
            return value if isinstance(value, torch.Tensor) else torch.tensor(value)
    raise node.wrong("a constant that is neither a tensor nor numbers is not read")


def _attribute(attribute: onnx.AttributeProto, where: str, path: Path) -> Any:
    if attribute.type == onnx.AttributeProto.TENSOR:
        return _tensor(attribute.t, path)
    value = onnx.helper.get_attribute_value(attribute)
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, int | float):
        return value
    if attribute.type in {onnx.AttributeProto.INTS, onnx.AttributeProto.FLOATS}:
        return list(value)
    raise MediaError(f"the attribute {attribute.name} is not read", where=where)
