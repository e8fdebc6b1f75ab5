"""MJPEG by nvJPEG.

JPEG knows one colour, full-range BT.601 with chroma sited in the centre (JFIF), so pictures come in as such planes and
nvJPEG converts nothing. A coded picture's own header tells the muxer the rest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpupipe.codecs import nvjpeg_library, pynv
from gpupipe.codecs.described import DescribedEncoder
from gpupipe.codecs.intra import intra_packets
from gpupipe.device.driver import driver
from gpupipe.errors import DeviceError, PlanError, first_line

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpupipe.codecs.base import EncoderSettings, Keep, Packet
    from gpupipe.codecs.nvjpeg_library import Library
    from gpupipe.device.base import Lane
    from gpupipe.format import FrameFormat
    from gpupipe.frame import FrameBatch

DEFAULT_QUALITY = 92
_LARGEST = 65535  # a JPEG's sides are 16-bit numbers
_HUFFMAN = {"default": False, "optimal": True}
"""libav's words for the same choice."""


STATES, _STATES_PIXELS = 8, 1 << 24
"""States a lane at most, and pixels of all of them together: of large pictures two keep a lane busy."""
_BUFFERS, _PAGE = 5, 2 << 20
"""Buffers of a state, and what the driver rounds each up to: 8 MiB more than their bytes were seen at 1080p."""


def states(pixels: int, batch: int) -> int:
    """Encoder states of a lane, so pictures that are coded before any is fetched: half a batch where there is room."""
    return max(1, min(STATES, batch // 2, _STATES_PIXELS // pixels))


def lane_bytes(pixels: int, frame_bytes: int, batch: int) -> int:
    """Of the GPU's memory that a lane takes, for pictures of that size.

    nvJPEG 13.0 took 21 bytes a pixel and twice the bitstream, which for noise at quality 100 is more than the picture;
    each of its buffers is cudaMalloc's, which gives large ones whole pages.
    """
    state = (42 * pixels + 7 * frame_bytes) // 2
    return states(pixels, batch) * (state + min(state, _BUFFERS * _PAGE))


def pixel_formats() -> tuple[str, ...]:
    """What it takes, all of it full-range BT.601."""
    return ("yuv420p", "yuv422p", "yuv444p")


def supports(
    picture: FrameFormat, options: Mapping[str, str], quality: float | None, bitrate: int | None
) -> str | None:
    """Why nvJPEG cannot encode such pictures with these settings; None where it can."""
    if pynv.gpu_index(picture.device) >= len(driver().gpus):
        return driver().reason or f"there is no {picture.device}"
    reason = nvjpeg_library.missing()
    if reason is not None:
        return f"{reason} ({nvjpeg_library.HINT})"
    if picture.interlaced:
        return "nvJPEG would mix the fields of interlaced pictures"
    if max(picture.width, picture.height) > _LARGEST:
        return f"a JPEG has at most {_LARGEST} samples a side"
    try:
        quality_of(quality, bitrate)
        optimal_huffman(options)
    except PlanError as error:
        return error.message
    return None


def quality_of(quality: float | None, bitrate: int | None) -> int:
    """JPEG quality 1 (small) to 100 (good) from the plan's `quality`; 92 where it says none. Raises PlanError."""
    if bitrate:
        raise PlanError("nvjpeg has no rate control", where="output.video.bitrate", hint="quality: 1 to 100")
    found = DEFAULT_QUALITY if quality is None else round(quality)
    if not 1 <= found <= 100:
        raise PlanError(f"JPEG quality runs from 1 to 100, not {found}", where="output.video.quality")
    return found


def optimal_huffman(options: Mapping[str, str]) -> bool:
    """Whether each picture gets Huffman tables of its own: smaller, and slower. Raises PlanError for other options."""
    unknown = options.keys() - {"huffman"}
    wanted = options.get("huffman", "default")
    if unknown or wanted not in _HUFFMAN:
        what = f"option '{min(unknown)}'" if unknown else f"huffman '{wanted}'"
        hint = f"huffman: {' or '.join(_HUFFMAN)}"
        raise PlanError(f"nvjpeg has no {what}", where="output.video.options", hint=hint)
    return _HUFFMAN[wanted]


class NvjpegEncoder(DescribedEncoder):
    """Encodes every picture by itself on the GPU; meets `base.AloneEncoder`.

    Args:
        settings: what the plan asks; `input_format` is one of `pixel_formats`, its colour tags are those of the output.
        lane: where the pictures are coded.
        batch: pictures that come at once, as a rule.
        library: stands in for nvJPEG in tests.
    """

    def __init__(
        self, settings: EncoderSettings, lane: Lane, batch: int = 2 * STATES, *, library: Library | None = None
    ) -> None:
        self.settings, self._lane = settings, lane
        quality, optimal = quality_of(settings.quality, settings.bitrate), optimal_huffman(settings.options)
        source = settings.input_format
        if source.pixels.name not in pixel_formats():
            raise PlanError(f"nvjpeg does not take {source.pixels.name}", where="output.video.pixel_format")
        from gpupipe.codecs.nvjpeg_coder import Coder  # noqa: PLC0415  imports torch, which `supports` needs not

        count = states(source.area, batch)
        self._coder = Coder(library or nvjpeg_library.load(), source, quality, lane, count, optimal=optimal)

    def encode_into(self, batch: FrameBatch, keep: Keep) -> list[Packet]:
        """See `base.AloneEncoder`; `batch.planes` are Y, U, V of (N, H, W) uint8 with packed rows of any pitch."""
        self._lane.wait(batch.ready)
        valid = batch.valid
        full = valid == len(batch.planes[0])
        try:
            coded = self._coder.code(batch.planes if full else tuple(plane[:valid] for plane in batch.planes), keep)
        except RuntimeError as error:
            raise DeviceError(f"nvJPEG failed: {first_line(error)}", where=self._lane.device) from None
        return intra_packets(batch, coded, self.settings.time_base)
