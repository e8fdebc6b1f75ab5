"""Reports on time: drift, variable rate, ranges, start offsets, clocks that wrap or repeat (bugs.md D01 to D06).

Nothing here waits for a later issue.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import pytest
from oracle import packets, pattern, payloads, pictures, rising, shown, streams, times, told, tone

MILLISECOND = Fraction(1, 1000)


def end_offset(path):
    """End of the sound less end of the picture, in seconds."""
    (video, length), audio = shown(path)[-1], shown(path, "a:0")[-1]
    return sum(audio) - video - length


@pytest.fixture(scope="module")
def d01(made):
    return made(
        "d01.mov", *pattern("320x180", "24000/1001", 30), *tone(30, 1000), "-vf", "format=yuv422p", "-c:v", "dnxhd",
        "-profile:v", "dnxhr_lb", "-c:a", "pcm_s16le",
    )  # fmt: skip


@pytest.mark.parametrize(("container", "tick"), [("mov", Fraction(1, 24000)), ("mkv", MILLISECOND)])
def test_d01_a_long_programme_does_not_drift(d01, job, tmp_path, container, tick):
    out = job(d01, tmp_path / f"o.{container}").path
    before, after = times(d01), times(out)
    assert len(after) == len(before) == 720
    assert max(abs(a - b) for a, b in zip(after, before, strict=True)) < tick
    assert abs(end_offset(out) - end_offset(d01)) <= MILLISECOND
    samples = [told("ffmpeg", "-i", path, "-map", "0:a", "-c", "copy", "-f", "md5", "-") for path in (d01, out)]
    assert samples[0] == samples[1]


@pytest.fixture(scope="module")
def d02(made):
    return made(
        "d02.mp4", *pattern("320x180", "60", 12), *tone(12), "-vf", "select='lt(t,5)+gte(t,5)*not(mod(n,6))'",
        "-vsync", "vfr", "-c:v", "libx264", "-preset", "veryfast", "-video_track_timescale", "90000", "-c:a", "aac",
    )  # fmt: skip


def test_d02_variable_rate_stays_as_it_is(d02, job, tmp_path):
    out = job(d02, tmp_path / "o.mp4").path
    assert len({b - a for a, b in pairwise(times(d02))}) > 1, "the input must have a variable rate"
    assert times(out) == times(d02)  # and so every duration but the last
    assert shown(out)[-1] == shown(d02)[-1]
    assert pictures(out) == pictures(d02)
    assert payloads(out, "a:0") == payloads(d02, "a:0")


@pytest.mark.parametrize("rate", ["30", "60"])
def test_d02_constant_rate_is_by_time_and_counted(d02, job, tmp_path, rate):
    done = job(d02, tmp_path / "o.mp4", stages=[{"fps": {"rate": rate}}])
    wanted = pictures(d02, f"fps={rate}")
    assert pictures(done.path) == wanted
    assert times(done.path) == [n / Fraction(rate) for n in range(len(wanted))]
    before, after = sum(shown(d02)[-1]), sum(shown(done.path)[-1])
    assert abs(after - before) <= 1 / Fraction(rate)
    source = len(pictures(d02))
    assert done.result.dropped == source - len(set(wanted))
    assert done.result.repeated == len(wanted) - len(set(wanted))
    assert len(wanted) == source + done.result.repeated - done.result.dropped


def test_d02_what_is_repeated_and_dropped_is_said(d02, program, tmp_path):
    ended = program(d02, tmp_path / "o.mp4", stages=[{"fps": {"rate": 30}}])
    assert ended.code == 0
    wanted = pictures(d02, "fps=30")
    dropped, repeated = len(pictures(d02)) - len(set(wanted)), len(wanted) - len(set(wanted))
    assert f"{repeated} repeated" in ended.err
    assert f"{dropped} dropped" in ended.err


@pytest.fixture(scope="module")
def d03(made):
    return made("d03.mp4", *pattern("160x90", "30000/1001", 270), "-c:v", "libx264", "-preset", "ultrafast")


def test_d03_a_cut_at_29_97_is_exact(d03, job, tmp_path):
    out = job(d03, tmp_path / "o.mp4", range={"start": 200, "end": 260}).path
    source = times(d03)
    first = next(i for i, pts in enumerate(source) if pts >= 200)
    behind = next(i for i, pts in enumerate(source) if pts >= 260)
    assert (first, behind - first) == (5995, 1798 - (5995 + 1798 - behind))
    assert pictures(out) == pictures(d03, f"select='between(n,{first},{behind - 1})'")
    assert {b - a for a, b in pairwise(times(out))} == {Fraction(1001, 30000)}


@pytest.fixture(scope="module")
def d04(made):
    return made(
        "d04.mkv", *pattern("320x180", "24", 6), "-itsoffset", "2.569", *tone(3), "-map", "0:v", "-map", "1:a",
        "-c:v", "libx264", "-preset", "ultrafast", "-c:a", "flac",
    )  # fmt: skip


@pytest.mark.parametrize("container", ["mp4", "mkv", "mov"])
def test_d04_late_sound_stays_late(d04, job, tmp_path, container):
    settings = {"audio": {"codec": "pcm_s16le"}} if container == "mov" else {}
    out = job(d04, tmp_path / f"o.{container}", **settings).path
    offset = packets(out, "a:0")[0].pts - times(out)[0]
    assert abs(offset - Fraction("2.569")) <= MILLISECOND
    if container != "mov":
        assert payloads(out, "a:0") == payloads(d04, "a:0")


@pytest.fixture(scope="module")
def d05_wrap(made):
    return made(
        "d05_wrap.ts", *pattern("320x180", "25", 8), *tone(8), "-c:v", "libx264", "-preset", "veryfast", "-bf", "2",
        "-c:a", "mp2", "-muxdelay", "0", "-output_ts_offset", "95440", "-f", "mpegts",
    )  # fmt: skip


@pytest.fixture(scope="module")
def d05_second(made):
    return made(
        "d05_b.ts", *pattern("320x180", "25", 4), *tone(4), "-c:v", "libx264", "-preset", "veryfast", "-c:a", "mp2",
        "-f", "mpegts",
    )  # fmt: skip


def test_d05_a_clock_that_wraps(d05_wrap, job, tmp_path):
    out = job(d05_wrap, tmp_path / "o.mp4").path
    instants = times(out)
    assert [pts - instants[0] for pts in instants] == [Fraction(n, 25) for n in range(200)]
    assert Fraction(streams(out, "video")[0]["duration"]) == 8
    before = packets(d05_wrap, "a:0")[0].pts - times(d05_wrap)[0]
    assert abs(packets(out, "a:0")[0].pts - instants[0] - before) <= MILLISECOND
    assert pictures(out) == pictures(d05_wrap)
    assert len(payloads(out, "a:0")) == len(payloads(d05_wrap, "a:0"))


def test_d05_a_clock_that_is_reset(d05_wrap, d05_second, job, tmp_path):
    source = tmp_path / "d05_reset.ts"
    source.write_bytes(d05_wrap.read_bytes() + d05_second.read_bytes())
    done = job(source, tmp_path / "o.mp4")
    instants = times(done.path)
    assert [pts - instants[0] for pts in instants] == [Fraction(n, 25) for n in range(300)]
    assert pictures(done.path) == pictures(d05_wrap) + pictures(d05_second)
    (place,) = done.journal.entries["clock-reset"].places
    byte = int(place.split()[1].rstrip(","))
    assert abs(byte - d05_wrap.stat().st_size) < 188 * 50, "the place of the join, give or take some packets"
    sound, first = packets(done.path, "a:0"), len(packets(d05_wrap, "a:0"))
    apart = packets(d05_second, "a:0")[0].pts - times(d05_second)[0]
    assert len(sound) == first + len(packets(d05_second, "a:0"))
    assert abs(sound[first].pts - instants[200] - apart) <= MILLISECOND


@pytest.fixture(scope="module")
def d06(made):
    clean = made(
        "d06a.mp4", *pattern("320x180", "30", 4), "-c:v", "libx264", "-preset", "ultrafast", "-bf", "0"
    )  # fmt: skip
    previous = "setts=ts='if(eq(mod(N,30),29),PREV_OUTPTS,TS)'"
    return made("d06.mkv", "-i", clean, "-c", "copy", "-bsf:v", previous)


@pytest.mark.parametrize("container", ["mp4", "mkv"])
def test_d06_repeated_timestamps_are_moved_and_counted(d06, job, tmp_path, container):
    before = packets(d06, "v:0")
    repeated = [i for i in range(1, 120) if before[i].pts <= before[i - 1].pts]
    assert repeated == [29, 59, 89, 119]
    done = job(d06, tmp_path / f"o.{container}")
    instants = times(done.path)
    assert len(instants) == 120
    assert pictures(done.path) == pictures(d06)
    assert rising([p.dts for p in packets(done.path, "v:0")])
    assert done.journal.entries["pts-repaired"].count == 4
    for i, (pts, stored) in enumerate(zip(instants, before, strict=True)):
        assert pts - stored.pts == (MILLISECOND if i in repeated else 0), f"frame {i}"
