"""Reports on lost, repeated, damaged or black pictures, and on memory that is not given back (bugs.md D07-D10, D14, D24).

Waiting for later issues: D09's joined segments and the count of each before it is accepted (here: the same ranges as
jobs of their own); D24's device memory and its 100 000 frames (here: host memory, over 30 jobs and over 4 000 frames).
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from itertools import pairwise
from statistics import median

import numpy as np
import pytest
from conftest import ROOT, config_of
from oracle import names, pattern, pictures, planes, psnr, rising, streams, times, told, tone
from patience import until

from gpupipe.errors import MediaError

WHOLE = {"crop": {"width": 320, "height": 180, "x": 0, "y": 0}}
"""Touches nothing, but sends every picture through tensors."""
RGB = {"warp": {"rotate": 0}}
"""Touches nothing, but sends every picture through R'G'B'."""


@pytest.fixture(scope="module")
def d07(made):
    return made("d07.mkv", *pattern("320x180", "30", 10), "-frames:v", 299, "-c:v", "libx264", "-bf", 4, "-refs", 5)


@pytest.mark.parametrize("stages", [[], [WHOLE], [{"fps": {"rate": 30}}]], ids=["plain", "tensors", "retimed"])
def test_d07_the_last_pictures_come_out(d07, job, tmp_path, stages):
    video = {
        "preset": "veryfast",
        "options": {"bf": 4, "rc-lookahead": 40, "x264-params": "qp=0"},
    }  # an encoder that holds pictures back too
    out = job(d07, tmp_path / "o.mkv", stages=stages, video=video).path
    source = pictures(d07)
    assert len(set(source)) == 299
    assert pictures(out) == source


@pytest.fixture(scope="module")
def d08(made):
    whole = made(
        "d08_full.mp4", *pattern("640x360", "30", 10), "-c:v", "libx264", "-preset", "veryfast", "-bf", 0, "-g", 30,
        "-movflags", "+faststart",
    )  # fmt: skip
    path = whole.with_name("d08.mp4")
    path.write_bytes(whole.read_bytes()[: whole.stat().st_size * 7 // 10])
    return path


def test_d08_a_truncated_file_gives_what_it_has_and_says_so(d08, program, tmp_path):
    promised, there = len(pictures(d08.with_name("d08_full.mp4"))), len(pictures(d08))
    assert there < promised == 300
    ended = program(d08, tmp_path / "o.mp4")
    assert ended.code == 0
    kept = pictures(tmp_path / "o.mp4")
    assert kept[: there - 1] == pictures(d08)[: there - 1]
    assert there - 1 <= len(kept) <= there
    assert f"warning: only {len(kept)} of the 300 frames" in ended.err
    strict = program(d08, tmp_path / "strict.mp4", "--strict")
    assert strict.code == 4
    assert f"{len(kept)} of the 300 frames" in strict.err


def test_d08_can_be_interrupted(d08, program, tmp_path):
    running = program.start(d08, tmp_path / "o.mp4", video={"preset": "placebo", "quality": 10, "options": {}})
    until(lambda: names(tmp_path), running)
    running.send_signal(signal.SIGINT)
    running.communicate(timeout=240)
    assert running.returncode == 130
    assert names(tmp_path) == []


@pytest.fixture(scope="module")
def d09(made):
    return made(
        "d09.mkv", *pattern("320x180", "24", 20), *tone(20), "-c:v", "libx264", "-preset", "veryfast", "-x264-params",
        "open-gop=1:keyint=24:min-keyint=24:bframes=3:scenecut=0", "-c:a", "flac",
    )  # fmt: skip


def test_d09_every_frame_of_open_gops_in_its_place(d09, job, tmp_path):
    done = job(d09, tmp_path / "o.mkv")
    assert pictures(done.path) == pictures(d09)
    assert len(pictures(d09)) == done.result.frames == 480
    assert times(done.path) == times(d09)


def test_d09_pieces_add_up(d09, job, tmp_path):
    """Cut at key frames with leading pictures, beside one, and in the middle of a group."""
    instants, source = times(d09), pictures(d09)
    cuts = [0, 96, 191, 240, 300, 409, 480]
    keys = told("ffprobe", "-select_streams", "v", "-show_entries", "packet=flags,pts", "-of", "csv=p=0", d09)
    ticks = [int(line.split(",")[0]) for line in keys.splitlines() if "K" in line]
    assert round(instants[96] * 1000) in ticks, "a cut must fall on a key frame"
    joined = []
    for first, behind in pairwise(cuts):
        end = {} if behind == 480 else {"end": f"pts:{round(instants[behind] * 1000)}"}
        span = {"start": f"pts:{round(instants[first] * 1000)}", **end}
        done = job(d09, tmp_path / f"{first}.mkv", range=span)
        assert done.result.frames == behind - first, span
        assert not done.journal.entries, span
        joined += pictures(done.path)
    assert joined == source


@pytest.fixture(scope="module")
def d10(made):
    ramp = "color=c=black:s=320x180:r=60,format=yuv420p,geq=lum='20+N*10':cb=128:cr=128"
    return made("d10.mkv", "-f", "lavfi", "-i", ramp, "-frames:v", 19, "-c:v", "libx264", "-qp", 0, "-f", "matroska")


@pytest.mark.parametrize("stages", [[], [WHOLE], [RGB]], ids=["plain", "tensors", "rgb"])
def test_d10_each_picture_is_the_one_of_its_number(d10, job, tmp_path, stages):
    means = [float(luma.mean()) for luma, *_ in planes(job(d10, tmp_path / "o.mkv", stages=stages).path)]
    assert len(means) == 19
    assert np.abs(np.array(means) - (20 + 10 * np.arange(19))).max() <= 2


@pytest.fixture(scope="module")
def d14(made):
    parts = [
        made(f"d14_{n}.h264", *pattern(size, "30", 2), "-frames:v", 48, "-c:v", "libx264", "-bf", 2, "-f", "h264")
        for n, size in (("a", "848x464"), ("b", "424x232"))
    ]
    path = parts[0].with_name("d14.h264")
    path.write_bytes(b"".join(part.read_bytes() for part in parts))
    return path


def test_d14_a_size_change_is_scaled_to_the_first(d14, job, tmp_path):
    done = job(d14, tmp_path / "o.mkv")
    first, second = d14.with_name("d14_a.h264"), d14.with_name("d14_b.h264")
    shown = pictures(done.path)
    assert len(shown) == len(set(shown)) == 96
    assert rising(times(done.path))
    assert shown[:48] == pictures(first)
    assert {(s["width"], s["height"]) for s in streams(done.path, "video")} == {(848, 464)}
    assert done.journal.entries["size-changed"].count == 48
    big = made_big(second, tmp_path)
    for number, (ours, theirs) in enumerate(zip(planes(done.path)[48:], planes(big), strict=True)):
        for mine, other in zip(ours, theirs, strict=True):
            assert psnr(mine, other) > 34, f"picture {48 + number}"


def made_big(path, folder):
    """Scaled by swscale, which is not ours."""
    told("ffmpeg", "-i", path, "-vf", "scale=848:464:flags=lanczos+accurate_rnd", "-c:v", "ffv1", folder / "big.mkv")
    return folder / "big.mkv"


def test_d14_a_size_change_is_an_error_where_asked(d14, job, tmp_path):
    with pytest.raises(MediaError, match=r"848x464.*424x232"):
        job(d14, tmp_path / "o.mkv", size_change="error")
    assert names(tmp_path) == []


RESIDENT = """
import ctypes
import os
import sys
from pathlib import Path
from threading import Event
from gpupipe.config import parse_config
from gpupipe.journal import Journal
from gpupipe.media.probe import probe
from gpupipe.plan import make_plan
from gpupipe.render import render

trim = getattr(ctypes.CDLL(None), "malloc_trim", lambda pad: None)

def resident():
    trim(0)  # what glibc keeps of freed memory comes and goes; what nobody freed stays
    return int(next(l for l in open("/proc/self/status") if l.startswith("VmRSS")).split()[1]) / 1024

source, output, config, jobs = Path(sys.argv[1]), Path(sys.argv[2]), parse_config(eval(sys.argv[3])), int(sys.argv[4])
for number in range(1, jobs + 1):
    seen = []
    plan = make_plan(config, probe(source), output, device="cpu")
    render(plan, overwrite=True, journal=Journal(), stop=Event(), progress=lambda p: seen.append((p.frames, resident())))
    if jobs > 1:
        print(number, resident(), len(os.listdir("/proc/self/task")))
if jobs == 1:
    for frames, size in seen:
        print(frames, size, 0)
"""


def resident(source, output, stages, jobs):
    """MB in use by a process of its own and its threads, by number of the job, or by frame where there is one job."""
    command = [sys.executable, "-c", RESIDENT, source, output, repr(config_of(stages=stages)), jobs]
    environment = {**os.environ, "MALLOC_ARENA_MAX": "2"}  # arenas of glibc's threads would grow at random
    done = subprocess.run(
        [*map(str, command)], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    lines = [line.split() for line in done.stdout.splitlines()]
    return {int(number): (float(size), int(threads)) for number, size, threads in lines}


@pytest.mark.parametrize("stages", [[], [{"crop": {"width": 320, "height": 180}}]], ids=["plain", "tensors"])
def test_d24_memory_after_thirty_jobs_is_that_after_three(made, tmp_path, stages):
    source = made("d24.mp4", *pattern("640x360", "30", 1), "-c:v", "libx264", "-preset", "ultrafast")
    used = resident(source, tmp_path / "o.mp4", stages, 30)
    assert len(used) == 30
    early, late = ([used[n] for n in span] for span in (range(3, 11), range(23, 31)))
    assert median(size for size, _ in late) - median(size for size, _ in early) < 3, used
    assert max(threads for _, threads in late) <= max(threads for _, threads in early), used


def test_d24_memory_does_not_grow_with_the_length(made, tmp_path):
    source = made("d24_long.mp4", *pattern("160x90", "30", 135), "-c:v", "libx264", "-preset", "ultrafast")
    used = resident(source, tmp_path / "o.mp4", [], 1)
    counted = sorted(used)
    early = next(n for n in counted if n > 400)
    assert counted[-1] == 4050
    assert used[counted[-1]][0] - used[early][0] < 3, used
