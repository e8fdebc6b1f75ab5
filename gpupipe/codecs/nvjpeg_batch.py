"""All pictures of a batch coded by one call of C, `nvjpeg_batch.c`."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from gpupipe.codecs.nvjpeg_library import check
from gpupipe.device.compiled import compiled
from gpupipe.errors import DeviceError

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from gpupipe.codecs.nvjpeg_library import Calls
    from gpupipe.device.staging import PinnedBytes

_SOURCE = Path(__file__).with_suffix(".c")
_CALLS = {1: "nvjpegEncodeYUV", 2: "nvjpegEncodeRetrieveBitstream"}
_WAIT, _ROOM = 3, 4


class BatchCoder(ctypes.Structure):
    """What nvJPEG's calls take of one lane's encoder; `states` is the address of an array of them."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("handle", "params", "stream", "states")),
        *((name, ctypes.c_int) for name in ("subsampling", "width", "height", "state_count")),
    ]


def batch_function() -> Callable[..., int] | None:
    """`code_batch`; None where there is no C compiler."""
    made = compiled(_SOURCE)
    if made is None:
        return None
    function = made.code_batch
    function.argtypes = (*[ctypes.c_void_p] * 3, ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)
    function.restype = ctypes.c_int
    return function


class Batch:
    """`code_batch` for one encoder.

    Args:
        function: see `batch_function`.
        calls: of nvJPEG.
        coder: the encoder; what it names belongs to the caller, and lives as long.
    """

    def __init__(self, function: Callable[..., int], calls: Calls, coder: BatchCoder) -> None:
        self._function, self._calls, self._coder = function, calls, coder

    def code(self, images: np.ndarray, pinned: PinnedBytes, device: str) -> tuple[torch.Tensor, np.ndarray]:
        """The bitstreams, one behind the other in memory that the next call uses again, and their lengths.

        Args:
            images: (N, 8) uint64, an nvjpegImage_t a row.
            pinned: where the bitstreams go; it grows as it has to.
            device: named in errors.

        Raises DeviceError where nvJPEG or the GPU fails.
        """
        lengths, asked = np.zeros(len(images), np.uint64), (ctypes.byref(self._calls), ctypes.byref(self._coder))
        while True:
            data = pinned.all()
            told = self._function(
                *asked, images.ctypes.data, len(images), data.data_ptr(), data.numel(), lengths.ctypes.data
            )
            what, status = divmod(told, 1 << 16)
            if what == _ROOM:  # they are coded again: it is rare, and bytes are the same
                pinned.room(2 * data.numel() + int(lengths.sum()))
                continue
            if what == _WAIT:
                raise DeviceError(f"{device} failed (CUDA error {status})", where=device)
            if what:
                check(status, _CALLS[what], device)
            return data[: int(lengths.sum())], lengths
