"""What NVDEC can decode, asked of the driver's own library.

PyNvVideoCodec's `GetDecoderCaps` answers the same, but for GPU 0 whatever it is asked, and by a CUDA context made anew
each time: 0.2 seconds a question, ten for a table. Layout: CUVIDDECODECAPS of the Video Codec SDK's cuviddec.h.
"""

from __future__ import annotations

import ctypes
from typing import ClassVar

from gpupipe.device.driver import enter_context, same_context

CODECS = {"mpeg2video": 1, "mpeg4": 2, "h264": 4, "hevc": 8, "vp8": 9, "vp9": 10, "av1": 11}
"""libav's codec name -> cudaVideoCodec."""
CHROMA = {"4:0:0": 0, "4:2:0": 1, "4:2:2": 2, "4:4:4": 3}
"""Chroma format -> cudaVideoChromaFormat."""


class DecoderCaps(ctypes.Structure):
    """CUVIDDECODECAPS."""

    _fields_: ClassVar = [
        ("codec", ctypes.c_int),
        ("chroma", ctypes.c_int),
        ("depth_minus_8", ctypes.c_uint),
        ("reserved1", ctypes.c_uint * 3),
        ("supported", ctypes.c_ubyte),
        ("engines", ctypes.c_ubyte),
        ("output_formats", ctypes.c_ushort),
        ("max_width", ctypes.c_uint),
        ("max_height", ctypes.c_uint),
        ("max_macroblocks", ctypes.c_uint),
        ("min_width", ctypes.c_ushort),
        ("min_height", ctypes.c_ushort),
        ("histogram", ctypes.c_ubyte),
        ("counter_depth", ctypes.c_ubyte),
        ("max_bins", ctypes.c_ushort),
        ("reserved3", ctypes.c_uint * 10),
    ]


def decoder_caps(codec: str, chroma: str, depth: int, gpu: int) -> DecoderCaps:
    """Asks NVDEC of a GPU about one kind of stream. Raises OSError where the driver's library is missing or fails."""
    library = ctypes.CDLL("libnvcuvid.so.1")
    caps = DecoderCaps(codec=CODECS[codec], chroma=CHROMA[chroma], depth_minus_8=depth - 8)
    with same_context():
        enter_context(gpu)
        status = library.cuvidGetDecoderCaps(ctypes.byref(caps))
    if status != 0:
        raise OSError(f"cuvidGetDecoderCaps returned {status}")
    return caps
