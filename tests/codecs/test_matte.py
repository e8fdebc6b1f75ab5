"""Alpha of libav's frames: big-endian planes, palettes, and streams that begin opaque."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

import av
import numpy as np
import pytest
import torch

from gpupipe.codecs.libav import LibavDecoder
from gpupipe.codecs.matte import alpha_bits, alpha_of, taken_apart
from gpupipe.codecs.native import planes_of
from gpupipe.format import PIXEL_FORMATS, FrameFormat
from gpupipe.frame import FrameBatch
from gpupipe.journal import Journal
from gpupipe.media.probe import probe

if TYPE_CHECKING:
    from pathlib import Path

WIDTH, HEIGHT = 21, 9


def alpha_plane(frame: av.VideoFrame, pixels: str) -> np.ndarray:
    native, matte, known = taken_apart(frame, PIXEL_FORMATS[pixels])
    source = FrameFormat(known, WIDTH, HEIGHT, alpha=alpha_bits(frame.format))
    batch = FrameBatch(source, (0,), Fraction(1), native=native, matte=matte)
    return planes_of(batch)[-1][0].numpy()


@pytest.mark.parametrize(
    ("name", "pixels"), [("yuva444p10be", "yuv444p10le"), ("gbrap14be", "gbrp12le"), ("yuva422p12be", "yuv422p12le")]
)
def test_planes_with_their_high_bytes_first(tmp_path: Path, ffmpeg, name: str, pixels: str) -> None:
    bits = int(name[-4:-2])
    alpha = np.random.default_rng(1).integers(0, 1 << bits, (HEIGHT, WIDTH))
    step = 2 if "422" in name else 1
    planes = [np.full((HEIGHT, -(-WIDTH // s)), 77) for s in (1, step, step)]
    raw = b"".join(p.astype(">u2").tobytes() for p in (*planes, alpha))
    (tmp_path / "raw").write_bytes(raw)
    size = f"{WIDTH}x{HEIGHT}"
    with av.open(str(tmp_path / "raw"), format="rawvideo", options={"pixel_format": name, "video_size": size}) as file:
        frame = next(file.decode(video=0))
    assert frame.format.name == name
    assert np.array_equal(alpha_plane(frame, pixels), alpha)


@pytest.mark.parametrize("clear", [0, 100])
def test_a_palette_has_alpha_if_a_colour_that_is_used_has(tmp_path: Path, ffmpeg, clear: int) -> None:
    indices = np.arange(HEIGHT * WIDTH).reshape(HEIGHT, WIDTH) % 7
    colors = np.zeros((256, 4), np.uint8)
    colors[:, 3] = 255
    colors[9, 3] = 0  # of no pixel
    raw = tmp_path / "raw"

    def paletted() -> Path:
        raw.write_bytes(indices.astype(np.uint8).tobytes() + colors.tobytes())
        size = f"{WIDTH}x{HEIGHT}"
        ffmpeg("-f", "rawvideo", "-pix_fmt", "pal8", "-s", size, "-i", raw, "-c:v", "png", tmp_path / "p.png")
        return tmp_path / "p.png"

    assert probe(paletted()).video.alpha == 0
    colors[3, 3] = clear
    info = probe(paletted())
    assert (info.video.alpha, info.video.native_pixels) == (8, "pal8")
    with av.open(str(tmp_path / "p.png")) as file:
        frame = next(file.decode(video=0))
    assert alpha_of(frame) == 8
    assert np.array_equal(alpha_plane(frame, "gbrp"), colors[indices, 3])


def test_alpha_that_begins_in_mid_course_is_told_of(tmp_path: Path, ffmpeg) -> None:
    parts = []
    for n, pixels in enumerate(("yuv444p10le", "yuva444p10le")):
        parts.append(tmp_path / f"{n}.mov")
        ffmpeg("-f", "lavfi", "-i", f"testsrc2=s=64x48,format={pixels}", "-frames:v", 2, "-c:v", "prores_ks",
               "-profile:v", "4444", parts[-1])  # fmt: skip
    listed = tmp_path / "list"
    listed.write_text("".join(f"file '{part}'\n" for part in parts))
    ffmpeg("-f", "concat", "-safe", 0, "-i", listed, "-c", "copy", tmp_path / "both.mov")
    info, journal = probe(tmp_path / "both.mov"), Journal()
    assert info.video.alpha == 0
    with av.open(str(tmp_path / "both.mov")) as file:
        stream = file.streams.video[0]
        decoder = LibavDecoder(stream, info.video.format, info.video.time_base, journal, opaque=True)
        batches = [batch for packet in file.demux(stream) for batch in decoder.decode(packet)]
        decoder.close()
    assert [len(planes_of(batch)) for batch in batches] == [3] * 4
    assert journal.entries["alpha-dropped"].count == 2


def test_a_frame_of_planes_is_only_looked_at() -> None:
    frame = av.VideoFrame(WIDTH, HEIGHT, "yuva422p10le")
    native, matte, pixels = taken_apart(frame, PIXEL_FORMATS["yuv422p10le"])
    assert native is frame
    assert matte is None
    source = FrameFormat(pixels, WIDTH, HEIGHT, alpha=10)
    alpha = planes_of(FrameBatch(source, (0,), Fraction(1), native=frame))[-1]
    alpha.view(torch.int16).fill_(513)
    seen = np.frombuffer(bytes(frame.planes[3]), np.uint16).reshape(HEIGHT, -1)[:, :WIDTH]
    assert (seen == 513).all()


def test_alpha_is_the_same_every_time() -> None:
    """swscale in threads wrote grey over the alpha of a line now and then, where it fills chroma."""
    samples = np.random.default_rng(1).integers(0, 1 << 16, (23, 35, 2), dtype=np.uint16)
    frame = av.VideoFrame(35, 23, "ya16le")
    plane = frame.planes[0]
    np.frombuffer(plane, "<u2").reshape(-1, plane.line_size // 2)[:23, :70] = samples.reshape(23, 70)
    for _ in range(200):
        _, matte, _ = taken_apart(frame, PIXEL_FORMATS["gray12le"])
        assert matte is not None
        found = np.frombuffer(matte.planes[-1], "<u2").reshape(-1, matte.planes[-1].line_size // 2)
        assert np.array_equal(found[:23, :35], samples[:, :, 1])
