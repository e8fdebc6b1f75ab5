"""What becomes of every stream of the source, decided before work starts, so that nothing is lost in silence."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

import av

from gpupipe.errors import PlanError
from gpupipe.media.containers import CONTAINERS, Container, check_codec, container, container_of, holds
from gpupipe.media.source import Track

if TYPE_CHECKING:
    from gpupipe.media.source import SourceInfo, StreamInfo

__all__ = ["Lost", "check_codec", "container_of", "plan_tracks"]

TEXT_SUBTITLES = frozenset({"mov_text", "subrip", "ass", "ssa", "webvtt", "text"})
"""Text subtitles that can be turned into one another; words and times survive, fonts and places on screen may not."""

_PCM = {
    "s16": "pcm_s16le",
    "u16": "pcm_s24le",
    "s24": "pcm_s24le",
    "s32": "pcm_s32le",
    "f32": "pcm_f32le",
    "f64": "pcm_f64le",
}


class Lost(NamedTuple):
    """Something of the source that the output cannot hold."""

    code: str
    """Stable name for machines, as in the journal."""
    message: str


class Wanted(Protocol):
    """What the config's `output` says of everything beside the pictures."""

    @property
    def audio(self) -> object:
        """`copy`, `none`, or an object with a `codec`."""
        ...

    @property
    def subtitles(self) -> str:
        """`copy` or `none`."""
        ...

    @property
    def metadata(self) -> str:
        """`copy` or `none`."""
        ...


Decision = tuple[Track, Lost | None]


def _lossless_pcm(codec: str) -> str:
    """A plain PCM codec that holds every sample of another one."""
    if codec in ("pcm_bluray", "pcm_dvd", "pcm_s24daud", "pcm_lxf"):
        return "pcm_s24le"
    if codec in ("pcm_alaw", "pcm_mulaw", "pcm_u8", "pcm_s8", "pcm_s8_planar"):
        return "pcm_s16le"
    return _PCM.get(codec.removeprefix("pcm_")[:3], "pcm_s32le")


def _drop(stream: StreamInfo, target: Container, what: str, hint: str = "") -> Decision:
    name = f"{stream.codec} " if stream.codec else ""
    message = f"stream {stream.index}: {target.name} cannot hold {name}{what}, it will be missing{hint}"
    return Track(stream.index, stream.kind, "drop", f"{target.name} cannot hold {name}{what}"), Lost(
        f"{stream.kind}-dropped", message
    )


def _made_by(encoder: str) -> str:
    """The codec that an audio encoder of that name makes: libopus makes opus. Raises PlanError where there is none."""
    try:
        found = av.Codec(encoder, "w")
    except (ValueError, av.FFmpegError):
        hint = "aac, ac3, flac, opus, mp3, pcm_s24le and all audio encoders of `ffmpeg -encoders` built into PyAV"
        raise PlanError(f"no audio encoder called '{encoder}'", where="output.audio.codec", hint=hint) from None
    if found.type != "audio":
        raise PlanError(f"{encoder} encodes {found.type}, not audio", where="output.audio.codec")
    return str(found.canonical_name)


def _audio(stream: StreamInfo, target: Container, wanted: Wanted) -> Decision:
    index, codec = stream.index, stream.codec
    if wanted.audio == "none":
        return Track(index, "audio", "drop", "audio: none"), None
    if "0" in (stream.details.get("sample_rate"), stream.details.get("channels")):
        message = f"stream {index}: sample rate and channels of its {codec} audio are unknown, it will be missing"
        return Track(index, "audio", "drop", "unknown sample rate and channels"), Lost("audio-dropped", message)
    if wanted.audio != "copy":
        new = str(getattr(wanted.audio, "codec", ""))
        made = _made_by(new)
        if not holds(target.name, made):
            able = ", ".join(f".{c.extensions[0]}" for c in CONTAINERS if holds(c.name, made)) or "no container here"
            message, hint = f"{target.name} cannot hold {made} audio", f"{made} goes into {able}"
            raise PlanError(message, where="output.audio.codec", hint=hint)
        return Track(index, "audio", "encode", f"{codec} to {new}", new), None
    unnamed = stream.details.get("layout", "").endswith("channels") and int(stream.details.get("channels", "0")) > 2
    discrete = codec.startswith("pcm_") and unnamed
    if holds(target.name, codec) and not (discrete and target.name == "mp4"):  # MP4's PCM must say what each channel is
        return Track(index, "audio", "copy"), None
    plain = _lossless_pcm(codec)
    if codec.startswith("pcm_") and not discrete and holds(target.name, plain):
        return Track(index, "audio", "encode", f"{codec} to {plain}, sample for sample", plain), None
    what = f"audio whose {stream.details.get('channels')} channels have no names" if discrete else "audio"
    way_out = (
        "`audio: {codec: flac}` keeps every sample, .mov and .mkv hold it as it is"
        if discrete
        else ("set `audio: {codec: ...}` to re-encode it, or choose another container")
    )
    return _drop(stream, target, what, f"; {way_out}")


def _subtitle(stream: StreamInfo, target: Container, wanted: Wanted) -> Decision:
    index, codec = stream.index, stream.codec
    if wanted.subtitles == "none":
        return Track(index, "subtitle", "drop", "subtitles: none"), None
    if holds(target.name, codec):
        return Track(index, "subtitle", "copy"), None
    if codec not in TEXT_SUBTITLES or target.text is None:
        return _drop(stream, target, "subtitles", "; .mkv can")
    track = Track(index, "subtitle", "encode", f"{codec} to {target.text}", target.text)
    if codec not in ("ass", "ssa"):
        return track, None
    message = f"stream {index}: {codec} subtitles become {target.text}, fonts and places are lost; .mkv keeps them"
    return track, Lost("subtitle-styling-lost", message)


def _attachment(stream: StreamInfo, target: Container) -> Decision:
    if target.attachments:
        return Track(stream.index, "attachment", "copy"), None
    name = stream.tags.get("filename", f"stream {stream.index}")
    message = f"{target.name} cannot hold attachments, '{name}' will be missing; .mkv can"
    return Track(stream.index, "attachment", "drop", f"{target.name} has no attachments"), Lost(
        "attachment-dropped", message
    )


def _data(stream: StreamInfo, info: SourceInfo, target: Container) -> Decision:
    index, tag = stream.index, stream.details.get("tag", "")
    if tag == "tmcd" or (not stream.codec and "timecode" in stream.tags):
        return Track(index, "data", "drop", "timecode, written anew" if target.timecode else "timecode"), None
    if tag == "text" and info.chapters:
        return Track(index, "data", "drop", "chapter titles, written anew"), None
    fits = tag == "gpmd" if target.mov else holds(target.name, stream.codec)
    if fits:
        return Track(index, "data", "copy"), None
    name = tag or stream.tags.get("handler_name", "").strip()
    return _drop(stream, target, f"data ({name})" if name else "data")


def _decide(stream: StreamInfo, info: SourceInfo, target: Container, wanted: Wanted) -> Decision:
    if stream.index == info.video.index:
        return Track(stream.index, "video", "encode"), None
    if stream.kind in ("audio", "subtitle"):
        return (_audio if stream.kind == "audio" else _subtitle)(stream, target, wanted)
    if stream.kind == "video":
        annexb = info.container in ("mpegts", "mpeg", "h264", "hevc", "avi")  # AVI takes H.264 with start codes only
        fits = holds(target.name, stream.codec) and (target.name != "avi" or stream.codec != "h264" or annexb)
        return (Track(stream.index, "video", "copy"), None) if fits else _drop(stream, target, "video")
    return _extra(stream, info, target, wanted)


def _extra(stream: StreamInfo, info: SourceInfo, target: Container, wanted: Wanted) -> Decision:
    if wanted.metadata == "none":
        return Track(stream.index, stream.kind, "drop", "metadata: none"), None
    if stream.kind == "cover":
        fits = stream.codec in target.covers
        return (Track(stream.index, "cover", "copy"), None) if fits else _drop(stream, target, "cover pictures")
    return _attachment(stream, target) if stream.kind == "attachment" else _data(stream, info, target)


def plan_tracks(info: SourceInfo, name: str, wanted: Wanted) -> tuple[tuple[Track, ...], tuple[Lost, ...]]:
    """One Track a source stream, in source order, and what the container of that name cannot hold.

    Whether a loss is a warning or an error is the caller's to decide. Raises PlanError where the container cannot hold
    the audio codec that is asked for.
    """
    target = container(name)
    if wanted.audio not in ("copy", "none"):  # wrong also where there is no audio to encode
        _made_by(str(getattr(wanted.audio, "codec", "")))
    decided = [_decide(stream, info, target, wanted) for stream in info.streams]
    lost = [loss for _, loss in decided if loss is not None]
    if wanted.metadata == "copy":
        if info.chapters and not target.chapters:
            lost.append(
                Lost("chapters-dropped", f"{name} cannot hold chapters, {len(info.chapters)} will be missing; .mkv can")
            )
        if info.video.timecode and not target.timecode:
            lost.append(
                Lost("timecode-dropped", f"{name} cannot hold the timecode {info.video.timecode}; .mov and .mkv can")
            )
    return tuple(track for track, _ in decided), tuple(lost)
