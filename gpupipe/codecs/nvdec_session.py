"""One session of NVIDIA's decoder library, and the pictures that it gives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gpupipe.codecs import pynv
from gpupipe.codecs.nvdec_support import CODECS
from gpupipe.device.driver import primary_context, same_context
from gpupipe.errors import DeviceError, device_failure, first_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

    from gpupipe.device.base import Lane
    from gpupipe.format import FrameFormat

_FORMATS = {
    "NV12": "nv12",
    "P016": "p010le p012le",
    "YUV444": "yuv444p",
    "YUV444_16Bit": "yuv444p10msble yuv444p12msble",
}


@dataclass(slots=True)
class Surface:
    """A decoded picture in the library's memory, packed: luma rows, then chroma rows (see `surface_views`)."""

    address: int
    format: FrameFormat
    pts: int
    """NO_PTS where unknown."""
    duration: int


class Session:
    """A decoder of PyNvVideoCodec's; after an exception of `decode` it is only to be closed.

    Args:
        library: PyNvVideoCodec.
        codec: as libav names it.
        source: format of the surfaces, see `nvdec_support.surface_format`; their size may be another.
        lane: the CUDA stream that they are written on.

    Raises DeviceError where NVDEC does not open.
    """

    def __init__(self, library: Any, codec: str, source: FrameFormat, lane: Lane) -> None:
        self._source = source
        self._known: FrameFormat | None = None
        """Of the last surface."""
        gpu = pynv.gpu_index(lane.device)
        try:
            with same_context():
                self._decoder: Any = library.CreateDecoder(
                    gpuid=gpu,
                    codec=getattr(library.cudaVideoCodec, CODECS[codec]),
                    cudacontext=primary_context(gpu),
                    cudastream=lane.handle,
                    usedevicememory=True,
                )
        except Exception as error:  # noqa: BLE001  its exceptions share no base
            raise device_failure(f"NVDEC does not open: {first_line(error)}", where=lane.device,
                              hint="use `device: cpu`") from None  # fmt: skip

    def decode(self, data: Any) -> Sequence[Any]:
        """The library's frames that come out when it is given its PacketData; raises whatever the library does."""
        frames: Sequence[Any] = self._decoder.Decode(data)
        return frames

    def format_of(self, frame: Any, *, steady: bool) -> FrameFormat:
        """The format of a surface; where all are `steady`, that of the session's first.

        Each question lets other threads in, which costs more than all else a picture.

        Raises DeviceError where the pixels are not those of `source`.
        """
        if self._known is None or not steady:
            self._known = self._measured(frame)
        return self._known

    def _measured(self, frame: Any) -> FrameFormat:
        width, height = self._decoder.GetWidth(), self._decoder.GetHeight()
        source = self._source
        if (width, height) == (source.width + (source.width & 1), source.height):
            width = source.width  # 4:2:0 surfaces have even widths
        if (width, height) != (source.width, source.height):
            source = source.with_(width=width, height=height)
        if self._known is None:  # a session's surfaces are all alike
            surface = str(frame.format).rpartition(".")[2]
            if source.pixels.name not in _FORMATS.get(surface, "").split():
                raise DeviceError(
                    f"NVDEC gave a {surface} surface instead of {source.pixels.name}", hint="use `device: cpu`"
                )
        return source

    def close(self) -> None:
        """Frees its surfaces."""
        if self._decoder is not None:
            with same_context():
                self._decoder = None


def surface_views(surface: Surface) -> tuple[torch.Tensor, ...]:
    """The planes of a packed surface, N = 1, as views of the library's memory.

    The library's own DLPack view is `height * 1.5` rows, which drops the last chroma row of odd heights.
    """
    from gpupipe.device.cuda import plane_dtype, surface_planes, surface_shape, tensor_at  # noqa: PLC0415  torch

    source = surface.format
    return surface_planes(
        tensor_at(surface.address, surface_shape(source, 1), plane_dtype(source), source.device), source
    )
