"""Decoding by NVDEC through PyNvVideoCodec: PyAV's packets in, surfaces out that stay on the GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import av
import av.bitstream
import av.error

from gpupipe.codecs import pynv
from gpupipe.codecs.capability import DecoderRow, decoder_row, first_line
from gpupipe.codecs.sequence import crop_offset, signature
from gpupipe.device.driver import primary_context, same_context
from gpupipe.errors import DeviceError
from gpupipe.format import PIXEL_FORMATS, FrameFormat
from gpupipe.frame import NO_PTS, FrameBatch

if TYPE_CHECKING:
    from collections.abc import Iterator
    from fractions import Fraction

    import torch

    from gpupipe.device.base import Lane
    from gpupipe.journal import Journal

CODECS = {
    "h264": "H264", "hevc": "HEVC", "vp8": "VP8", "vp9": "VP9", "av1": "AV1", "mpeg2video": "MPEG2", "mpeg4": "MPEG4",
}  # fmt: skip
"""libav's codec name -> PyNvVideoCodec's, of what is decoded here."""
_INTERLACING = {"h264", "mpeg2video", "mpeg4"}
_SURFACES = {
    "yuv420p": ("4:2:0", "nv12"), "nv12": ("4:2:0", "nv12"), "yuv420p10le": ("4:2:0", "p010le"),
    "p010le": ("4:2:0", "p010le"), "yuv420p12le": ("4:2:0", "p012le"), "yuv444p": ("4:4:4", "yuv444p"),
    "yuv444p10le": ("4:4:4", "yuv444p10msble"), "yuv444p12le": ("4:4:4", "yuv444p12msble"),
}  # fmt: skip
"""libav's pixel format of a stream -> its chroma format and the surface's pixel format."""
_FORMATS = {
    "NV12": "nv12",
    "P016": "p010le p012le",
    "YUV444": "yuv444p",
    "YUV444_16Bit": "yuv444p10msble yuv444p12msble",
}


class StreamFacts(Protocol):
    """What must be known of a stream; `media.source.VideoInfo` is one."""

    @property
    def codec(self) -> str: ...  # noqa: D102
    @property
    def profile(self) -> str | None: ...  # noqa: D102
    @property
    def format(self) -> FrameFormat: ...  # noqa: D102
    @property
    def native_pixels(self) -> str: ...  # noqa: D102
    @property
    def coded_width(self) -> int: ...  # noqa: D102
    @property
    def coded_height(self) -> int: ...  # noqa: D102


def supports(video: StreamFacts, gpu: int = 0, stream: av.VideoStream | None = None) -> str | None:
    """Why NVDEC cannot decode a stream exactly; None where it can.

    Args:
        video: facts of the stream.
        gpu: N of cuda:N.
        stream: the open stream, for what only its headers tell (a crop that does not begin at the corner).
    """
    if video.codec not in CODECS:
        return f"NVDEC does not decode {video.codec}"
    surface = _SURFACES.get(video.native_pixels.replace("yuvj", "yuv"))
    if surface is None:
        return f"NVDEC does not decode {video.native_pixels}"
    reason = _inexact(video, stream)
    if reason is not None:
        return reason
    row = decoder_row(video.codec, surface[0], PIXEL_FORMATS[surface[1]].depth, gpu)
    if not row.supported:
        return row.reason
    return _size_reason(max(video.coded_width, video.format.width), max(video.coded_height, video.format.height), row)


def _inexact(video: StreamFacts, stream: av.VideoStream | None) -> str | None:
    """What the library would do to a stream beyond decoding it."""
    if video.codec in _INTERLACING and video.format.field_order != "progressive":
        # PyNvVideoCodec deinterlaces whatever is not marked progressive, and cannot be told not to.
        kind = "interlaced" if video.format.interlaced else "of unknown field order"
        return f"the stream is {kind}, and NVDEC's library would deinterlace it"
    if "extended" in (video.profile or "").lower() or (video.profile or "").lower() == "scc":
        return f"NVDEC does not decode profile {video.profile}"
    if stream is not None and crop_offset(stream):
        return "the picture is cropped at its left or top, which NVDEC's library ignores"
    return None


def _size_reason(width: int, height: int, row: DecoderRow) -> str | None:
    macroblocks = -(-width // 16) * -(-height // 16)
    if width < row.min_width or height < row.min_height:
        return f"{width}x{height} is below this NVDEC's {row.min_width}x{row.min_height} for {row.codec}"
    if width > row.max_width or height > row.max_height or macroblocks > row.max_macroblocks:
        return f"{width}x{height} is beyond this NVDEC's {row.max_width}x{row.max_height} for {row.codec}"
    return None


def surface_format(video: StreamFacts, device: str) -> FrameFormat:
    """The format of the surfaces of a stream that `supports` has no objection to."""
    pixels = PIXEL_FORMATS[_SURFACES[video.native_pixels.replace("yuvj", "yuv")][1]]
    return video.format.with_(pixels=pixels, device=device)


def _filters(stream: av.VideoStream) -> av.bitstream.BitStreamFilterContext | None:
    """NVDEC's parser wants Annex-B, headers in the stream, and one picture a packet."""
    name, extradata = stream.codec_context.codec.canonical_name, stream.codec_context.extradata or b""
    length_prefixed = extradata[:1] == b"\x01"
    chain = {
        "h264": "h264_mp4toannexb" if length_prefixed else None,
        "hevc": "hevc_mp4toannexb" if length_prefixed else None,
        "mpeg4": "mpeg4_unpack_bframes,dump_extra=freq=keyframe",
        "mpeg2video": "dump_extra=freq=keyframe" if extradata else None,
    }.get(name)
    return av.bitstream.BitStreamFilterContext(chain, stream) if chain else None


class NvdecDecoder:
    """Decodes one stream on the GPU; meets `base.Decoder`.

    Surfaces belong to the library. The planes of a batch hold until the generator that gave it is asked for more than
    the packet's pictures, that is until the next `decode`; work on them must be given to `lane` before that
    (`device.cuda.copy_of` keeps one longer). A stream that changes its size or format goes on in a new session, and
    batches then have the new format.

    Args:
        stream: the demuxer's stream.
        source: format of the surfaces, see `surface_format`.
        time_base: of the packets.
        journal: told of damage.
        lane: the CUDA stream that surfaces are written on.
        library: stands in for PyNvVideoCodec in tests.
    """

    def __init__(
        self, stream: av.VideoStream, source: FrameFormat, time_base: Fraction, journal: Journal, lane: Lane, *,
        library: Any = None,
    ) -> None:  # fmt: skip
        self.format = source
        self._codec = stream.codec_context.codec.canonical_name
        self._time_base, self._journal, self._lane = time_base, journal, lane
        self._library = library or pynv.load()
        self._filter = _filters(stream)
        self._sequence = b""
        self._times: dict[int, tuple[int, int] | None] = {}
        """Packets by number: pts and duration of the picture; None where the demuxer says it is not shown."""
        self._count = 0
        self._broken = False
        """Whether the session failed, and packets are skipped until the next key frame."""
        self._shown = 0
        self._session: Any = self._open()

    def _open(self) -> Any:
        library, gpu = self._library, pynv.gpu_index(self._lane.device)
        try:
            with same_context():
                return library.CreateDecoder(
                    gpuid=gpu,
                    codec=getattr(library.cudaVideoCodec, CODECS[self._codec]),
                    cudacontext=primary_context(gpu),
                    cudastream=self._lane.handle,
                    usedevicememory=True,
                )
        except Exception as error:  # noqa: BLE001  its exceptions share no base
            raise DeviceError(f"NVDEC does not open: {first_line(error)}", where=self._lane.device,
                              hint="use `device: cpu`") from None  # fmt: skip

    def _reopen(self) -> None:
        self.close()  # its surfaces are freed before the new session asks for memory
        self._session = self._open()

    def decode(self, packet: av.Packet | None) -> Iterator[FrameBatch]:
        """See `base.Decoder`."""
        place = "at the end" if packet is None else f"pts {packet.pts}"  # the filter empties the packet
        try:
            parts = self._filter.filter(packet) if self._filter else [packet] if packet is not None else []
        except av.error.FFmpegError as error:
            self._journal.warn("decode-error", f"damaged video skipped: {error.strerror}", place=place)
            parts = []
        for part in parts:
            yield from self._feed(part)
        if packet is None:
            yield from self._drain()

    def _feed(self, packet: av.Packet) -> Iterator[FrameBatch]:
        if packet.size == 0:
            return
        if packet.is_corrupt:
            self._journal.warn("corrupt-packet", "damaged video, pictures may be wrong", place=f"pts {packet.pts}")
        if self._broken and not packet.is_keyframe:
            self._lost(packet.pts)
            return
        if packet.is_keyframe or not self._sequence:
            sequence = signature(self._codec, bytes(packet))
            if sequence and self._sequence and sequence != self._sequence:
                yield from self._drain()
                self._reopen()
            self._sequence = sequence or self._sequence
        shown = (NO_PTS if packet.pts is None else packet.pts, packet.duration or 0)
        self._times[self._count] = None if packet.is_discard else shown
        data = self._library.PacketData()
        data.bsl_data, data.bsl, data.pts = packet.buffer_ptr, packet.buffer_size, self._count
        self._count += 1
        yield from self._decoded(data, packet.pts)

    def _drain(self) -> Iterator[FrameBatch]:
        """Gives every picture that the session still holds; what never came out is reported."""
        yield from self._decoded(self._library.PacketData(), None)
        for time in self._times.values():
            if time is not None:
                self._lost(time[0])
        self._times.clear()

    def _lost(self, pts: int | None) -> None:
        place = "unknown pts" if pts in (None, NO_PTS) else f"pts {pts}"
        self._journal.warn("decode-error", "damaged video: pictures that could not be decoded", place=place)

    def _decoded(self, data: Any, pts: int | None) -> Iterator[FrameBatch]:
        try:
            frames = self._session.Decode(data)
        except Exception as error:  # noqa: BLE001  its exceptions share no base
            if self._broken or not self._shown:
                raise DeviceError(f"NVDEC failed: {first_line(error)}", where=f"pts {pts}",
                                  hint="use `device: cpu`") from None  # fmt: skip
            self._journal.warn("decode-error", f"damaged video: NVDEC failed: {first_line(error)}", place=f"pts {pts}")
            self._broken = True
            self._reopen()  # a session is not to be used after an exception
            return
        for frame in frames:
            self._broken = False
            time = self._times.pop(frame.getPTS(), (NO_PTS, 0))
            if time is not None:
                self._shown += 1
                yield self._batch(frame, time)

    def _batch(self, frame: Any, time: tuple[int, int]) -> FrameBatch:
        width, height = self._session.GetWidth(), self._session.GetHeight()
        source = self.format
        if (width, height) == (source.width + (source.width & 1), source.height):
            width = source.width  # 4:2:0 surfaces have even widths
        if (width, height) != (source.width, source.height):
            source = source.with_(width=width, height=height)
        surface = str(frame.format).rpartition(".")[2]
        if source.pixels.name not in _FORMATS.get(surface, "").split():
            raise DeviceError(
                f"NVDEC gave a {surface} surface instead of {source.pixels.name}", hint="use `device: cpu`"
            )
        planes = _planes(frame.GetPtrToPlane(0), source)
        return FrameBatch(
            source, (time[0],), self._time_base, planes=planes, durations=(time[1],), ready=self._lane.record()
        )

    def close(self) -> None:
        """See `base.Decoder`."""
        if self._session is not None:
            with same_context():
                self._session = None


def _planes(address: int, source: FrameFormat) -> tuple[torch.Tensor, ...]:
    """Views of a packed surface: luma rows, then chroma rows.

    The library's own DLPack view is `height * 1.5` rows, which drops the last chroma row of odd heights.
    """
    import torch  # noqa: PLC0415  a plan needs `supports` and no torch

    from gpupipe.device.cuda import tensor_at  # noqa: PLC0415

    width, height = source.width, source.height
    dtype = torch.uint8 if source.pixels.depth == 8 else torch.uint16
    if source.pixels.layout == "planar":
        whole = tensor_at(address, (3, 1, height, width), dtype, source.device)
        return whole[0], whole[1], whole[2]
    even, rows = width + (width & 1), (height + 1) // 2
    whole = tensor_at(address, (height + rows, even), dtype, source.device)
    luma, chroma = whole[:height, :width], whole[height:].view(rows, even // 2, 2)
    return luma.unsqueeze(0), chroma.unsqueeze(0)
