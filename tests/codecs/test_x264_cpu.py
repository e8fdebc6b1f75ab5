"""x264 gives the same bytes whatever its memory held before, for widths at which its AVX-512 code reads too far."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from gpupipe.codecs import x264_cpu

ENCODE = """
import hashlib, sys
from fractions import Fraction
import av
from gpupipe.codecs.base import EncoderSettings
from gpupipe.codecs.libav import LibavEncoder
from gpupipe.color import ColorSpec, Matrix, Range
from gpupipe.format import PIXEL_FORMATS, FrameFormat
from gpupipe.frame import FrameBatch
width, height = int(sys.argv[1]), int(sys.argv[2])
source = FrameFormat(PIXEL_FORMATS["yuv420p"], width, height, ColorSpec(Matrix.BT709, 1, 1, Range.LIMITED))
coder = LibavEncoder(EncoderSettings("h264", "libx264", source, Fraction(1, 25), Fraction(25), None, None, "veryfast"))
moving = f"mandelbrot=s={width}x{height}:r=25,scroll=h=-0.02:v=0.013,noise=alls=8,format=yuv420p"
seen, packets = hashlib.sha256(), []
for n, frame in zip(range(20), av.open(moving, format="lavfi").decode(video=0)):
    packets += coder.encode(FrameBatch(source, (n,), Fraction(1, 25), native=frame))
for packet in packets + coder.finish():
    seen.update(bytes(packet))
print(seen.hexdigest())
"""


def _digest(width: int, height: int, dirt: int) -> str:
    """Of packets made where glibc fills new memory with `dirt`, inverted."""
    command = [sys.executable, "-c", ENCODE, str(width), str(height)]
    environ = {**os.environ, "MALLOC_PERTURB_": str(dirt)}
    return subprocess.run(command, env=environ, capture_output=True, text=True, check=True, timeout=240).stdout


@pytest.mark.parametrize(("width", "height"), [(192, 108), (256, 144)])
def test_memory_decides_nothing(width: int, height: int) -> None:
    """192 is 12 macroblocks, where AVX-512 reads too far; 256 is 16, where nothing is to be kept from it."""
    assert _digest(width, height, 1) == _digest(width, height, 170)


def test_only_where_it_reads_too_far(monkeypatch: pytest.MonkeyPatch) -> None:
    """AVX-512 stays on at common sizes: it is faster."""
    monkeypatch.setattr(x264_cpu, "has_avx512", lambda: True)
    assert [width for width in (192, 720, 854, 1280, 1916, 1920, 1998, 3840) if x264_cpu.asm(width)] == [
        192, 720, 854, 1998
    ]  # fmt: skip
    assert "AVX512" not in x264_cpu.asm(192)
    monkeypatch.setattr(x264_cpu, "has_avx512", lambda: False)
    assert not x264_cpu.asm(192)
