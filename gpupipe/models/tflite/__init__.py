"""TFLite files as plain torch modules; the `tflite` package knows the schema, nothing in them is run.

TFLite's pictures are N x H x W x C; the module takes, keeps and gives them as N x C x H x W.
"""

from gpupipe.models.tflite.read import read

__all__ = ["read"]
