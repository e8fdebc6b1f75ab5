"""Looks at what comes out before it is timed: a fast wrong result is no figure."""

from __future__ import annotations

from itertools import zip_longest
from math import log10
from typing import TYPE_CHECKING, Any

import av
import numpy as np

from gpupipe.bench.record import Check
from gpupipe.config import VideoOutput
from gpupipe.errors import MediaError
from gpupipe.journal import Journal
from gpupipe.render import StopFlag, render

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from fractions import Fraction
    from pathlib import Path

    from numpy.typing import NDArray

    from gpupipe.bench.cases import Case
    from gpupipe.bench.subject import Subject

CHECKED = 30
"""Pictures, as a rule."""
LEAST_PSNR = 30.0
"""dB. Encoders at their usual quality stay above it; a shift or a wrong frame does not."""
MOST_BIAS = 2.0
"""Codes of 8 bit by which R', G' or B' may be off as a whole; swscale rounds down, and a wrong matrix does more."""
SAME = 100.0
"""dB that stand for no difference at all."""


def check(subject: Subject, cases: list[Case], stop: StopFlag, count: int = CHECKED) -> Check:
    """Runs the first pictures of each case that writes a file, and compares times and pictures.

    The reference is the source's own times, and the same stages on the CPU kept losslessly (FFV1). Returns what was
    found of the first case. Raises MediaError where frames, times or pictures are wrong.
    """
    frames = min(count, subject.frames)
    reference = subject.plan(frames, device="cpu", video=VideoOutput(codec="ffv1"), name="reference")
    render(reference, overwrite=True, journal=Journal(), stop=stop)
    pts, time_base = subject.pts[:frames], subject.source.video.time_base
    found = []
    for case in cases:
        if case.run is not None and case.output is not None:
            case.run(frames)
            found.append(compare(case.output, reference.output, pts, time_base, f"check of {case.name}"))
    return found[0]


def compare(path: Path, reference: Path, pts: Sequence[int], time_base: Fraction, where: str = "check") -> Check:
    """Decodes both files. `pts` are those of the source's pictures, in `time_base`; `where` is named in errors."""
    errors, biases, zero = [], [], None
    for n, (ours, theirs) in enumerate(zip_longest(_pictures(path), _pictures(reference))):
        if ours is None or theirs is None or n >= len(pts):
            continue
        at, tick, picture = ours
        zero = at if zero is None else zero
        wanted = (pts[n] - pts[0]) * time_base
        if abs(at - zero - wanted) > tick:
            raise MediaError(f"it is shown at {float(at - zero):.6f} s, not {float(wanted):.6f} s",
                             where=f"{where}: picture {n}")  # fmt: skip
        difference = picture - theirs[2]
        errors.append(float(np.mean(np.square(difference))))
        biases.append(difference.mean((0, 1)))
    counted = tuple(sum(1 for _ in _pictures(one)) for one in (path, reference))
    if counted != (len(pts), len(pts)):
        raise MediaError(f"{counted[0]} pictures came out, {counted[1]} on the CPU, not {len(pts)}", where=where)
    worst = _psnr(max(errors))
    if worst < LEAST_PSNR:
        place = f"{where}: picture {errors.index(max(errors))}"
        raise MediaError(f"{worst:.1f} dB from the CPU backend's picture, at least {LEAST_PSNR:.0f} are needed",
                         where=place, hint="raise the encoder's quality if the config asks for less")  # fmt: skip
    bias = float(np.abs(np.mean(biases, 0)).max())
    if bias > MOST_BIAS:
        message = f"a colour is off by {bias:.1f} of 255 on average from the CPU backend's pictures"
        raise MediaError(message, where=where)
    return Check(len(errors), _psnr(sum(errors) / len(errors)), worst, round(bias, 2))


def _psnr(error: float) -> float:
    return min(SAME, round(10 * log10(255 * 255 / error), 2)) if error else SAME


def _pictures(path: Path) -> Iterator[tuple[Fraction, Fraction, NDArray[Any]]]:
    """Time, tick, and R'G'B' (H / 2, W / 2, 3) of 8 bit, averaged over 2x2 samples.

    Averages, because 4:4:4 and 4:2:0 of the same picture differ at the edges of colours; R'G'B', because swscale does
    not convert between two kinds of Y'CbCr well enough.
    """
    with av.open(str(path)) as container:
        for frame in container.decode(video=0):
            assert frame.pts is not None
            assert frame.time_base
            rgb = frame.to_ndarray(format="rgb24").astype(np.float32)
            rgb = rgb[: len(rgb) & ~1, : rgb.shape[1] & ~1]
            quarters = rgb[::2, ::2] + rgb[1::2, ::2] + rgb[::2, 1::2] + rgb[1::2, 1::2]
            yield frame.pts * frame.time_base, frame.time_base, quarters / 4
