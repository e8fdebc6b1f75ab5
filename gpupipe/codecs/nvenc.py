"""Encoding by NVENC through PyNvVideoCodec: surfaces in, packets out that any muxer takes."""

from __future__ import annotations

import io
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import av
import av.bitstream

from gpupipe.codecs import pynv
from gpupipe.codecs.capability import (
    NO_SESSION,
    NVENC_CODECS,
    OUT_OF_SESSIONS,
    EncoderRow,
    ask_encoder,
    encoder_reason,
    encoder_row,
    encoder_status,
)
from gpupipe.codecs.nvenc_options import arguments, b_frames, check_options
from gpupipe.codecs.obu import before_frame, hdr_obus
from gpupipe.codecs.reorder import DtsClock, reorder_depth
from gpupipe.codecs.sei import before_picture, hdr_sei
from gpupipe.color import UNSPECIFIED, ChromaLocation, Range
from gpupipe.device.driver import primary_context, same_context
from gpupipe.errors import CapabilityError, DeviceError, NoSessionError, device_failure

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

    from gpupipe.codecs.base import EncoderSettings, Packet
    from gpupipe.device.base import Lane
    from gpupipe.format import FrameFormat
    from gpupipe.frame import FrameBatch

_SURFACES = {"nv12": "NV12", "p010le": "P010", "yuv444p": "YUV444", "yuv444p10msble": "YUV444_16BIT"}
"""gpupipe's pixel format -> PyNvVideoCodec's."""
_DEMUXER = {"h264": "h264", "hevc": "hevc", "av1": "obu"}
_CLOSE = "close other programs that encode, or use a libav encoder"
_IDR = 3  # NV_ENC_PIC_TYPE_IDR
_CHROMA_LOCATION = list(ChromaLocation)  # H.273 Chroma420SampleLocType counts in this order


def pixel_formats(codec: str) -> tuple[str, ...]:
    """Pixel formats that NVENC may take for a codec; `supports` says whether this GPU does."""
    if codec == "h264":
        return ("nv12", "yuv444p")
    return ("nv12", "p010le") if codec == "av1" else tuple(_SURFACES)


def supports(codec: str, picture: FrameFormat, row: EncoderRow | None = None) -> str | None:
    """Why NVENC of `picture.device` cannot encode such pictures; None where it can.

    `row` stands in for what the GPU says of itself, in tests.
    """
    if codec not in NVENC_CODECS:
        return f"NVENC does not encode {codec}"
    row = row or encoder_row(codec, pynv.gpu_index(picture.device))
    if not row.supported:
        return row.reason
    width, height = picture.width, picture.height
    if not row.min_width <= width <= row.max_width or not row.min_height <= height <= row.max_height:
        sizes = f"{row.min_width}x{row.min_height} to {row.max_width}x{row.max_height}"
        return f"{width}x{height} is not within this NVENC's {sizes} for {codec}"
    return _format_reason(codec, picture, row)


def rehearse(settings: EncoderSettings) -> None:
    """Raises PlanError for what this GPU's NVENC or its library would refuse or ignore; opens nothing."""
    check_options(settings.codec, settings.options, settings.preset, pynv.encode_api(pynv.load()))
    row = encoder_row(settings.codec, pynv.gpu_index(settings.input_format.device))
    arguments(settings, b_frames(settings, row.max_b_frames))


def _format_reason(codec: str, picture: FrameFormat, row: EncoderRow) -> str | None:
    subsampled = picture.pixels.chroma_shift == (1, 1)
    if picture.interlaced:
        return "NVENC would lose the fields of interlaced pictures"
    if subsampled and (picture.width % 2 or picture.height % 2):
        return f"{picture.width}x{picture.height} has an odd side, which NVENC's 4:2:0 cannot hold"
    if picture.pixels.name in _SURFACES:  # others are converted to one of these first
        if not subsampled and not row.yuv444:
            return f"this NVENC does not encode {codec} 4:4:4"
        if picture.pixels.depth > 8 and not row.ten_bit:
            return f"this NVENC does not encode {codec} in 10 bit"
    return None


class _Surface:
    """A packed picture as PyNvVideoCodec wants it.

    It calls `cuda()` to tell device memory from host memory, and `__dlpack__` with the stream as a positional
    argument, which torch's own does not take.
    """

    def __init__(self, rows: torch.Tensor) -> None:
        self._rows = rows

    def cuda(self) -> _Surface:
        return self

    def __dlpack__(self, stream: int | None = None) -> Any:
        return self._rows.__dlpack__(stream=stream or None) if self._rows.is_cuda else self._rows.__dlpack__()

    def __dlpack_device__(self) -> Any:
        return self._rows.__dlpack_device__()


def packed(planes: tuple[torch.Tensor, ...], row: int) -> torch.Tensor:
    """One picture as a 2-D tensor: luma rows, then chroma rows; (H * 3/2, W) for nv12 and p010le, (3H, W) for 4:4:4."""
    import torch  # noqa: PLC0415  a plan needs `supports` and no torch

    return torch.cat([plane[row].flatten(1) if plane.dim() == 4 else plane[row] for plane in planes])


def metadata_filter(settings: EncoderSettings) -> str | None:
    """The bitstream filter that writes the colour tags; NVENC's library cannot."""
    source, codec = settings.input_format, settings.codec
    color, full = source.color, source.color.range is Range.FULL
    names = ("color_primaries", "transfer_characteristics", "matrix_coefficients") if codec == "av1" else (
        "colour_primaries", "transfer_characteristics", "matrix_coefficients"
    )  # fmt: skip
    values = (color.primaries, color.transfer, int(color.matrix))
    said = any(v != UNSPECIFIED for v in values)
    fields = [f"{n}={v}" for n, v in zip(names, values, strict=True)] if said else []
    if color.range is not None:
        fields.append(
            f"color_range={'pc' if full else 'tv'}" if codec == "av1" else f"video_full_range_flag={int(full)}"
        )
    if color.chroma_location is not None and source.pixels.chroma_shift == (1, 1):
        fields += _chroma_location(codec, color.chroma_location)
    if codec != "av1" and source.sample_aspect not in (0, Fraction(1)):
        fields.append(f"sample_aspect_ratio={source.sample_aspect.numerator}/{source.sample_aspect.denominator}")
    return f"{codec}_metadata=" + ":".join(fields) if fields else None


def _chroma_location(codec: str, location: ChromaLocation) -> list[str]:
    if codec != "av1":
        return [f"chroma_sample_loc_type={_CHROMA_LOCATION.index(location)}"]
    known = {ChromaLocation.LEFT: "vertical", ChromaLocation.TOP_LEFT: "colocated"}
    return [f"chroma_sample_position={known[location]}"] if location in known else []


def _hdr(settings: EncoderSettings) -> bytes:
    """Static HDR metadata in the codec's own units; empty where there is none."""
    display, light = settings.mastering_display, settings.content_light
    return hdr_obus(display, light) if settings.codec == "av1" else hdr_sei(settings.codec, display, light)


def with_hdr(codec: str, data: bytes, units: bytes) -> bytes:
    """A key picture with HDR metadata in front; not by `Encode`, so that one way serves all codecs."""
    return before_frame(data, units) if codec == "av1" else before_picture(codec, data, units)


class NvencEncoder:
    """Encodes on the GPU; meets `base.Encoder`.

    Args:
        settings: what the plan asks.
        lane: where the pictures are made; the library copies them on its stream.
        library: stands in for PyNvVideoCodec in tests.

    Raises PlanError for options that NVENC does not know, DeviceError where it does not open, NoSessionError where it
    may open once another is closed.
    """

    def __init__(self, settings: EncoderSettings, lane: Lane, *, library: Any = None) -> None:
        self.settings, self._lane = settings, lane
        self._library = library or pynv.load()
        check_options(settings.codec, settings.options, settings.preset, pynv.encode_api(self._library))
        gpu = pynv.gpu_index(lane.device)
        # Asking takes a session too, of which a card may have few: only the first encoder of a process asks.
        row = encoder_row(settings.codec, gpu) if library is None else ask_encoder(library, settings.codec, gpu)
        reason = supports(settings.codec, settings.input_format, row)
        if reason is None and settings.input_format.pixels.name not in pixel_formats(settings.codec):
            reason = f"it does not take {settings.input_format.pixels.name}"
        if reason == NO_SESSION:
            raise NoSessionError(reason, where=lane.device, hint=_CLOSE)
        if reason is not None:
            message = f"nvenc cannot encode {settings.codec}: {reason}"
            raise CapabilityError(message, where="output.video.encoder", hint="use `encoder: auto`")
        bf = b_frames(settings, row.max_b_frames)
        self._session = self._open(arguments(settings, bf), gpu)
        step = round(1 / (settings.rate * settings.time_base)) if settings.rate else 1
        self._clock = DtsClock(0 if settings.codec == "av1" else reorder_depth(bf), step)
        self._pictures: dict[int, tuple[int, int]] = {}
        """Pictures inside by number: pts (which may be negative, and NVENC's are not) and duration."""
        self._count = 0
        self._hdr = _hdr(settings)
        self._filter: av.bitstream.BitStreamFilterContext | None = None
        if name := metadata_filter(settings):
            self._filter = av.bitstream.BitStreamFilterContext(name, settings.codec)
        self._opened: av.container.InputContainer | None = None

    def _open(self, options: dict[str, str], gpu: int) -> Any:
        source = self.settings.input_format
        context = 0 if self._lane.device == "cpu" else primary_context(gpu)
        try:
            with same_context():
                return self._library.CreateEncoder(
                    source.width, source.height, _SURFACES[source.pixels.name], False,
                    gpu_id=gpu, cudacontext=context, cudastream=self._lane.handle, **options,
                )  # fmt: skip
        except Exception as error:  # noqa: BLE001  its exceptions share no base
            message = f"NVENC does not open for {source}: {encoder_reason(error)}"
            if encoder_status(error) == OUT_OF_SESSIONS:
                raise NoSessionError(message, where=self._lane.device, hint=_CLOSE) from None
            hint = "use `encoder: auto`, or other options"
            raise device_failure(message, where=self._lane.device, hint=hint) from None

    def encode(self, batch: FrameBatch) -> list[Packet]:
        """See `base.Encoder`."""
        packets: list[Packet] = []
        self._lane.wait(batch.ready)
        for row, pts in enumerate(batch.pts):
            self._clock.shown(pts)
            self._pictures[self._count] = (pts, batch.durations[row] if row < len(batch.durations) else 0)
            with self._lane.active():
                surface = packed(batch.planes, row)
            self._lane.synchronize()  # the encoder engine does not wait for the stream that makes its input
            params = self._library.NV_ENC_PIC_PARAMS()
            params.inputTimeStamp = self._count
            self._count += 1
            packets += self._packets(self._call("Encode", _Surface(surface), params))
        return packets

    def finish(self) -> list[Packet]:
        """See `base.Encoder`. Raises DeviceError where pictures were lost inside."""
        packets = self._packets(self._call("EndEncode")) + self._clock.drain()
        if self._pictures:
            lost = ", ".join(str(pts) for pts, _ in list(self._pictures.values())[:5])
            raise DeviceError(f"NVENC lost {len(self._pictures)} pictures", where=f"pts {lost}")
        return packets

    def _call(self, name: str, *args: Any) -> list[dict[str, Any]]:
        try:  # the method has no name here: an error that someone keeps would keep the session open
            found: list[dict[str, Any]] = getattr(self._session, name)(*args)
        except Exception as error:  # noqa: BLE001  its exceptions share no base
            raise DeviceError(f"NVENC failed: {encoder_reason(error)}", where=self._lane.device) from None
        return found

    def _packets(self, coded: list[dict[str, Any]]) -> list[Packet]:
        packets: list[Packet] = []
        for item in coded:
            data, key = bytes(item["data"]), item["picture_type"] == _IDR
            if key and self._hdr:
                data = with_hdr(self.settings.codec, data, self._hdr)
            packet = self._tagged(av.Packet(data))
            pts, duration = self._pictures.pop(item["timestamp"])
            packet.pts, packet.duration, packet.time_base = pts, duration, self.settings.time_base
            packet.is_keyframe = key
            packets += self._clock.coded(packet)
        return packets

    def _tagged(self, packet: Packet) -> Packet:
        return self._filter.filter(packet)[0] if self._filter else packet

    def template(self, first: Sequence[Packet]) -> av.VideoStream:
        """See `base.Encoder`; needs at least the first packet, which holds the headers."""
        data = io.BytesIO(b"".join(bytes(packet) for packet in first))
        self._opened = av.open(data, "r", format=_DEMUXER[self.settings.codec])
        return self._opened.streams.video[0]

    def close(self) -> None:
        """See `base.Encoder`."""
        self._session = None
