"""What other runtimes make of the same files: one network, one input, all outputs as arrays, channels first."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import flatbuffers
import numpy as np
import onnx
import onnxruntime
import torch
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.interpreter import Interpreter

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


@functools.cache
def _session(path: Path) -> onnxruntime.InferenceSession:
    """For any size: CenterFace's file says 10 pictures of 32 x 32, and works for others."""
    model = onnx.load(path)
    for value in (*model.graph.input, *model.graph.output):
        if len(value.type.tensor_type.shape.dim) == 4:
            value.type.tensor_type.ClearField("shape")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # it would warn of weights among the inputs
    return onnxruntime.InferenceSession(model.SerializeToString(), options)


def by_onnxruntime(path: Path, *inputs: torch.Tensor) -> list[np.ndarray]:
    session = _session(path)
    names = [value.name for value in session.get_inputs()][: len(inputs)]
    return session.run(None, {name: value.numpy() for name, value in zip(names, inputs, strict=True)})


def by_litert(path: Path, picture: torch.Tensor) -> list[np.ndarray]:
    """Of one picture 1 x C x H x W."""
    interpreter = Interpreter(str(path), num_threads=2)
    interpreter.allocate_tensors()
    (taken,) = interpreter.get_input_details()
    interpreter.set_tensor(taken["index"], np.ascontiguousarray(picture.permute(0, 2, 3, 1).numpy()))
    interpreter.invoke()
    given = [interpreter.get_tensor(one["index"]) for one in interpreter.get_output_details()]
    return [one.transpose(0, 3, 1, 2) if one.ndim == 4 else one for one in given]


def by_litert_without_its_last(path: Path, picture: torch.Tensor, scratch: Path) -> list[np.ndarray]:
    """LiteRT up to the operator that it has not, `Convolution2DTransposeBias`, and that one as it is defined, by NumPy."""
    model = schema.ModelT.InitFromPackedBuf(path.read_bytes(), 0)
    graph = model.subgraphs[0]
    codes = [model.operatorCodes[one.opcodeIndex].customCode for one in graph.operators]
    last = codes.index(b"Convolution2DTransposeBias")
    operator, source = graph.operators[last], {one.outputs[0]: one.inputs[0] for one in graph.operators}
    weights = []
    for index in operator.inputs[1:]:
        tensor = graph.tensors[source.get(index, index)]  # behind its DEQUANTIZE
        kind = {0: np.float32, 1: np.float16}[tensor.type]
        data = np.frombuffer(model.buffers[tensor.buffer].data.tobytes(), kind)
        weights.append(data.reshape(tensor.shape).astype(np.float64))
    graph.operators, graph.outputs = graph.operators[:last], [operator.inputs[0]]
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), b"TFL3")
    cut = scratch / "cut.tflite"
    cut.write_bytes(bytes(builder.Output()))
    (seen,) = by_litert(cut, picture)
    weight, bias = weights
    count, _, height, width = seen.shape
    large = np.einsum("nchw,oijc->nohiwj", seen.astype(np.float64), weight).reshape(count, 1, 2 * height, 2 * width)
    return [torch.sigmoid(torch.from_numpy(large + bias)).numpy()]


def by_ncnn(files: Mapping[str, Path], picture: torch.Tensor) -> list[np.ndarray]:
    """Of one picture 1 x C x H x W, in fp32."""
    import ncnn  # noqa: PLC0415  it takes a while to load

    net = ncnn.Net()
    net.opt.use_vulkan_compute = False
    net.opt.num_threads = 2
    net.opt.use_fp16_packed = net.opt.use_fp16_storage = net.opt.use_fp16_arithmetic = False
    net.opt.use_bf16_storage = False
    assert net.load_param(str(files["param"])) == 0
    assert net.load_model(str(files["bin"])) == 0
    pixels = np.ascontiguousarray(picture[0].numpy())  # a Mat borrows them: they must outlive it
    with net.create_extractor() as extractor:
        extractor.input("data", ncnn.Mat(pixels))
        code, out = extractor.extract("output")
        assert code == 0
        return [np.array(out)[None]]  # a copy: the extractor's memory goes with it


def by_dlib(path: Path, crop: torch.Tensor) -> list[np.ndarray]:
    """Of one crop 1 x 3 x 150 x 150 of whole numbers 0..255."""
    codes = np.ascontiguousarray(crop[0].permute(1, 2, 0).numpy().astype(np.uint8))
    return [np.array(_dlib(path).compute_face_descriptor(codes))[None]]


@functools.cache
def _dlib(path: Path) -> object:
    import dlib  # noqa: PLC0415  it takes a while to load

    return dlib.face_recognition_model_v1(str(path))
