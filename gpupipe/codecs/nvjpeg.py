"""MJPEG by nvJPEG, through torchvision.

It makes 4,900 pictures a second at 1080p where nvImageCodec makes 2,370, and it raises where that one returns None.
JPEG knows one colour, full-range BT.601 (JFIF), so pictures come in as full-range 8-bit R'G'B'. torchvision's
encoder makes 4:4:4 of them; their own header tells the muxer.
"""

from __future__ import annotations

import importlib.util
import io
from typing import TYPE_CHECKING, Any

import av

from gpupipe.codecs import pynv
from gpupipe.codecs.intra import intra_packet
from gpupipe.device.driver import driver
from gpupipe.errors import DeviceError, PlanError, first_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

    from gpupipe.codecs.base import EncoderSettings, Packet
    from gpupipe.device.base import Lane
    from gpupipe.format import FrameFormat
    from gpupipe.frame import FrameBatch

DEFAULT_QUALITY = 92
_LARGEST = 65535  # a JPEG's sides are 16-bit numbers
_NOTHING_TO_SET = "nvjpeg takes no options"


def pixel_formats() -> tuple[str, ...]:
    """What it takes: full-range planar R'G'B'."""
    return ("gbrp",)


def supports(picture: FrameFormat) -> str | None:
    """Why nvJPEG cannot encode such pictures; None where it can."""
    if pynv.gpu_index(picture.device) >= len(driver().gpus):
        return driver().reason or f"there is no {picture.device}"
    if importlib.util.find_spec("torchvision") is None:
        return "torchvision is not installed (pip install 'gpupipe[gpu]')"
    if picture.interlaced:
        return "nvJPEG would mix the fields of interlaced pictures"
    if max(picture.width, picture.height) > _LARGEST:
        return f"a JPEG has at most {_LARGEST} samples a side"
    return None


def quality_of(settings: EncoderSettings) -> int:
    """JPEG quality 1 (small) to 100 (good) from the plan's `quality`; 92 where it says none. Raises PlanError."""
    if settings.options:
        raise PlanError(_NOTHING_TO_SET, where="output.video.options", hint="quality: 1 to 100")
    if settings.bitrate:
        raise PlanError("nvjpeg has no rate control", where="output.video.bitrate", hint="quality: 1 to 100")
    quality = DEFAULT_QUALITY if settings.quality is None else round(settings.quality)
    if not 1 <= quality <= 100:
        raise PlanError(f"JPEG quality runs from 1 to 100, not {quality}", where="output.video.quality")
    return quality


class NvjpegEncoder:
    """Encodes every picture by itself on the GPU; meets `base.Encoder`.

    Args:
        settings: what the plan asks; `input_format` is gbrp, and its colour tags are those of the output.
        lane: where the pictures are made.
        encode_jpeg: stands in for torchvision's in tests: (list of (3, H, W) uint8 RGB, quality) -> list of uint8.
    """

    def __init__(self, settings: EncoderSettings, lane: Lane, *, encode_jpeg: Any = None) -> None:
        self.settings, self._lane = settings, lane
        self._quality = quality_of(settings)
        if settings.input_format.pixels.name not in pixel_formats():
            raise PlanError(
                f"nvjpeg does not take {settings.input_format.pixels.name}", where="output.video.pixel_format"
            )
        self._encode_jpeg = encode_jpeg or _torchvision()
        from gpupipe.device.staging import PinnedBytes  # noqa: PLC0415  imports torch

        self._pinned = PinnedBytes(lane)
        self._scratch: av.container.OutputContainer | None = None

    def encode(self, batch: FrameBatch) -> list[Packet]:
        """See `base.Encoder`; `batch.planes` are G, B, R of (N, H, W)."""
        import torch  # noqa: PLC0415  a plan needs `supports` and no torch

        g, b, r = batch.planes
        self._lane.wait(batch.ready)
        try:
            with self._lane.active():
                rgb = torch.stack((r, g, b), dim=1)[: batch.valid]
                # torchvision keeps one encoder a process, on the stream of its first call, and does not make it wait
                # for the stream that the pictures are made on.
                self._lane.synchronize()
                data = self._fetch(self._encode_jpeg(list(rgb), quality=self._quality))
        except RuntimeError as error:
            raise DeviceError(f"nvJPEG failed: {first_line(error)}", where=self._lane.device) from None
        return [intra_packet(batch, row, picture, self.settings.time_base) for row, picture in enumerate(data)]

    def _fetch(self, coded: list[torch.Tensor]) -> list[bytes]:
        """The bytes of all pictures: gathered on the device, brought over in one copy."""
        import torch  # noqa: PLC0415

        whole, at, pictures = self._pinned.fetch(torch.cat(coded)).numpy(), 0, []
        for picture in coded:
            pictures.append(whole[at : at + picture.numel()].tobytes())
            at += picture.numel()
        return pictures

    def finish(self) -> list[Packet]:
        """See `base.Encoder`; nothing is ever held."""
        return []

    def template(self, first: Sequence[Packet]) -> av.VideoStream:
        """See `base.Encoder`: the picture's own header says size and subsampling, the plan says colour."""
        with av.open(io.BytesIO(bytes(first[0])), format="mjpeg") as picture:
            found = picture.streams.video[0].codec_context
            pixels, width, height = found.pix_fmt, found.width, found.height
        source = self.settings.input_format
        self._scratch = av.open(io.BytesIO(), "w", format="mov")
        stream = self._scratch.add_stream("mjpeg", rate=self.settings.rate)
        assert isinstance(stream, av.VideoStream)
        context = stream.codec_context
        context.width, context.height, context.pix_fmt = width, height, pixels
        context.sample_aspect_ratio = source.sample_aspect
        context.time_base = self.settings.time_base
        context.color_range, context.colorspace = 2, 5  # full range, BT.601: what JFIF means
        context.color_primaries, context.color_trc = source.color.primaries, source.color.transfer
        self._scratch.start_encoding()
        return stream

    def close(self) -> None:
        """See `base.Encoder`."""


def _torchvision() -> Any:
    try:
        from torchvision.io import encode_jpeg  # noqa: PLC0415
    except (ImportError, RuntimeError, OSError) as error:
        raise DeviceError(f"torchvision cannot be used: {error}", hint="pip install 'gpupipe[gpu]'") from None
    return encode_jpeg
