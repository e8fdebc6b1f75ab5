"""Libav's log caught in Python while threads of libav log: nobody may wait for them with the GIL held."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import av.logging
import pytest

from gpupipe.codecs.libav_log import captured_log, captured_stderr
from gpupipe.config import parse_config
from gpupipe.errors import PlanError
from gpupipe.media.probe import probe
from gpupipe.plan import make_plan

if TYPE_CHECKING:
    from pathlib import Path

DROPPED_WHILE_THEY_LOG = """
import sys, av, av.logging
from pathlib import Path
from gpupipe.codecs.libav import LibavDecoder
from gpupipe.codecs.libav_log import captured_log
from gpupipe.journal import Journal
from gpupipe.media.probe import probe

path = Path(sys.argv[1])
source = probe(path).video.format
for _ in range(150):
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        packets = [packet for packet in container.demux(stream) if packet.size]
        decoder = LibavDecoder(stream, source, stream.time_base, Journal())
        with captured_log(av.logging.INFO):
            for packet in packets[1:9]:
                damaged = av.Packet(bytes(packet)[:40] + bytes(40) + bytes(packet)[80:])
                damaged.pts, damaged.dts, damaged.time_base = packet.pts, packet.dts, packet.time_base
                list(decoder.decode(damaged))
            decoder.close()
            del decoder, stream, container
"""


def test_a_decoder_may_go_while_its_threads_log(corpus: Path) -> None:
    # Without the flush in LibavDecoder.close one of them waits for the GIL and its owner, who has it, for the thread.
    command = [sys.executable, "-c", DROPPED_WHILE_THEY_LOG, str(corpus / "files/h264_high10.mp4")]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr


def test_no_collection_while_the_log_is_on() -> None:
    assert gc.isenabled()
    with captured_log(av.logging.INFO):
        assert not gc.isenabled()
    assert gc.isenabled()


def test_what_others_say_is_kept(capfd) -> None:
    """Another file of a batch is told of while SVT-AV1 is rehearsed: its line is late, and not lost."""
    with captured_stderr() as printed:
        done = threading.Thread(target=os.write, args=(2, "[1/2] done  a.mov \u2192 b.mov\n".encode()))
        done.start()
        done.join()
        os.write(2, b"Svt[error]: no such thing\n\x1b[2K\rx265 [warning]: hm\nerror: a half")
    assert printed == ["Svt[error]: no such thing", "x265 [warning]: hm"]
    assert capfd.readouterr().err == "[1/2] done  a.mov \u2192 b.mov\n\x1b[2K\rerror: a half"


def test_svt_av1_is_heard(tmp_path: Path, ffmpeg) -> None:
    ffmpeg("-f", "lavfi", "-i", "testsrc2=s=64x64:r=5:d=1", "-c:v", "libx264", tmp_path / "s.mkv")
    video = {"codec": "av1", "encoder": "libsvtav1", "options": {"svtav1-params": "tile-rows=99"}}
    with pytest.raises(PlanError, match="Log2Tile rows/cols must be"):
        make_plan(
            parse_config({"output": {"video": video}}), probe(tmp_path / "s.mkv"), tmp_path / "o.mkv", device="cpu"
        )
