"""Networks from ONNX files against onnxruntime on real pictures, and files that are refused."""

from __future__ import annotations

import shutil

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from references import by_onnxruntime
from test_onnx_operators import build
from torch.export import Dim

from gpupipe.errors import MediaError
from gpupipe.models.card import find
from gpupipe.models.fetch import fetch
from gpupipe.models.load import load
from gpupipe.models.onnx import read


@pytest.fixture(scope="module")
def centerface(cache):
    card = find("centerface")
    files = fetch(card, cache)
    return load(card, files), files["onnx"]


def test_centerface_gives_what_onnxruntime_gives(centerface, face):
    model, path = centerface
    for part in (face, face[..., 64:320, 96:320].flip(-1).repeat(2, 1, 1, 1)):
        ours, theirs = model(part * 255), by_onnxruntime(path, part * 255)
        assert [tuple(one.shape) for one in ours] == [one.shape for one in theirs]
        assert theirs[0].max() > 0.5, "no face shows nothing"
        for mine, reference in zip(ours, theirs, strict=True):
            assert np.abs(mine.numpy() - reference).max() < 1e-5 * max(1, np.abs(reference).max())


def test_centerface_exports_with_any_size(centerface, face):
    model, _ = centerface
    sizes = {0: Dim("n"), 2: 32 * Dim("h"), 3: 32 * Dim("w")}
    program = torch.export.export(model, (face.repeat(2, 1, 1, 1),), dynamic_shapes=(sizes,))
    part = face[..., :96, :160] * 255
    for mine, reference in zip(program.module()(part), model(part), strict=True):
        assert torch.equal(mine, reference)


def test_styles_are_what_onnxruntime_gives(cache, face):
    card = find("multistyle26")
    files = fetch(card, cache)
    model = load(card, files)
    two = torch.zeros(26)
    two[3], two[12] = 0.25, 0.75
    for part, style in ((face[..., :256, :256], two), (face[..., 100:232, 60:160], torch.eye(26)[7])):
        ours = model(part, style).numpy()
        (theirs,) = by_onnxruntime(files["onnx"], part, style)
        assert ours.shape == theirs.shape
        assert ours.std() > 0.1
        assert np.abs(ours - theirs).max() < 1e-4
    sizes = {2: 4 * Dim("h"), 3: 4 * Dim("w")}
    program = torch.export.export(model, (face, two), dynamic_shapes=(sizes, None))
    assert torch.allclose(program.module()(part, style), model(part, style), atol=1e-6)


def test_sizes_computed_in_the_file_stay_dynamic(tmp_path):
    body = """s = Shape(x) two = Constant<value_ints = [2]>() i = Constant<value_ints = [2]>() j = Constant<value_ints = [4]>()
        hw = Slice(s, i, j) k = Constant<value_float = 0.5>() f = Cast<to = 1>(hw) g = Mul(f, k) l = Floor(g) m = Cast<to = 7>(l)
        zero = Constant<value_ints = [0]>() nc = Slice(s, zero, two) all = Concat<axis = 0>(nc, m) y = Resize<mode = "linear">(x, , , all)"""
    build(tmp_path / "net.onnx", 17, "float[N,3,H,W] x", "y", body)
    model = read(tmp_path / "net.onnx")
    program = torch.export.export(
        model, (torch.rand(2, 3, 20, 24),), dynamic_shapes=({0: Dim.AUTO, 2: Dim.AUTO, 3: Dim.AUTO},)
    )
    x = torch.rand(1, 3, 31, 47)
    (theirs,) = onnxruntime.InferenceSession(str(tmp_path / "net.onnx")).run(None, {"x": x.numpy()})
    assert theirs.shape == (1, 3, 15, 23)
    assert np.abs(program.module()(x).numpy() - theirs).max() < 1e-5


def test_half_precision_reaches_every_value(tmp_path):
    body = """one = Constant<value_float = 0.5>() a = Greater(x, one) b = Cast<to = 1>(a) c = Mul(b, one) z = Constant<value_ints = [2]>()
        f = ConstantOfShape<value = float[1] {2.0}>(z) d = Add(c, f) w = Constant<value = float[2,2] {1, 2, 3, 4}>() y = MatMul(d, w)"""
    build(tmp_path / "net.onnx", 17, "float[2,2] x", "y", body)
    assert read(tmp_path / "net.onnx").half()(torch.rand(2, 2).half()).dtype == torch.float16


def test_values_are_let_go_after_their_last_use(centerface):
    model, _ = centerface
    spent = [name for names in model._spent for name in names]
    assert len(spent) == len(set(spent))
    given = {name for step in model._steps for name in step.outputs}
    assert given - set(spent) == set(model.outputs)


def _external(folder):
    weight = onnx.numpy_helper.from_array(np.ones((4, 4), np.float32), "w")
    model = build(folder / "net.onnx", 17, "float[2,4] x", "y", "y = MatMul(x, w)")
    model.graph.initializer.append(weight)
    onnx.save(model, folder / "net.onnx", save_as_external_data=True, location="net.data", size_threshold=0)
    return folder / "net.onnx"


def test_weights_beside_the_file_are_read(tmp_path):
    assert torch.equal(read(_external(tmp_path))(torch.ones(2, 4)), torch.full((2, 4), 4.0))


def test_missing_weights_beside_the_file_are_told(tmp_path):
    path = _external(tmp_path)
    (tmp_path / "net.data").unlink()
    with pytest.raises(MediaError) as told:
        read(path)
    assert str(told.value) == f"{path}: its weights 'w' are in net.data, which is not there (put it beside net.onnx)"


def test_weights_outside_the_folder_are_refused(tmp_path):
    inner = tmp_path / "inner"
    inner.mkdir()
    path = _external(inner)
    shutil.move(inner / "net.data", tmp_path / "net.data")
    model = onnx.load(path, load_external_data=False)
    for entry in model.graph.initializer[0].external_data:
        if entry.key == "location":
            entry.value = "../net.data"
    path.write_bytes(model.SerializeToString())
    with pytest.raises(MediaError, match=r"its weights 'w' are in \.\./net\.data, ") as told:
        read(path)
    assert "\n" not in str(told.value)


REFUSED = {
    "y = NonZero(x)": r"node 0 \(NonZero\): the operator NonZero is not read",
    "y = LRN<size = 3>(x)": r"node 0 \(LRN\): the operator LRN is not read",
    'y = AveragePool<kernel_shape = [2, 2], auto_pad = "SAME_UPPER">(x)': r"\(AveragePool\): this average is not read",
    "a = Relu(x) b = Cast<to = 7>(a) y = Reshape(x, b)": r"\(Reshape\): its input 'b' is computed from the picture",
    "y = Relu<alpha = 0.5>(x)": r"\(Relu\): the attribute alpha of Relu is not read",
    "y = Add(x, nowhere)": r"\(Add\): its input 'nowhere' is not computed before it",
    'y = Resize<mode = "linear", coordinate_transformation_mode = "asymmetric">(x, , x)': r"\(Resize\): sampling linear, asymmetric",
    "s = Shape(x) t = Relu(s) y = Reshape(x, t)": r"\(Relu\): the operator Relu on sizes is not read",
    "y = Cast<to = 8>(x)": r"\(Cast\): a cast to type 8 is not read",
}


@pytest.mark.parametrize("body", REFUSED)
def test_what_is_not_read_names_the_node(body, tmp_path):
    build(tmp_path / "net.onnx", 17, "float[1,2,8,8] x", "y", body)
    with pytest.raises(MediaError, match=r"net\.onnx: node .*" + REFUSED[body].removeprefix("node ")) as told:
        read(tmp_path / "net.onnx")
    assert "\n" not in str(told.value)


def test_a_file_that_is_no_onnx_is_told(tmp_path):
    path = tmp_path / "net.onnx"
    for content in (b"", b"not an ONNX file at all", b"\x80\x02}q\x00.", bytes(100)):
        path.write_bytes(content)
        with pytest.raises(MediaError, match=r"net\.onnx: is no ONNX file"):
            read(path)
    with pytest.raises(MediaError, match=r"none\.onnx: cannot be read: No such file"):
        read(tmp_path / "none.onnx")
