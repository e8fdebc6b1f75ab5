"""What the video engines of a GPU can do, as the driver tells it; asked once a process, and never an exception."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from gpupipe.codecs import pynv
from gpupipe.codecs.cuvid import decoder_caps
from gpupipe.device.driver import driver, same_context
from gpupipe.errors import first_line

DECODERS: dict[str, dict[str, tuple[int, ...]]] = {
    "h264": {"4:2:0": (8, 10), "4:2:2": (8, 10), "4:4:4": (8,)},
    "hevc": {"4:2:0": (8, 10, 12), "4:2:2": (8, 10, 12), "4:4:4": (8, 10, 12)},
    "av1": {"4:2:0": (8, 10)},
    "vp9": {"4:2:0": (8, 10, 12), "4:4:4": (8,)},
    "vp8": {"4:2:0": (8,)},
    "mpeg2video": {"4:2:0": (8,)},
}
"""What is asked of NVDEC: codecs that some GPU decodes and gpupipe would use, their chroma formats and depths."""
CHROMA = ("4:2:0", "4:2:2", "4:4:4")
NVENC_CODECS = ("h264", "hevc", "av1")
NO_NVENC = "this GPU has no NVENC"
OUT_OF_SESSIONS = 10
"""NVENCSTATUS for out of memory, which is also what cards with a limit of sessions say beyond it."""
NO_SESSION = "no NVENC session is left on this GPU, or no memory for one"


@dataclass(frozen=True, slots=True)
class DecoderRow:
    """One codec, chroma format and depth. Sizes are of coded pictures."""

    codec: str
    chroma: str
    depth: int
    supported: bool
    min_width: int = 0
    min_height: int = 0
    max_width: int = 0
    max_height: int = 0
    max_macroblocks: int = 0
    engines: int = 0
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class DecoderTable:
    """NVDEC of one GPU; `reason` says why there are no rows."""

    gpu: int
    engines: int
    rows: tuple[DecoderRow, ...] = ()
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class EncoderRow:
    """NVENC for one codec."""

    codec: str
    supported: bool
    reason: str | None = None
    min_width: int = 0
    min_height: int = 0
    max_width: int = 0
    max_height: int = 0
    ten_bit: bool = False
    yuv444: bool = False
    max_b_frames: int = 0
    engines: int = 0


@dataclass(frozen=True, slots=True)
class EncoderTable:
    """NVENC of one GPU; `reason` says why there is none."""

    gpu: int
    rows: tuple[EncoderRow, ...] = ()
    reason: str | None = None


def unusable(gpu: int) -> str | None:
    """Why no video engine of that GPU can be used from here; None where it can."""
    found = driver()
    if gpu >= len(found.gpus):
        return found.reason or f"there is no cuda:{gpu}"
    return pynv.missing()


@lru_cache(maxsize=256)
def decoder_row(codec: str, chroma: str, depth: int, gpu: int = 0) -> DecoderRow:
    """What NVDEC can do with one kind of stream. `chroma` is such as `4:2:0`."""
    reason = unusable(gpu)
    if reason is None and codec not in DECODERS:
        reason = f"NVDEC does not decode {codec}"
    if reason is not None:
        return DecoderRow(codec, chroma, depth, supported=False, reason=reason)
    try:
        caps = decoder_caps(codec, chroma, depth, gpu)
    except OSError as error:
        return DecoderRow(codec, chroma, depth, supported=False, reason=f"NVDEC cannot be asked: {error}")
    return DecoderRow(
        codec, chroma, depth, supported=bool(caps.supported),
        min_width=caps.min_width, min_height=caps.min_height, max_width=caps.max_width, max_height=caps.max_height,
        max_macroblocks=caps.max_macroblocks, engines=caps.engines,
        reason=None if caps.supported else f"this GPU's NVDEC does not decode {codec} {chroma} {depth}-bit",
    )  # fmt: skip


def nvdec_table(gpu: int = 0) -> DecoderTable:
    """All that NVDEC of a GPU can and cannot decode."""
    reason = unusable(gpu)
    if reason is not None:
        return DecoderTable(gpu, 0, reason=reason)
    asked = [
        (codec, chroma, depth) for codec, kinds in DECODERS.items() for chroma, ds in kinds.items() for depth in ds
    ]
    rows = [decoder_row(codec, chroma, depth, gpu) for codec, chroma, depth in asked]
    return DecoderTable(gpu, max(row.engines for row in rows), tuple(rows))


def encoder_row_from(caps: dict[str, int], codec: str) -> EncoderRow:
    """Reads PyNvVideoCodec's dictionary of encoder capabilities."""
    return EncoderRow(
        codec, supported=True,
        min_width=caps.get("width_min", 0), min_height=caps.get("height_min", 0),
        max_width=caps.get("width_max", 0), max_height=caps.get("height_max", 0),
        ten_bit=bool(caps.get("support_10bit_encode")), yuv444=bool(caps.get("support_yuv444_encode")),
        max_b_frames=caps.get("num_max_bframes", 0), engines=caps.get("num_encoder_engines", 0),
    )  # fmt: skip


_STATUS = {
    1: "no encoder on this machine", 2: NO_NVENC, 3: "the encoder does not know this GPU", 4: "the driver was reset",
    5: "the GPU is gone", 6: "a wrong pointer", 8: "a wrong parameter", 9: "calls in a wrong order",
    OUT_OF_SESSIONS: NO_SESSION, 11: "the encoder is not open", 12: "this NVENC does not do that",
    13: "a packet is not ready", 14: "a buffer is too small", 15: "the driver is of another version",
    20: "a failure without a name", 23: "a picture could not be mapped",
}  # fmt: skip
"""NVENCSTATUS of NVENC's public header, in words."""


def encoder_status(error: Exception) -> int | None:
    """The NVENCSTATUS in one of PyNvVideoCodec's messages: the innermost, since its own wrapping says 20 to all."""
    text = str(error)
    found = re.findall(r"(?:returned error|[Ee]rror code) (\d+)", text) or re.findall(r"Error code : (\d+)", text)
    return int(found[-1]) if found else None


def encoder_reason(error: Exception) -> str:
    """NVENC's refusal in one line.

    GPUs without NVENC answer 2; cards with a limit of sessions answer 10 beyond it. What else fails is told with the
    call that failed, which the library writes behind `Error Type`.
    """
    status = encoder_status(error)
    if status in (2, OUT_OF_SESSIONS):
        return _STATUS[status]
    said = re.search(r"Error Type : (.*)", str(error))
    call = (
        re.sub(r"^m_nvenc\.|\(.*\)| returned error \d+|\.? ?Error code \d+$|\.$", "", said[1].strip()) if said else ""
    )
    if status is None:
        return call or first_line(error)
    words = _STATUS.get(status, "see NVENCSTATUS in nvEncodeAPI.h")
    return f"{call or first_line(error)} (error {status}: {words})"


def ask_encoder(library: Any, codec: str, gpu: int) -> EncoderRow:
    """What NVENC can do for one codec, by any library with PyNvVideoCodec's `GetEncoderCaps`."""
    try:
        with same_context(clean_after_error=True):
            return encoder_row_from(library.GetEncoderCaps(gpuid=gpu, codec=codec), codec)
    except Exception as error:  # noqa: BLE001  its exceptions share no base
        return EncoderRow(codec, supported=False, reason=encoder_reason(error))


def encoder_row(codec: str, gpu: int = 0) -> EncoderRow:
    """What NVENC can do for h264, hevc or av1; asked once, unless no session was left to ask with."""
    reason = unusable(gpu)
    if reason is None and codec not in NVENC_CODECS:
        reason = f"NVENC does not encode {codec}"
    if reason is not None:
        return EncoderRow(codec, supported=False, reason=reason)
    row = _encoder_row(codec, gpu)
    if row.reason == NO_SESSION:
        _encoder_row.cache_clear()
    return row


@lru_cache(maxsize=64)
def _encoder_row(codec: str, gpu: int) -> EncoderRow:
    return ask_encoder(pynv.load(), codec, gpu)


def nvenc_table(gpu: int = 0) -> EncoderTable:
    """All that NVENC of a GPU can encode, or why it cannot."""
    reason = unusable(gpu)
    if reason is not None:
        return EncoderTable(gpu, reason=reason)
    rows = tuple(encoder_row(codec, gpu) for codec in NVENC_CODECS)
    reasons = {row.reason for row in rows}
    common = next(iter(reasons)) if len(reasons) == 1 else None
    return EncoderTable(gpu, rows, common if not any(row.supported for row in rows) else None)
