# ruff: noqa: N801, N802, N803, N818  (the names are the library's)
"""A double of PyNvVideoCodec's encoder half for machines without NVENC.

It has the signatures of PyNvVideoCodec 2.2.4 (tests/gpu/test_signatures.py compares them with the installed wheel) and
returns real Annex-B packets in decode order, B-frames included, which libx264, libx265 and SVT-AV1 make. What it says
of NVENC's own behaviour (latency, pyramid, rate control) is not NVENC.
"""

from __future__ import annotations

import types
from fractions import Fraction

import av
import torch

from gpupipe.codecs.scheduling import kept_scheduling

CALLS: list[dict] = []
"""Arguments of every `CreateEncoder`, for tests to look at."""


class PyNvVCException(Exception):
    """What the library raises."""


class NV_ENC_PIC_PARAMS:
    def __init__(self) -> None:
        self.encodePicFlags = self.inputTimeStamp = self.frameIdx = self.inputDuration = 0
        self.inputWidth = self.inputHeight = self.inputPitch = 0
        self.pictureStruct = self.pictureType = 0


class structEncodeReconfigureParams:
    def __init__(self) -> None:
        self.rateControlMode = self.multiPass = self.averageBitrate = self.vbvBufferSize = self.maxBitRate = 0
        self.vbvInitialDelay = self.frameRateDen = self.frameRateNum = self.targetQuality = 0


_FORMATS = {
    "NV12": ("nv12", "yuv420p"), "P010": ("p010le", "yuv420p10le"), "YUV444": ("yuv444p", "yuv444p"),
    "YUV444_16BIT": (None, "yuv444p10le"),
}  # fmt: skip
_IDR, _P = 3, 0


class PyNvEncoder:
    def __init__(self, arg0: int, arg1: int, arg2: str, arg3: int, arg4: int, arg5: bool, arg6: dict[str, str]) -> None:
        width, height, fmt, _context, self._stream, _host, options = arg0, arg1, arg2, arg3, arg4, arg5, arg6
        self._native, coded = _FORMATS[fmt]
        self._fmt, self._size, self._options = fmt, (width, height), options
        gop, bf = options.get("gop", "30"), options.get("bf", "0")
        codec = options.get("codec", "h264")
        encoder = {"h264": "libx264", "hevc": "libx265", "av1": "libsvtav1"}[codec]
        self._context = av.CodecContext.create(encoder, "w")
        self._context.width, self._context.height, self._context.pix_fmt = width, height, coded
        self._context.time_base, self._context.framerate = Fraction(1, 30), Fraction(30)
        if codec == "h264":
            self._context.options = {
                "preset": "veryfast",
                "x264-params": f"keyint={gop}:scenecut=0:bframes={bf}:b-pyramid=2:open-gop=0:qp=22",
            }
        elif codec == "hevc":
            params = f"keyint={gop}:scenecut=0:bframes={bf}:b-pyramid=1:open-gop=0:repeat-headers=1:log-level=none"
            self._context.options = {"preset": "ultrafast", "x265-params": params}
        else:
            self._context.options = {"preset": "8", "svtav1-params": f"keyint={gop}:rc=0:crf=1"}
        with kept_scheduling():
            self._context.open()
        self._frames = 0

    def Encode(self, frame: object, picParams: NV_ENC_PIC_PARAMS) -> list[dict]:
        if not hasattr(frame, "cuda"):
            raise PyNvVCException("incorrect usage of CPU input buffer")
        frame = frame.cuda()
        frame.__dlpack_device__()
        rows = torch.utils.dlpack.from_dlpack(frame.__dlpack__(self._stream))
        _width, height = self._size
        tall = height * 3 if "444" in self._fmt else height * 1.5
        if rows.shape[0] != tall:
            raise PyNvVCException(f"Tensor height :{rows.shape[0]} must be {tall}")
        assert rows.is_contiguous(), "the library takes rows as packed"
        assert picParams.inputTimeStamp >= 0, "timestamps are unsigned"
        self._frames += 1
        return self._packets(self._context.encode(self._picture(rows, picParams.inputTimeStamp)))

    def _picture(self, rows: torch.Tensor, timestamp: int) -> av.VideoFrame:
        width, height = self._size
        if self._native is None:  # 10 bits at the top of the word
            rows, native = (rows.to(torch.int32) >> 6).to(torch.uint16), "yuv444p10le"
        else:
            native = self._native
        picture = av.VideoFrame(width, height, native)
        if "444" in self._fmt:
            parts = [rows[i * height : (i + 1) * height] for i in range(3)]
        else:
            parts = [rows[:height], rows[height:]]
        for plane, part in zip(picture.planes, parts, strict=True):
            pitch = plane.line_size // part.element_size()
            target = torch.frombuffer(plane, dtype=part.dtype)[: pitch * part.shape[0]].view(part.shape[0], pitch)
            target[:, : part.shape[1]].copy_(part)
        picture = picture.reformat(format=self._context.pix_fmt)
        picture.pts, picture.time_base = timestamp, Fraction(1, 30)
        return picture

    def _packets(self, packets: list[av.Packet]) -> list[dict]:
        return [{"data": bytes(p), "timestamp": p.pts, "picture_type": _IDR if p.is_keyframe else _P} for p in packets]

    def EndEncode(self) -> list[dict]:
        return self._packets(self._context.encode(None))

    def GetSequenceParams(self) -> bytes:
        return bytes(self._context.extradata or b"")

    def GetNumBFrames(self) -> int:
        return int(self._options.get("bf", "0"))

    def GetEncodeReconfigureParams(self) -> structEncodeReconfigureParams:
        return structEncodeReconfigureParams()

    def Reconfigure(self, arg0: structEncodeReconfigureParams) -> bool:
        return isinstance(arg0, structEncodeReconfigureParams)


def GetEncoderCaps(gpuid: int = 0, codec: str = "h264") -> dict[str, int]:
    return {
        "width_min": 32, "height_min": 32, "width_max": 8192, "height_max": 8192, "num_encoder_engines": 1,
        "num_max_bframes": 4, "support_10bit_encode": int(codec != "h264"), "support_yuv444_encode": int(codec != "av1"),
    }  # fmt: skip


def CreateEncoder(width: int, height: int, fmt: str, usecpuinputbuffer: bool, **kwargs: object) -> PyNvEncoder:
    CALLS.append(dict(kwargs))
    context, stream = int(kwargs.pop("cudacontext", 0)), int(kwargs.pop("cudastream", 0))
    return PyNvEncoder(width, height, fmt, context, stream, usecpuinputbuffer, {k: str(v) for k, v in kwargs.items()})


def without_nvenc() -> types.SimpleNamespace:
    """What the library is on a GPU without NVENC (A100, H100, H200): every question raises."""

    def refuse(*args: object, **kwargs: object) -> None:
        raise PyNvVCException(
            "PyNvEncoder : m_nvenc.nvEncOpenEncodeSessionEx(...) returned error 2 at NvEncoder.cpp:90"
        )

    return types.SimpleNamespace(CreateEncoder=refuse, GetEncoderCaps=refuse, NV_ENC_PIC_PARAMS=NV_ENC_PIC_PARAMS)
