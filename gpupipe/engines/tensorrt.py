"""TensorRT, or TensorRT for RTX, by way of Torch-TensorRT: the whole network as one engine, nothing left in torch.

Both flavours have one API: `torch_tensorrt` builds, and the library below it (`tensorrt` or `tensorrt_rtx`) runs what
was built, so that a start from the cache needs neither torch_tensorrt nor an export.

Run on an H200: TensorRT for RTX 1.4.0 with torch-tensorrt-rtx 2.11.0. Not run: the data-centre TensorRT, whose
runtime is no wheel.
"""

from __future__ import annotations

import copy
import importlib
import logging
import warnings
from functools import cache
from importlib.metadata import distributions
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Self

from gpupipe.device.host import short_of_memory
from gpupipe.engines.base import Engine, laid_out
from gpupipe.engines.modelopt import uncompiled
from gpupipe.errors import EngineError, first_line

if TYPE_CHECKING:
    from pathlib import Path

    import torch
    from torch import nn

    from gpupipe.engines.base import Network, Profile

_FILE, _KERNELS = "engine", "kernels"
_BUILDERS = {"torch-tensorrt": "tensorrt", "torch-tensorrt-rtx": "tensorrt_rtx"}
"""Distributions that hold `torch_tensorrt`, and the module that runs what they build."""


class TensorRT(Engine):
    """Meets `base.Engine`. Half precision by explicit typing: the network's own dtypes are the engine's."""

    name, recipe, builds, delay, flexible = "tensorrt", 2, True, 0.5, True

    def absent(self, device: str) -> str | None:
        """See `base.Engine`."""
        if device == "cpu":
            return "it runs on a GPU only"
        if find_spec("torch_tensorrt") is None:
            return "torch-tensorrt is not installed (pip install 'gpupipe[tensorrt]')"
        return None

    def versions(self) -> dict[str, str]:
        """See `base.Engine`."""
        return {name: version for name, version in _installed() if "tensorrt" in name or name == "torch"}

    def build(self, network: nn.Module, profile: Profile, folder: Path) -> None:
        """See `base.Engine`."""
        import torch  # noqa: PLC0415  see `base.Engine`

        if profile.numbers:  # first: torch_tensorrt converts its operator where it finds it
            with warnings.catch_warnings():  # of what torch deprecates, and of CUDA code that is not needed here
                warnings.simplefilter("ignore")
                uncompiled(_import("modelopt.torch.quantization", "pip install 'gpupipe[int8]'"))
        trt = _import("torch_tensorrt")
        with _Complaints() as complaints:
            try:
                engine = _serialised(trt, network, profile, str(folder / "timing"))
            except Exception as error:  # converters and builder raise what they like
                if short_of_memory(error):
                    raise
                raise EngineError(f"TensorRT does not build it: {complaints.first() or first_line(error)}") from error
        (folder / _FILE).write_bytes(engine)
        loaded = _Loaded(engine, profile)  # on a GPU that TensorRT refuses, this is where it does
        loaded(torch.zeros(profile.shape, dtype=profile.dtype, device=profile.device))
        if (kernels := loaded.kernels()) is not None:
            (folder / _KERNELS).write_bytes(kernels)

    def load(self, network: nn.Module, profile: Profile, folder: Path) -> Network:
        """See `base.Engine`."""
        del network
        kernels = folder / _KERNELS
        return _Loaded((folder / _FILE).read_bytes(), profile, kernels.read_bytes() if kernels.is_file() else b"")


def _serialised(trt: Any, network: nn.Module, profile: Profile, timing: str) -> bytes:
    """The engine, of batches from the profile's least on."""
    import torch  # noqa: PLC0415  see `base.Engine`

    from gpupipe.models.quantised import marked  # noqa: PLC0415  imports torch

    smallest = (profile.least or profile.batch, *profile.shape[1:])
    if smallest == profile.shape:
        taken, dynamic = trt.Input(profile.shape, dtype=profile.dtype), None
    else:
        taken = trt.Input(
            min_shape=smallest, opt_shape=profile.shape, max_shape=profile.shape, dtype=profile.dtype, name="x"
        )
        dynamic = ({0: torch.export.Dim("batch", min=smallest[0], max=profile.batch)},)
    with torch.inference_mode(mode=False), torch.no_grad():  # an export looks at versions of tensors
        # Plain layout: of any other, torch_tensorrt 2.11 gives TensorRT the address of a copy that it drops at once.
        network = laid_out(copy.deepcopy(network), torch.contiguous_format)
        marked(network)
        example = torch.zeros(profile.shape, dtype=profile.dtype, device=profile.device)
        exported = torch.export.export(network, (example,), dynamic_shapes=dynamic)
        engine = trt.dynamo.convert_exported_program_to_serialized_trt_engine(
            exported,
            arg_inputs=[taken],
            device=torch.device(profile.device),
            use_explicit_typing=True,
            disable_tf32=True,
            require_full_compilation=True,
            timing_cache_path=timing,
        )
    return bytes(engine)


class _Loaded:
    """A deserialised engine with one execution context, whose calls are in order on the current stream."""

    def __init__(self, data: bytes, profile: Profile, kernels: bytes = b"") -> None:
        self._trt = trt = _import(_runtime_module())
        self._log = _log(trt)
        self._runtime = trt.Runtime(self._log)
        self._engine = self._runtime.deserialize_cuda_engine(data)
        if self._engine is None:
            raise EngineError(f"TensorRT does not load it: {self._why()}")
        self._cache: Any = None
        self._context = self._begin(kernels)
        if self._context is None:
            raise EngineError(f"TensorRT does not run it: {self._why()}")
        names = [self._engine.get_tensor_name(n) for n in range(self._engine.num_io_tensors)]
        inputs = [name for name in names if self._engine.get_tensor_mode(name) == trt.TensorIOMode.INPUT]
        if len(inputs) != 1 or len(names) != 2:
            raise EngineError(f"TensorRT made an engine of {len(inputs)} inputs and {len(names) - len(inputs)} outputs")
        self._input, self._output = inputs[0], next(name for name in names if name != inputs[0])
        self._profile = profile

    def _begin(self, kernels: bytes) -> Any:
        """An execution context. TensorRT for RTX compiles its kernels here, unless it is given those of before."""
        config: Any = self._engine.create_runtime_config() if hasattr(self._engine, "create_runtime_config") else None
        if not hasattr(config, "create_runtime_cache"):
            return self._engine.create_execution_context()
        self._cache = config.create_runtime_cache()
        if kernels:
            self._cache.deserialize(kernels)
        config.set_runtime_cache(self._cache)
        if hasattr(self._trt, "DynamicShapesKernelSpecializationStrategy"):  # else kernels change while others run
            strategy = self._trt.DynamicShapesKernelSpecializationStrategy.EAGER
            config.dynamic_shapes_kernel_specialization_strategy = strategy
        return self._engine.create_execution_context(config)

    def kernels(self) -> bytes | None:
        """What it compiled at run time, to be given to the next; None where it does no such thing."""
        return None if self._cache is None else bytes(memoryview(self._cache.serialize()))

    def _why(self) -> str:
        return self._log.last or "no reason given"

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """See `base.Network`."""
        import torch  # noqa: PLC0415  see `base.Engine`

        from gpupipe.device.cuda import current_stream  # noqa: PLC0415  imports torch

        x, context = x.contiguous(), self._context
        if not context.set_input_shape(self._input, tuple(x.shape)):
            raise EngineError(f"TensorRT does not take {tuple(x.shape)}: {self._why()}")
        out = torch.empty(tuple(context.get_tensor_shape(self._output)), dtype=self._profile.dtype, device=x.device)
        context.set_tensor_address(self._input, x.data_ptr())
        context.set_tensor_address(self._output, out.data_ptr())
        if not context.execute_async_v3(current_stream(self._profile.device)):
            raise EngineError(f"TensorRT failed: {self._why()}")
        return out


def _import(name: str, hint: str | None = None) -> Any:
    """A library, whose absence or broken installation is an error of the engine."""
    try:
        return importlib.import_module(name)
    except (ImportError, OSError, RuntimeError, AttributeError) as error:
        raise EngineError(f"{name} cannot be imported: {first_line(error)}", hint=hint) from error


@cache
def _installed() -> tuple[tuple[str, str], ...]:
    """Name and version of every distribution; each is a file to be read, and it is asked several times a network."""
    return tuple((one.name.lower().replace("_", "-"), one.version) for one in distributions() if one.name)


def _runtime_module() -> str:
    present = {name for name, _ in _installed()}
    return next((module for name, module in _BUILDERS.items() if name in present), "tensorrt")


def _log(trt: Any) -> Any:
    """A logger that keeps TensorRT's last complaint instead of printing it."""

    class Log(trt.ILogger):  # type: ignore[misc]  # known at run time only
        def __init__(self) -> None:
            trt.ILogger.__init__(self)
            self.last = ""

        def log(self, severity: Any, message: str) -> None:
            if severity in {trt.ILogger.Severity.ERROR, trt.ILogger.Severity.INTERNAL_ERROR}:
                self.last = message.strip().partition("\n")[0]

    return Log()


class _Complaints(logging.Handler):
    """What torch_tensorrt logs as an error: it says there why it failed, and raises something else."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self._lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """See `logging.Handler`."""
        self._lines.append(record.getMessage().strip().partition("\n")[0])

    def first(self) -> str | None:
        """The first of them, which is the cause of the others."""
        return self._lines[0] if self._lines else None

    def __enter__(self) -> Self:
        logging.getLogger("torch_tensorrt").addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        logging.getLogger("torch_tensorrt").removeHandler(self)
