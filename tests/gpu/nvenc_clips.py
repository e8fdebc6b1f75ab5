"""Clips for NVENC's tests, in which every picture differs from all others, and what is measured of the results."""

from __future__ import annotations

import io
import json
import shutil
import subprocess
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import av
import numpy as np

if TYPE_CHECKING:
    from pathlib import Path

W, H, COUNT = 192, 160, 72  # NVDEC takes no HEVC below 144x144
MASTERING = "G(13250,34500)B(7500,3000)R(34000,16000)WP(15635,16450)L(10000000,1)"
LIGHT = (1000, 400)


@dataclass(frozen=True)
class Clip:
    path: Path
    times: tuple[Fraction, ...]
    """Seconds at which each picture is shown."""
    rate: Fraction
    """Of files without times of their own."""


def picture(number: int, depth: int) -> np.ndarray:
    """Planar 4:2:0 with chroma under luma, as PyAV lays out yuv420p: a gradient that moves, and its number in squares."""
    y, x = np.mgrid[0:H, 0:W]
    luma = 0.5 + 0.25 * np.sin((x + 5 * number) / 23) * np.cos((y + 2 * number) / 17)
    for bit in range(8):
        luma[64:88, 24 + bit * 16 : 36 + bit * 16] = 0.8 if number >> bit & 1 else 0.2
    chroma = 0.5 + 0.15 * np.sin((x[: H // 4] + 3 * number) / 31)
    scale = 219 << (depth - 8)
    whole = np.concatenate([luma, chroma, chroma]) * scale + (16 << (depth - 8))
    return np.round(whole).astype(np.uint8 if depth == 8 else np.uint16)


TIMES = {
    "film": (Fraction(1001, 24000), list(range(COUNT))),
    "vfr": (Fraction(1, 90000), [n * 3000 + (n * 977) % 2400 + (9000 if n > 40 else 0) for n in range(COUNT)]),
    "hdr": (Fraction(1, 25), list(range(COUNT))),
}


def make(kind: str, folder: Path) -> Clip:
    """H.264 in MP4 with B-frames; `hdr` is HEVC in 10 bit with HDR10 metadata."""
    time_base, pts = TIMES[kind]
    path = folder / f"{kind}.mp4"
    options = {"preset": "veryfast", "x264-params": "keyint=12:min-keyint=12:scenecut=0:bframes=2:qp=6"}
    pixels, encoder, depth = "yuv420p", "libx264", 8
    if kind == "hdr":
        light = ",".join(map(str, LIGHT))
        extra = (
            f"hdr10=1:repeat-headers=1:master-display={MASTERING}:max-cll={light}:colorprim=9:transfer=16:colormatrix=9"
        )
        options = {
            "preset": "ultrafast",
            "x265-params": f"keyint=12:min-keyint=12:scenecut=0:qp=6:log-level=none:{extra}",
        }
        pixels, encoder, depth = "yuv420p10le", "libx265", 10
    with av.open(str(path), "w", options={"video_track_timescale": "90000" if kind == "vfr" else "24000"}) as out:
        stream = out.add_stream(encoder, rate=1 / time_base if kind != "vfr" else 30, options=options)
        stream.width, stream.height, stream.pix_fmt, stream.time_base = W, H, pixels, time_base
        stream.codec_context.time_base = time_base
        if kind == "hdr":
            stream.codec_context.color_primaries, stream.codec_context.color_trc = 9, 16
            stream.codec_context.colorspace, stream.codec_context.color_range = 9, 1
        for number, at in enumerate(pts):
            frame = av.VideoFrame.from_ndarray(picture(number, depth), format=pixels)
            frame.pts, frame.time_base = at, time_base
            out.mux(stream.encode(frame))
        out.mux(stream.encode(None))
    rate = 1 / time_base if kind != "vfr" else Fraction(30)
    return Clip(path, tuple(at * time_base for at in pts), rate)


def ffprobe(path: Path, *asked: str) -> dict:
    """What ffprobe says, which must be on PATH; an error of a decoder or demuxer fails."""
    tool = shutil.which("ffprobe")
    assert tool is not None, "ffprobe is missing: `make -C tests/nvenc_shim ffprobe`, or Debian's ffmpeg"
    done = subprocess.run(
        [tool, "-v", "error", *asked, "-of", "json", f"file:{path}"],
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == "", done.stderr
    return json.loads(done.stdout)


def packets(path: Path) -> tuple[list[Fraction], list[Fraction | None], list[bool]]:
    """Seconds of pts and of dts, and which are keys, of the video in file order.

    Matroska stores no dts: what libav works out is missing for the first packets of a stream with B-frames.
    """
    found = ffprobe(path, "-select_streams", "v:0", "-show_entries", "packet=pts,dts,flags:stream=time_base")
    time_base = Fraction(found["streams"][0]["time_base"])
    rows = found["packets"]
    dts = [r["dts"] * time_base if "dts" in r else None for r in rows]
    return [r["pts"] * time_base for r in rows], dts, [r["flags"].startswith("K") for r in rows]


def frames(path: Path) -> list[np.ndarray]:
    """All pictures in order of display, planar 4:2:0 in their own depth; damage raises."""
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        stream.codec_context.options = {"err_detect": "explode"}
        return [_planar(frame) for frame in container.decode(stream)]


def _planar(frame: av.VideoFrame) -> np.ndarray:
    assert not frame.is_corrupt
    return frame.to_ndarray()


def psnr(ours: np.ndarray, theirs: np.ndarray) -> float:
    peak = 255 if ours.dtype == np.uint8 else 1023
    error = np.mean((ours.astype(np.float64) - theirs.astype(np.float64)) ** 2)
    return float(10 * np.log10(peak**2 / max(error, 1e-9)))


def same_times(found: list[Fraction], wanted: tuple[Fraction, ...], grain: Fraction) -> None:
    """To the tick of the container: milliseconds in Matroska, the source's own in MP4."""
    assert len(found) == len(wanted)
    for ours, theirs in zip(sorted(found), wanted, strict=True):
        assert abs(ours - theirs) <= grain / 2, (ours, theirs)


def seek(path: Path, time: Fraction) -> tuple[Fraction, np.ndarray]:
    """Where decoding lands that begins at `time` by the container's index."""
    with av.open(io.BytesIO(path.read_bytes())) as container:
        stream = container.streams.video[0]
        container.seek(int(time / stream.time_base), stream=stream)
        frame = next(container.decode(stream))
        return frame.pts * stream.time_base, _planar(frame)
