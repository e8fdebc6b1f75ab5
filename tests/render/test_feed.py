"""The packets of a whole run, the first of which may be looked at before."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING

import av
import pytest

from gpupipe.codecs.libav import LibavDecoder
from gpupipe.config import parse_config
from gpupipe.journal import Journal
from gpupipe.media.demux import Demuxer
from gpupipe.media.probe import probe
from gpupipe.plan import make_plan
from gpupipe.render import render
from gpupipe.render.feed import Feed
from gpupipe.render.reading import Whole

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from gpupipe.codecs.base import Packet
    from gpupipe.frame import FrameBatch
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


@pytest.mark.parametrize("more", [{}, {"range": {"start": 0.7, "end": 1.5}}])
@pytest.mark.parametrize("stages", [[], [{"fps": {"rate": "10"}}]])
def test_pictures_that_packets_promised_and_nobody_showed_are_told(
    clip: Path, tmp_path: Path, monkeypatch, more: dict, stages: list
) -> None:
    """In one piece, of a range, or of a container without a count: as segments tell it."""
    whole = 48 if not more else 19
    plan = replace(plan_of(clip, **more, stages=stages), output=tmp_path / "out.mp4")
    journal = Journal()
    render(plan, overwrite=False, journal=journal, stop=threading.Event())
    assert "frames-missing" not in journal.entries

    decode = LibavDecoder.decode
    hidden: list[int] = []

    def blind(self: LibavDecoder, packet: Packet | None) -> Iterator[FrameBatch]:
        for batch in decode(self, packet):
            if batch.pts[0] in (1000, 1042, 1083):
                hidden.append(batch.pts[0])
            else:
                yield batch

    monkeypatch.setattr(LibavDecoder, "decode", blind)
    render(plan, overwrite=True, journal=journal, stop=threading.Event())
    assert len(hidden) == 3
    where = "range" if more else "file"
    message = journal.entries["frames-missing"].message
    assert message == f"only {whole - 3} of the {whole} frames of the {where} could be decoded"


def test_fields_that_a_container_counts_as_pictures_are_not_missing(corpus: Path, tmp_path: Path) -> None:
    """A field-coded stream: each field has a packet, two of them are a picture."""
    source = corpus / "files/avchd_1080i50_field_coded_ac3_pgs.mts"
    out: dict[str, object] = {"video": {"codec": "ffv1"}, "audio": "none", "subtitles": "none", "metadata": "none"}
    plan = make_plan(parse_config({"segments": "off", "output": out}), probe(source), tmp_path / "o.mkv", device="cpu")
    journal = Journal()
    assert render(plan, overwrite=False, journal=journal, stop=threading.Event()).frames == 13
    assert "frames-missing" not in journal.entries
