"""Planes in and out of ffmpeg (the oracle), and stages run the way the executor runs them."""

from __future__ import annotations

import functools
import shutil
import subprocess

import numpy as np
import pytest
import torch

from gpupipe import stages
from gpupipe.format import FrameFormat, pixel_format

Planes = tuple[torch.Tensor, ...]


def picture(name: str, width: int, height: int, **more: object) -> FrameFormat:
    pixels = pixel_format(name)
    assert pixels is not None
    return FrameFormat(pixels, width, height, **more)


def dtype_of(source: FrameFormat) -> torch.dtype:
    floats = {"rgbf16": torch.float16, "rgbf32": torch.float32}
    return floats.get(source.pixels.name, torch.uint8 if source.pixels.depth == 8 else torch.uint16)


def from_bytes(data: bytes, source: FrameFormat) -> Planes:
    """One picture of raw video as planes with a leading 1."""
    kind = np.uint8 if source.pixels.depth == 8 else np.uint16
    flat, planes, at = np.frombuffer(data, dtype=kind), [], 0
    for shape in source.pixels.plane_shapes(source.width, source.height):
        size = int(np.prod(shape))
        planes.append(torch.from_numpy(flat[at : at + size].reshape(1, *shape).copy()))
        at += size
    assert at == len(flat), f"{len(flat)} samples for {source}"
    return tuple(planes)


def ffmpeg_raw(arguments: list[str], data: bytes = b"") -> bytes:
    tool = shutil.which("ffmpeg")
    if tool is None:
        pytest.fail("ffmpeg is missing: it is the oracle of these tests (Debian: apt-get install ffmpeg)")
    done = subprocess.run(
        [tool, "-v", "error", *arguments, "-f", "rawvideo", "-"], input=data, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


@functools.cache
def test_picture(source: FrameFormat) -> Planes:
    """A picture of ffmpeg's with lines, text, gradients, and noise on top."""
    even = f"{source.width + source.width % 2}x{source.height + source.height % 2}"  # all that testsrc2 makes
    cut = f"crop={source.width}:{source.height}:0:0:exact=1"
    graph = f"testsrc2=s={even},noise=alls=20:all_seed=1,format={source.pixels.name},{cut}"
    return from_bytes(ffmpeg_raw(["-f", "lavfi", "-i", graph, "-frames:v", "1"]), source)


def calm(planes: Planes, source: FrameFormat) -> Planes:
    """Half the contrast, so that nothing overshoots: zimg clamps integers between its two passes, we do not."""
    quarter = 1 << (source.pixels.depth - 2)
    return tuple((p.int() // 2 + quarter).to(p.dtype) for p in planes)


test_picture.__test__ = False  # type: ignore[attr-defined]


def filtered(planes: Planes, source: FrameFormat, graph: str, target: FrameFormat) -> Planes:
    """The picture after an ffmpeg filter graph."""
    data = b"".join(p.numpy().tobytes() for p in planes)
    size = f"{source.width}x{source.height}"
    arguments = ["-f", "rawvideo", "-pix_fmt", source.pixels.name, "-s", size, "-i", "-", "-vf", graph]
    return from_bytes(ffmpeg_raw([*arguments, "-pix_fmt", target.pixels.name], data), target)


def run(name: str, settings: object, source: FrameFormat, planes: Planes) -> tuple[Planes, FrameFormat]:
    """Plans, prepares and calls a stage; checks that its planes are what it promised."""
    kind = stages.load(name)
    stage = kind(kind.Settings.model_validate(settings))
    target = stage.output_format(source)
    stage.prepare(source)
    before = [p.clone() for p in planes]
    out = stage(planes)
    assert all(torch.equal(a, b) for a, b in zip(before, planes, strict=True)), "a stage must not write to its input"
    expected = [(len(planes[0]), *shape) for shape in target.plane_shapes]
    assert [tuple(p.shape) for p in out] == expected
    pictures = out[:-1] if target.alpha else out
    assert {p.dtype for p in pictures} == {dtype_of(target)}
    assert not target.alpha or out[-1].dtype == (torch.uint8 if target.alpha == 8 else torch.uint16)
    return out, target


def plan(name: str, settings: object, source: FrameFormat) -> tuple[FrameFormat, tuple[str, ...]]:
    """Output format and notes of a stage."""
    kind = stages.load(name)
    stage = kind(kind.Settings.model_validate(settings))
    return stage.output_format(source), stage.notes(source)


def worst(ours: Planes, theirs: Planes) -> int:
    """Largest difference in code values."""
    return max(int((a.int() - b.int()).abs().max()) for a, b in zip(ours, theirs, strict=True))


def psnr(ours: Planes, theirs: Planes, peak: float) -> float:
    """Of the worst plane, in dB."""
    errors = [float(((a.double() - b.double()) ** 2).mean()) for a, b in zip(ours, theirs, strict=True)]
    return 99.0 if max(errors) == 0 else 10 * float(np.log10(peak**2 / max(errors)))


SITES = {
    "left": (0.5, 1.0),
    "center": (1.0, 1.0),
    "topleft": (0.5, 0.5),
    "top": (1.0, 0.5),
    "bottomleft": (0.5, 1.5),
    "bottom": (1.0, 1.5),
}
"""Where the first 4:2:0 chroma sample lies, in luma pixels from the picture's corner (H.273 figure 1)."""


def ramp(
    shape: tuple[int, int], first: tuple[float, float], pitch: tuple[float, float], slope: tuple[float, float]
) -> np.ndarray:
    """A plane whose value is linear in picture coordinates: slope_x * x + slope_y * y at each sample's place."""
    y = first[1] + pitch[1] * np.arange(shape[0])
    x = first[0] + pitch[0] * np.arange(shape[1])
    return slope[1] * y[:, None] + slope[0] * x[None, :]
