"""JPEG by libav takes all cores, which changes no byte."""

from __future__ import annotations

import os
from fractions import Fraction

import numpy as np
import pytest
import torch

from gpupipe.codecs import libav
from gpupipe.codecs.base import EncoderSettings
from gpupipe.color import ColorSpec, Matrix, Range
from gpupipe.format import PIXEL_FORMATS, FrameFormat
from gpupipe.frame import FrameBatch

SOURCE = FrameFormat(PIXEL_FORMATS["yuv422p"], 130, 66, ColorSpec(Matrix.BT470BG, 1, 1, Range.FULL))


def coded(threads: int, monkeypatch: pytest.MonkeyPatch, **more: int) -> tuple[int, list[tuple[int, bytes]]]:
    monkeypatch.setattr(os, "cpu_count", lambda: threads)
    asked = EncoderSettings("mjpeg", "mjpeg", SOURCE, Fraction(1, 25), Fraction(25), more.get("quality"),
                            more.get("bitrate"), None)  # fmt: skip
    encoder, random = libav.LibavEncoder(asked), np.random.default_rng(1)
    packets = []
    for n in range(24):
        coarse = random.integers(0, 256, (3, 17, 33), dtype=np.uint8).repeat(4, 1).repeat(4, 2)
        planes = tuple(torch.from_numpy(p[None, :66, : 130 >> (i > 0)].copy()) for i, p in enumerate(coarse))
        packets += encoder.encode(FrameBatch(SOURCE, (n,), asked.time_base, planes))
    packets += encoder.finish()
    return encoder._context.thread_count, [(p.pts, bytes(p)) for p in packets]


@pytest.mark.parametrize("quality", [None, 100, 40])
def test_any_number_of_threads_makes_the_same_bytes(monkeypatch: pytest.MonkeyPatch, quality: int | None) -> None:
    (one, alone), (many, together) = (coded(n, monkeypatch, quality=quality) for n in (1, 5))
    assert (one, many) == (1, 5)
    assert [pts for pts, _ in together] == list(range(24))
    assert together == alone
    assert coded(99, monkeypatch, quality=quality)[0] == libav.JPEG_THREADS


def test_a_bitrate_needs_them_in_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    assert coded(5, monkeypatch, bitrate=2_000_000)[0] == 1
