"""Machines with other numbers of cores make the bytes of the one that joins."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from types import SimpleNamespace

import pytest

from gpupipe.farm.threads import encoder_threads, x264_threads, x265_threads

PROGRAM = """
import sys, os
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))} if sys.argv[2] == "one" else os.sched_getaffinity(0))
import av
stream = av.open("/dev/null", "w", format="h264" if "264" in sys.argv[1] else "hevc").add_stream(sys.argv[1], rate=25)
stream.width, stream.height, stream.pix_fmt = 320, int(sys.argv[3]), "yuv420p"
context = stream.codec_context
context.thread_type = "AUTO"
context.options = {"threads": sys.argv[4]} if sys.argv[4] != "0" else {}
packets = []
for n in range(40):
    frame = av.VideoFrame(320, int(sys.argv[3]), "yuv420p")
    for plane in frame.planes:
        plane.update(bytes((n * x * x // 64) % 256 for x in range(plane.buffer_size)))
    frame.pts = n
    packets += context.encode(frame)
packets += context.encode(None)
sys.stdout.buffer.write(b"".join(map(bytes, packets)))
"""


def encoded(encoder: str, cores: str, height: int, threads: int) -> bytes:
    words = [sys.executable, "-c", PROGRAM, encoder, cores, str(height), str(threads)]
    return subprocess.run(words, capture_output=True, check=True, timeout=240).stdout


@pytest.mark.parametrize("height", [48, 180])
def test_x264_itself_says_so(height: int) -> None:
    """By the text that x264 writes into the stream, on all cores and on one."""
    for cores, count in (("all", len(os.sched_getaffinity(0))), ("one", 1)):
        text = encoded("libx264", cores, height, 0)
        assert int(re.search(rb" threads=(\d+) ", text)[1]) == x264_threads(count, height)


def test_one_core_makes_the_bytes_of_all() -> None:
    wanted = x264_threads(len(os.sched_getaffinity(0)), 180)
    assert encoded("libx264", "one", 180, wanted) == encoded("libx264", "all", 180, 0)


def test_x265_itself_says_so() -> None:
    text = encoded("libx265", "all", 180, 0)
    assert int(re.search(rb"frame-threads=(\d+)", text)[1]) == x265_threads(len(os.sched_getaffinity(0)), 180)


def test_only_where_it_matters() -> None:
    from dataclasses import dataclass, field  # noqa: PLC0415

    @dataclass(frozen=True)
    class Settings:
        encoder: str
        options: dict[str, str] = field(default_factory=dict)
        input_format: object = field(default_factory=lambda: SimpleNamespace(height=1080))

    x264 = Settings("libx264")
    assert encoder_threads(x264, 16, 16) is x264
    assert encoder_threads(x264, 16, 4).options == {"threads": "24"}
    chosen = Settings("libx264", {"threads": "3"})
    assert encoder_threads(chosen, 16, 4) is chosen
    jpeg = Settings("mjpeg")
    assert encoder_threads(jpeg, 16, 4) is jpeg
