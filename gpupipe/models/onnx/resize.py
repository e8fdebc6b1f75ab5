"""ONNX's Resize and Upsample, where torch has the very same sampling."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch.nn import functional

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from gpupipe.models.onnx.node import Node

    Run = Callable[..., Any]

_HALF = {"half_pixel", "pytorch_half_pixel"}


def _upsample(node: Node) -> Run:
    mode, scales = node.get("mode", "nearest"), node.get("scales")
    if mode not in {"nearest", "linear", "bilinear"}:
        raise node.wrong(f"mode={mode!r} is not read")
    if mode != "nearest":
        raise node.wrong("a linear Upsample samples from the corner, which torch cannot; export it as Resize")
    if scales is not None:
        return lambda x: _scaled(x, scales, "nearest", None)
    node.on_host(1)
    return lambda x, scales: _scaled(x, scales, "nearest", None)


def _sampling(node: Node) -> tuple[str, bool | None, bool]:
    """The mode in torch, align_corners, and whether it is right for whole factors only. Raises MediaError."""
    mode = node.get("mode", "nearest")
    where = node.get("coordinate_transformation_mode", "half_pixel" if node.opset > 10 else "asymmetric")
    rounding = node.get("nearest_mode", "round_prefer_floor" if node.opset > 10 else "floor")
    node.get("extrapolation_value")
    node.only("exclude_outside", 0)
    node.only("antialias", 0)
    node.only("keep_aspect_ratio_policy", "stretch")
    node.only("axes", None, [2, 3])
    cubic = node.get("cubic_coeff_a", -0.75)
    if mode == "nearest" and where == "asymmetric" and rounding == "floor":
        return "nearest", None, False
    if mode == "nearest" and where in _HALF:
        return "nearest", None, True
    if mode == "cubic" and cubic != -0.75:
        raise node.wrong(f"cubic_coeff_a={cubic} is not read, only -0.75")
    if mode in {"linear", "cubic"} and where in _HALF | {"align_corners"}:
        return {"linear": "bilinear", "cubic": "bicubic"}[mode], where == "align_corners", False
    raise node.wrong(f"sampling {mode}, {where}, {rounding} is not read")


def _resize(node: Node) -> Run:
    mode, corners, whole = _sampling(node)
    if node.opset < 11:
        node.on_host(1)
        return lambda x, scales: _scaled(x, scales, mode, corners, whole=whole)
    node.on_host(1, 2, 3)

    def run(x: torch.Tensor, roi: Any = None, scales: Any = None, sizes: Any = None) -> torch.Tensor:
        del roi  # for tf_crop_and_resize only
        if scales:
            return _scaled(x, scales, mode, corners, whole=whole)
        size = sizes[-2:]
        if whole and any(out % side for out, side in zip(size, x.shape[-2:], strict=True)):
            raise ValueError(f"nearest sampling at half pixels by a broken factor, to {size}")
        return functional.interpolate(x, size=size, mode=mode, align_corners=corners)

    return run


def _scaled(
    x: torch.Tensor, scales: list[float], mode: str, corners: bool | None, *, whole: bool = False
) -> torch.Tensor:
    factors = tuple(scales[-2:])
    if len(scales) == 4 and tuple(scales[:2]) != (1, 1):
        raise ValueError(f"scales {scales} of batch or channels")
    if whole and any(factor != int(factor) for factor in factors):
        raise ValueError(f"nearest sampling at half pixels by {factors}")
    return functional.interpolate(x, scale_factor=factors, mode=mode, align_corners=corners)


OPERATORS: dict[str, Callable[[Node], Run]] = {"Resize": _resize, "Upsample": _upsample}
