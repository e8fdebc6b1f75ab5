"""Where the five points of a face lie in a crop, as the networks that read such crops were trained on."""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt

Template = Literal["arcface112", "arcface128", "ffhq512", "dlib150"]

_ARCFACE = ((38.2946, 51.6963), (73.5318, 51.5014), (56.0252, 71.7366), (41.5493, 92.3655), (70.7299, 92.2041))
"""Of a crop of 112 pixels: InsightFace, recognition/arcface_torch, `arcface_dst`."""
_FFHQ = ((192.98138, 239.94708), (318.90277, 240.1936), (256.63416, 314.01935), (201.26117, 371.41043),
         (313.08905, 371.15118))  # fmt: skip
"""Of a crop of 512 pixels: facexlib, `FaceRestoreHelper.face_template`, averages over FFHQ."""
_DLIB = ((0.22549, 0.21599), (0.75476, 0.21599), (0.490127, 0.515625), (0.254149, 0.780233), (0.726104, 0.780233))
"""Of the face alone, 0..1: dlib, `get_face_chip_details`, mean of 68 points; eyes are means of their six."""
_DLIB_PADDING = 0.25


def _unit(name: Template) -> npt.NDArray[np.float64]:
    """The five points where the crop is 0..1, from edge to edge."""
    points, shift, side = {
        "arcface112": (_ARCFACE, (0.5, 0.5), 112.0),
        # InsightFace's `estimate_norm`: crops of 128 are moved, not stretched.
        "arcface128": (_ARCFACE, (8.5, 0.5), 128.0),
        "ffhq512": (_FFHQ, (0.5, 0.5), 512.0),
        "dlib150": (_DLIB, (_DLIB_PADDING, _DLIB_PADDING), 1 + 2 * _DLIB_PADDING),
    }[name]
    moved: npt.NDArray[np.float64] = (np.array(points) + np.array(shift)) / side
    return moved


def template(name: Template, size: int, extent: float = 1.0) -> npt.NDArray[np.float64]:
    """(5, 2) pixels of a crop `size` wide and high, the centre of the top left pixel being (0, 0).

    Args:
        name: whose points.
        size: pixels of a side; the template is scaled to it.
        extent: how many times more of the picture than the template's own crop is seen, about its centre.
    """
    points = (_unit(name) - 0.5) / extent + 0.5
    moved: npt.NDArray[np.float64] = points * size - 0.5
    return moved
