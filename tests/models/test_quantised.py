"""Convolutions in 8 bits against torch's own fake quantisation and ml_dtypes' floats, and what they become in an export."""

from __future__ import annotations

import copy

import ml_dtypes
import numpy as np
import pytest
import torch

from gpupipe.models.graph import Graph, Step
from gpupipe.models.quantised import Quantiser, marked, quantised
from gpupipe.models.recipe import Layer, Recipe


def recipe(*layers, numbers="int8"):
    return Recipe(numbers=numbers, layers=layers, convolutions=3, share=0.9, decibels=40, worst=39, pictures=1)


@pytest.fixture
def conv():
    torch.manual_seed(3)
    return torch.nn.Conv2d(4, 6, 3, padding=1, stride=2).eval().requires_grad_(requires_grad=False)


@pytest.fixture
def x():
    return torch.randn(2, 4, 9, 11, generator=torch.Generator().manual_seed(1))


def test_int8_is_torchs_fake_quantisation(conv, x):
    network = quantised(torch.nn.Sequential(conv), recipe(Layer(name="0", top=2.0)))
    assert x.abs().max() > 2, "some values must be beyond the range"
    tops = conv.weight.abs().amax((1, 2, 3))
    weight = torch.fake_quantize_per_channel_affine(
        conv.weight, tops / 127, torch.zeros(6, dtype=torch.int32), 0, -128, 127
    )
    rounded = torch.fake_quantize_per_tensor_affine(x, 2.0 / 127, 0, -128, 127)
    wanted = torch.nn.functional.conv2d(rounded, weight, conv.bias, 2, 1)
    assert (network(x) - wanted).abs().max() < 1e-5
    assert (network(x) - conv(x)).abs().max() > 1e-3


def test_balance_is_in_quarters_of_an_octave_for_each_input_channel(conv, x):
    x = x * torch.tensor([0.25, 1.0, 4.0, 16.0]).view(1, -1, 1, 1)
    steps = (-8, 1, 8, 15)
    network = quantised(torch.nn.Sequential(conv), recipe(Layer(name="0", top=4.0, balance=steps)))
    factor = torch.tensor([2.0 ** (step / 4) for step in steps]).view(1, -1, 1, 1)
    rounded = torch.fake_quantize_per_tensor_affine(x / factor, 4.0 / 127, 0, -128, 127)
    heavier = conv.weight * factor
    weight = torch.fake_quantize_per_channel_affine(
        heavier, heavier.abs().amax((1, 2, 3)) / 127, torch.zeros(6, dtype=torch.int32), 0, -128, 127
    )
    wanted = torch.nn.functional.conv2d(rounded, weight, conv.bias, 2, 1)
    assert (network(x) - wanted).abs().max() < 1e-4


def test_fp8_is_e4m3():
    x = torch.linspace(-3, 3, 1001)
    ours = Quantiser("fp8", torch.tensor(2.0))(x)
    step = np.float32(2.0) / np.float32(448)
    theirs = (x.numpy() / step).clip(-448, 448).astype(ml_dtypes.float8_e4m3fn).astype(np.float32) * step
    assert np.abs(ours.numpy() - theirs).max() < 1e-6
    assert len(ours.unique()) < 256


def test_ranges_stay_fp32_in_half_precision(conv, x):
    """A step of 1e-6 is none in half floats."""
    network = quantised(torch.nn.Sequential(conv), recipe(Layer(name="0", top=1.2e-4))).half()
    (layer,) = network
    assert (layer.weight.dtype, layer.input_quantizer.top.dtype) == (torch.float16, torch.float32)
    assert layer.input_quantizer((x * 5e-5).half()).unique().numel() > 50


def test_a_layer_that_a_graph_runs_is_replaced_too(conv, x):
    graph = Graph(("x",), ("z",), (Step(conv, ("x",), ("y",)), Step(torch.relu, ("y",), ("z",))), {}, {}).eval()
    ours = quantised(graph, recipe(Layer(name="layers.0", top=2.0)))
    alone = quantised(torch.nn.Sequential(conv), recipe(Layer(name="0", top=2.0)))
    assert torch.equal(ours(x), torch.relu(alone(x)))
    assert torch.equal(graph(x), torch.relu(conv(x))), "the network itself stays"


@pytest.mark.parametrize("layer", [Layer(name="1", top=1.0), Layer(name="0", top=1.0, balance=(1, 2))])
def test_a_recipe_of_another_network_is_refused(conv, layer):
    with pytest.raises(ValueError, match=f"the recipe is of another network: {layer.name}"):
        quantised(torch.nn.Sequential(conv, torch.nn.ReLU()), recipe(layer))


@pytest.mark.parametrize("numbers", ["int8", "fp8"])
def test_an_export_has_the_operator_that_tensorrt_converts(conv, x, numbers):
    """As torch_tensorrt 2.11 wants it: name, arguments, one range or one for each output channel along axis 0."""
    with torch.library._scoped_library("tensorrt", "FRAGMENT") as library:
        if not hasattr(torch.ops.tensorrt, "quantize_op"):  # as modelopt 0.47 defines it, where that is not installed
            library.define(
                "quantize_op(Tensor input, Tensor amax, int num_bits, int exponent_bits, bool unsigned, bool narrow_range) -> Tensor"
            )
            library._register_fake("quantize_op", lambda x, *_: torch.empty_like(x))
        network = quantised(
            torch.nn.Sequential(conv, torch.nn.ReLU()), recipe(Layer(name="0", top=2.0), numbers=numbers)
        )
        assert not marked(torch.nn.Sequential(conv))
        explicit = copy.deepcopy(network)
        assert marked(explicit)
        exported = torch.export.export(explicit, (x,))
        nodes = [node for node in exported.graph.nodes if node.target is torch.ops.tensorrt.quantize_op.default]
        first, second = (next(iter(reversed(node.meta["nn_module_stack"].values())))[0] for node in nodes)
        assert (first, second) == ("0.input_quantizer", "0.weight_quantizer")
        for node, top in zip(nodes, ("input", "weight"), strict=True):
            assert tuple(node.args[2:]) == (8, 4 if numbers == "fp8" else 0, False, False)
            wide = (6, 1, 1, 1) if (top, numbers) == ("weight", "int8") else ()
            assert tuple(node.args[1].meta["val"].shape) == wide
            assert node.args[1].meta["val"].dtype == torch.float32
    assert network(x).shape == conv(x).shape, "without it a copy computes by itself"
