"""Drives the real muxer without any encoder: the source's own video packets take the encoder's place."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING

import av

from gpupipe.journal import Journal
from gpupipe.media import carry
from gpupipe.media.mux import Muxer, VideoHeader
from gpupipe.media.probe import probe

if TYPE_CHECKING:
    from pathlib import Path

    from gpupipe.media.source import SourceInfo


@dataclass
class Wanted:
    """`output` of a config."""

    audio: object = "copy"
    subtitles: str = "copy"
    metadata: str = "copy"


@dataclass
class Audio:
    codec: str
    bitrate: int | None = None


def header_of(info: SourceInfo, **changes: object) -> VideoHeader:
    video = info.video
    header = VideoHeader(
        rate=video.rate,
        time_base=video.time_base,
        display_matrix=video.display_matrix,
        sample_aspect=video.format.sample_aspect,
        field_order=video.format.field_order,
        timecode=video.timecode,
        hdr=video.hdr,
        offset=info.start,
    )
    return replace(header, **changes)


def remux(
    source: Path, output: Path, wanted: Wanted | None = None, *, container: str | None = None, **changes: object
) -> tuple[Journal, tuple[carry.Lost, ...]]:
    """Source to output, every stream copied; `changes` are of the VideoHeader."""
    wanted = wanted or Wanted()
    info, journal = probe(source), Journal()
    container = container or carry.container_of(output)
    tracks, lost = carry.plan_tracks(info, container, wanted)
    header = header_of(info, **changes)
    audio = wanted.audio if isinstance(wanted.audio, Audio) else None
    muxer = Muxer(output, container, info, tracks, header, journal, audio=audio)
    try:
        _copy(source, muxer, info, header)
    finally:
        muxer.abort()  # does nothing after close()
    return journal, lost


def _copy(source: Path, muxer: Muxer, info: SourceInfo, header: VideoHeader) -> None:
    late, last = [], None
    with av.open(f"file:{source}") as opened:
        video = opened.streams[info.video.index]
        for packet in opened.demux():
            if packet.stream_index != info.video.index:
                muxer.write_copied(packet)
            elif packet.size and _in_range(packet, header):
                if packet.dts is None:  # an encoder says it; libav leaves it out until it knows the reordering
                    depth = getattr(video.codec_context, "reorder_depth", 0)
                    packet.dts = packet.pts - depth * packet.duration if last is None else last + packet.duration
                last = packet.dts
                late.append(packet)
                if len(late) == 6:  # as an encoder: it describes itself some packets later
                    muxer.add_video(video)
                if len(late) >= 6:
                    for one in late if len(late) == 6 else late[-1:]:
                        muxer.write_video(one)
        if len(late) < 6:
            muxer.add_video(video)
            for one in late:
                muxer.write_video(one)
        muxer.close()


def _in_range(packet: av.Packet, header: VideoHeader) -> bool:
    at = (packet.pts if packet.pts is not None else packet.dts) * Fraction(packet.time_base)
    return header.end is None or at < header.end
