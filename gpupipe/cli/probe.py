"""`gpupipe probe`: what a file is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from gpupipe.cli.options import PATH, as_json
from gpupipe.media.probe import probe

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from gpupipe.cli.console import Console
    from gpupipe.media.source import SourceInfo, StreamInfo, VideoInfo


@click.command(name="probe", short_help="Print what a file holds.")
@click.argument("input", type=PATH)
@as_json
@click.pass_obj
def command(console: Console, *, input: Path, as_json: bool) -> None:  # noqa: A002  (click shows the name)
    """Print what INPUT holds: streams, times, colour, timecode, oddities."""
    info = probe(input)
    if as_json:
        console.json(info)
    else:
        console.data(_lines(info))


def _lines(info: SourceInfo) -> Iterator[str]:
    yield f"file       {info.path}"
    length = f"{float(info.duration):.3f} s" if info.duration is not None else "length unknown"
    yield f"container  {info.container}, {length} from {float(info.start):.3f} s, {info.size_bytes:,} bytes"
    yield from _video(info.video)
    for stream in info.streams:
        if stream.index != info.video.index:
            yield _stream(stream)
    if info.chapters:
        yield f"chapters   {len(info.chapters)}"
    for key, value in info.tags.items():
        yield f"tag        {key}: {value}"
    for note in info.notes:
        yield f"note       {note}"


def _video(video: VideoInfo) -> Iterator[str]:
    picture, color = video.format, video.format.color
    profile = f" ({video.profile})" if video.profile else ""
    yield f"video #{video.index}   {video.codec}{profile}, {video.native_pixels} {picture.width}x{picture.height}"
    frames = f", {video.frames} frames by the container" if video.frames is not None else ""
    yield f"  rate     {video.rate} frames a second, time base {video.time_base}{frames}"
    said = [
        *color.words(),
        f"range {color.range or 'unspecified'}",
        f"chroma {color.chroma_location or 'unspecified'}",
    ]
    yield f"  colour   {', '.join(said)} (H.273)"
    if picture.sample_aspect != 1:
        yield f"  pixels   {picture.sample_aspect or 'of unknown'} aspect"
    if picture.field_order != "progressive":
        yield f"  fields   {picture.field_order}"
    if video.display_matrix:
        yield f"  matrix   {' '.join(map(str, video.display_matrix))}"
    if video.timecode:
        yield f"  timecode {video.timecode}"
    hdr = video.hdr
    if hdr.mastering_display or hdr.content_light or hdr.dynamic:
        light = f"MaxCLL {hdr.content_light[0]} MaxFALL {hdr.content_light[1]}" if hdr.content_light else ""
        parts = (hdr.mastering_display or "", light, "dynamic metadata" if hdr.dynamic else "")
        yield f"  hdr      {', '.join(p for p in parts if p)}"


def _stream(stream: StreamInfo) -> str:
    more = [stream.tags.get("language", ""), *stream.disposition, *(f"{k} {v}" for k, v in stream.details.items())]
    detail = ", ".join(m for m in more if m)
    return (
        f"{stream.kind} #{stream.index}".ljust(11)
        + (stream.codec or "unknown codec")
        + (f", {detail}" if detail else "")
    )
