"""The shim in place of libnvidia-encode, driven through its function table on the CPU, decoded by libav."""

from __future__ import annotations

import os
import re
import struct
import subprocess
from pathlib import Path
from typing import NamedTuple

import av
import numpy as np
import pytest

HERE = Path(__file__).parent
W, H, COUNT = 320, 180, 60
IDR, B = 3, 1  # NV_ENC_PIC_TYPE


class Packet(NamedTuple):
    stamp: int
    kind: int
    data: bytes


def picture(number: int, depth: int) -> np.ndarray:
    """Luma rows, then interleaved chroma: a gradient that moves, each picture unlike the others."""
    y, x = np.mgrid[0:H, 0:W]
    luma = 0.5 + 0.3 * np.sin((x + 5 * number) / 23) * np.cos((y + 2 * number) / 17)
    chroma = 0.5 + 0.2 * np.sin((x[: H // 2] + 3 * number) / 31)
    top = (1 << depth) - 1
    whole = np.round(np.concatenate([luma, chroma]) * top)
    return whole.astype(np.uint8) if depth == 8 else whole.astype(np.uint16) << 6


def drive(
    build: Path, codec: str, depth: int, bf: int, *, rc: str = "constqp", gop: int = 30, lookahead: int = 0,
    headers: str = "repeat", idr_at: int = -1, faults: str = "", count: int = COUNT,
) -> tuple[list[Packet], subprocess.CompletedProcess[bytes]]:  # fmt: skip
    raw = b"".join(picture(n, depth).tobytes() for n in range(count))
    shim = build / "shim" / "libnvidia-encode.so.1"
    asked = [build / "drive", shim, codec, depth, W, H, bf, gop, rc, lookahead, headers, idr_at]
    env = {**os.environ, "LD_LIBRARY_PATH": str(build / "fake"), "NVENC_SHIM": faults}
    done = subprocess.run([str(a) for a in asked], input=raw, capture_output=True, env=env, check=False, timeout=240)
    packets, at = [], 0
    while at < len(done.stdout):
        stamp, kind, size = struct.unpack_from("<QII", done.stdout, at)
        packets.append(Packet(stamp, kind, done.stdout[at + 16 : at + 16 + size]))
        at += 16 + size
    return packets, done


def decoded(codec: str, packets: list[Packet], depth: int) -> list[np.ndarray]:
    """Pictures in order of display, as `picture` lays them out."""
    context = av.CodecContext.create(codec, "r")
    frames = [f for p in packets for f in context.decode(av.Packet(p.data))] + context.decode(None)
    name, shift = ("nv12", 0) if depth == 8 else ("p010le", 6)
    out = []
    for frame in frames:
        planes = frame.reformat(format=name).planes
        kind = np.uint8 if depth == 8 else np.uint16
        rows = [np.frombuffer(p, kind).reshape(p.height, -1)[:, :W] for p in planes]
        out.append(np.concatenate(rows) >> shift)
    return out


def psnr(ours: np.ndarray, theirs: np.ndarray, depth: int) -> float:
    error = np.mean((ours.astype(np.float64) - theirs.astype(np.float64)) ** 2)
    return float(10 * np.log10(((1 << depth) - 1) ** 2 / max(error, 1e-9)))


@pytest.mark.parametrize("bf", [0, 2, 4])
@pytest.mark.parametrize(("codec", "depth"), [("h264", 8), ("hevc", 8), ("hevc", 10)])
def test_every_picture_comes_back_in_its_place(build: Path, codec: str, depth: int, bf: int) -> None:
    # With less lookahead the double makes fewer B-frames in HEVC (README.md).
    packets, done = drive(build, codec, depth, bf, lookahead=bf + 1 if codec == "hevc" and bf else 0)
    assert done.returncode == 0, done.stderr
    assert re.match(rb"copies 60 stream 66 ", done.stderr), done.stderr  # one each, on the input stream 0x42
    stamps = [p.stamp for p in packets]
    assert sorted(stamps) == [n * 1001 + 7 for n in range(COUNT)]
    assert (stamps != sorted(stamps)) == (bf > 0)
    assert sum(p.kind == B for p in packets) == pytest.approx(COUNT * bf / (bf + 1), abs=3)
    assert [p.stamp for p in packets if p.kind == IDR] == [7, 30 * 1001 + 7]
    pictures = decoded(codec, packets, depth)
    assert len(pictures) == COUNT
    worst = min(psnr(p, picture(n, depth) >> (6 if depth > 8 else 0), depth) for n, p in enumerate(pictures))
    assert worst >= 40


@pytest.mark.parametrize("codec", ["h264", "hevc"])
@pytest.mark.parametrize("rc", ["cq", "vbr", "cbr"])
def test_rate_control(build: Path, codec: str, rc: str) -> None:
    packets, done = drive(build, codec, 8, 2, rc=rc)
    assert done.returncode == 0, done.stderr
    pictures = decoded(codec, packets, 8)
    assert min(psnr(p, picture(n, 8), 8) for n, p in enumerate(pictures)) >= 35
    assert len(pictures) == COUNT


@pytest.mark.parametrize("codec", ["h264", "hevc"])
def test_lookahead_forced_idr_and_headers(build: Path, codec: str) -> None:
    mark = b"\0\0\1\x67" if codec == "h264" else b"\0\0\1\x42"
    once, done = drive(build, codec, 8, 2, lookahead=8, headers="once", idr_at=10)
    assert done.returncode == 0, done.stderr
    assert [n for n, p in enumerate(once) if mark in p.data] == [0]
    assert 10 * 1001 + 7 in [p.stamp for p in once if p.kind == IDR]
    again, _ = drive(build, codec, 8, 2, idr_at=10)
    assert all(mark in p.data for p in again if p.kind == IDR)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("device", rb"nvEncOpenEncodeSessionEx 2 "), ("memory", rb"nvEncOpenEncodeSessionEx 10 "),
        ("sessions=0", rb"nvEncOpenEncodeSessionEx 10 "), ("preset", rb"nvEncInitializeEncoder 12 unsupported preset"),
        ("depth", rb"nvEncInitializeEncoder 12 unsupported depth"), ("frame=7", rb"nvEncEncodePicture 20 injected"),
    ],
)  # fmt: skip
def test_faults_come_at_their_call_with_their_code(build: Path, asked: str, said: bytes) -> None:
    _, done = drive(build, "hevc", 10, 0, faults=asked, count=12)
    assert done.returncode == 1
    assert re.search(said, done.stderr), done.stderr


def test_a_session_limit_of_one_refuses_the_second(build: Path) -> None:
    assert b"second 0" in drive(build, "h264", 8, 0, count=3)[1].stderr
    assert b"second 10" in drive(build, "h264", 8, 0, count=3, faults="sessions=1")[1].stderr


def test_late_and_slow_encoders_lose_nothing(build: Path) -> None:
    packets, done = drive(build, "h264", 8, 0, faults="delay=2,slow=2")
    assert done.returncode == 0, done.stderr
    assert [p.stamp for p in packets] == [n * 1001 + 7 for n in range(COUNT)]


def test_nothing_is_on_offer_before_its_delay(build: Path) -> None:
    _, done = drive(build, "h264", 8, 0, faults="delay=9")  # more than the four buffers of this client
    assert b"nvEncLockBitstream 13 not encoded yet" in done.stderr
