"""ONNX files as plain torch modules; the `onnx` package parses them, nothing in them is run."""

from gpupipe.models.onnx.read import read

__all__ = ["read"]
