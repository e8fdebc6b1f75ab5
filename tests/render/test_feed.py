"""The packets of a whole run, the first of which may be looked at before."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import av
import pytest

from gpupipe.config import parse_config
from gpupipe.journal import Journal
from gpupipe.media.demux import Demuxer
from gpupipe.media.probe import probe
from gpupipe.plan import make_plan
from gpupipe.render.feed import Feed
from gpupipe.render.reading import Whole

if TYPE_CHECKING:
    from pathlib import Path

    from gpupipe.codecs.base import Packet
    from gpupipe.plan import Plan


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory, ffmpeg) -> Path:
    """Two seconds in GOPs of half a second, the sound a little before the picture."""
    path = tmp_path_factory.mktemp("clip") / "clip.mkv"
    ffmpeg("-f", "lavfi", "-i", "testsrc2=s=128x72:r=24:d=2", "-f", "lavfi", "-i", "sine=d=2", "-c:v", "libx264",
           "-x264-params", "keyint=12:scenecut=0", "-c:a", "flac", path)  # fmt: skip
    return path


def plan_of(clip: Path, **more: object) -> Plan:
    return make_plan(parse_config({"segments": "off", **more}), probe(clip), clip.with_name("out.mp4"), device="cpu")


def data(packet: Packet) -> tuple:
    return packet.pts, packet.dts, packet.is_keyframe, bytes(packet)


def fed(plan: Plan, *, look: bool) -> tuple[Packet | None, list[tuple], list[tuple]]:
    """What a look at the first packet gave, then all of the video, and of the other streams."""
    others: list[Packet] = []
    with Demuxer(plan.source, Journal(), range_start=plan.start_pts) as demuxer:
        feed = Feed(plan, demuxer, Journal(), others.append, threading.Event())
        first = feed.first() if look else None
        return first, [data(packet) for packet in feed], [data(packet) for packet in others]


@pytest.mark.parametrize("more", [{}, {"range": {"start": 0.7, "end": 1.5}}])
def test_a_look_takes_nothing_away(clip: Path, more: dict) -> None:
    plan = plan_of(clip, **more)
    _, video, others = fed(plan, look=False)
    first, again, others_again = fed(plan, look=True)
    assert first is not None
    assert data(first) == video[0]
    assert first.is_keyframe
    assert (again, others_again) == (video, others)
    assert others
    if not more:
        with av.open(str(clip)) as container:
            assert video == [data(packet) for packet in container.demux(video=0) if packet.size]


def test_what_a_decoder_does_to_the_copy_does_nothing_to_the_packet(clip: Path) -> None:
    reading = Whole(plan_of(clip), Journal(), threading.Event())
    first = reading.first()
    assert first is not None
    wanted = data(first)
    first.pts = first.dts = None
    assert data(next(iter(reading.read(None)))) == wanted
    reading.close()


def test_no_key_frame_no_look(clip: Path, tmp_path: Path, ffmpeg) -> None:
    """A stream that begins in mid-course: nothing could be decoded of its first packet alone."""
    path = tmp_path / "late.mkv"
    ffmpeg("-i", clip, "-an", "-c", "copy", "-bsf:v", r"noise=drop=eq(n\,0)", path)
    journal = Journal()
    reading = Whole(plan_of(path), journal, threading.Event())
    assert reading.first() is None
    assert [data(p)[2] for p in reading.read(None)].count(True) == 3
    assert journal.entries["no-initial-keyframe"].count == 1
    reading.close()
