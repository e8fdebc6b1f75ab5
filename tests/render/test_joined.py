"""What is looked at before an output gets its name: files with one thing wrong are refused."""

from __future__ import annotations

import dataclasses
import shutil
import threading
from typing import TYPE_CHECKING

import av
import pytest

from gpupipe.config import parse_config
from gpupipe.errors import MediaError
from gpupipe.journal import Journal
from gpupipe.media.probe import probe
from gpupipe.plan import make_plan
from gpupipe.render.joined import inspect
from gpupipe.render.kept import join, render_missing
from gpupipe.render.ledger import Ledger
from gpupipe.render.progress import Meter
from gpupipe.render.watch import Watch

if TYPE_CHECKING:
    from pathlib import Path

STOP = threading.Event()


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory, ffmpeg):
    folder = tmp_path_factory.mktemp("joined")
    source, output = folder / "s.mkv", folder / "out.mp4"
    ffmpeg("-f", "lavfi", "-i", "testsrc2=s=192x108:r=24000/1001:d=5", "-c:v", "libx264", "-g", "24", source)
    video = {"encoder": "libx264", "preset": "veryfast"}
    config = parse_config({"segments": {"seconds": 1}, "resume": "keep", "output": {"video": video}})
    plan = make_plan(config, probe(source), output, device="cpu")
    with Ledger(plan) as ledger:
        ledger.begin()
        render_missing(ledger, Journal(), STOP)
        yield ledger


@pytest.fixture(scope="module")
def good(ledger: Ledger, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The output of another ledger with the same segments."""
    copy = tmp_path_factory.mktemp("good")
    plan = dataclasses.replace(ledger.plan, output=copy / "good.mp4")
    with Ledger(plan) as other:
        shutil.copytree(ledger.folder / "segments", other.folder / "segments", dirs_exist_ok=True)
        other.begin()
        assert not other.missing()
        join(other, overwrite=False, journal=Journal(), stop=STOP, meter=Meter(plan, lambda _: None, Watch()))
    return copy / "good.mp4"


def remuxed(good: Path, path: Path, change) -> Path:
    """`good` with `change(number, packet)` done to every packet; False leaves it out."""
    with av.open(str(good)) as source, av.open(str(path), "w") as target:
        stream = target.add_stream_from_template(source.streams.video[0], opaque=True)
        for number, packet in enumerate(source.demux(video=0)):
            if packet.size:
                changed = change(number, packet)
                if changed is not None:
                    changed.stream = stream
                    target.mux_one(changed)
    return path


def shifted(ticks: int, first: int):
    def change(number: int, packet: av.Packet) -> av.Packet:
        if number >= first:
            packet.pts += ticks
            packet.dts += ticks
        return packet

    return change


def blank(at: set[int]):
    def change(number: int, packet: av.Packet) -> av.Packet:
        if number not in at:
            return packet
        made = av.Packet(bytes(packet)[:8] + b"\xff" * (packet.size - 8))
        made.pts, made.dts, made.time_base, made.is_keyframe = packet.pts, packet.dts, packet.time_base, True
        made.duration = packet.duration
        return made

    return change


def test_what_was_joined_is_accepted(ledger: Ledger, good: Path, tmp_path: Path) -> None:
    inspect(ledger, good, STOP)
    inspect(ledger, remuxed(good, tmp_path / "same.mp4", lambda _, packet: packet), STOP)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda n, packet: packet if n != 60 else None, "is at|pictures"),
        (lambda n, packet: packet if n < 118 else None, "segment 4 has 24 pictures and the output 22"),
        (shifted(400, 48), "a picture is at 2.0[0-9]+ s, not at 2.0"),
        (shifted(400, 119), "s, not at|its pictures last"),
        (blank({48}), "key frame|decode|damaged"),
        (blank({47}), "decode|damaged"),
    ],
    ids=["one missing", "the end missing", "late from a join on", "the last one late", "first damaged", "last damaged"],
)
def test_one_thing_wrong(ledger: Ledger, good: Path, tmp_path: Path, change, says: str) -> None:
    path = remuxed(good, tmp_path / "bad.mp4", change)
    with pytest.raises(MediaError, match=says):
        inspect(ledger, path, STOP)


def test_one_too_many(ledger: Ledger, good: Path, tmp_path: Path) -> None:
    path = tmp_path / "more.mp4"
    with av.open(str(good)) as source, av.open(str(path), "w") as target:
        stream = target.add_stream_from_template(source.streams.video[0], opaque=True)
        packets = [packet for packet in source.demux(video=0) if packet.size]
        extra = av.Packet(bytes(packets[0]))
        extra.pts = extra.dts = max(p.pts for p in packets) + packets[-1].duration
        extra.time_base, extra.is_keyframe, extra.duration = packets[0].time_base, True, packets[0].duration
        for packet in (*packets, extra):
            packet.stream = stream
            target.mux_one(packet)
    with pytest.raises(MediaError, match="more pictures than were rendered"):
        inspect(ledger, path, STOP)
