"""Output containers: which one a file name asks for, and what each can hold.

libav answers for codecs of containers that keep a table of them; MPEG-TS, MXF and Ogg accept anything at first and fail
later or write what no player reads, so these have a table here.
"""

from __future__ import annotations

import io
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

import av

from gpupipe.errors import PlanError

if TYPE_CHECKING:
    from pathlib import Path

_TS = frozenset(
    [
        "h264",
        "hevc",
        "mpeg1video",
        "mpeg2video",
        "mpeg4",
        "vvc",
        "aac",
        "aac_latm",
        "ac3",
        "eac3",
        "dts",
        "truehd",
        "mp2",
        "mp3",
        "opus",
        "pcm_bluray",
        "s302m",
        "dvb_subtitle",
        "dvb_teletext",
        "klv",
        "timed_id3",
    ]
)
_MXF = frozenset(["mpeg2video", "h264", "prores", "dnxhd", "dvvideo", "jpeg2000", "ffv1", "pcm_s16le", "pcm_s24le"])
_OGG = frozenset(["theora", "vp8", "vorbis", "opus", "flac", "speex"])


@dataclass(frozen=True, slots=True)
class Container:
    """A kind of file that can be written."""

    name: str
    """As the plan names it."""
    muxer: str
    """As libav names it."""
    extensions: tuple[str, ...]
    options: dict[str, str] = field(default_factory=dict)
    """Muxer options."""
    only: frozenset[str] | None = None
    """Codecs it holds, where libav's own answer is not to be trusted."""
    never: frozenset[str] = frozenset()
    """Codecs that libav says it holds, and then refuses when the header is written."""
    text: str | None = None
    """Text subtitle codec that others are turned into."""
    covers: frozenset[str] = frozenset()
    """Codecs of cover pictures it holds."""
    attachments: bool = False
    chapters: bool = False
    timecode: bool = False
    """Whether a start timecode can be stored."""
    edit_lists: bool = False
    """Whether a packet may begin before time 0 and be shown from 0 on."""
    constant_rate: bool = False
    """Whether frames are counted rather than timed: the time base must be one frame."""
    gapless: bool = False
    """Whether pictures follow each other at the rate, whatever their times say."""
    tags: bool = True
    """Whether tags of any name survive."""

    @property
    def mov(self) -> bool:
        """Of the QuickTime family, with its four-letter codec tags."""
        return self.muxer in ("mov", "mp4", "3gp")

    @property
    def matroska(self) -> bool:
        """Matroska or WebM: EBML, timestamps in milliseconds."""
        return self.muxer in ("matroska", "webm")


_PICTURES = frozenset({"mjpeg", "png", "bmp", "gif"})

CONTAINERS: tuple[Container, ...] = (
    # Delivery files are rewritten at the end with their index in front, so that they play while they download.
    # MOV holds mezzanine material of any size on local disks, where that second pass would double the writing.
    Container(
        "mp4",
        "mp4",
        ("mp4", "m4v"),
        {"movflags": "+faststart"},
        text="mov_text",
        covers=_PICTURES - {"gif"},
        chapters=True,
        timecode=True,
        edit_lists=True,
    ),
    Container(
        "mov",
        "mov",
        ("mov", "qt"),
        {"movflags": "+use_metadata_tags"},
        never=frozenset({"av1", "vp9", "vp8", "opus", "flac", "truehd", "rawvideo"}),
        text="mov_text",
        chapters=True,
        timecode=True,
        edit_lists=True,
    ),
    Container(
        "matroska",
        "matroska",
        ("mkv",),
        never=frozenset({"rawvideo"}),
        text="subrip",
        covers=_PICTURES,
        attachments=True,
        chapters=True,
        timecode=True,
    ),
    Container("webm", "webm", ("webm",), text="webvtt", chapters=True, timecode=True),
    Container("mxf", "mxf", ("mxf",), only=_MXF, timecode=True, gapless=True, tags=False),
    Container("mpegts", "mpegts", ("ts",), only=_TS, tags=False),
    Container(
        "m2ts",
        "mpegts",
        ("m2ts", "mts"),
        {"mpegts_m2ts_mode": "1"},
        only=_TS | {"hdmv_pgs_subtitle", "pcm_bluray"},
        tags=False,
    ),
    Container("avi", "avi", ("avi",), constant_rate=True, tags=False),
    Container("nut", "nut", ("nut",), chapters=True),
    Container("ogg", "ogg", ("ogv", "ogg"), only=_OGG),
)

_BY_NAME = {c.name: c for c in CONTAINERS}


def container(name: str) -> Container:
    """The container of that name. Raises KeyError."""
    return _BY_NAME[name]


def container_of(path: Path) -> str:
    """Name of the container that a file name's extension asks for. Raises PlanError where there is none."""
    extension = path.suffix.lower().removeprefix(".")
    for one in CONTAINERS:
        if extension in one.extensions:
            return one.name
    known = ", ".join(f".{e}" for c in CONTAINERS for e in c.extensions)
    what = (
        f"unknown output extension '.{extension}'" if extension else "the output has no extension to tell its container"
    )
    raise PlanError(what, where=str(path), hint=f"use one of {known}")


@lru_cache(maxsize=1024)
def holds(name: str, codec: str) -> bool:
    """Whether the container of that name can hold streams of that codec (libav's codec name)."""
    kind = container(name)
    if not codec or codec in kind.never:
        return False
    if kind.only is not None:
        return codec in kind.only
    try:
        # Nothing is written: no header was asked for.
        av.open(io.BytesIO(), "w", format=kind.muxer).add_mux_stream(codec)
    except ValueError:
        return False
    return True


def check_codec(name: str, codec: str) -> None:
    """Raises PlanError where the container cannot hold video of that codec, naming those that can."""
    if holds(name, codec):
        return
    able = [f".{c.extensions[0]}" for c in CONTAINERS if holds(c.name, codec)]
    hint = f"{codec} goes into {', '.join(able)}" if able else f"no container here holds {codec}"
    raise PlanError(f"{name} cannot hold {codec} video", where="output.path", hint=hint)
