"""Alpha in a bitstream beside the picture has key frames of its own: nothing is lost where only the picture has one."""

from __future__ import annotations

import subprocess
import threading
from typing import TYPE_CHECKING

import av
import numpy as np
import pytest

from gpupipe.codecs.matte import begins
from gpupipe.config import parse_config
from gpupipe.errors import PlanError
from gpupipe.journal import Journal
from gpupipe.media.probe import probe
from gpupipe.plan import make_plan
from gpupipe.render import render

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

RATE, SECONDS = 6, 4
MOVING = "geq=lum='lum(X,Y)':cb='cb(X,Y)':cr='cr(X,Y)':a='128+127*sin((X+N*3)/9)'"


@pytest.fixture(scope="module", params=["vp8", "vp9"])
def clip(request, tmp_path_factory: pytest.TempPathFactory, ffmpeg: Callable[..., object]) -> Path:
    """Key frames of the picture each second, of its alpha at the beginning alone."""
    path = tmp_path_factory.mktemp("begins") / f"{request.param}.webm"
    encoder = {"vp8": "libvpx", "vp9": "libvpx-vp9"}[request.param]
    source = f"testsrc2=s=64x48:r={RATE}:d={SECONDS},format=yuva420p,{MOVING}"
    parts = []
    for name, interval in (("often", RATE), ("once", 1000)):
        parts.append(path.with_name(f"{request.param}-{name}.webm"))
        ffmpeg("-f", "lavfi", "-i", source, "-c:v", encoder, "-g", interval, "-auto-alt-ref", 0, "-b:v", "200k",
               "-deadline", "realtime", "-cpu-used", 8, parts[-1])  # fmt: skip
    with (
        av.open(str(parts[0])) as often,
        av.open(str(parts[1])) as once,
        av.open(str(path.with_suffix(".mkv")), "w") as file,
    ):
        stream = file.add_stream_from_template(often.streams.video[0])
        for packet, other in zip(often.demux(video=0), once.demux(video=0), strict=True):
            if packet.size:
                packet.set_sidedata(other.get_sidedata("matroska_block_additional"))
                packet.stream = stream
                file.mux(packet)
    ffmpeg("-i", path.with_suffix(".mkv"), "-c", "copy", "-metadata:s:v:0", "alpha_mode=1", path)
    return path


def frames(path: Path, decoder: str) -> np.ndarray:
    """By ffmpeg."""
    command = ["ffmpeg", "-v", "error", *(["-c:v", decoder] if decoder else []), "-i", path, "-f", "rawvideo",
               "-pix_fmt", "yuva420p", "-"]  # fmt: skip
    done = subprocess.run(command, capture_output=True, check=True, timeout=120)
    return np.frombuffer(done.stdout, np.uint8).reshape(-1, 64 * 48 * 5 // 2)


def made(clip: Path, output: Path, **config: object) -> np.ndarray:
    journal, video = Journal(), {"codec": "ffv1"}
    given = parse_config({**config, "output": {"video": video, "audio": "none"}})
    render(
        make_plan(given, probe(clip), output, device="cpu"), overwrite=False, journal=journal, stop=threading.Event()
    )
    assert not journal.entries
    return frames(output, "")


def test_where_decoding_can_begin(clip: Path) -> None:
    with av.open(str(clip)) as file:
        found = [(p.is_keyframe, begins(p, clip.stem)) for p in file.demux(video=0) if p.size]
    assert [n for n, (key, _) in enumerate(found) if key] == list(range(0, RATE * SECONDS, RATE))
    assert [n for n, (_, both) in enumerate(found) if both] == [0]


def test_a_range_begins_where_both_do(clip: Path, tmp_path: Path) -> None:
    decoder = "libvpx" if clip.stem == "vp8" else "libvpx-vp9"
    wanted = frames(clip, decoder)
    assert len(wanted) == RATE * SECONDS
    assert np.array_equal(made(clip, tmp_path / "whole.mkv"), wanted)
    assert np.array_equal(made(clip, tmp_path / "part.mkv", range={"start": 3.5}), wanted[int(3.5 * RATE) :])


def test_it_is_not_cut(clip: Path, tmp_path: Path) -> None:
    config = parse_config({"segments": {"seconds": 1}, "output": {"video": {"codec": "ffv1"}}})
    with pytest.raises(PlanError, match="cannot be cut: its alpha has key frames elsewhere"):
        make_plan(config, probe(clip), tmp_path / "out.mkv", device="cpu")
    dropped = parse_config({"segments": {"seconds": 1}, "output": {"video": {"codec": "ffv1", "alpha": "drop"}}})
    assert len(make_plan(dropped, probe(clip), tmp_path / "out.mkv", device="cpu").segments) == SECONDS
