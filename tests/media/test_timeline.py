"""Timestamps, ranges and retiming: exact arithmetic, with ffmpeg's fps filter as the oracle of the last."""

from __future__ import annotations

import random
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import av
import pytest

from gpupipe.errors import ConfigError, PlanError
from gpupipe.frame import NO_PTS
from gpupipe.journal import Journal
from gpupipe.media.probe import probe
from gpupipe.media.timeline import FrameClock, Retimer, Window, resolve_range

TICK = Fraction(1, 90000)
FILM = Fraction(24000, 1001)


def stamps(pts, *, tick=TICK, rate=Fraction(25), duration=0, journal=None, start=0):
    clock = FrameClock(tick, rate, Journal() if journal is None else journal, start)
    return [clock.stamp(p, duration) for p in pts]


def test_good_timestamps_are_kept_and_nothing_is_reported():
    journal = Journal()
    rng = random.Random(1)
    pts = [-5000]
    for _ in range(500):
        pts.append(pts[-1] + rng.randint(1, 9000))
    assert stamps(pts, journal=journal) == pts
    assert len(journal) == 0


@pytest.mark.parametrize(
    ("tick", "rate"), [(TICK, FILM), (Fraction(1, 1000), FILM), (Fraction(1, 1200000), Fraction(30))]
)
@pytest.mark.parametrize("missing", [None, NO_PTS])
def test_a_thousand_missing_timestamps_do_not_drift(tick, rate, missing):
    """Also where the container's own duration is the rounded one."""
    step = 1 / (rate * tick)
    for duration in (0, round(step)):
        out = stamps([100] + [missing] * 1000, tick=tick, rate=rate, duration=duration)
        assert all(abs(o - (100 + n * step)) <= Fraction(1, 2) for n, o in enumerate(out))


def test_missing_timestamps_go_by_the_pictures_own_duration_where_it_is_another():
    assert stamps([0, None, None, None], duration=7200) == [0, 7200, 14400, 21600]


def test_missing_first_timestamp_begins_where_told():
    assert stamps([None, None], start=900) == [900, 4500]


def test_repairs_are_least_counted_and_placed():
    journal = Journal()
    pts = [0, 3600, 3600, 3600, 7200, 5000, 10800, None, 18000]
    assert stamps(pts, journal=journal) == [0, 3600, 3601, 3602, 7200, 7201, 10800, 14400, 18000]
    assert journal.entries["pts-repaired"].count == 3
    assert journal.entries["pts-repaired"].places == ["frame 2, pts 3600", "frame 3, pts 3600", "frame 5, pts 5000"]
    assert journal.entries["pts-missing"].count == 1


def test_whatever_comes_time_rises():
    rng = random.Random(2)
    for _ in range(50):
        pts = [rng.choice([None, rng.randint(-1000, 1000)]) for _ in range(100)]
        out = stamps(pts, tick=Fraction(1, 1000), duration=rng.choice([0, 1, 40]))
        assert all(b > a for a, b in pairwise(out))
        assert all(o >= p for p, o in zip(pts, out, strict=True) if p is not None)


def test_d06_repeated_timestamps(tmp_path, ffmpeg, ffprobe):
    ffmpeg("-f", "lavfi", "-i", "testsrc2=s=64x48:r=30:d=4", "-c:v", "libx264", "-bf", 0, tmp_path / "a.mp4")
    path = tmp_path / "d06.mkv"
    repeat = ":".join(f"{x}='if(eq(mod(N,30),29),PREV_OUT{x.upper()},{x.upper()})'" for x in ("pts", "dts"))
    ffmpeg("-i", tmp_path / "a.mp4", "-c", "copy", "-bsf:v", f"setts={repeat}", path)
    pts = [p["pts"] for p in ffprobe(path, "-show_packets")["packets"]]
    journal = Journal()
    out = stamps(pts, tick=Fraction(1, 1000), rate=Fraction(30), journal=journal)
    assert len(out) == 120
    assert all(b > a for a, b in pairwise(out))
    assert [i for i, (a, b) in enumerate(zip(pts, out, strict=True)) if a != b] == [29, 59, 89, 119]
    assert journal.entries["pts-repaired"].count == 4


# Ranges


@pytest.fixture(scope="module")
def d03(tmp_path_factory, ffmpeg):
    path = tmp_path_factory.mktemp("d03") / "d03.mp4"
    source = "color=s=16x16:r=30000/1001:d=300"
    ffmpeg("-f", "lavfi", "-i", source, "-c:v", "libx264", "-preset", "ultrafast", "-timecode", "00:59:58;00", path)
    return path


def chosen(path, ffprobe, start, end):
    """Indices of the packets (no B-frames) inside."""
    window = resolve_range(start, end, probe(path))
    pts = [p["pts"] for p in ffprobe(path, "-select_streams", "v:0", "-show_packets")["packets"]]
    return [i for i, p in enumerate(pts) if window.holds(p)]


def test_d03_a_range_in_seconds_is_exact(d03, ffprobe):
    kept = chosen(d03, ffprobe, "200", "260")
    assert (kept[0], len(kept)) == (5995, 1798)
    assert kept == chosen(d03, ffprobe, "00:03:20", "4:20.000")


def test_a_range_in_timecode_is_exact(d03, ffprobe):
    """Drop-frame: 00:59:58;00 is number 107832, 01:00:00;00 number 107892, 01:01:00;02 number 109692."""
    kept = chosen(d03, ffprobe, "01:00:00;00", "01:01:00;02")
    assert (kept[0], len(kept)) == (60, 1800)


def test_d20_a_range_in_timecode_where_ticks_are_rounded(corpus):
    info = probe(corpus / "files" / "mkv_chapters_h264_444_start_neg.mkv")
    info = replace(info, video=replace(info.video, timecode="03:00:00:00", rate=Fraction(30)))
    window = resolve_range("03:00:00:01", "03:00:00:02", info)
    assert [n for n in range(5) if window.holds(round(n * 1000 / 30))] == [1]


def test_seconds_count_from_the_files_start(corpus):
    info = probe(corpus / "files" / "start_at_10s_2b_sar1137_800.mp4")
    assert resolve_range("1", "2.5", info) == (11 * 15360, 12.5 * 15360)
    late_video = probe(corpus / "files" / "editlist_video_starts_1s_after_audio.mp4")
    assert resolve_range("2", None, late_video) == (2 * 15360, None)
    negative = probe(corpus / "files" / "ts_pts_33bit_rollover_inside.ts")
    assert resolve_range("1", "pts:0", negative) == (-153750 + 90000, 0)


def test_open_window_holds_all():
    assert Window(None, None).holds(-5)
    assert Window(3, 5).holds(3)
    assert not Window(3, 5).holds(5)
    assert Window(3, 5).past(5)


@pytest.mark.parametrize(
    ("start", "end", "error", "where"),
    [
        ("10:00", "5:00", PlanError, "range"),
        ("3", "3", PlanError, "range"),
        ("4000", None, PlanError, "range.start"),
        (None, "302", PlanError, "range.end"),
        (None, "0", PlanError, "range.end"),
        ("-3", None, ConfigError, "range.start"),
        ("soon", None, ConfigError, "range.start"),
        (None, "nan", ConfigError, "range.end"),
        ("00:61:00", None, ConfigError, "range.start"),
        ("00:00:60.0", None, ConfigError, "range.start"),
        ("01:00:00:00", None, PlanError, "range.start"),
        ("01:01:00;00", None, PlanError, "range.start"),
        ("00:59:57;00", None, PlanError, "range.start"),
    ],
)
def test_bad_ranges_name_their_key(start, end, error, where, d03):
    with pytest.raises(error) as caught:
        resolve_range(start, end, probe(d03))
    assert caught.value.where == where
    assert "\n" not in str(caught.value)


def test_timecode_of_a_source_without_one(corpus):
    with pytest.raises(PlanError, match="none"):
        resolve_range("00:00:01:00", None, probe(corpus / "files" / "h264_high10.mp4"))


def test_a_recording_over_midnight(d03):
    info = probe(d03)
    info = replace(info, video=replace(info.video, timecode="23:59:59;00"))
    assert resolve_range("00:00:00;00", None, info).start == pytest.approx(30 * 1001 / 30000 * 30000, abs=600)


# Retiming


def by_ffmpeg(pts, durations, tick, rate):
    """Which input ffmpeg's own fps filter shows at which output pts; pictures carry their number as luma."""
    graph = av.filter.Graph()
    source = graph.add_buffer(width=16, height=16, format=av.VideoFormat("gray"), time_base=tick)
    graph.link_nodes(source, graph.add("fps", f"fps={rate}:round=near"), graph.add("buffersink")).configure()
    shown = []

    def pull():
        while True:
            try:
                frame = graph.vpull()
            except (av.BlockingIOError, EOFError):
                return
            shown.append((frame.pts, bytes(frame.planes[0])[0]))

    for n, (p, d) in enumerate(zip(pts, durations, strict=True)):
        frame = av.VideoFrame(16, 16, "gray")
        frame.planes[0].update(bytes([n]) * frame.planes[0].buffer_size)
        frame.pts, frame.time_base, frame.duration = p, tick, d
        graph.vpush(frame)
        pull()
    graph.vpush(None)
    pull()
    return shown


def by_retimer(pts, durations, tick, rate):
    retimer = Retimer(rate, tick)
    shown = []
    for n, (p, d) in enumerate(zip(pts, durations, strict=True)):
        shown += [(at, n - 1) for at in retimer.push(p, d)]
    shown += [(at, len(pts) - 1) for at in retimer.finish()]
    return shown, retimer


@pytest.mark.parametrize("seed", range(12))
def test_retiming_is_that_of_ffmpegs_fps_filter(seed):
    rng = random.Random(seed)
    tick = rng.choice([TICK, Fraction(1, 1000), Fraction(1, 15360)])
    rate = rng.choice([Fraction(25), FILM, Fraction(60), Fraction(7), Fraction(30000, 1001)])
    pts = [rng.randint(0, round(1 / tick))]
    for _ in range(100):
        pts.append(pts[-1] + max(1, round(Fraction(rng.randint(5, 120), 1000) / tick)))
    durations = [b - a for a, b in pairwise(pts)] + [round(Fraction(1, 20) / tick)]
    shown, retimer = by_retimer(pts, durations, tick, rate)
    assert shown == by_ffmpeg(pts, durations, tick, rate)
    indices = [n for _, n in shown]
    assert retimer.dropped == len(pts) - len(set(indices))
    assert retimer.repeated == len(indices) - len(set(indices))
    assert [at for at, _ in shown] == list(range(shown[0][0], shown[0][0] + len(shown)))
    assert abs(len(shown) / rate - (pts[-1] + durations[-1] - pts[0]) * tick) <= 1 / rate


def test_d02_screen_recording_to_constant_rate():
    """60 fps for 5 s, then every sixth frame: 300 + 150 pictures over 20 s."""
    pts = [n * 1500 for n in range(1200) if n < 300 or n % 6]
    durations = [b - a for a, b in pairwise(pts)] + [1500]
    shown, retimer = by_retimer(pts, durations, TICK, Fraction(60))
    assert len(shown) == 1200
    assert (retimer.repeated, retimer.dropped) == (1200 - len(pts), 0)
    to_film, retimer = by_retimer(pts, durations, TICK, FILM)
    assert abs(len(to_film) / FILM - 20) <= 1 / FILM
    assert len(pts) + retimer.repeated - retimer.dropped == len(to_film)


def test_retiming_nothing_and_one():
    retimer = Retimer(Fraction(25), TICK)
    assert list(retimer.finish()) == []
    retimer = Retimer(Fraction(1), TICK)
    assert list(retimer.push(900, 10)) == []
    assert list(retimer.finish()) == [0]
    assert (retimer.shown, retimer.repeated, retimer.dropped) == (1, 0, 0)
