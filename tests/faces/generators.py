"""An ONNX file in the shape of a swap generator, made on the spot."""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx
from onnx import TensorProto, helper

if TYPE_CHECKING:
    from pathlib import Path


def swap_generator(folder: Path, picture: tuple, vector: tuple | None) -> Path:
    """Red and green change places, and the vector's mean is added; as a swap generator it takes a face and a person."""
    kind = TensorProto.FLOAT
    inputs = [helper.make_tensor_value_info("target", kind, picture)]
    nodes = [helper.make_node("Gather", ["target", "order"], ["swapped"], axis=1)]
    weights = [helper.make_tensor("order", TensorProto.INT64, [3], [1, 0, 2])]
    last = "swapped"
    if vector is not None:
        inputs.append(helper.make_tensor_value_info("source", kind, vector))
        nodes += [
            helper.make_node("ReduceMean", ["source"], ["mean"], axes=[1], keepdims=1),
            helper.make_node("Reshape", ["mean", "shape"], ["level"]),
            helper.make_node("Add", ["swapped", "level"], ["out"]),
        ]
        weights.append(helper.make_tensor("shape", TensorProto.INT64, [4], [1, 1, 1, 1]))
        last = "out"
    graph = helper.make_graph(nodes, "swap", inputs, [helper.make_tensor_value_info(last, kind, picture)], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)])
    model.ir_version = 8
    place = folder / "swap.onnx"
    onnx.save(model, str(place))
    return place
