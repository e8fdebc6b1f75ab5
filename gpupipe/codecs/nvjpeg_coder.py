"""Pictures in device memory to JPEG bitstreams on the host: several encoder states, fetched together.

A batch is one call of `nvjpeg_batch.c` where that can be compiled, else a call of nvJPEG for each picture.
"""

from __future__ import annotations

import ctypes
import weakref
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from gpupipe.codecs.nvjpeg_batch import Batch, BatchCoder, batch_function
from gpupipe.codecs.nvjpeg_library import SUBSAMPLING, check
from gpupipe.device.staging import PinnedBytes

if TYPE_CHECKING:
    from gpupipe.codecs.base import Keep
    from gpupipe.codecs.nvjpeg_library import Library
    from gpupipe.device.base import Lane
    from gpupipe.format import FrameFormat


class Coder:
    """Encoder states of one lane; used by one thread.

    Args:
        library: nvJPEG.
        source: of the pictures: 8-bit planar YUV, full-range BT.601, as JPEG has it.
        quality: 1 to 100.
        optimal: a Huffman table for each picture: smaller, and slower.
        lane: where they are coded.
        count: of states, so of pictures that are coded before any is fetched.
    """

    def __init__(
        self, library: Library, source: FrameFormat, quality: int, lane: Lane, count: int, *, optimal: bool
    ) -> None:
        self._library, self._source, self._lane = library, source, lane
        self._stream, self._subsampling = lane.handle, SUBSAMPLING[source.pixels.chroma_shift]
        self._handle = library.handle(lane.device)
        self._params, self._states = ctypes.c_void_p(), list[ctypes.c_void_p]()
        # Not at exit: there is no CUDA any more then.
        weakref.finalize(self, _destroy, library, self._params, self._states).atexit = False
        self._call("nvjpegEncoderParamsCreate", self._handle, ctypes.byref(self._params), self._stream)
        self._call("nvjpegEncoderParamsSetQuality", self._params, quality, self._stream)
        self._call("nvjpegEncoderParamsSetOptimizedHuffman", self._params, int(optimal), self._stream)
        self._call("nvjpegEncoderParamsSetSamplingFactors", self._params, self._subsampling, self._stream)
        for _ in range(count):
            state = ctypes.c_void_p()
            self._call("nvjpegEncoderStateCreate", self._handle, ctypes.byref(state), self._stream)
            self._states.append(state)
        self._pinned = PinnedBytes(lane)
        self._rehearse()
        self._batch = self._batched()

    def _batched(self) -> Batch | None:
        function = batch_function()
        if function is None:
            return None
        self._addresses = (ctypes.c_void_p * len(self._states))(*(state.value for state in self._states))
        coder = BatchCoder(
            self._handle.value, self._params.value, self._stream, ctypes.addressof(self._addresses),
            self._subsampling, self._source.width, self._source.height, len(self._states),
        )  # fmt: skip
        return Batch(function, self._library.calls(), coder)

    def _call(self, name: str, *arguments: object) -> None:
        check(getattr(self._library, name)(*arguments), name, self._lane.device)

    def _rehearse(self) -> None:
        """Every state takes what memory it will ever need, which is that for noise, before decoders run beside it."""
        device, count = self._lane.device, len(self._states)
        shapes = self._source.pixels.plane_shapes(self._source.width, self._source.height)
        with self._lane.active():
            random = torch.Generator(device).manual_seed(1)
            planes = tuple(torch.randint(256, s, dtype=torch.uint8, device=device, generator=random) for s in shapes)
            self._encode(tuple(plane.expand(count, *plane.shape) for plane in planes))
        self._pinned.room(count * self._source.frame_bytes // 4)

    def code(self, planes: tuple[torch.Tensor, ...], keep: Keep) -> list[Any]:
        """The JPEG of each picture.

        Args:
            planes: Y, U, V, each (N, H, W) uint8 with packed samples, valid on the lane.
            keep: takes them out of pinned memory.
        """
        if self._batch is not None:
            return _kept(*self._batch.code(_images(planes), self._pinned, self._lane.device), keep)
        rows, step = planes[0].shape[0], len(self._states)
        return [
            data
            for first in range(0, rows, step)
            for data in self._fetch(self._encode(tuple(plane[first : first + step] for plane in planes)), keep)
        ]

    def _encode(self, planes: tuple[torch.Tensor, ...]) -> int:
        """Codes pictures, each into a state, from the first state on; returns their number."""
        images, count = _images(planes), planes[0].shape[0]
        encode, handle, params, stream = self._library.nvjpegEncodeYUV, self._handle, self._params, self._stream
        source, subsampling = self._source, self._subsampling
        for image, state in zip(range(images.ctypes.data, 1 << 64, 64), self._states[:count], strict=False):
            status = encode(handle, state, params, image, subsampling, source.width, source.height, stream)
            check(status, "nvjpegEncodeYUV", self._lane.device)
        self._lane.synchronize()
        return count

    def _fetch(self, count: int, keep: Keep) -> list[Any]:
        """What the first states hold, copied straight from them to one piece of pinned memory, and out of that."""
        handle, stream, lengths = self._handle, self._stream, np.zeros(count, np.uint64)
        retrieve = self._library.nvjpegEncodeRetrieveBitstream
        places = range(lengths.ctypes.data, lengths.ctypes.data + 8 * count, 8)
        for place, state in zip(places, self._states, strict=False):
            check(retrieve(handle, state, None, place, stream), "nvjpegEncodeRetrieveBitstream", self._lane.device)
        sizes = lengths.tolist()
        pinned = self._pinned.room(sum(sizes))
        at = pinned.data_ptr()
        for place, state, size in zip(places, self._states, sizes, strict=False):
            check(retrieve(handle, state, at, place, stream), "nvjpegEncodeRetrieveBitstream", self._lane.device)
            at += size
        self._lane.synchronize()
        return _kept(pinned, lengths, keep)


def _images(planes: tuple[torch.Tensor, ...]) -> np.ndarray:
    """(N, 8) uint64, each row an nvjpegImage_t: four addresses, then four pitches, of which three are used."""
    images = np.zeros((planes[0].shape[0], 8), np.uint64)
    row = np.arange(len(images), dtype=np.uint64)
    for index, plane in enumerate(planes):
        images[:, index] = plane.data_ptr() + row * np.uint64(plane.stride(0))
        images[:, 4 + index] = plane.stride(1)
    return images


def _kept(pinned: torch.Tensor, lengths: np.ndarray, keep: Keep) -> list[Any]:
    """Bitstreams that lie one behind the other, taken out of memory that the next batch uses again."""
    ends = np.cumsum(lengths).tolist()
    return keep(pinned.numpy(), list(pairwise([0, *ends])))


def _destroy(library: Library, params: Any, states: list[Any]) -> None:
    for state in states:
        library.nvjpegEncoderStateDestroy(state)
    if params:
        library.nvjpegEncoderParamsDestroy(params)
