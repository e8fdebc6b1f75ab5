"""Packets of real files, decoded by PyAV, against ffprobe's frames; damage, resets and seeks."""

from __future__ import annotations

import csv
from itertools import pairwise
from pathlib import Path

import av
import pytest

from gpupipe.journal import Journal
from gpupipe.media import demux
from gpupipe.media.demux import Demuxer
from gpupipe.media.probe import probe
from gpupipe.media.timeline import FrameClock

CORPUS = Path(__file__).resolve().parents[3] / "shared" / "corpus"
ROWS = {Path(row["file"]).name: row for row in csv.DictReader((CORPUS / "manifest.csv").read_text().splitlines())}
LONG = "long_6min_1080p30_aac.mp4"
DAMAGED = {name for name, row in ROWS.items() if {"corrupt", "truncated"} & set(row["traits"].split(";"))}
UNTIMED = {name for name, row in ROWS.items() if "missing-pts" in row["traits"].split(";")}
READABLE = sorted(name for name, row in ROWS.items() if row["codec"] and name != LONG)


class Run:
    """A whole pass over a file as the executor makes it."""

    def __init__(self, path: Path, start: int | None = None) -> None:
        self.journal = Journal()
        self.info = probe(path)
        clock = FrameClock(self.info.video.time_base, self.info.video.rate, self.journal)
        self.pts: list[int] = []
        self.packets: dict[int, list[tuple[int | None, int | None]]] = {s.index: [] for s in self.info.streams}
        self.failed = 0
        with Demuxer(self.info, self.journal, range_start=start) as demuxer:
            context = demuxer.video_stream.codec_context
            context.thread_count = 2
            for packet in [*demuxer.packets(), None]:
                if packet is not None:
                    self.packets[packet.stream_index].append((packet.pts, packet.dts))
                    if packet.stream_index != self.info.video.index:
                        continue
                try:
                    frames = context.decode(packet)
                except av.InvalidDataError:
                    self.failed += 1
                    continue
                self.pts += [clock.stamp(f.pts, f.duration) for f in frames]

    def steps(self, index: int | None = None) -> set[int]:
        times = self.pts if index is None else [dts for _, dts in self.packets[index]]
        return {b - a for a, b in pairwise(times)}


def frame_times(ffprobe, path: Path, index: int) -> list[int | None]:
    found = ffprobe(path, "-select_streams", index, "-show_entries", "frame=best_effort_timestamp")
    return [frame.get("best_effort_timestamp") for frame in found["frames"]]


@pytest.mark.parametrize("name", READABLE)
def test_frames_and_times_of_the_corpus(name, corpus, ffprobe):
    path = corpus / "files" / name
    run = Run(path)
    wanted = int(ROWS[name]["nb_frames_counted"].split("+")[0])
    assert abs(len(run.pts) - wanted) <= (1 + wanted // 50 if name in DAMAGED else 0)
    assert all(step > 0 for step in run.steps())
    damage = {"packet-damaged", "read-error"} & set(run.journal.entries)
    if name in DAMAGED:
        noted = run.failed or damage or any("cut off" in n or "cannot be decoded" in n for n in run.info.notes)
        assert noted
        return
    assert not damage
    if name in UNTIMED:
        assert "pts-missing" in run.journal.entries
        assert len(run.steps()) == 1
        return
    assert len(run.journal) == 0
    assert run.pts == frame_times(ffprobe, path, run.info.video.index)


@pytest.mark.parametrize("name", READABLE)
def test_every_packet_of_every_stream_arrives(name, corpus, ffprobe):
    """But those of GoPro's `fdsc`, data of no known kind that libavformat 8 skips and no container can be given."""
    path = corpus / "files" / name
    run_packets: dict[int, int] = {}
    info = probe(path)
    with Demuxer(info, Journal()) as demuxer:
        for packet in demuxer.packets():
            run_packets[packet.stream_index] = run_packets.get(packet.stream_index, 0) + packet.size
    wanted: dict[int, int] = {}
    for packet in ffprobe(path, "-show_entries", "packet=stream_index,size")["packets"]:
        if info.streams[packet["stream_index"]].details.get("tag") != "fdsc":
            wanted[packet["stream_index"]] = wanted.get(packet["stream_index"], 0) + int(packet["size"])
    assert run_packets == wanted


def test_missing_timestamps_agree_with_those_that_are_there(corpus, ffprobe):
    path = corpus / "files" / "ps_h264_most_pts_dts_missing.mpeg"
    packets = ffprobe(path, "-show_packets")["packets"]
    stated = {p["pts"] for p in packets if "pts" in p}
    assert 1 < len(stated) < 180
    assert stated <= set(Run(path).pts)


# D05: clocks


@pytest.fixture(scope="module")
def parts(tmp_path_factory, ffmpeg):
    folder = tmp_path_factory.mktemp("d05")
    video, tone = "testsrc2=s=96x64:r=25", "sine=f=440"
    first = ["-f", "lavfi", "-i", f"{video}:d=8", "-f", "lavfi", "-i", f"{tone}:d=8"]
    second = ["-f", "lavfi", "-i", f"{video}:d=4", "-f", "lavfi", "-i", f"{tone}:d=4"]
    codecs = ["-c:v", "libx264", "-c:a", "mp2"]
    wrap, other, reset = folder / "wrap.ts", folder / "b.ts", folder / "reset.ts"
    ffmpeg(*first, *codecs, "-bf", 2, "-muxdelay", 0, "-output_ts_offset", 95440, "-f", "mpegts", wrap)
    ffmpeg(*second, *codecs, "-f", "mpegts", other)
    reset.write_bytes(wrap.read_bytes() + other.read_bytes())
    return wrap, other, reset


def test_d05_wrap(parts):
    run = Run(parts[0])
    assert len(run.pts) == 200
    assert run.steps() == {3600}
    assert len(run.journal) == 0


def test_d05_reset(parts):
    wrap, other, reset = parts
    run, first, second = Run(reset), Run(wrap), Run(other)
    assert len(run.pts) == 300
    assert run.steps() == {3600}, "the step at the join is one frame"
    jump = run.journal.entries["clock-reset"]
    assert jump.count == 1
    joined = wrap.stat().st_size
    at, pts = (int(part.split()[1]) for part in jump.places[0].split(", "))
    assert joined <= at < joined + 20 * 188
    assert pts == second.packets[0][0][0], "the pts as it stands in the file"
    assert run.packets[1][: len(first.packets[1])] == first.packets[1]
    sound = run.packets[1][len(first.packets[1]) :]
    apart = [pts - run.pts[200] for pts, _ in sound]
    assert apart == [pts - second.pts[0] for pts, _ in second.packets[1]], "sound and picture of the new part together"
    assert all(step > 0 for step in run.steps(1))


def test_three_parts_and_a_join_where_sound_comes_first(parts, tmp_path):
    """The second part begins with its sound only, as a cut at any packet may."""
    _, other, _ = parts
    data = other.read_bytes()
    cells = [data[i : i + 188] for i in range(0, len(data), 188)]
    pid = [(c[1] & 0x1F) << 8 | c[2] for c in cells]
    video = next(i for i, p in enumerate(pid) if p == 256)
    sound = [i for i, p in enumerate(pid) if p == 257][:4]
    order = [i for i in range(len(cells)) if i < video or i in sound] + [
        i for i in range(video, len(cells)) if i not in sound
    ]
    shuffled = b"".join(cells[i] for i in order)
    path = tmp_path / "three.ts"
    path.write_bytes(data + shuffled + data)
    run, once = Run(path), Run(other)
    assert len(run.pts) == 300
    assert run.steps() == {3600}
    assert run.journal.entries["clock-reset"].count == 2
    count = len(once.packets[1])
    assert len(run.packets[1]) == 3 * count
    assert all(step > 0 for step in run.steps(1))
    last = run.packets[1][2 * count :]
    assert last[-1][0] - run.pts[200] == once.packets[1][-1][0] - once.pts[0]


def test_range_after_a_reset_means_repaired_time(parts):
    reset = parts[2]
    whole = Run(reset)
    start = whole.pts[230]
    part = Run(reset, start)
    assert [p for p in part.pts if p >= start] == whole.pts[230:]


# Ranges


@pytest.mark.parametrize(
    "name",
    [
        "hdr10plus_hevc_sei_mastering.mkv",
        "start_at_10s_2b_sar1137_800.mp4",
        "avchd_1080i50_field_coded_ac3_pgs.mts",
        "mkv_chapters_h264_444_start_neg.mkv",
        "alpha_vp9_vorbis.webm",
        "mjpeg_422_fullrange_pcm.avi",
        "xdcam_ex_1080i_opengop.mov",
        "fmp4_bogus_duration.mp4",
        "odd_175x143_vp8.ivf",
        "ps_h264_most_pts_dts_missing.mpeg",
        "reschange_848x464_to_424x232.h264",
        "gopro_tmcd_timecode_gpmf_data.mp4",
    ],
)
def test_a_range_gives_the_same_frames_as_the_whole(name, corpus):
    path = corpus / "files" / name
    whole = Run(path)
    start = whole.pts[len(whole.pts) * 3 // 4]
    part = Run(path, start)
    assert [p for p in part.pts if p >= start] == [p for p in whole.pts if p >= start]
    for stream in whole.info.streams:
        if stream.kind == "audio":
            begin = start * whole.info.video.time_base
            wanted = [p for p in whole.packets[stream.index] if p[0] * stream.time_base >= begin]
            assert [p for p in part.packets[stream.index] if p[0] * stream.time_base >= begin] == wanted


def test_a_range_in_a_long_file_is_sought(corpus, ffprobe):
    path = corpus / "files" / LONG
    packets = ffprobe(path, "-select_streams", "v:0", "-show_entries", "packet=pts,flags")["packets"]
    start = packets[9100]["pts"]
    key = max(p["pts"] for p in packets if p["pts"] <= start and p["flags"].startswith("K"))
    info = probe(path)
    with Demuxer(info, Journal(), range_start=start) as demuxer:
        video = [p.pts for p in demuxer.packets() if p.stream_index == 0]
    assert video == [p["pts"] for p in packets if p["pts"] >= key]


def test_open_gop_and_a_start_at_the_keyframe(tmp_path, ffmpeg):
    """The pictures before an open-GOP keyframe in display order follow it in the file and belong to the part before."""
    path = tmp_path / "open.mkv"
    gop = "open-gop=1:keyint=24:min-keyint=24:bframes=3:scenecut=0"
    ffmpeg("-f", "lavfi", "-i", "testsrc2=s=64x48:r=24:d=6", "-c:v", "libx264", "-x264-params", gop, path)
    whole = Run(path)
    for index in (72, 95, 96, 97, 143):
        part = Run(path, whole.pts[index])
        assert [p for p in part.pts if p >= whole.pts[index]] == whole.pts[index:]


def test_a_seek_that_lands_late_begins_again(corpus, monkeypatch):
    path = corpus / "files" / "gopro_tmcd_timecode_gpmf_data.mp4"
    whole = Run(path)
    start = whole.pts[200]
    honest = Demuxer._seek

    def late(self, pts):
        honest(self, whole.pts[300])
        return True

    monkeypatch.setattr(Demuxer, "_seek", late)
    part = Run(path, start)
    assert [p for p in part.pts if p >= start] == whole.pts[200:]


# Damage


def test_d08_truncated_ends_by_itself(tmp_path, ffmpeg, ffprobe):
    full, path = tmp_path / "full.mp4", tmp_path / "d08.mp4"
    source = ["-f", "lavfi", "-i", "testsrc2=s=640x360:r=30:d=10", "-c:v", "libx264", "-preset", "ultrafast"]
    ffmpeg(*source, "-bf", 0, "-g", 30, "-movflags", "+faststart", full)
    path.write_bytes(full.read_bytes()[: full.stat().st_size * 7 // 10])
    run = Run(path)
    counted = ffprobe(path, "-count_frames", "-show_entries", "stream=nb_frames,nb_read_frames")["streams"][0]
    assert abs(len(run.pts) - int(counted["nb_read_frames"])) <= 1
    assert run.info.video.frames == int(counted["nb_frames"]) == 300
    assert any("cut off" in note for note in run.info.notes)
    assert "packet-damaged" in run.journal.entries


class Broken:
    """A container whose every read fails after some packets."""

    def __init__(self, container, errors: int) -> None:
        self._container, self._errors, self.reads = container, errors, 0
        self.format = container.format

    def demux(self):
        self.reads += 1
        if self._errors and self.reads > 1:
            self._errors -= 1
            raise av.error.InvalidDataError(1094995529, "Invalid data found")
        for n, packet in enumerate(self._container.demux()):
            yield packet
            if self.reads == 1 and n == 9:
                raise OSError(5, "Input/output error")

    def close(self) -> None:
        self._container.close()


@pytest.mark.parametrize("errors", [0, 5, 10**9])
def test_read_errors_are_passed_over_but_not_for_ever(errors, corpus):
    info, journal = probe(corpus / "files" / "sar_2_1_640x360.mp4"), Journal()
    with Demuxer(info, journal) as demuxer:
        demuxer.container = Broken(demuxer.container, errors)
        packets = list(demuxer.packets())
        reads = demuxer.container.reads
    assert len(packets) == (10 if errors > 5 else 150)
    assert journal.entries["read-error"].count == (demux.TOLERANCE if errors > 5 else errors + 1)
    assert reads <= demux.TOLERANCE + 1
    assert journal.entries["read-error"].places[0] == f"after byte {packets[9].pos}"


def test_damage_in_a_transport_stream_is_placed(parts, tmp_path):
    """Three lost cells: the container notices by its counters, and all else is kept."""
    data = parts[1].read_bytes()
    cut = 188 * (len(data) // 188 // 2)
    path = tmp_path / "hole.ts"
    path.write_bytes(data[:cut] + data[cut + 3 * 188 :])
    run = Run(path)
    entry = run.journal.entries["packet-damaged"]
    assert entry.places[0].startswith("byte ")
    assert 0 < cut - int(entry.places[0].split()[1].rstrip(",")) < 40000
    assert len(run.pts) > 90
    assert all(step > 0 for step in run.steps())


def test_terminal_stays_clean(corpus, capfd):
    for name in DAMAGED:
        Run(corpus / "files" / name)
    assert capfd.readouterr() == ("", "")
