"""Where a run happens and which decoder feeds it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import av

from gpupipe.media.container import open_input

if TYPE_CHECKING:
    from gpupipe.format import FrameFormat
    from gpupipe.media.source import SourceInfo


def choose_decoder(info: SourceInfo, device: str) -> tuple[Literal["libav", "nvdec"], str, FrameFormat]:
    """(decoder, reason, format of its pictures)."""
    if device == "cpu":
        return "libav", "the run is on the CPU", info.video.format
    if info.video.format.alpha:
        return "libav", "on the CPU, since NVDEC gives no alpha", info.video.format
    from gpupipe.codecs import nvdec  # noqa: PLC0415  not where no GPU is

    if info.container == "avi" and info.video.codec in ("h264", "hevc"):
        return "libav", "on the CPU, since AVI holds no presentation times for NVDEC to give back", info.video.format
    with open_input(info.path) as container:
        stream = container.streams[info.video.index]
        assert isinstance(stream, av.VideoStream)
        refusal = nvdec.supports(info.video, int(device.removeprefix("cuda:")), stream)
    if refusal:
        return "libav", f"on the CPU, since {refusal}", info.video.format
    return "nvdec", "NVDEC takes it", nvdec.surface_format(info.video, device)


def nvdec_engines(info: SourceInfo, device: str) -> int:
    """How many engines of the GPU decode a source for which `nvdec` was chosen."""
    from gpupipe.codecs import nvdec_support  # noqa: PLC0415  not where no GPU is

    return nvdec_support.engines(info.video, int(device.removeprefix("cuda:")))
