"""From a TFLite file to a `Graph`."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import numpy as np
import tflite
import torch

from gpupipe.errors import MediaError, first_line
from gpupipe.models.graph import Graph, Step
from gpupipe.models.tflite.operators import OPERATORS, SEVERAL, Node

if TYPE_CHECKING:
    from pathlib import Path

_NAMES = {value: name for name, value in vars(tflite.BuiltinOperator).items() if isinstance(value, int)}
_KINDS = {
    tflite.TensorType.FLOAT32: "<f4",
    tflite.TensorType.FLOAT16: "<f2",
    tflite.TensorType.INT32: "<i4",
    tflite.TensorType.INT64: "<i8",
}


def read(path: Path) -> Graph:
    """The network in evaluation mode, fp32, for any batch. Raises MediaError where the file holds what is not read."""
    where = str(path)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise MediaError(f"cannot be read: {error.strerror}", where=where) from error
    if data[4:8] != b"TFL3":
        raise MediaError("is no TFLite file", where=where)
    try:
        model = tflite.Model.GetRootAs(data, 0)
        if model.SubgraphsLength() != 1:
            raise MediaError("holds more than one graph", where=where)
        return _Reading(model, where).graph()
    except (struct.error, IndexError, KeyError, ValueError, TypeError, RuntimeError, AttributeError) as error:
        raise MediaError(f"is damaged or not read: {first_line(error)}", where=where) from error


class _Reading:
    def __init__(self, model: Any, where: str) -> None:
        self._model, self._graph, self._where = model, model.Subgraphs(0), where
        self._constants: dict[int, torch.Tensor] = {}
        self._kept: dict[str, torch.Tensor] = {}

    def graph(self) -> Graph:
        graph = self._graph
        known = {graph.Inputs(i) for i in range(graph.InputsLength())}
        steps = []
        for number in range(graph.OperatorsLength()):
            operator = graph.Operators(number)
            name = self._name(operator)
            where = f"{self._where}: operator {number} ({name})"
            inputs, (out,) = operator.InputsAsNumpy().tolist(), operator.OutputsAsNumpy().tolist()
            if name == "DEQUANTIZE" and (constant := self._constant(inputs[0])) is not None:
                self._constants[out] = constant.float()
                continue
            if name not in OPERATORS:
                raise MediaError("is not read", where=where)
            node = self._node(name, operator, inputs, out, where)
            run = OPERATORS[name](node)
            used = inputs if name in SEVERAL else inputs[:1]
            if unknown := [one for one in used if one not in known and self._constant(one) is None]:
                raise MediaError(f"its input {unknown[0]} is not computed before it", where=where)
            steps.append(Step(run, tuple(self._value(one, len(node.out)) for one in used), (str(out),)))
            known.add(out)
        names = (
            [str(graph.Inputs(i)) for i in range(graph.InputsLength())],
            [str(graph.Outputs(i)) for i in range(graph.OutputsLength())],
        )
        shapes = [self._shape(graph.Inputs(i)) for i in range(graph.InputsLength())]
        sizes = [[None, shape[3], *shape[1:3]] if len(shape) == 4 else [*shape] for shape in shapes]
        return Graph(*names, steps, self._kept, {}, sizes=sizes).eval().requires_grad_(requires_grad=False)

    def _name(self, operator: Any) -> str:
        code = self._model.OperatorCodes(operator.OpcodeIndex())
        if code.CustomCode():
            return str(code.CustomCode().decode())
        return str(_NAMES.get(max(code.BuiltinCode(), code.DeprecatedBuiltinCode()), "unknown"))

    def _node(self, name: str, operator: Any, inputs: list[int], out: int, where: str) -> Node:
        constants = [self._constant(one) if one >= 0 else None for one in inputs]
        shapes = [self._shape(one) if one >= 0 else [] for one in inputs]
        custom = operator.CustomOptionsAsNumpy()
        raw = b"" if isinstance(custom, int) else custom.tobytes()
        return Node(name, operator.BuiltinOptions(), shapes, self._shape(out), constants, where, raw)

    def _shape(self, index: int) -> list[int]:
        tensor = self._graph.Tensors(index)
        return [tensor.Shape(i) for i in range(tensor.ShapeLength())]

    def _constant(self, index: int) -> torch.Tensor | None:
        if index in self._constants:
            return self._constants[index]
        tensor = self._graph.Tensors(index)
        buffer = self._model.Buffers(tensor.Buffer())
        if not buffer.DataLength():
            return None
        if tensor.Type() not in _KINDS or tensor.Sparsity() is not None:
            raise MediaError(f"weights of type {tensor.Type()}, or sparse ones, are not read", where=self._where)
        values = np.frombuffer(buffer.DataAsNumpy().tobytes(), _KINDS[tensor.Type()])
        value = torch.from_numpy(values.copy()).reshape(self._shape(index))
        self._constants[index] = value.float() if value.is_floating_point() else value
        return self._constants[index]

    def _value(self, index: int, rank: int) -> str:
        """The name of what an operator takes; a constant beside a picture is turned as pictures are."""
        constant = self._constant(index)
        if constant is None:
            return str(index)
        name = f"constant {index} for {rank}"
        if rank == 4:
            constant = constant.reshape([1] * (4 - constant.dim()) + list(constant.shape)).permute(0, 3, 1, 2)
        self._kept[name] = constant.contiguous()
        return name
