"""nvidia-modelopt's operator for rounding to 8 bits, which torch_tensorrt knows, without the CUDA code behind it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


def uncompiled(quantization: Any) -> None:
    """Keeps modelopt from compiling CUDA code, a minute or more, for the little that is not left to TensorRT.

    Where there is no compiler its operator would fail in INT8. In FP8 it computes by torch.

    Args:
        quantization: the module `modelopt.torch.quantization`.
    """
    extensions = quantization.extensions
    for get, instead in ((extensions.get_cuda_ext, Rounding), (extensions.get_cuda_ext_fp8, None)):
        if not hasattr(get, "extension"):  # else it is compiled and loaded
            get.extension = instead


class Rounding:
    """Has the functions of modelopt's CUDA code that its operator calls in INT8."""

    @staticmethod
    def fake_tensor_quant(
        inputs: torch.Tensor, amax: torch.Tensor, num_bits: int, unsigned: bool, narrow_range: bool
    ) -> torch.Tensor:
        """Rounds to numbers of so many bits, the largest of which stands for `amax`, and back."""
        largest = 2 ** (num_bits if unsigned else num_bits - 1) - 1
        least = 0 if unsigned else -largest if narrow_range else -largest - 1
        step = amax.float() / largest
        rounded: torch.Tensor = (inputs.float() / step).round().clamp(least, largest) * step
        return rounded.to(inputs.dtype)

    @classmethod
    def fake_tensor_quant_with_axis(  # noqa: PLR0917  as it is called
        cls, inputs: torch.Tensor, amax: torch.Tensor, axis: int, num_bits: int, unsigned: bool, narrow_range: bool
    ) -> torch.Tensor:
        """The same with an `amax` for each place along an axis."""
        shape = [-1 if n == axis else 1 for n in range(inputs.dim())]
        return cls.fake_tensor_quant(inputs, amax.view(shape), num_bits, unsigned, narrow_range)
