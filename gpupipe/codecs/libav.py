"""CPU decoding and encoding through PyAV: every decoder and encoder that its FFmpeg carries."""

from __future__ import annotations

import io
import os
import re
from typing import TYPE_CHECKING

import av
import av.error
import av.logging

from gpupipe.codecs.encoders import encoder_facts
from gpupipe.codecs.frame_numbers import FrameNumbers, bitstream_rate
from gpupipe.codecs.libav_log import captured_log, captured_stderr, reason
from gpupipe.codecs.libav_options import FLAG_GLOBAL_HEADER, FLAG_INTERLACED, check_options, rate_control
from gpupipe.codecs.matte import ONE_THREAD, alpha_bits, decoder_of_both, taken_apart
from gpupipe.codecs.scheduling import kept_scheduling
from gpupipe.codecs.tail import Tail
from gpupipe.codecs.vc3 import state_matrix
from gpupipe.color import AV_RANGE
from gpupipe.device.host import nearly_full, short_of_memory
from gpupipe.errors import MediaError, PlanError, ShortMemoryError
from gpupipe.format import FIELD_ORDERS, FrameFormat, pixel_format, with_alpha
from gpupipe.frame import NO_PTS, FrameBatch

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from fractions import Fraction

    from gpupipe.codecs.base import EncoderSettings, Packet
    from gpupipe.journal import Journal

MP4_ONLY = frozenset({"av1", "vp8", "vp9"})
"""Codecs that libav's MOV muxer takes as a stream and then refuses in its header."""
JPEG_THREADS = 16
"""At most: each holds a picture."""
_LESS = "give it fewer sessions or more memory"
_IGNORED = re.compile(r"Error parsing option|Unknown option|Invalid value for", re.IGNORECASE)
"""How x264's and x265's wrappers tell of a parameter that they leave out."""


class LibavDecoder:
    """Decodes one stream of an open container on all cores; meets `base.Decoder`.

    Args:
        stream: the demuxer's stream; its codec context is used, so one decoder a stream.
        source: what the plan expects the pictures to be; alpha is given where that has it.
        time_base: of the packets, and so of every pts.
        journal: told of damage.
        opaque: the first picture had no alpha, so that nobody has yet said that alpha is dropped.
    """

    def __init__(
        self, stream: av.VideoStream, source: FrameFormat, time_base: Fraction, journal: Journal, *,
        opaque: bool = False,
    ) -> None:  # fmt: skip
        self.format, self._opaque = source, opaque
        self._time_base, self._journal = time_base, journal
        self._context = (decoder_of_both(stream) if source.alpha else None) or stream.codec_context
        self._context.thread_type = "AUTO"
        self._tail = Tail()
        # AVI stores no pts, and for these libav makes one up that is the decoding order's; pictures leave the decoder
        # in step with the packets, so a picture's dts is its time, as for ffmpeg.
        avi = stream.container is not None and stream.container.format.name == "avi"
        self._timed_by_dts = avi and self._context.codec.canonical_name in ("h264", "hevc")

    def decode(self, packet: Packet | None) -> Iterator[FrameBatch]:
        """See `base.Decoder`. A packet that cannot be decoded is counted with its pts and skipped."""
        if packet is not None and not self._timed_by_dts:
            self._tail.add(packet)
        try:
            frames = self._context.decode(packet)
        except av.error.EOFError:
            return
        except av.error.FFmpegError as error:
            self._failed(packet, error)
            frames = []
        for frame in frames:
            self._tail.shown(frame.pts)
            yield self._told(frame)
        if packet is None and not self._timed_by_dts:
            yield from self._held_back()

    def _failed(self, packet: Packet | None, error: av.error.FFmpegError) -> None:
        # EAGAIN is a thread that could not be started; what else fails beside full memory may be no damage at all.
        if isinstance(error, (av.error.MemoryError, av.error.BlockingIOError)) or nearly_full():
            raise ShortMemoryError("out of memory while decoding", hint=_LESS) from None
        if packet is None and self._tail.missing():
            return  # which of them it was is told when they are decoded again
        place = "at the end" if packet is None else f"pts {packet.pts}"
        self._journal.warn("decode-error", f"damaged video skipped: {error.strerror}", place=place)

    def _held_back(self) -> Iterator[FrameBatch]:
        """Pictures that the decoder's threads had and did not give at the end; see `Tail`."""
        missing = self._tail.missing()
        if not missing:
            return

        def failed(packet: Packet, error: av.error.FFmpegError) -> None:
            if packet.pts in missing:
                self._failed(packet, error)

        for frame in self._tail.again(self._context, failed):
            if frame.pts in missing:
                yield self._told(frame)

    def _told(self, frame: av.VideoFrame) -> FrameBatch:
        if frame.is_corrupt:
            self._journal.warn(
                "corrupt-frame", "damaged picture kept, parts of it may be wrong", place=f"pts {frame.pts}"
            )
        return self._batch(frame)

    def _batch(self, frame: av.VideoFrame) -> FrameBatch:
        """Wraps a decoded frame; only a format that gpupipe has no arithmetic for is converted (by swscale)."""
        source, matte = self.format, None
        time, duration = frame.dts if self._timed_by_dts else frame.pts, frame.duration
        pixels = pixel_format(frame.format.name)
        alpha = alpha_bits(frame.format) if source.alpha else 0
        if self._opaque and not frame.format.has_palette and alpha_bits(frame.format):
            message = "alpha begins in mid-course and is dropped: the first picture has none"
            self._journal.warn("alpha-dropped", message, place=f"pts {time}")
        if alpha:
            frame, matte, pixels = taken_apart(frame, source.pixels)
        elif pixels is None:
            pixels = source.pixels
            frame = frame.reformat(format=pixels.name, threads=ONE_THREAD)
        have = (frame.width, frame.height, alpha)
        if have != (source.width, source.height, source.alpha) or pixels is not source.pixels:
            source = source.with_(width=frame.width, height=frame.height, pixels=pixels, alpha=alpha)
        pts = NO_PTS if time is None else time
        return FrameBatch(source, (pts,), self._time_base, durations=(duration or 0,), native=frame, matte=matte)

    def restart(self) -> None:
        """See `base.Decoder`."""
        self._context.flush_buffers()
        self._tail.clear()

    def close(self) -> None:
        """Waits for libav's threads; the context goes with the demuxer's stream, or, one of `matte`'s, with this.

        PyAV frees a context with the GIL held, and that waits for its threads. One of them that is about to log while
        libav's log is on (`libav_log`) waits for the GIL: neither would ever end. Flushing waits without the GIL.
        """
        self._context.flush_buffers()
        self._tail.clear()


class LibavEncoder:
    """Encodes with any libav encoder; meets `base.Encoder`.

    It lives in a scratch container of its own, so that the muxer of the real output, or a segment, can take its
    description from `template` at any time. Raises PlanError for options or formats that the encoder does not know.
    """

    def __init__(self, settings: EncoderSettings) -> None:
        self.settings = settings
        self._durations: dict[int, int] = {}
        self._fields: av.filter.Graph | None = None
        step = 1 / (settings.rate * settings.time_base)
        self._numbers = FrameNumbers(step) if encoder_facts(settings.encoder).counts else None
        self._stream = self._open()
        self._context = self._stream.codec_context

    def _open(self) -> av.VideoStream:
        s, source = self.settings, self.settings.input_format
        check_options(s)
        # MOV gives codecs their right tags, NUT holds what it does not.
        rate = bitstream_rate(s.encoder, s.rate) if self._numbers else s.rate
        for container in ("mp4" if s.codec in MP4_ONLY else "mov", "nut"):
            self._scratch = av.open(io.BytesIO(), "w", format=container)
            try:
                stream = self._scratch.add_stream(s.encoder, rate=rate)
                break
            except ValueError:
                self._scratch.close()
        else:
            raise PlanError(f"no container holds {s.encoder}", where="output.video.encoder")
        assert isinstance(stream, av.VideoStream)
        context = stream.codec_context
        context.width, context.height = source.width, source.height
        context.pix_fmt = encoder_name(s.encoder, source)
        context.time_base = 1 / rate if self._numbers else s.time_base
        context.sample_aspect_ratio = source.sample_aspect
        context.colorspace, context.color_range = int(source.color.matrix), AV_RANGE[source.color.range]
        context.color_trc, context.color_primaries = source.color.transfer, source.color.primaries
        context.thread_type = "AUTO"
        if s.encoder == "mjpeg" and s.bitrate is None:  # libav gives it one thread, for a rate control that is not used
            context.thread_count = min(os.cpu_count() or 1, JPEG_THREADS)
        # libav's mjpeg refuses to be told of fields; what it codes are the woven lines, which keep them.
        told = source.interlaced and s.encoder != "mjpeg"
        context.flags |= FLAG_GLOBAL_HEADER | (FLAG_INTERLACED if told else 0)
        context.field_order = FIELD_ORDERS.index(source.field_order)
        rate_control(context, s)
        if s.codec == "hevc":
            context.codec_tag = "hvc1"  # QuickTime plays no hev1
        try:
            with kept_scheduling():
                self._scratch.start_encoding()
        except (av.error.FFmpegError, ValueError, OverflowError) as error:
            if short_of_memory(error) or nearly_full():
                raise ShortMemoryError(f"out of memory while {s.encoder} was opened", hint=_LESS) from None
            raise _refusal(s, str(getattr(error, "strerror", None) or error)) from None
        return stream

    def encode(self, batch: FrameBatch) -> list[Packet]:
        """See `base.Encoder`."""
        packets: list[Packet] = []
        for row, pts in enumerate(batch.pts):
            frame = self._frame(batch, row)
            frame.pts, frame.time_base = pts, self.settings.time_base
            if self._numbers:
                frame.pts, frame.time_base = self._numbers.number(pts), self._context.time_base
            frame.pict_type = 0  # a decoded frame carries the source's picture type, which encoders would follow
            if row < len(batch.durations):
                self._durations[pts] = batch.durations[row]
            packets += self._timed(self._encoded(self._tagged(self._with_fields(frame)), f"pts {pts}"))
        return packets

    def _tagged(self, frame: av.VideoFrame) -> av.VideoFrame:
        """Says the colour on the frame too: prores_ks, PNG and others write what stands there, not on their context.

        A frame made from planes says nothing by itself, nor does one of a source whose container alone says it.
        """
        color = self.settings.input_format.color
        frame.colorspace, frame.color_range = int(color.matrix), AV_RANGE[color.range]
        frame.color_trc, frame.color_primaries = color.transfer, color.primaries
        return frame

    def _frame(self, batch: FrameBatch, row: int) -> av.VideoFrame:
        native = batch.native
        if native is not None and native.format.name == self._context.pix_fmt:
            return native  # any other name would make PyAV convert it by swscale, unasked
        from gpupipe.codecs.native import new_frame, planes_of  # noqa: PLC0415  torch only where planes are needed

        return new_frame(batch.format, str(self._context.pix_fmt), planes_of(batch), row)

    def _with_fields(self, frame: av.VideoFrame) -> av.VideoFrame:
        """Marks a frame made from planes as interlaced: encoders read the field order off each frame.

        tb is top field first: it stands for 9 of QuickTime and Matroska, interleaved lines with the top ones earlier.
        """
        order = self.settings.input_format.field_order
        if not self.settings.input_format.interlaced or frame.interlaced_frame:
            return frame
        if self._fields is None:
            graph = av.filter.Graph()
            source = graph.add_buffer(
                width=frame.width, height=frame.height, format=frame.format, time_base=self.settings.time_base
            )
            graph.link_nodes(
                source, graph.add("setfield", "tff" if order in ("tt", "tb") else "bff"), graph.add("buffersink")
            ).configure()
            self._fields = graph
        self._fields.push(frame)
        marked = self._fields.pull()
        assert isinstance(marked, av.VideoFrame)
        return marked

    def _encoded(self, frame: av.VideoFrame | None, where: str) -> list[Packet]:
        try:
            return self._context.encode(frame)
        except av.error.FFmpegError as error:
            if short_of_memory(error) or nearly_full():  # x264 has no words of its own for it
                raise ShortMemoryError(f"out of memory in {self.settings.encoder}", where=where, hint=_LESS) from None
            hint = "another encoder, preset or size may do"
            raise MediaError(f"{self.settings.encoder} failed: {error.strerror}", where=where, hint=hint) from None

    def _timed(self, packets: list[Packet]) -> list[Packet]:
        for packet in packets:
            if self._numbers:
                self._numbers.restore(packet)
                packet.time_base = self.settings.time_base
            if packet.pts is not None:
                packet.duration = self._durations.pop(packet.pts, packet.duration or 0)
            if self.settings.codec == "dnxhd":
                state_matrix(packet, self.settings.input_format.color.matrix)
        return packets

    def finish(self) -> list[Packet]:
        """See `base.Encoder`."""
        return self._timed(self._encoded(None, "at the end"))

    def template(self, first: Sequence[Packet]) -> av.VideoStream:  # noqa: ARG002  other encoders need the packets
        """See `base.Encoder`; libav's headers are known once it is open."""
        return self._stream

    def close(self) -> None:
        """See `base.Encoder`."""
        self._fields = None


def _refusal(settings: EncoderSettings, why: str) -> PlanError:
    return PlanError(
        f"{settings.encoder} cannot be opened for {settings.input_format}: {why}",
        where="output.video",
        hint="check preset, quality and options, and whether it takes this size and rate",
    )


def rehearse(settings: EncoderSettings) -> None:
    """Opens the encoder and closes it again, so that a plan says what a run would.

    Raises PlanError with the library's own words, for an option too that it does not know and would only leave out.
    Not while decoders run: libav's log is on (see `libav_log`).
    """
    check_options(settings)
    refused = None
    with captured_stderr() as printed, captured_log(av.logging.WARNING) as log:
        try:
            LibavEncoder(settings).close()
        except PlanError as error:
            refused = error
    if refused is not None:
        errors = [line.partition("[error]:")[2] for line in printed if "[error]:" in line]
        why = "; ".join(filter(None, (*map(str.strip, errors), reason(log, ""))))
        raise (_refusal(settings, why) if why else refused) from None
    ignored = [text.strip().rstrip(".") for _, _, text in log if _IGNORED.match(text)]
    if ignored and settings.options:
        raise PlanError(f"{settings.encoder}: {'; '.join(ignored)}", where="output.video.options")


def one_picture(encoder: LibavEncoder, pts: int) -> list[Packet]:
    """What an encoder makes of a single picture, of whatever lies in memory; it cannot be used after."""
    s = encoder.settings
    frame = av.VideoFrame(s.input_format.width, s.input_format.height, encoder_name(s.encoder, s.input_format))
    duration = max(1, round(1 / (s.rate * s.time_base)))
    batch = FrameBatch(s.input_format, (pts,), s.time_base, durations=(duration,), native=frame)
    return [*encoder.encode(batch), *encoder.finish()]


def encoder_name(encoder: str, source: FrameFormat) -> str:
    """Libav's name of the format to open an encoder with: yuvj where full range has a name of its own there."""
    name = source.pixels.name
    if source.alpha:
        return with_alpha(name) or name
    known = {f.name for f in av.Codec(encoder, "w").video_formats or ()}
    full = name.replace("yuv", "yuvj") if source.pixels.depth == 8 and source.pixels.family == "yuv" else name
    return full if source.color.range == "full" and full in known else name
