# ruff: noqa: N802, N815  (the names are the library's)
"""A double of libnvjpeg: the same calls with the same arguments, over host memory, coded by libav's mjpeg."""

from __future__ import annotations

import ctypes
import io
from fractions import Fraction

import av
import numpy as np

from gpupipe.codecs.nvjpeg_library import Calls

_PTR, _INT = ctypes.c_void_p, ctypes.c_int
_ENCODE = ctypes.CFUNCTYPE(_INT, _PTR, _PTR, _PTR, _PTR, _INT, _INT, _INT, _PTR)
_RETRIEVE = ctypes.CFUNCTYPE(_INT, _PTR, _PTR, _PTR, _PTR, _PTR)
_WAIT = ctypes.CFUNCTYPE(_INT, _PTR)
PIXELS = {0: ("yuvj444p", 0, 0), 1: ("yuvj422p", 1, 0), 2: ("yuvj420p", 1, 1)}
SUCCESS, INVALID_PARAMETER, EXECUTION_FAILED = 0, 2, 6


class NvjpegDouble:
    """Keeps one bitstream a state, as nvJPEG does; `fail_at` makes that `nvjpegEncodeYUV` fail, counted from 0."""

    def __init__(self, fail_at: int | None = None) -> None:
        self.settings: dict[str, int] = {}
        self.coded: dict[int, bytes] = {}
        self.calls_made = 0
        self.fail_at = fail_at
        self.alive: set[int] = set()
        self.waits = 0
        self.fail_wait: int | None = None
        self._next = 0
        self._handle = ctypes.c_void_p(77)

    def calls(self) -> Calls:
        """The same calls for C; they come back here."""

        def encode(handle, state, *rest) -> int:
            assert handle == self._handle.value
            return self.nvjpegEncodeYUV(handle, ctypes.c_void_p(state), *rest)

        def retrieve(handle, state, *rest) -> int:
            return self.nvjpegEncodeRetrieveBitstream(handle, ctypes.c_void_p(state), *rest)

        def wait(stream) -> int:
            self.waits += 1
            return 700 if self.waits == self.fail_wait else SUCCESS

        self._functions = (_ENCODE(encode), _RETRIEVE(retrieve), _WAIT(wait))
        return Calls(*(ctypes.cast(function, _PTR) for function in self._functions))

    def _new(self, out) -> int:
        self._next += 1
        out._obj.value = self._next
        self.alive.add(self._next)
        return SUCCESS

    def handle(self, device: str) -> ctypes.c_void_p:
        assert device == "cpu"
        return self._handle

    def nvjpegEncoderParamsCreate(self, handle, params, stream) -> int:
        assert handle is self._handle
        return self._new(params)

    def nvjpegEncoderStateCreate(self, handle, state, stream) -> int:
        assert handle is self._handle
        return self._new(state)

    def _end(self, what) -> int:
        self.alive.remove(what.value)
        return SUCCESS

    nvjpegEncoderParamsDestroy = nvjpegEncoderStateDestroy = _end

    def __getattr__(self, name: str):
        assert name.startswith("nvjpegEncoderParamsSet")

        def set_(params, value: int, stream) -> int:
            self.settings[name.removeprefix("nvjpegEncoderParamsSet")] = value
            return SUCCESS

        return set_

    def nvjpegEncodeYUV(self, handle, state, params, image, subsampling, width, height, stream) -> int:
        self.calls_made += 1
        if self.fail_at is not None and self.calls_made > self.fail_at:
            return EXECUTION_FAILED
        assert subsampling == self.settings["SamplingFactors"]
        fields = (ctypes.c_uint64 * 8).from_address(image)
        name, sx, sy = PIXELS[subsampling]
        frame = av.VideoFrame(width, height, name)
        for index, plane in enumerate(frame.planes):
            wide, high = (width, height) if index == 0 else (-(-width >> sx), -(-height >> sy))
            pitch = fields[4 + index]
            source = np.frombuffer((ctypes.c_uint8 * (pitch * (high - 1) + wide)).from_address(fields[index]), np.uint8)
            rows = np.lib.stride_tricks.as_strided(source, (high, wide), (pitch, 1))
            np.frombuffer(plane, np.uint8).reshape(-1, plane.line_size)[:high, :wide] = rows
        self.coded[state.value] = _jpeg(frame)
        return SUCCESS

    def nvjpegEncodeRetrieveBitstream(self, handle, state, data, length, stream) -> int:
        coded, room = self.coded[state.value], ctypes.c_size_t.from_address(length)
        if data is not None:
            if room.value < len(coded):
                return INVALID_PARAMETER
            ctypes.memmove(data, coded, len(coded))
        room.value = len(coded)
        return SUCCESS


def _jpeg(frame: av.VideoFrame) -> bytes:
    out = io.BytesIO()
    frame.pts, frame.time_base, frame.color_range = 0, Fraction(1, 25), 2
    with av.open(out, "w", format="mjpeg") as container:
        stream = container.add_stream("mjpeg", rate=25, options={"qmin": "1", "qmax": "1"})
        stream.width, stream.height, stream.pix_fmt = frame.width, frame.height, frame.format.name
        container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return out.getvalue()
