"""Where a run happens and which decoder feeds it."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from gpupipe.format import FrameFormat
    from gpupipe.media.source import SourceInfo


def resolve_device(asked: str) -> str:
    """`cpu` or `cuda:N`. `auto` takes the first GPU there is.

    Raises DeviceError where a GPU is asked for by name and cannot be used.
    """
    if asked == "cpu" or (asked == "auto" and not _has_driver()):
        return "cpu"
    from gpupipe.device.cuda import pick_device  # noqa: PLC0415  imports torch: not where no driver is

    return pick_device(asked)


def _has_driver() -> bool:
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


def choose_decoder(info: SourceInfo, device: str) -> tuple[Literal["libav", "nvdec"], str, FrameFormat]:
    """(decoder, reason, format of its pictures)."""
    if device == "cpu":
        return "libav", "the run is on the CPU", info.video.format
    from gpupipe.codecs import nvdec  # noqa: PLC0415

    refusal = nvdec.supports(info.video.codec, info.video.profile, info.video.format, device)
    if refusal:
        return "libav", f"NVDEC does not take it: {refusal}", info.video.format
    return "nvdec", "NVDEC takes it", nvdec.output_format(info.video.format, device)
