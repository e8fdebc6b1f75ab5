"""What a source file is: containers, streams, tags, and the facts of its main video."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any, cast

import av
from av.stream import Disposition

from gpupipe.codecs.matte import alpha_bits, alpha_of, beside, second_stream
from gpupipe.color import UNSPECIFIED, ChromaLocation, ColorSpec, Matrix, Range
from gpupipe.errors import SourceError
from gpupipe.format import FIELD_ORDERS, FieldOrder, FrameFormat
from gpupipe.media.container import StreamNotes, clean_tags, open_input, stream_notes
from gpupipe.media.layout import layout_of
from gpupipe.media.picture import (
    FirstPicture,
    colors_of,
    display_matrix,
    embedded_timecode,
    first_picture,
    hdr,
    shown_info,
)
from gpupipe.media.pixels import nearest_pixels
from gpupipe.media.source import SourceInfo, StreamInfo, StreamKind, VideoInfo

if TYPE_CHECKING:
    from pathlib import Path

    from av.container import InputContainer

_BELIEVABLE_BITS = 50
"""A file of fewer bits a second than this does not have the duration that its header claims."""


def probe(path: Path) -> SourceInfo:
    """Describes a source file; decodes its first picture. Raises SourceError where no video of it can be decoded."""
    with open_input(path) as container:
        stream = main_video(container, str(path))
        described = stream_notes(container)
        streams = tuple(_stream(s, described.get(s.index, StreamNotes())) for s in container.streams)
        picture = first_picture(container, stream, str(path))
        video, notes = _video(container, stream, picture, described.get(stream.index, StreamNotes()))
        size = path.stat().st_size
        duration, doubt = _duration(container, size)
        return SourceInfo(
            path=path,
            container=container.format.name,
            video=video,
            streams=streams,
            start=_start(container, streams),
            duration=duration,
            tags=clean_tags(container.metadata),
            chapters=_chapters(container),
            size_bytes=size,
            notes=(*notes, *doubt, *_cut_off(stream, size)),
        )


def main_video(container: InputContainer, where: str) -> av.VideoStream:
    """The first video stream that is no cover picture. Raises SourceError."""
    videos = [s for s in container.streams.video if not s.disposition & Disposition.attached_pic]
    if not videos:
        kinds = ", ".join(sorted({s.type for s in container.streams})) or "no streams at all"
        raise SourceError(
            f"has no video stream ({container.format.name}: {kinds})", where=where, hint="name a video file"
        )
    if cast("Any", videos[0]).codec_context is None:  # the stub does not know of streams without a decoder
        name = getattr(videos[0], "name", None) or "of an unknown kind"
        raise SourceError(
            f"its video is {name}, for which this libav has no decoder", where=where, hint="convert it first"
        )
    return videos[0]


def fraction(value: Any) -> Fraction | None:
    """PyAV's rationals: Fraction or None (18), AVRational that is false when unset (19)."""
    return Fraction(value.numerator, value.denominator) if value else None


def _kind(stream: Any) -> StreamKind:
    if stream.disposition & Disposition.attached_pic:
        return "cover"
    known: dict[str, StreamKind] = {
        "video": "video",
        "audio": "audio",
        "subtitle": "subtitle",
        "attachment": "attachment",
    }
    return known.get(stream.type, "data")


def _stream(stream: Any, notes: StreamNotes) -> StreamInfo:
    context = stream.codec_context
    details = {"tag": notes.tag} if notes.tag else {}
    if stream.type == "audio" and context is not None:
        layout = layout_of(context)
        details |= {"sample_rate": str(context.sample_rate), "layout": layout.name}
        details |= {"channels": str(layout.nb_channels)}
    elif stream.type == "video" and context is not None:
        details |= {"size": f"{context.width}x{context.height}", "pixels": context.pix_fmt or ""}
    elif stream.type == "attachment":
        details |= {"name": stream.metadata.get("filename", ""), "mimetype": stream.mimetype or ""}
    return StreamInfo(
        index=stream.index,
        kind=_kind(stream),
        codec=context.codec.canonical_name if context is not None else notes.codec,
        time_base=fraction(stream.time_base),
        start=stream.start_time,
        duration=stream.duration,
        tags=clean_tags(stream.metadata),
        disposition=tuple(str(flag.name) for flag in Disposition if flag & stream.disposition),
        details={k: v for k, v in details.items() if v},
    )


def _video(
    container: InputContainer, stream: av.VideoStream, picture: FirstPicture, described: StreamNotes
) -> tuple[VideoInfo, tuple[str, ...]]:
    frame, context = picture.frame, stream.codec_context
    pixels, loss = nearest_pixels(frame.format)
    untimed = frame.pts is None and stream.start_time is None
    rate = _rate(stream, untimed=untimed)
    timecode = _timecode(container, stream) or embedded_timecode(picture.side_data, rate)
    notes = [*loss, *_oddities(stream, picture, described)]
    decoded = second_stream(context.codec.canonical_name, stream.metadata, frame.format.name)
    if beside(stream.metadata) and not alpha_bits(frame.format):  # Matroska says it of FFV1 too
        notes.append(f"its alpha is a second bitstream, {'8 bit' if decoded else 'which cannot be decoded: dropped'}")
    if untimed:
        notes.append(f"it has no timestamps; pictures are timed by {rate} frames a second")
    location, order = shown_info(frame)
    color, unknown = _color(picture, context, location)
    video = VideoInfo(
        index=stream.index,
        codec=context.codec.canonical_name,
        profile=stream.profile,
        format=FrameFormat(
            pixels=pixels,
            width=frame.width,
            height=frame.height,
            color=color,
            sample_aspect=fraction(stream.sample_aspect_ratio) or Fraction(0),
            field_order=_field_order(int(context.field_order), order),
        ),
        native_pixels=frame.format.name,
        coded_width=context.coded_width or frame.width,
        coded_height=context.coded_height or frame.height,
        time_base=fraction(stream.time_base) or Fraction(1, 90000),
        rate=rate,
        start=frame.pts if frame.pts is not None else stream.start_time,
        frames=_frames(container, stream),
        duration=stream.duration,
        display_matrix=display_matrix(picture.side_data),
        hdr=hdr(picture.side_data, dolby_vision=described.dolby_vision),
        alpha=8 if decoded else alpha_of(frame),
        timecode=timecode,
    )
    return video, (*notes, *unknown)


def _frames(container: InputContainer, stream: av.VideoStream) -> int | None:
    """What the container says; of AVI without the empty chunks that stand for a picture shown once more.

    Its header counts them too, and its index, which libav reads without them, is by their numbers. An index that ends
    well before is one that was not read to its end, and tells nothing.
    """
    index = stream.index_entries
    if container.format.name == "avi" and len(index):
        after = stream.frames - 1 - index[len(index) - 1].timestamp
        if 0 <= after <= _rate(stream, untimed=False):
            return len(index)
    return stream.frames or None


def _rate(stream: av.VideoStream, *, untimed: bool) -> Fraction:
    """Average rate; for a raw bitstream, whose average is made up, what the bitstream itself says."""
    rates = (stream.guessed_rate, stream.average_rate) if untimed else (stream.average_rate, stream.guessed_rate)
    return next((f for r in (*rates, stream.base_rate) if (f := fraction(r))), Fraction(25))


def _cut_off(stream: av.VideoStream, size: int) -> tuple[str, ...]:
    """Whether the container's index points behind the end of the file: a broken download or a full disk."""
    index = stream.index_entries
    last = index[max(0, len(index) - 64) : len(index)]  # reordered or not, the furthest is among these
    end = max((entry.pos + entry.size for entry in last), default=0)
    return (f"the file is cut off: its index reaches to byte {end}, but it ends at {size}",) if end > size else ()


def _color(
    picture: FirstPicture, context: av.VideoCodecContext, location: str | None
) -> tuple[ColorSpec, tuple[str, ...]]:
    """Colour tags: the decoded picture's own, else the bitstream's, else the container's.

    0 says nothing (ProRes writes it), but that the matrix of R'G'B' is none. A yuvj format is full range whatever the
    tags say.
    """
    said = (colors_of(picture.frame), colors_of(context), picture.stated)
    silent = ({UNSPECIFIED, 0} - ({0} if picture.frame.format.is_rgb else set()), {UNSPECIFIED, 0}, {UNSPECIFIED, 0})
    matrix, transfer, primaries = (
        next((one[n] for one in said if one[n] not in silent[n]), UNSPECIFIED) for n in range(3)
    )
    notes = () if matrix in set(Matrix) else (f"matrix {matrix} is not known here and counts as unspecified",)
    value = 2 if picture.frame.format.name.startswith("yuvj") else next((one.range for one in said if one.range), 0)
    spec = ColorSpec(
        matrix=Matrix.UNSPECIFIED if notes else Matrix(matrix),
        transfer=transfer,
        primaries=primaries,
        range={1: Range.LIMITED, 2: Range.FULL}.get(value),
        chroma_location=ChromaLocation(location) if location else None,
    )
    return spec, notes


def _field_order(stated: int, shown: str) -> FieldOrder:
    """The stream's statement, unless its first picture contradicts it by being interlaced."""
    order = FIELD_ORDERS[stated] if stated < len(FIELD_ORDERS) else "unknown"
    if order in ("unknown", "progressive") and shown != "P":
        return "tt" if shown == "T" else "bb"
    return order


def _timecode(container: InputContainer, stream: av.VideoStream) -> str | None:
    """From the main video's tags, else any stream's (tmcd), else the file's (MXF)."""
    for tags in (stream.metadata, *(s.metadata for s in container.streams), container.metadata):
        for key, value in tags.items():
            if key.lower() == "timecode" and value:
                return value
    return None


def _oddities(stream: av.VideoStream, picture: FirstPicture, described: StreamNotes) -> list[str]:
    notes = []
    if picture.skipped:
        notes.append(f"{picture.skipped} packets before the first picture could not be decoded")
    late = ((picture.frame.pts or 0) - (stream.start_time or 0)) * (fraction(stream.time_base) or 0)
    if picture.frame.pts is not None and stream.start_time is not None and late > Fraction(1, 2):
        notes.append(f"the first {float(late):.3f} s of video have no keyframe and cannot be decoded")
    if described.clean_aperture:
        left, right, top, bottom = described.clean_aperture
        notes.append(f"its clean aperture (left {left}, right {right}, top {top}, bottom {bottom}) is not applied")
    return notes


def _start(container: InputContainer, streams: tuple[StreamInfo, ...]) -> Fraction:
    starts = [
        s.start * s.time_base for s in streams if s.kind in ("video", "audio") and s.start is not None and s.time_base
    ]
    return min(starts) if starts else Fraction(container.start_time or 0, av.time_base)


def _duration(container: InputContainer, size: int) -> tuple[Fraction | None, tuple[str, ...]]:
    if container.duration is None or container.duration <= 0:
        return None, ()
    duration = Fraction(container.duration, av.time_base)
    if size * 8 < _BELIEVABLE_BITS * duration:
        return None, (f"its header claims {float(duration):.0f} s, which {size} bytes cannot hold; ignored",)
    return duration, ()


def _chapters(container: InputContainer) -> tuple[dict[str, object], ...]:
    return tuple(
        {**c, "time_base": fraction(c["time_base"]), "metadata": clean_tags(c["metadata"])}
        for c in container.chapters()
    )
