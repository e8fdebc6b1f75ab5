"""`gpupipe run` with a network of the user's own, and with files that must not be believed: one line each."""

from __future__ import annotations

import pickle

import av
import numpy as np
import onnx
import onnxruntime
import pytest
import torch
import yaml
from onnx.external_data_helper import convert_model_to_external_data
from safetensors.torch import save_file

from gpupipe.models.card import CARDS
from gpupipe.models.srvgg import Srvgg

CODEC = "{codec: ffv1}"


def config(job, model):
    crop = "{crop: {width: 64, height: 36, x: 40, y: 30}}"
    return job(
        f"range: {{end: '0.1'}}\nstages: [{crop}, {{model: {model}}}]\noutput: {{video: {CODEC}, audio: none}}\n"
    )


@pytest.fixture
def enlarger(tmp_path):
    """An ONNX file whose pictures are twice as large, sharper, and bounded."""
    text = """<ir_version: 8, opset_import: ["" : 17]> net (float[N,3,H,W] frame) => (float y) {
        s = Constant<value_floats = [1.0, 1.0, 2.0, 2.0]>() large = Resize<mode = "linear">(frame, , s)
        sharp = Conv<pads = [1, 1, 1, 1]>(large, w) low = Constant<value_float = 0.0>() high = Constant<value_float = 1.0>()
        y = Clip(sharp, low, high) }"""
    model = onnx.parser.parse_model(text)
    model.graph.output[0].type.tensor_type.ClearField("shape")
    kernel = np.zeros((3, 3, 3, 3), np.float32)
    for channel in range(3):
        kernel[channel, channel] = [[0, -0.25, 0], [-0.25, 2, -0.25], [0, -0.25, 0]]
    model.graph.initializer.append(onnx.numpy_helper.from_array(kernel, "w"))
    path = tmp_path / "own" / "enlarger.onnx"
    path.parent.mkdir()
    onnx.save(model, path)
    return path


def pictures(path):
    with av.open(str(path)) as container:
        return [frame.to_ndarray(format="gbrp10le") for frame in container.decode(video=0)]


def test_an_onnx_file_runs_as_it_is(cli, job, clip, tmp_path, enlarger):
    plain, out = tmp_path / "plain.mkv", tmp_path / "out.mkv"
    codec = "{codec: ffv1, pixel_format: gbrp10le}"
    for model, path in (("", plain), (f", {{model: {{path: '{enlarger}', tile: 40}}}}", out)):
        stages = f"[{{crop: {{width: 64, height: 36, x: 40, y: 30}}}}{model}]"
        shown = cli("run", "--device", "cpu", job(
            f"range: {{end: '0.1'}}\nstages: {stages}\noutput: {{video: {codec}, audio: none}}\n"), clip, path)  # fmt: skip
        assert shown.code == 0, shown.err
    assert "enlarger: restore x2, weights the user's own; fp32 on cpu" in shown.err
    session = onnxruntime.InferenceSession(str(enlarger))
    before, after = pictures(plain), pictures(out)
    assert len(before) == len(after) > 1
    for x, y in zip(before, after, strict=True):
        assert y.shape == (72, 128, 3)
        (wanted,) = session.run(None, {"frame": x.transpose(2, 0, 1)[None].astype(np.float32) / 1023})
        assert np.abs(wanted[0].transpose(1, 2, 0) * 1023 - y).mean() < 2


def test_an_onnx_without_its_weights_is_one_line(refused, job, clip, tmp_path, enlarger):
    model = onnx.load(enlarger)
    convert_model_to_external_data(model, location="enlarger.data", size_threshold=0)
    onnx.save(model, enlarger)
    (enlarger.parent / "enlarger.data").unlink()
    said = refused(config(job, f"{{path: '{enlarger}'}}"), clip, tmp_path / "out.mkv")
    assert said.endswith(
        f"{enlarger}: its weights 'w' are in enlarger.data, which is not there (put it beside enlarger.onnx)"
    )


def test_a_pickle_that_would_run_something_is_one_line(refused, job, clip, tmp_path):
    folder = tmp_path / "own"
    folder.mkdir()

    class Evil:
        def __reduce__(self):
            return open, (str(folder / "ran"), "w")

    for name, write in (("zip.pth", torch.save), ("old.pth", lambda it, path: path.write_bytes(pickle.dumps(it)))):
        write({"body.0.weight": Evil()}, folder / name)
        model = f"{{path: '{folder / name}', architecture: srvgg}}"
        said = refused(config(job, model), clip, tmp_path / "out.mkv")
        assert f"{folder / name}: holds no weights of SRVGG: " in said
    assert {path.name for path in folder.iterdir()} == {"zip.pth", "old.pth"}


@pytest.fixture
def own_card(tmp_path):
    """A card of the user's own, with what is changed in it."""
    folder = tmp_path / "own"
    folder.mkdir()
    save_file(Srvgg(8, 1, 2).state_dict(), folder / "net.safetensors")
    card = yaml.safe_load((CARDS / "realesr-animevideov3-x2.yaml").read_text()) | {"name": "mine", "reader": "srvgg"}

    def write(sha256=None, **changes):
        file = {"path": "net.safetensors"} | ({"sha256": sha256} if sha256 else {})
        path = folder / "mine.yaml"
        path.write_text(yaml.safe_dump(card | {"source": {"files": {"weights": file}}} | changes))
        return path

    return write


def test_a_wrong_sha256_is_one_line(refused, job, clip, tmp_path, own_card):
    path = own_card(sha256="1" * 64)
    said = refused(config(job, f"{{card: '{path}'}}"), clip, tmp_path / "out.mkv")
    assert f"{path.with_name('net.safetensors')}: sha256 is " in said
    assert said.endswith("..., the card says 1111111111111111...")


def test_a_wrong_scale_is_one_line(refused, job, clip, tmp_path, own_card):
    said = refused(config(job, f"{{card: '{own_card(scale=3)}'}}"), clip, tmp_path / "out.mkv")
    assert said.endswith("card mine: scale: says 3, but 8x8 pixels become 16x16")


def test_a_card_with_a_key_twice_is_one_line(refused, job, clip, tmp_path, own_card):
    path = own_card()
    path.write_text(path.read_text() + "scale: 2\n")
    said = refused(config(job, f"{{card: '{path}'}}"), clip, tmp_path / "out.mkv")
    assert f"{path}:" in said
    assert "the key 'scale' stands twice" in said


@pytest.mark.parametrize(
    ("model", "says"),
    [
        ("{}", "give a card or a path"),
        ("{card: span-ch48-x2, path: x.onnx}", "give a card or a path"),
        ("{card: span-ch48-x2, architecture: span}", "an architecture is of a path"),
        ("{path: none.onnx}", "none.onnx: cannot be read: No such file or directory"),
        ("{card: animesr-v2}", "animesr-v2 (video-super-resolution) does not give a picture for every picture"),
        ("{card: blazeface-short}", "blazeface-short (face-detection) does not give a picture for every picture"),
        ("{path: none.exe}", "none.exe: is no kind of network that is read (ONNX, .pt2, TFLite, safetensors)"),
    ],
)
def test_what_is_no_network_is_one_line(model, says, refused, job, clip, tmp_path):
    assert says in refused(config(job, model), clip, tmp_path / "out.mkv")
