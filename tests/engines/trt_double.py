"""A double of torch_tensorrt 2.11 and of the TensorRT below it, on the CPU: it takes what they take and nothing else.

Signatures are those of the torch-tensorrt-rtx 2.11.0 wheel (`torch_tensorrt/dynamo/_compiler.py`, `_Input.py`) and of
TensorRT's Python API as `PythonTorchTensorRTModule` of that wheel calls it. An "engine" is a number under which the double
keeps the exported network; running it reads and writes memory by address, as TensorRT does.
"""

from __future__ import annotations

import ctypes
import logging
from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace

import torch

STREAM = 4711
"""The handle that stands for the current stream."""
_KNOWN = {
    "arg_inputs", "kwarg_inputs", "device", "disable_tf32", "assume_dynamic_shape_support", "sparse_weights",
    "enabled_precisions", "engine_capability", "num_avg_timing_iters", "workspace_size", "dla_sram_size",
    "dla_local_dram_size", "dla_global_dram_size", "truncate_double", "require_full_compilation", "min_block_size",
    "torch_executed_ops", "torch_executed_modules", "pass_through_build_failures", "max_aux_streams",
    "version_compatible", "optimization_level", "use_python_runtime", "use_fast_partitioner",
    "enable_experimental_decompositions", "dryrun", "hardware_compatible", "timing_cache_path", "lazy_engine_init",
    "cache_built_engines", "reuse_cached_engines", "engine_cache_dir", "engine_cache_size", "custom_engine_cache",
    "use_explicit_typing", "use_fp32_acc", "refit_identical_engine_weights", "strip_engine_weights",
    "immutable_weights", "enable_weight_streaming", "tiling_optimization_level", "l2_limit_for_tiling",
    "offload_module_to_cpu", "use_distributed_mode_trace", "decompose_attention", "attn_bias_is_causal",
}  # fmt: skip
_BYTES = {torch.float16: 2, torch.float32: 4}


class Input:
    """`torch_tensorrt.Input`: a shape, or all three of min, opt and max."""

    def __init__(self, *args, **kwargs):
        known = {"min_shape", "opt_shape", "max_shape", "dtype", "name", "format", "shape"}
        assert set(kwargs) <= known, f"unknown: {set(kwargs) - known}"
        self.dtype = kwargs["dtype"]
        if args:
            (shape,) = args
            self.shapes = (tuple(shape),) * 3
        else:
            self.shapes = tuple(tuple(kwargs[name]) for name in ("min_shape", "opt_shape", "max_shape"))


@dataclass
class Library:
    """What is under a test's control, and what was seen."""

    refuses_gpu: str | None = None
    unsupported: str | None = None
    jit: bool = True
    """Whether it is TensorRT for RTX, which has a runtime cache."""
    corrupt: bool = False
    built: list[dict] = field(default_factory=list)
    engines: dict[bytes, tuple] = field(default_factory=dict)
    compiled: int = 0
    """Times that kernels were compiled at run time."""
    executed: list[tuple] = field(default_factory=list)

    def convert(self, exported_program, inputs=None, **kwargs):
        assert set(kwargs) <= _KNOWN, f"unknown: {set(kwargs) - _KNOWN}"
        assert inputs is None
        assert isinstance(exported_program, torch.export.ExportedProgram)
        (taken,) = kwargs["arg_inputs"]
        if self.unsupported is not None:  # as 2.11 does: it logs, and trips over its own variable
            logging.getLogger("torch_tensorrt.dynamo._compiler").error(self.unsupported)
            raise UnboundLocalError("cannot access local variable 'interpreter_result'")
        for name, value in exported_program.state_dict.items():
            assert value.is_contiguous(), "2.11 drops the contiguous copy that TensorRT is given the address of"
            assert not value.is_inference(), "an export wants versions"
            assert value.dtype == taken.dtype, f"explicit typing takes dtypes as they are: {name} is {value.dtype}"
        self._quantised(exported_program)
        self.built.append(kwargs | {"input": taken})
        name = f"engine {len(self.engines)}".encode()
        self.engines[name] = (exported_program.module(), taken)
        return name

    def _quantised(self, exported_program):
        """As `conversion/impl/quantize.py` of the wheel takes modelopt's operator."""
        for node in exported_program.graph.nodes:
            if "quantize_op" not in str(node.target):
                continue
            _, top, bits, exponent = node.args[:4]
            assert (bits, exponent) in {(8, 0), (8, 4)}
            shape = top.meta["val"].shape
            if shape.numel() > 1:
                assert exponent == 0, "FP8 has one range for all"
                (wide,) = [side for side in shape if side > 1]
                assert list(shape).index(wide) == 0, "ranges are of output channels"
            name = next(reversed(node.meta["nn_module_stack"].values()))[0] + f"/{node}"
            if exponent == 0 and ".input_quantizer" in name and self.jit:
                raise NotImplementedError(
                    "TensorRT-RTX does not support int8 activation quantization, only support int8 weight quantization"
                )


class _Engine:
    def __init__(self, library, data):
        self._library, (self.module, self.taken) = library, library.engines[data]
        self.num_io_tensors = 2
        if library.jit:
            self.create_runtime_config = _RuntimeConfig

    def get_tensor_name(self, index):
        return ("x", "output0")[index]

    def get_tensor_mode(self, name):
        return "input" if name == "x" else "output"

    def create_execution_context(self, config=None):
        cache = getattr(config, "cache", None)
        if cache is None or not cache.kernels:
            self._library.compiled += 1
        if cache is not None:
            cache.kernels = b"kernels"
            assert config.dynamic_shapes_kernel_specialization_strategy == "eager", (
                "lazy ones change under a CUDA Graph"
            )
        return _Context(self._library, self)


class _RuntimeConfig:
    cache = None
    dynamic_shapes_kernel_specialization_strategy = "lazy"

    def create_runtime_cache(self):
        return _RuntimeCache()

    def set_runtime_cache(self, cache):
        self.cache = cache


class _RuntimeCache:
    kernels = b""

    def deserialize(self, data):
        assert data == b"kernels"
        self.kernels = data

    def serialize(self):
        return bytearray(self.kernels)


class _Context:
    def __init__(self, library, engine):
        self._library, self._engine, self._addresses, self._shape = library, engine, {}, None

    def set_input_shape(self, name, shape):
        least, _, most = self._engine.taken.shapes
        fits = all(low <= side <= high for low, side, high in zip(least, shape, most, strict=True))
        if fits:
            self._shape = shape
        return fits

    def get_tensor_shape(self, name):
        assert self._shape is not None
        if name == "x":
            return self._shape
        return tuple(self._engine.module(torch.zeros(self._shape, dtype=self._engine.taken.dtype)).shape)

    def set_tensor_address(self, name, address):
        self._addresses[name] = address

    def execute_async_v3(self, stream):
        assert stream == STREAM, "work must go to the stream that is current, which may be one under capture"
        dtype = self._engine.taken.dtype
        x = _memory(self._addresses["x"], self._shape, dtype)
        out = _memory(self._addresses["output0"], self.get_tensor_shape("output0"), dtype)
        out.copy_(self._engine.module(x))
        self._library.executed.append(self._shape)
        return True


def _memory(address, shape, dtype):
    size = torch.Size(shape).numel() * _BYTES[dtype]
    buffer = (ctypes.c_char * size).from_address(address)
    return torch.frombuffer(buffer, dtype=dtype).view(shape)


class _Severity:
    INTERNAL_ERROR, ERROR, WARNING = range(3)


class _ILogger:
    Severity = _Severity


def install(monkeypatch, library: Library) -> None:
    """Puts the double where the libraries would be imported from."""

    class Runtime:
        def __init__(self, logger):
            self._log = logger

        def deserialize_cuda_engine(self, data):
            if library.refuses_gpu is not None:
                self._log.log(_Severity.WARNING, "something else")
                self._log.log(_Severity.ERROR, library.refuses_gpu + "\nmore of it")
                return None
            if library.corrupt:
                self._log.log(_Severity.ERROR, "Serialization assertion failed")
                return None
            return _Engine(library, data)

    builder = ModuleType("torch_tensorrt")
    builder.Input = Input
    builder.dynamo = SimpleNamespace(convert_exported_program_to_serialized_trt_engine=library.convert)
    runtime = ModuleType("tensorrt_rtx" if library.jit else "tensorrt")
    runtime.ILogger, runtime.Runtime = _ILogger, Runtime
    runtime.DynamicShapesKernelSpecializationStrategy = SimpleNamespace(LAZY="lazy", EAGER="eager")
    runtime.TensorIOMode = SimpleNamespace(INPUT="input", OUTPUT="output")
    monkeypatch.setitem(__import__("sys").modules, "torch_tensorrt", builder)
    monkeypatch.setitem(__import__("sys").modules, runtime.__name__, runtime)
    flavour = "torch-tensorrt-rtx" if library.jit else "torch-tensorrt"
    monkeypatch.setattr(
        "gpupipe.engines.tensorrt._installed",
        lambda: iter([(flavour, "2.11.0"), ("torch", "2.11.0"), (runtime.__name__.replace("_", "-"), "1.4.0")]),
    )
    monkeypatch.setattr("gpupipe.device.cuda.current_stream", lambda _: STREAM)
