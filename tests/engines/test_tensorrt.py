"""The contract with Torch-TensorRT, on `trt_double`; what it computes on a GPU is in tests/gpu/test_model_gpu.py."""

from __future__ import annotations

import sys
from dataclasses import replace
from types import ModuleType, SimpleNamespace

import pytest
import torch
from trt_double import Library, install

from gpupipe.engines.base import Profile
from gpupipe.engines.cache import EngineCache
from gpupipe.engines.check import agreement
from gpupipe.engines.eager import Eager
from gpupipe.engines.identity import digest_of
from gpupipe.engines.modelopt import Rounding
from gpupipe.engines.select import Selector
from gpupipe.engines.tensorrt import TensorRT
from gpupipe.errors import EngineError
from gpupipe.faces.engine import Batched
from gpupipe.journal import Journal
from gpupipe.models.quantised import Quantiser, quantised
from gpupipe.models.recipe import Layer, Recipe

PROFILE = Profile(2, 8, 12, "fp32", "cpu")


class Network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.conv = torch.nn.Conv2d(3, 12, 3, padding=1)

    def forward(self, x):
        return torch.nn.functional.pixel_shuffle(self.conv(x), 2)


@pytest.fixture
def network():
    return Network().eval().requires_grad_(requires_grad=False)


@pytest.fixture(params=[True, False], ids=["rtx", "data-centre"])
def library(request, monkeypatch):
    made = Library(jit=request.param)
    install(monkeypatch, made)
    return made


def built(network, profile, folder):
    engine = TensorRT()
    folder.mkdir(exist_ok=True)
    engine.build(network, profile, folder)
    return engine.load(network, profile, folder)


def test_it_runs_what_was_built(library, network, tmp_path):
    x = torch.rand(PROFILE.shape)
    run = built(network, PROFILE, tmp_path)
    assert torch.equal(run(x), network(x))
    strided = torch.rand(2, 8, 12, 3).permute(0, 3, 1, 2)
    assert not strided.is_contiguous()
    assert torch.equal(run(strided), network(strided.contiguous()))


def test_weights_as_other_engines_leave_them(library, network, tmp_path, monkeypatch):
    """Channels last, and under inference mode, as on a GPU."""
    monkeypatch.setattr("gpupipe.engines.eager.layout_of", lambda _: torch.channels_last)
    x = torch.rand(PROFILE.shape)
    with torch.inference_mode():
        wanted = Eager().load(network, PROFILE, tmp_path)(x)
        assert not network.conv.weight.is_contiguous()
        assert torch.allclose(built(network, PROFILE, tmp_path)(x), wanted, atol=1e-6)
    assert not network.conv.weight.is_contiguous(), "eager goes on with its own layout"


def test_it_asks_for_one_whole_engine_of_the_networks_own_types(library, network, tmp_path):
    built(network.half(), Profile(1, 8, 12, "fp16", "cpu"), tmp_path)
    (asked,) = library.built
    assert asked["use_explicit_typing"] is True
    assert asked["require_full_compilation"] is True
    assert asked["disable_tf32"] is True
    assert "enabled_precisions" not in asked, "explicit typing excludes it"
    assert asked["input"].dtype == torch.float16
    assert asked["input"].shapes == ((1, 3, 8, 12),) * 3
    assert asked["timing_cache_path"].startswith(str(tmp_path)), "the default is one file for all users of the machine"


def test_smaller_batches_are_in_the_profile(library, network, tmp_path):
    run = built(network, Profile(4, 8, 12, "fp32", "cpu", least=1), tmp_path)
    assert library.built[0]["input"].shapes == ((1, 3, 8, 12), (4, 3, 8, 12), (4, 3, 8, 12))
    for batch in (1, 3, 4):
        x = torch.rand(batch, 3, 8, 12)
        assert torch.equal(run(x), network(x))
    with pytest.raises(EngineError, match=r"does not take \(5, 3, 8, 12\)"):
        run(torch.rand(5, 3, 8, 12))


def test_kernels_compiled_at_run_time_are_kept(library, network, tmp_path):
    built(network, PROFILE, tmp_path)
    TensorRT().load(network, PROFILE, tmp_path)
    assert library.compiled == (1 if library.jit else 3)


def test_a_gpu_that_it_refuses(library, network, tmp_path):
    library.refuses_gpu = "cannot run on this GPU, which has compute capability 9.0"
    with pytest.raises(EngineError) as told:
        built(network, PROFILE, tmp_path)
    assert str(told.value) == f"TensorRT does not load it: {library.refuses_gpu}"


def test_an_operator_that_it_has_not(library, network, tmp_path):
    library.unsupported = "Conversion of function torch._ops.aten.foo not currently supported!\ntrace"
    with pytest.raises(EngineError) as told:
        built(network, PROFILE, tmp_path)
    assert str(told.value) == (
        "TensorRT does not build it: Conversion of function torch._ops.aten.foo not currently supported!"
    )


def test_a_library_that_does_not_import(library, network, tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "torch_tensorrt", None)
    with pytest.raises(EngineError, match="torch_tensorrt cannot be imported: "):
        built(network, PROFILE, tmp_path)


def test_versions_of_all_that_takes_part(library):
    below = "tensorrt-rtx" if library.jit else "tensorrt"
    above = "torch-tensorrt-rtx" if library.jit else "torch-tensorrt"
    assert TensorRT().versions() == {above: "2.11.0", "torch": "2.11.0", below: "1.4.0"}


def test_a_refusal_leaves_the_run_to_the_next_engine(library, network, tmp_path, monkeypatch):
    """The real case: TensorRT for RTX 1.7.1 on an H200."""
    library.refuses_gpu = "cannot run on this GPU, which has compute capability 9.0"
    monkeypatch.setattr("gpupipe.engines.tensorrt.TensorRT.absent", lambda *_: None)
    monkeypatch.setattr("gpupipe.engines.inductor.Inductor.absent", lambda *_: "not for this test")
    from gpupipe.engines import select  # noqa: PLC0415

    monkeypatch.setattr(select, "candidates", lambda *_: tuple(e for e in select.ENGINES if e.absent("cpu") is None))
    warned: list[str] = []
    selector = Selector(
        network, digest_of(network, "card"), "auto", EngineCache(tmp_path), say=lambda _: None, warn=warned.append
    )
    x = torch.rand(PROFILE.shape)
    made = selector(PROFILE)
    assert made.engine == "eager"
    assert torch.equal(made.run(x), network(x))
    assert warned == [f"engine tensorrt is left out: TensorRT does not load it: {library.refuses_gpu}"]


def test_an_engine_that_does_not_deserialise_is_built_again(library, network, tmp_path):
    selector = Selector(
        network, digest_of(network, "card"), "tensorrt", EngineCache(tmp_path), say=lambda _: None, warn=lambda _: None
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gpupipe.engines.tensorrt.TensorRT.absent", lambda *_: None)
        selector(PROFILE)
        library.corrupt = True
        with pytest.raises(EngineError, match="TensorRT does not load it: Serialization assertion failed"):
            selector(PROFILE)
        library.corrupt = False
        assert selector(PROFILE).engine == "tensorrt"
    assert len(library.built) == 3


@pytest.fixture
def modelopt(monkeypatch):
    """A double of nvidia-modelopt 0.47: its operator, computed by torch's own fake quantisation."""

    def quantize_op(x, amax, num_bits, exponent_bits, unsigned, narrow_range):
        assert (num_bits, unsigned, narrow_range) == (8, False, False)
        if exponent_bits:
            return (x * (448 / amax)).clamp(-448, 448).to(torch.float8_e4m3fn).to(x.dtype) * (amax / 448)
        if amax.numel() == 1:
            return torch.fake_quantize_per_tensor_affine(x, float(amax) / 127, 0, -128, 127)
        zeros = torch.zeros(amax.numel(), dtype=torch.int32)
        return torch.fake_quantize_per_channel_affine(x, amax.flatten() / 127, zeros, 0, -128, 127)

    for name in ("modelopt", "modelopt.torch", "modelopt.torch.quantization"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    compiled = SimpleNamespace(get_cuda_ext=lambda: None, get_cuda_ext_fp8=lambda: None)
    sys.modules["modelopt.torch.quantization"].extensions = compiled
    with torch.library._scoped_library("tensorrt", "FRAGMENT") as made:
        made.define(
            "quantize_op(Tensor input, Tensor amax, int num_bits, int exponent_bits, bool unsigned, bool narrow_range) -> Tensor"
        )
        made.impl("quantize_op", quantize_op, "CPU")
        made._register_fake("quantize_op", lambda x, *_: torch.empty_like(x))
        yield compiled


def in_8_bits(numbers):
    torch.manual_seed(2)
    parts = torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.PReLU(8), torch.nn.Conv2d(8, 8, 3, padding=1)
    layer = Layer(name="2", top=1.25, balance=(-1, 0, 1, 0, 2, 0, 0, -2) if numbers == "int8" else ())
    recipe = Recipe(numbers=numbers, layers=(layer,), convolutions=2, share=0.7, decibels=40, worst=39, pictures=1)
    network = torch.nn.Sequential(*parts).eval().requires_grad_(requires_grad=False)
    return quantised(network, recipe), replace(PROFILE, numbers=numbers)


@pytest.mark.parametrize("numbers", ["int8", "fp8"])
def test_quantised_layers_become_quantise_and_dequantise(numbers, library, modelopt, tmp_path):
    network, profile = in_8_bits(numbers)
    if library.jit and numbers == "int8":
        with pytest.raises(EngineError) as told:
            built(network, profile, tmp_path)
        assert str(told.value).startswith("TensorRT does not build it: TensorRT-RTX does not support int8 activation")
        return
    x = torch.rand(PROFILE.shape)
    assert agreement(built(network, profile, tmp_path)(x), network(x)) > 60
    assert hasattr(modelopt.get_cuda_ext, "extension") and hasattr(modelopt.get_cuda_ext_fp8, "extension")  # noqa: PT018
    assert not any(m.explicit for m in network.modules() if isinstance(m, Quantiser)), "eager goes on with arithmetic"


@pytest.mark.parametrize(
    ("unsigned", "narrow", "least", "most"), [(0, 0, -128, 127), (0, 1, -127, 127), (1, 1, 0, 255)]
)
def test_what_stands_for_modelopts_cuda_code_rounds_as_torch_does(unsigned, narrow, least, most):
    x = torch.randn(5, 7, 3, generator=torch.Generator().manual_seed(1))
    wanted = torch.fake_quantize_per_tensor_affine(x, 1.5 / most, 0, least, most)
    assert torch.allclose(Rounding.fake_tensor_quant(x, torch.tensor(1.5), 8, unsigned, narrow), wanted, atol=1e-6)
    each = torch.linspace(0.5, 2, 7)
    wanted = torch.fake_quantize_per_channel_affine(x, each / most, torch.zeros(7, dtype=torch.int32), 1, least, most)
    ours = Rounding.fake_tensor_quant_with_axis(x, each, 1, 8, unsigned, narrow)
    assert torch.allclose(ours, wanted, atol=1e-6)


def test_modelopt_that_is_missing_is_named(library, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "modelopt", None)
    network, profile = in_8_bits("fp8")
    with pytest.raises(EngineError) as told:
        built(network, profile, tmp_path)
    assert str(told.value).startswith("modelopt.torch.quantization cannot be imported: ")
    assert str(told.value).endswith("(pip install 'gpupipe[int8]')")


def test_any_number_of_faces_goes_through(library, network, tmp_path, monkeypatch):
    monkeypatch.setattr(TensorRT, "absent", lambda *_: None)
    monkeypatch.setattr("gpupipe.models.folder.engines", lambda: tmp_path)
    through = Batched(network, "it", Profile(4, 8, 12, "fp32", "cpu"), "tensorrt", origin="card", journal=Journal())
    assert through.engine == "tensorrt"
    for faces in (4, 1, 3, 6):
        x = torch.rand(faces, 3, 8, 12)
        assert torch.equal(through(x), torch.cat([network(part) for part in x.split(4)]))
