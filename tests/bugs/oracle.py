"""What ffmpeg and ffprobe say of a file: the judges of these tests, none of our code."""

from __future__ import annotations

import hashlib
import json
import subprocess
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import av
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


def told(program: str, *args: object) -> str:
    """Runs ffmpeg or ffprobe and returns its standard output; fails where it fails."""
    quiet = ["-v", "error"] if program == "ffprobe" else ["-nostdin", "-v", "error", "-y"]
    done = subprocess.run([program, *quiet, *map(str, args)], capture_output=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr.decode(errors="replace")[-2000:]
    return done.stdout.decode(errors="replace")


def facts(path: Path) -> dict:
    """Streams, format and chapters."""
    return json.loads(told("ffprobe", "-show_streams", "-show_format", "-show_chapters", "-of", "json", f"file:{path}"))


def streams(path: Path, kind: str) -> list[dict]:
    """Streams of one kind, in order."""
    return [s for s in facts(path)["streams"] if s.get("codec_type") == kind]


def shown(path: Path, stream: str = "v:0") -> list[tuple[Fraction, Fraction]]:
    """(pts, duration) of every decoded frame of one stream, exact, in seconds."""
    entries = "frame=best_effort_timestamp,pkt_duration:stream=time_base"
    told_of = json.loads(
        told("ffprobe", "-select_streams", stream, "-show_entries", entries, "-of", "json", f"file:{path}")
    )
    tick = Fraction(told_of["streams"][0]["time_base"])
    return [(f["best_effort_timestamp"] * tick, f.get("pkt_duration", 0) * tick) for f in told_of["frames"]]


def times(path: Path, stream: str = "v:0") -> list[Fraction]:
    """Pts of every decoded frame, in seconds."""
    return [pts for pts, _ in shown(path, stream)]


class Stored(NamedTuple):
    """One packet as the container holds it."""

    pts: Fraction
    dts: Fraction
    payload: str


def packets(path: Path, stream: str) -> list[Stored]:
    """Packets of one stream: exact times in seconds, payload as a hash."""
    args = ("-select_streams", stream, "-show_entries", "packet=pts,dts,data_hash:stream=time_base")
    told_of = json.loads(told("ffprobe", *args, "-show_data_hash", "md5", "-of", "json", f"file:{path}"))
    tick = Fraction(told_of["streams"][0]["time_base"])
    return [Stored(p["pts"] * tick, p.get("dts", p["pts"]) * tick, p["data_hash"]) for p in told_of.get("packets", [])]


def payloads(path: Path, stream: str) -> list[str]:
    """Hashes of the packets of one stream."""
    return [p.payload for p in packets(path, stream)]


def pictures(path: Path, *filters: str, stream: str = "v:0") -> list[str]:
    """A hash of every decoded picture, not turned by ffmpeg, after `filters` where there are any."""
    chain = ("-vf", ",".join(filters)) if filters else ()
    listed = told(
        "ffmpeg", "-noautorotate", "-i", f"file:{path}", "-map", f"0:{stream}", *chain, "-fps_mode", "passthrough",
        "-autoscale", "0", "-f", "framemd5", "-",
    )  # fmt: skip
    return [line.rsplit(",", 1)[1].strip() for line in listed.splitlines() if not line.startswith("#")]


def planes(path: Path) -> list[tuple[np.ndarray, ...]]:
    """The planes of every picture, as codes; only for planar formats."""
    pictures_of = []
    with av.open(f"file:{path}") as container:
        for frame in container.decode(video=0):
            kind = np.uint8 if frame.format.components[0].bits == 8 else np.uint16
            rows = []
            for plane in frame.planes:
                line = np.frombuffer(plane, kind).reshape(plane.height, plane.line_size // kind().itemsize)
                rows.append(line[:, : plane.width].copy())
            pictures_of.append(tuple(rows))
    return pictures_of


def psnr(one: np.ndarray, two: np.ndarray, peak: int = 255) -> float:
    """Peak signal to noise ratio of two planes, in dB."""
    error = float(np.mean((one.astype(float) - two.astype(float)) ** 2))
    return 99.0 if error == 0 else 10 * float(np.log10(peak**2 / error))


def digest(path: Path) -> str:
    """Of all bytes of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def names(folder: Path) -> list[str]:
    """What lies in a folder, hidden files too."""
    return sorted(p.name for p in folder.iterdir())


def rising(instants: Sequence[Fraction]) -> bool:
    """Whether each is later than the one before."""
    return all(a < b for a, b in pairwise(instants))


def pattern(size: str, rate: str, seconds: object) -> tuple[str, ...]:
    """ffmpeg's moving test picture as an input; no two of its pictures are alike."""
    return ("-f", "lavfi", "-i", f"testsrc2=s={size}:r={rate}:d={seconds}")


def tone(seconds: object, frequency: int = 440) -> tuple[str, ...]:
    """A sine as an input."""
    return ("-f", "lavfi", "-i", f"sine=f={frequency}:r=48000:d={seconds}")
