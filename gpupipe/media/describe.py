"""What the output's header says of itself and of each stream: tags, codec tags, names, chapters."""

from __future__ import annotations

import io
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import av
from av.stream import Disposition

from gpupipe import __version__
from gpupipe.media import hdr
from gpupipe.media.layout import layout_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpupipe.journal import Journal
    from gpupipe.media.containers import Container
    from gpupipe.media.lanes import Span
    from gpupipe.media.source import HdrInfo, SourceInfo, StreamInfo, Track

TS_NONSTRICT = 0x20000
"""AVFMT_TS_NONSTRICT: the muxer takes equal decoding times."""

_OF_THE_FILE = frozenset({"major_brand", "minor_version", "compatible_brands", "encoder", "encoding_tool", "duration"})
"""Tags that describe the source's container, not its content."""
_OF_THE_STREAM = frozenset(
    {
        "duration",
        "bps",
        "number_of_frames",
        "number_of_bytes",
        "rotate",
        "timecode",
        "alpha_mode",
        "filename",
        "mimetype",
        "vendor_id",
    }
)
_ITUNES = frozenset(
    {
        *("title", "artist", "album_artist", "composer", "album", "date", "comment", "genre", "copyright", "grouping"),
        *("lyrics", "description", "synopsis", "show", "episode_id", "network", "keywords", "episode_sort", "track"),
        *(
            "season_number",
            "media_type",
            "hd_video",
            "gapless_playback",
            "compilation",
            "disc",
            "rating",
            "creation_time",
        ),
        *("location", "location-eng"),
    }
)
"""Tags that libav writes in iTunes' form, which most players read."""
_ADTS = "\x10\x16\0\0"
"""WAVE format 0x1610: AAC in AVI whose packets carry their own headers, as in a transport stream."""
_MIMETYPES = {
    "mjpeg": ("image/jpeg", "jpg"),
    "png": ("image/png", "png"),
    "bmp": ("image/bmp", "bmp"),
    "gif": ("image/gif", "gif"),
}


def application(encoder: str = "") -> str:
    """Who wrote it."""
    return f"gpupipe {__version__} {encoder}".rstrip()


def _stale(key: str) -> bool:
    """Statistics that mkvtoolnix leaves, of a stream that is no longer that one."""
    return key.startswith("_statistics") or key.partition("-")[0] in (
        "bps",
        "duration",
        "number_of_frames",
        "number_of_bytes",
    )


def file_tags(tags: dict[str, str], container: Container) -> dict[str, str]:
    """The source's global tags that are about its content."""
    kept = {k: v for k, v in tags.items() if k.lower() not in _OF_THE_FILE and k.lower() != "timecode"}
    return kept if container.tags else {k: v for k, v in kept.items() if k.lower() in _ITUNES}


def needs_free_tags(source: SourceInfo, tracks: Iterable[Track]) -> bool:
    """Whether MP4 must use the `mdta` form, which holds tags of any name; a cover picture needs the iTunes form."""
    cover = any(t.kind == "cover" and t.action == "copy" for t in tracks)
    return not cover and any(k.lower() not in _ITUNES | _OF_THE_FILE for k in source.tags)


def stream_tags(info: StreamInfo, container: Container, *, encoded: bool) -> dict[str, str]:
    """A stream's own tags; what describes the old bitstream is left out."""
    kept = {k: v for k, v in info.tags.items() if k.lower() not in _OF_THE_STREAM and not _stale(k.lower())}
    if encoded:
        kept = {k: v for k, v in kept.items() if k.lower() != "encoder"}
    if container.mov and "title" in kept:
        kept.setdefault("handler_name", kept["title"])
    return kept


def disposition(info: StreamInfo) -> Disposition:
    """A stream's flags as libav's."""
    flags = Disposition(0)
    for name in info.disposition:
        flags |= Disposition[name]
    return flags


def attachment_name(info: StreamInfo) -> tuple[str, str]:
    """File name and mimetype of an attachment."""
    name = info.tags.get("filename", f"attachment-{info.index}")
    return name, info.tags.get("mimetype") or "application/octet-stream"


def cover_name(info: StreamInfo) -> tuple[str, str]:
    """File name and mimetype under which Matroska holds a cover picture, after its specification."""
    mimetype, extension = _MIMETYPES.get(info.codec, ("application/octet-stream", "bin"))
    return info.tags.get("filename", f"cover.{extension}"), info.tags.get("mimetype", mimetype)


def timecode_tag(timecode: str | None, rate: Fraction, container: Container, journal: Journal) -> str | None:
    """The start timecode as the muxer takes it: drop-frame exists at 29.97 and 59.94 only, and MOV would refuse it."""
    if timecode is None or not container.timecode or not rate:
        return None
    drop = timecode[-3:-2] in (";", ".")
    if drop and rate not in (Fraction(30000, 1001), Fraction(60000, 1001)):
        journal.warn("timecode-drop-flag", f"drop-frame timecode does not exist at {rate} fps; the flag is left out")
        return f"{timecode[:-3]}:{timecode[-2:]}"
    return timecode


def chapters(source: Iterable[dict[str, Any]], span: Span) -> list[dict[str, Any]]:
    """Chapters on the output's clock, cut to the range; those outside are left out."""
    kept = []
    for chapter in source:
        base = Fraction(chapter["time_base"])
        start, end = chapter["start"] * base, chapter["end"] * base
        if span.start is not None:
            start = max(start, span.start)
        if span.end is not None:
            end = min(end, span.end)
        if end <= start and (span.start is not None or span.end is not None):
            continue
        moved = [round((t - span.offset) / base) for t in (start, end)]
        kept.append({**chapter, "start": max(0, moved[0]), "end": moved[1], "time_base": base})
    return kept


def codec_tag(stream: Any, source: Any, container: Container, source_container: str) -> None:
    """Keeps the four-letter code between files of the QuickTime family: it tells kinds of ProRes and PCM apart.

    Matroska stores it for ProRes, which has no other place for its profile.
    """
    context, old = stream.codec_context, source.codec_context
    if context is None or old is None:
        return
    if container.matroska and old.codec.canonical_name == "prores":
        context.codec_tag = old.codec_tag
    if container.name == "avi" and old.codec.canonical_name == "aac" and not old.extradata:
        context.codec_tag = _ADTS
    if not container.mov:
        return
    if "mov" in source_container.split(",") and _accepts(source, old.codec_tag, container):
        context.codec_tag = old.codec_tag
    elif old.codec.canonical_name == "hevc":
        context.codec_tag = "hvc1"


def channels(stream: Any, container: Container) -> None:
    """Names the channels of mono and stereo PCM, whose source may not: MP4 must say what each one is."""
    context = stream.codec_context
    if not container.mov or stream.type != "audio":
        return
    layout = layout_of(context)
    if layout.name in ("1 channels", "2 channels"):
        context.layout = "mono" if layout.nb_channels == 1 else "stereo"


def _accepts(template: Any, tag: str, container: Container) -> bool:
    """Whether the muxer takes that tag; it says so when it writes a header."""
    trial: Any = av.open(io.BytesIO(), "w", format=container.muxer, container_options={"movflags": "empty_moov"})
    try:
        stream = trial.add_stream_from_template(template, opaque=True)
        stream.codec_context.codec_tag = tag
        trial.start_encoding()
    except (ValueError, av.FFmpegError):
        return False
    return True


_NAMED_BY_TAG = frozenset({"rawvideo", "utvideo"})
"""Codecs whose pixel format stands nowhere but in the four-letter code."""
_DESCRIBED = (
    "pix_fmt",
    "color_range",
    "color_primaries",
    "color_trc",
    "colorspace",
    "sample_aspect_ratio",
    "field_order",
)


class AddedVideo:
    """A video stream in the output, and what must live until the header is written."""

    def __init__(self, stream: Any, keep: object) -> None:
        self.stream, self.keep = stream, keep


def add_video(out: Any, template: Any, static: HdrInfo, container: Container) -> AddedVideo:
    """Adds the stream of an encoder, with HDR metadata beside it where the container takes that."""
    old = template.codec_context
    described = hdr.describe(template, static)
    stream = out.add_stream_from_template(described.stream if described else template, opaque=True)
    context = stream.codec_context
    if described is not None:
        # The way through MOV changes these: extradata to the form of MOV, range and aspect to what its boxes hold.
        context.extradata = old.extradata
        for name in _DESCRIBED:
            if value := getattr(old, name):
                setattr(context, name, value)
    codec_tag(stream, template, container, "mov")
    if old.codec.canonical_name in _NAMED_BY_TAG and not container.mov:
        context.codec_tag = old.codec_tag
    if container.mov and old.codec.canonical_name == "hevc":
        context.codec_tag = "hvc1"  # what Apple's players want
    return AddedVideo(stream, described)
