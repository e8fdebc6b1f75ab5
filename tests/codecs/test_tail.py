"""Pictures that a decoder's threads hold at the end are not lost where one of them is damaged."""

from __future__ import annotations

from typing import TYPE_CHECKING

import av
import pytest

from gpupipe.codecs.libav import LibavDecoder
from gpupipe.codecs.tail import HELD, MOST, Tail
from gpupipe.journal import Journal
from gpupipe.media.probe import probe

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

CODECS = {
    "libx264": ("-g", "20", "-bf", "2"),
    "libx265": ("-x265-params", "keyint=20:log-level=none"),
    "prores_ks": (),
    "ffv1": ("-slices", "4", "-slicecrc", "1", "-g", "1"),
}


def damaged(packet: av.Packet, count: int) -> av.Packet:
    """A copy without most of what it held."""
    data = bytearray(bytes(packet))
    data[min(12, len(data) // 2) :] = bytes(max(1, count))
    copy = av.Packet(bytes(data))
    copy.pts, copy.dts, copy.duration, copy.time_base = packet.pts, packet.dts, packet.duration, packet.time_base
    copy.is_keyframe = packet.is_keyframe
    return copy


def shown(path: Path, hurt: set[int], threads: int) -> tuple[list[int], Journal]:
    """pts of what comes of the packets, some of which are damaged."""
    info, journal = probe(path), Journal()
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        decoder = LibavDecoder(stream, info.video.format, info.video.time_base, journal, opaque=True)
        stream.codec_context.thread_type, stream.codec_context.thread_count = (
            "FRAME" if threads > 1 else "NONE",
            threads,
        )
        packets = [packet for packet in container.demux(stream) if packet.size]
        given = [damaged(packet, 3) if n - len(packets) in hurt else packet for n, packet in enumerate(packets)]
        pts = [batch.pts[0] for packet in (*given, None) for batch in decoder.decode(packet)]
        decoder.close()
    return pts, journal


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("hurt", [set(), {-1}, {-6}, {-7, -2}])
def test_as_many_as_one_thread_gives(codec: str, hurt: set[int], ffmpeg: Callable[..., str], tmp_path: Path) -> None:
    path = tmp_path / "clip.mkv"
    ffmpeg("-f", "lavfi", "-i", "testsrc2=s=128x96:r=25:d=2", "-c:v", codec, *CODECS[codec], path)
    alone, told_alone = shown(path, hurt, 1)
    ours, told = shown(path, hurt, 8)
    assert ours == alone
    assert len(alone) >= 40
    errors = [j.entries["decode-error"].count if "decode-error" in j.entries else 0 for j in (told, told_alone)]
    assert errors[0] <= errors[1]
    assert bool(errors[0]) == bool(errors[1])


def packet(pts: int | None, size: int, *, key: bool) -> av.Packet:
    made = av.Packet(size)
    made.pts, made.is_keyframe = pts, key
    return made


def test_what_is_kept_is_bounded() -> None:
    """By pictures where packets are small, by bytes where they are large; from a key frame on."""
    tail = Tail()
    for n in range(400):
        tail.add(packet(n, 100, key=n % 10 == 0))
        tail.shown(n - 5 if n > 5 else None)
    kept = [one.pts for group in tail._groups for one in group]
    assert kept[0] % 10 == 0
    assert HELD < len(kept) <= HELD + 30
    assert tail.missing() == {395, 396, 397, 398, 399}
    for n in range(400, 420):
        tail.add(packet(n, MOST // 8, key=n % 4 == 0))
    kept = [one.pts for group in tail._groups for one in group]
    assert kept == list(range(412, 420))  # eight of an eighth
    tail.clear()
    assert tail.missing() == set()


def test_without_times_nothing_is_decoded_twice() -> None:
    """Of a stream that stores a time now and then, pictures have times that no packet has."""
    tail = Tail()
    for n in range(20):
        tail.add(packet(n if n % 10 == 0 else None, 100, key=n % 10 == 0))
    assert tail.missing() == set()
