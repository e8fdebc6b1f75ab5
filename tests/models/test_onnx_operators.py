"""Every operator of the ONNX reader against onnxruntime."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
import torch

from gpupipe.models.onnx import read
from gpupipe.models.onnx.read import OPERATORS

CASES = {
    # name: (operator set, inputs, outputs, body); weights are made from the shapes in the body's own constants
    "unary": (
        17,
        "float[2,3] x",
        "y",
        """
        a = Sigmoid(x) b = Tanh(a) c = Exp(b) d = Sqrt(c) e = Log(d) f = Abs(e) g = Neg(f) h = Erf(g)
        i = Softplus(h) j = Reciprocal(i) k = Sin(j) l = Cos(k) m = Sign(x) n = Mul(l, m) y = Identity(n)""",
    ),
    "roundings": (
        17,
        "float[2,3] x",
        "a,b,c",
        "t = Constant<value_float = 10.0>() s = Mul(x, t) a = Floor(s) b = Ceil(s) c = Round(s)",
    ),
    "activations": (
        18,
        "float[2,3,4,4] x",
        "y",
        """
        a = LeakyRelu<alpha = 0.2>(x) b = Elu<alpha = 0.7>(a) c = HardSigmoid<alpha = 0.3>(b) d = HardSwish(x)
        e = Relu(x) f = Mish(x) g = Sum(c, d, e, f) y = Dropout(g)""",
    ),
    "gelu": (20, "float[2,3] x", "a,b", 'a = Gelu(x) b = Gelu<approximate = "tanh">(x)'),
    "clip": (
        17,
        "float[2,3] x",
        "a,b",
        "l = Constant<value_float = -0.5>() h = Constant<value_float = 0.5>() a = Clip(x, l, h) b = Clip(x, , h)",
    ),
    "clip_before_11": (9, "float[2,3] x", "y", "y = Clip<min = -0.5, max = 0.25>(x)"),
    "logic": (
        17,
        "float[2,3] x, float[2,3] z",
        "y",
        """
        a = Greater(x, z) b = Less(x, z) c = GreaterOrEqual(x, z) d = LessOrEqual(x, z) e = Equal(x, x)
        f = And(a, c) g = Or(b, d) h = Not(g) i = Or(f, h) j = And(i, e) k = Cast<to = 1>(j) l = Where(a, x, k) y = Max(l, z, k)""",
    ),
    "arithmetic": (
        17,
        "float[2,3] x, float[3] z",
        "y,w",
        "a = Add(x, z) b = Sub(a, x) c = Div(b, x) p = Constant<value_float = 3.0>() d = Pow(c, p) y = Min(d, a, x) w = Mod<fmod = 1>(x, z)",
    ),
    "integers": (
        17,
        "float[2,3] x",
        "y",
        "t = Constant<value_float = 10.0>() s = Mul(x, t) a = Cast<to = 7>(s) n = Constant<value_int = 3>() b = Div(a, n) c = Mod(a, n) d = Add(b, c) y = Cast<to = 1>(d)",
    ),
    "prelu": (
        17,
        "float[2,3,4,4] x",
        "a,b",
        "s = Constant<value = float[3,1,1] {0.1, 0.2, 0.3}>() a = PRelu(x, s) t = Constant<value = float[4] {0.1, 0.2, 0.3, 0.4}>() b = PRelu(x, t)",
    ),
    "softmax": (17, "float[2,3,4] x", "a,b,c", "a = Softmax(x) b = Softmax<axis = 1>(x) c = LogSoftmax(x)"),
    "softmax_before_13": (11, "float[2,3,4] x", "a,b", "a = Softmax(x) b = Softmax<axis = 2>(x)"),
    "reductions": (
        17,
        "float[2,3,4] x",
        "a,b,c,d,e,f",
        """
        a = ReduceMean<axes = [1, 2], keepdims = 0>(x) b = ReduceMax<axes = [-1]>(x) c = ReduceMin(x) d = ReduceL2<axes = [1]>(x)
        e = ReduceProd<axes = [1, 2], keepdims = 0>(x) i = ArgMax<axis = 2, keepdims = 0>(x) f = Cast<to = 1>(i)""",
    ),
    "reductions_18": (
        18,
        "float[2,3,4] x",
        "a,b",
        "i = Constant<value_ints = [1]>() a = ReduceSum(x, i) b = ReduceMean<keepdims = 0>(x, i)",
    ),
    "reshape": (
        17,
        "float[2,3,4,5] x",
        "a,b,c,d",
        """
        s = Constant<value_ints = [0, -1, 5]>() a = Reshape(x, s) b = Flatten(x) c = Flatten<axis = 3>(x) d = Transpose<perm = [0, 2, 3, 1]>(x)""",
    ),
    "squeeze": (
        17,
        "float[1,3,1,5] x",
        "a,b,c",
        "i = Constant<value_ints = [0, 2]>() a = Squeeze(x, i) b = Squeeze(x) j = Constant<value_ints = [0, -1]>() c = Unsqueeze(a, j)",
    ),
    "squeeze_before_13": (11, "float[1,3,1,5] x", "a,b", "a = Squeeze<axes = [0]>(x) b = Unsqueeze<axes = [2]>(a)"),
    "concat_split": (
        17,
        "float[2,6,4] x",
        "y,a,d",
        "s = Constant<value_ints = [1, 5]>() a, b = Split<axis = 1>(x, s) c, d, e = Split<axis = 1>(x) y = Concat<axis = -2>(b, c, e)",
    ),
    "split_before_13": (11, "float[2,6,4] x", "a,b", "a, b = Split<axis = 1, split = [2, 4]>(x)"),
    "split_uneven": (18, "float[2,7,4] x", "a,b", "a, b = Split<axis = 1, num_outputs = 2>(x)"),
    "slice": (
        17,
        "float[4,6,8] x",
        "a,b,c",
        """
        s = Constant<value_ints = [1, -5]>() e = Constant<value_ints = [9223372036854775807, -1]>() i = Constant<value_ints = [0, 2]>() t = Constant<value_ints = [2, 1]>()
        a = Slice(x, s, e, i, t) b = Slice(x, s, e)
        m = Constant<value_ints = [-1]>() f = Constant<value_ints = [-9223372036854775807]>() o = Constant<value_ints = [1]>() c = Slice(x, m, f, o, m)""",
    ),
    "slice_before_10": (9, "float[4,6,8] x", "y", "y = Slice<starts = [1, 2], ends = [3, 100], axes = [0, 2]>(x)"),
    "gather": (
        17,
        "float[4,6,8] x",
        "a,b,c",
        """
        i = Constant<value_int = -2>() a = Gather<axis = 1>(x, i) j = Constant<value_ints = [3, 0, -1]>() b = Gather<axis = 2>(x, j)
        k = ArgMax<axis = 0, keepdims = 0>(x) l = Gather(k, i) c = Gather(x, l)""",
    ),
    "expand_tile": (
        17,
        "float[3,1] x",
        "a,b,c",
        """
        s = Constant<value_ints = [2, 1, 4]>() a = Expand(x, s) t = Constant<value_ints = [2, 3]>() b = Tile(x, t)
        f = ConstantOfShape<value = float[1] {2.5}>(s) g = Add(f, x) r0 = Constant<value_int = 1>() r1 = Constant<value_int = 9>() r2 = Constant<value_int = 2>()
        h = Range(r0, r1, r2) q = Cast<to = 1>(h) c = Add(g, q)""",
    ),
    "pad": (
        18,
        "float[1,2,6,7] x",
        "a,b,c,d",
        """
        p = Constant<value_ints = [0, 0, 1, 2, 0, 0, 3, 0]>() a = Pad<mode = "reflect">(x, p) b = Pad<mode = "edge">(x, p) v = Constant<value_float = -2.0>() c = Pad(x, p, v)
        q = Constant<value_ints = [1, 2]>() i = Constant<value_ints = [3]>() d = Pad(x, q, , i)""",
    ),
    "pad_before_11": (9, "float[1,2,6,7] x", "y", "y = Pad<pads = [0, 1, 1, 2, 0, 0, 3, 0], value = 0.5>(x)"),
    "depth": (
        17,
        "float[1,8,4,6] x",
        "a,b,c",
        'a = DepthToSpace<blocksize = 2>(x) b = DepthToSpace<blocksize = 2, mode = "CRD">(x) c = SpaceToDepth<blocksize = 2>(x)',
    ),
    "pools": (
        17,
        "float[1,2,9,10] x",
        "a,b,c,d,e,f,g",
        """
        a = MaxPool<kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1]>(x) b = MaxPool<kernel_shape = [2, 2], strides = [2, 2], ceil_mode = 1>(x)
        c = MaxPool<kernel_shape = [3, 3], strides = [2, 2], auto_pad = "SAME_UPPER">(x) d = AveragePool<kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1]>(x)
        e = AveragePool<kernel_shape = [2, 2], pads = [0, 0, 1, 1], count_include_pad = 1>(x) f = GlobalAveragePool(x) g = GlobalMaxPool(x)""",
    ),
    "resize": (
        17,
        "float[1,2,6,7] x",
        "a,b,c,d,e",
        """
        s = Constant<value_floats = [1.0, 1.0, 2.0, 3.0]>() a = Resize<mode = "nearest", coordinate_transformation_mode = "asymmetric", nearest_mode = "floor">(x, , s) b = Resize(x, , s)
        c = Resize<mode = "linear">(x, , s) z = Constant<value_ints = [1, 2, 9, 13]>() d = Resize<mode = "linear", coordinate_transformation_mode = "align_corners">(x, , , z)
        e = Resize<mode = "cubic">(x, , s)""",
    ),
    "resize_down": (
        17,
        "float[1,2,8,12] x",
        "a,b",
        's = Constant<value_floats = [1.0, 1.0, 0.5, 0.25]>() a = Resize<mode = "linear">(x, , s) b = Resize<mode = "nearest", coordinate_transformation_mode = "asymmetric", nearest_mode = "floor">(x, , s)',
    ),
    "upsample": (
        9,
        "float[1,2,6,7] x",
        "y",
        's = Constant<value = float[4] {1.0, 1.0, 2.0, 2.0}>() y = Upsample<mode = "nearest">(x, s)',
    ),
    "norms": (
        17,
        "float[2,4,5,6] x",
        "y,z",
        """
        s = Constant<value_floats = [0.5, 1.0, 1.5, 2.0]>() b = Constant<value_floats = [0.1, -0.2, 0.3, 0.4]>() y = InstanceNormalization<epsilon = 0.001>(x, s, b)
        g = Constant<value_floats = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]>() z = LayerNormalization(x, g)""",
    ),
    "group_norm": (
        21,
        "float[2,4,5,6] x",
        "y",
        "s = Constant<value_floats = [0.5, 1.0, 1.5, 2.0]>() b = Constant<value_floats = [0.1, -0.2, 0.3, 0.4]>() y = GroupNormalization<num_groups = 2>(x, s, b)",
    ),
    "batch_norm": (
        17,
        "float[2,4,5,6] x, float[3,4] v",
        "y,z",
        """
        s = Constant<value_floats = [0.5, 1.0, 1.5, 2.0]>() b = Constant<value_floats = [0.1, -0.2, 0.3, 0.4]>() b2 = Identity(b)
        y = BatchNormalization<epsilon = 0.01>(x, s, b, b2, s) z = BatchNormalization(v, s, b, b, s)""",
    ),
    "grid_sample": (
        20,
        "float[1,2,6,7] x, float[1,4,5,2] g",
        "a,b,c",
        'a = GridSample(x, g) b = GridSample<mode = "nearest", padding_mode = "border">(x, g) c = GridSample<align_corners = 1, padding_mode = "reflection">(x, g)',
    ),
    "einsum": (17, "float[2,3,4] x, float[2,4,5] z", "y", 'y = Einsum<equation = "bij,bjk->bik">(x, z)'),
    "matmul": (
        17,
        "float[2,3,4] x, float[2,4,5] z",
        "y,w",
        "y = MatMul(x, z) m = Constant<value = float[4,2] {1, 2, 3, 4, 5, 6, 7, 8}>() w = MatMul(x, m)",
    ),
    "gemm": (
        17,
        "float[3,4] x, float[4,2] z",
        "a,b,c",
        """
        m = Constant<value = float[2,4] {1, 2, 3, 4, 5, 6, 7, 8}>() n = Constant<value_floats = [0.5, -0.5]>()
        a = Gemm<transB = 1, alpha = 0.5, beta = 2.0>(x, m, n) b = Gemm(x, z, n) t = Transpose(x) c = Gemm<transA = 1>(t, z)""",
    ),
    "sizes": (
        17,
        "float[1,4,6,8] x",
        "y,z",
        """
        s = Shape(x) h1 = Constant<value_int = 2>() h = Gather(s, h1) w1 = Constant<value_ints = [3]>() w4 = Constant<value_ints = [4]>() w = Slice(s, w1, w4)
        two = Constant<value_int = 2>() hh = Mul(h, two) zero = Constant<value_ints = [0]>() hu = Unsqueeze(hh, zero) half = Div(w, two)
        front = Constant<value_ints = [1, 4]>() all = Concat<axis = 0>(front, hu, half) y = Reshape(x, all)
        hf = Cast<to = 1>(h) k = Constant<value_float = 1.5>() hg = Mul(hf, k) hr = Floor(hg) hi = Cast<to = 7>(hr) hv = Unsqueeze(hi, zero)
        size = Concat<axis = 0>(front, hv, w) z = Resize<mode = "linear">(x, , , size)""",
    ),
    "sizes_expand": (
        17,
        "float[3,1] x, float[3,4] t",
        "y",
        """
        s = Shape(t) minus = Constant<value_ints = [-1, 4]>() m = Constant<value_ints = [-1, -1]>() e = Equal(minus, m) r = Where(e, s, minus) y = Expand(x, r)""",
    ),
}
WEIGHTS = {
    "conv": (17, "float[1,4,9,10] x", "a,b,c,d", {"w": (6, 4, 3, 3), "g": (4, 1, 3, 3), "v": (6,)}, """
        a = Conv<pads = [1, 1, 1, 1], strides = [2, 2]>(x, w, v) b = Conv<auto_pad = "SAME_UPPER", strides = [2, 2]>(x, w)
        c = Conv<group = 4, pads = [0, 0, 1, 1], dilations = [2, 2]>(x, g) d = Conv<auto_pad = "SAME_LOWER", strides = [2, 2]>(x, w)"""),
    "conv_computed": (17, "float[1,4,9,10] x, float[6,4,3,3] w", "y", {"v": (6,)}, "y = Conv<kernel_shape = [3, 3], pads = [1, 1, 1, 1]>(x, w, v)"),
    "conv_1d": (17, "float[1,4,9] x", "y", {"w": (6, 4, 3)}, "y = Conv<pads = [1, 1]>(x, w)"),
    "transposed": (17, "float[1,4,5,6] x", "a,b", {"w": (4, 3, 4, 4), "v": (3,)}, """
        a = ConvTranspose<strides = [2, 2], pads = [1, 1, 1, 1]>(x, w, v) b = ConvTranspose<strides = [3, 3], output_padding = [1, 1], dilations = [2, 1]>(x, w)"""),
}  # fmt: skip


def build(path, opset, inputs, outputs, body, weights=None):
    """An ONNX file from ONNX's own text form."""
    given = ", ".join(f"float {name}" for name in outputs.split(","))
    text = f'<ir_version: 8, opset_import: ["" : {opset}]> net ({inputs}) => ({given}) {{ {body} }}'
    model = onnx.parser.parse_model(text)
    for value in model.graph.output:
        value.type.tensor_type.ClearField("shape")
    rng = np.random.default_rng(7)
    for name, shape in (weights or {}).items():
        array = rng.uniform(-1, 1, shape).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    onnx.save(model, path)
    return model


def agrees(path):
    session = onnxruntime.InferenceSession(str(path))
    rng = np.random.default_rng(3)
    given = {one.name: rng.uniform(-1, 1, one.shape).astype(np.float32) for one in session.get_inputs()}
    theirs = session.run(None, given)
    ours = read(path)(*(torch.from_numpy(value) for value in given.values()))
    ours = ours if isinstance(ours, tuple) else (ours,)
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        assert tuple(a.shape) == b.shape
        assert np.isfinite(b).all()
        np.testing.assert_allclose(a.numpy(), b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", CASES)
def test_gives_what_onnxruntime_gives(name, tmp_path):
    opset, inputs, outputs, body = CASES[name]
    build(tmp_path / "net.onnx", opset, inputs, outputs, body)
    agrees(tmp_path / "net.onnx")


@pytest.mark.parametrize("name", WEIGHTS)
def test_weights_as_onnxruntime(name, tmp_path):
    opset, inputs, outputs, weights, body = WEIGHTS[name]
    build(tmp_path / "net.onnx", opset, inputs, outputs, body, weights)
    agrees(tmp_path / "net.onnx")


def test_no_operator_is_without_a_case():
    tried = {"Constant", "Shape", "Size"}
    for opset, inputs, outputs, *weights, body in (*CASES.values(), *WEIGHTS.values()):
        del weights
        given = ", ".join(f"float {name}" for name in outputs.split(","))
        text = f'<ir_version: 8, opset_import: ["" : {opset}]> net ({inputs}) => ({given}) {{ {body} }}'
        tried |= {node.op_type for node in onnx.parser.parse_model(text).graph.node}
    assert set(OPERATORS) - tried == set()
