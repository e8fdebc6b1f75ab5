"""Looks at what comes out before it is timed: a fast wrong result is no figure."""

from __future__ import annotations

from itertools import zip_longest
from math import log10
from typing import TYPE_CHECKING

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

CHECKED = 60
"""Pictures."""
LEAST_PSNR = 30.0
"""dB. Encoders at their usual quality stay above it; a wrong matrix, shift or frame does not."""
SAME = 100.0
"""dB that stand for no difference at all."""


def check(subject: Subject, cases: list[Case], stop: StopFlag) -> Check:
    """Runs the first pictures of each case that writes a file, and compares times and pictures.

    The reference is the source's own times, and the same stages on the CPU kept losslessly (FFV1). Returns what was
    found of the first case. Raises MediaError where frames, times or pictures are wrong.
    """
    frames = min(CHECKED, subject.frames)
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
    errors, zero = [], None
    for n, (ours, theirs) in enumerate(zip_longest(_pictures(path), _pictures(reference))):
        if ours is None or theirs is None or n >= len(pts):
            continue
        at, tick, picture = ours
        zero = at if zero is None else zero
        wanted = (pts[n] - pts[0]) * time_base
        if abs(at - zero - wanted) > tick:
            raise MediaError(f"it is shown at {float(at - zero):.6f} s, not {float(wanted):.6f} s",
                             where=f"{where}: picture {n}")  # fmt: skip
        errors.append(float(np.mean(np.square(picture.astype(np.int16) - theirs[2], dtype=np.int32))))
    counted = tuple(sum(1 for _ in _pictures(one)) for one in (path, reference))
    if counted != (len(pts), len(pts)):
        raise MediaError(f"{counted[0]} pictures came out, {counted[1]} on the CPU, not {len(pts)}", where=where)
    worst = _psnr(max(errors))
    if worst < LEAST_PSNR:
        place = f"{where}: picture {errors.index(max(errors))}"
        raise MediaError(f"{worst:.1f} dB from the CPU backend's picture, at least {LEAST_PSNR:.0f} are needed",
                         where=place, hint="raise the encoder's quality if the config asks for less")  # fmt: skip
    return Check(len(errors), _psnr(sum(errors) / len(errors)), worst)


def _psnr(error: float) -> float:
    return min(SAME, round(10 * log10(255 * 255 / error), 2)) if error else SAME


def _pictures(path: Path) -> Iterator[tuple[Fraction, Fraction, NDArray[np.int16]]]:
    """Time, tick, and Y'CbCr 4:2:0 of 8 bit, limited range, BT.709, whatever the file holds."""
    with av.open(str(path)) as container:
        for frame in container.decode(video=0):
            same = frame.reformat(format="yuv420p", dst_colorspace="ITU709", dst_color_range="MPEG")
            assert frame.pts is not None
            assert frame.time_base
            yield frame.pts * frame.time_base, frame.time_base, same.to_ndarray().astype(np.int16)
