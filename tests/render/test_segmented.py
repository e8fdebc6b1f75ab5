"""A run in segments gives the frames and times of a run in one go, on every real file that can be cut."""

from __future__ import annotations

import csv
import dataclasses
import hashlib
import itertools
import threading
from fractions import Fraction
from typing import TYPE_CHECKING

import av
import pytest

from gpupipe.config import parse_config
from gpupipe.errors import MediaError, PlanError
from gpupipe.journal import Journal
from gpupipe.media.probe import probe
from gpupipe.media.segments import SegmentReader, cut, located, timetable
from gpupipe.media.window import Window
from gpupipe.plan import make_plan
from gpupipe.render import render

if TYPE_CHECKING:
    from pathlib import Path

FFV1 = {"video": {"codec": "ffv1", "options": {"level": 3}}}


def run(source: Path, output: Path, config: dict) -> Journal:
    journal = Journal()
    plan = make_plan(parse_config(config), probe(source), output, device="cpu")
    render(plan, overwrite=False, journal=journal, stop=threading.Event())
    return journal


def pictures(path: Path) -> list[tuple[Fraction, str]]:
    """(time, hash of the samples) of every frame, as PyAV decodes them."""
    with av.open(str(path)) as container:
        return [
            (Fraction(f.pts) * f.time_base, hashlib.sha256(b"".join(bytes(p) for p in f.planes)).hexdigest())
            for f in container.decode(video=0)
        ]


def packets(path: Path, kind: str) -> list[list[tuple[int, int, bytes]]]:
    with av.open(str(path)) as container:
        found: dict[int, list[tuple[int, int, bytes]]] = {s.index: [] for s in container.streams if s.type == kind}
        for packet in container.demux():
            if packet.stream_index in found and packet.size:
                found[packet.stream_index].append((packet.pts, packet.duration, bytes(packet)))
        return list(found.values())


@pytest.fixture(scope="module")
def open_gop(tmp_path_factory: pytest.TempPathFactory, ffmpeg) -> Path:
    """Report D09: B-frames across the borders of open GOPs, with sound."""
    path = tmp_path_factory.mktemp("open") / "d09.mkv"
    ffmpeg("-f", "lavfi", "-i", "testsrc2=s=320x180:r=24:d=10", "-f", "lavfi", "-i", "sine=d=10", "-c:v", "libx264",
           "-x264-params", "open-gop=1:keyint=24:min-keyint=24:bframes=3:scenecut=0", "-c:a", "flac", path)  # fmt: skip
    return path


def cuttable(corpus: Path) -> list[Path]:
    rows = csv.DictReader((corpus / "manifest.csv").read_text().splitlines())
    files = [corpus / row["file"] for row in rows]
    found = []
    for path in files:
        try:
            info = probe(path)
        except MediaError:
            continue
        times = timetable(info)
        if times.obstacle is None and len(times.keyframes) > 1 and len(times.pts) < 2000:
            found.append(path)
    return found


def test_every_corpus_file_that_can_be_cut(corpus: Path, tmp_path: Path) -> None:
    names = []
    for source in cuttable(corpus):
        small = {"stages": [{"resize": {"width": 160, "height": -2, "filter": "bilinear"}}], "output": FFV1}
        run(source, tmp_path / f"{source.stem}-one.mkv", {**small, "segments": "off"})
        run(source, tmp_path / f"{source.stem}-cut.mkv", {**small, "segments": {"seconds": 0.1}, "sessions": 3})
        one, cut = tmp_path / f"{source.stem}-one.mkv", tmp_path / f"{source.stem}-cut.mkv"
        assert pictures(cut) == pictures(one), source.name
        assert packets(cut, "audio") == packets(one, "audio"), source.name
        names.append(source.name)
    assert len(names) >= 9, names  # cursed VFR, edit lists, open GOP, intra-only, two videos among them


def test_open_gops_join_without_a_seam(open_gop: Path, tmp_path: Path) -> None:
    run(open_gop, tmp_path / "one.mkv", {"output": FFV1, "segments": "off"})
    run(open_gop, tmp_path / "cut.mkv", {"output": FFV1, "segments": {"seconds": 1}, "sessions": 4})
    assert pictures(tmp_path / "cut.mkv") == pictures(tmp_path / "one.mkv")
    assert len(pictures(tmp_path / "cut.mkv")) == 240


def test_b_frames_of_the_encoder_join_with_rising_dts(open_gop: Path, tmp_path: Path) -> None:
    config = {"output": {"video": {"codec": "h264", "preset": "fast"}}, "segments": {"seconds": 2}, "sessions": 2}
    run(open_gop, tmp_path / "cut.mp4", config)
    with av.open(str(tmp_path / "cut.mp4")) as container:
        stamps = [(p.pts, p.dts, p.is_keyframe) for p in container.demux(video=0) if p.size]
    assert len(stamps) == 240
    assert all(a[1] < b[1] for a, b in itertools.pairwise(stamps))
    assert all(pts >= dts for pts, dts, _ in stamps)
    assert sum(key for *_, key in stamps) >= 5  # each segment begins with a key frame
    wanted = [t for t, _ in pictures(open_gop)]
    got = [t for t, _ in pictures(tmp_path / "cut.mp4")]
    assert [b - got[0] for b in got] == [pytest.approx(float(a - wanted[0]), abs=0.002) for a in wanted]


def test_the_same_bytes_in_every_run_and_for_any_number_of_runners(tmp_path: Path, ffmpeg) -> None:
    """192 wide: where AVX-512 has x264 read memory of others, bytes would differ from run to run."""
    source = tmp_path / "s.mkv"
    ffmpeg("-f", "lavfi", "-i", "testsrc2=s=192x108:r=25:d=6", "-c:v", "libx264", "-g", "25", "-preset", "ultrafast",
           source)  # fmt: skip
    seen = set()
    for n, sessions in enumerate((1, 1, 2, 4)):
        output = {"video": {"encoder": "libx264", "preset": "veryfast"}}
        run(source, tmp_path / f"{n}.mp4", {"output": output, "segments": {"seconds": 1}, "sessions": sessions})
        seen.add(hashlib.sha256((tmp_path / f"{n}.mp4").read_bytes()).hexdigest())
    assert len(seen) == 1


def test_the_first_segment_may_be_read_after_others(corpus: Path) -> None:
    """Where a segment is rendered again, or the longest go first."""
    for source in cuttable(corpus):
        info = probe(source)
        segments = cut(timetable(info), Window(None, None), Fraction(1, 10), info.video.time_base)
        fresh, used = SegmentReader(info), SegmentReader(info)
        first = [(p.pts, p.size) for p in fresh.packets(segments[0])]
        last = [(p.pts, p.size) for p in used.packets(segments[-1])]
        assert [(p.pts, p.size) for p in used.packets(segments[0])] == first, source.name
        assert [(p.pts, p.size) for p in used.packets(segments[-1])] == last, source.name
        fresh.close()
        used.close()


@pytest.mark.parametrize("lead", [0, 9])
def test_a_stored_plan_finds_its_packets_again(corpus: Path, lead: int) -> None:
    info = probe(corpus / "files" / "vfr_63_frames_59_distinct_durations.mp4")
    segments = cut(timetable(info), Window(None, None), Fraction(1, 10), info.video.time_base, lead)
    again = located(info, [dataclasses.replace(one, span=None) for one in segments])
    assert len(again) == 4
    assert again == segments
    assert [(s.span.first, s.span.last) for s in again] == [(s.span.first, s.span.last) for s in segments]


@pytest.mark.parametrize("start", [0, 0.99])
def test_a_first_segment_too_short_to_reorder(tmp_path: Path, ffmpeg, start: float) -> None:
    """Segments of one or two pictures, then long ones: what the first shows of B-frames is not what the others have."""
    source = tmp_path / "uneven.mkv"
    ffmpeg("-f", "lavfi", "-i", "testsrc2=s=320x180:r=24:d=3", "-c:v", "libx264", "-bf", "0", "-force_key_frames",
           "expr:eq(n,1)+eq(n,24)+eq(n,48)", "-x264-params", "scenecut=0:keyint=999", source)  # fmt: skip
    config = {"output": {"video": {"codec": "h264", "preset": "fast"}}, "segments": {"seconds": 0.01}, "sessions": 2}
    run(source, tmp_path / "cut.mp4", {**config, "range": {"start": start}})
    with av.open(str(tmp_path / "cut.mp4")) as container:
        stamps = [(p.pts, p.dts) for p in container.demux(video=0) if p.size]
    assert len(stamps) == 72 - round(start * 24)
    assert all(a[1] < b[1] for a, b in itertools.pairwise(stamps))
    assert all(pts >= dts for pts, dts in stamps)
    assert len(pictures(tmp_path / "cut.mp4")) == len(stamps)


def test_a_range_is_cut_exactly(open_gop: Path, tmp_path: Path) -> None:
    config = {"output": FFV1, "range": {"start": 1.3, "end": 7.9}}
    run(open_gop, tmp_path / "one.mkv", {**config, "segments": "off"})
    run(open_gop, tmp_path / "cut.mkv", {**config, "segments": {"seconds": 1}, "sessions": 2})
    assert pictures(tmp_path / "cut.mkv") == pictures(tmp_path / "one.mkv")


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ({"output": {"video": {"bitrate": "1M"}}}, "rate-controlled"),
        ({"stages": [{"fps": {"rate": 30}}]}, "fps"),
    ],
)
def test_what_cannot_be_right_is_refused(open_gop: Path, tmp_path: Path, config: dict, why: str) -> None:
    with pytest.raises(PlanError, match=why):
        run(open_gop, tmp_path / "x.mkv", {**config, "segments": {"seconds": 1}})
    assert not list(tmp_path.iterdir())


def test_a_source_without_index_is_refused(corpus: Path, tmp_path: Path) -> None:
    source = corpus / "files" / "crop_hevc_914x686_b4.ts"
    with pytest.raises(PlanError, match="no index"):
        run(source, tmp_path / "x.mkv", {"segments": {"seconds": 1}})
