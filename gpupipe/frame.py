"""Pictures on their way through the pipeline."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fractions import Fraction

    import av
    import torch

    from gpupipe.format import FrameFormat


NO_PTS = -(2**63)
"""Stands for a missing timestamp in `FrameBatch.pts`, as AV_NOPTS_VALUE does in libav."""


@dataclass(frozen=True, slots=True)
class FrameBatch:
    """N pictures of one format.

    `planes` follow `PixelFormat`'s layout with a leading N; alpha is the last of them where the format has it. A batch
    fresh from a CPU decoder (N = 1) carries the library's own frame in `native` and no planes: with no stage between
    it goes to the encoder untouched, and torch is never imported. `gpupipe.codecs.native.planes_of` makes planes of
    it (a view, no copy).
    """

    format: FrameFormat
    pts: tuple[int, ...]
    """Presentation time of each picture, in `time_base`; NO_PTS until `media.timeline.FrameClock` has stamped it."""
    time_base: Fraction
    planes: tuple[torch.Tensor, ...] = ()
    durations: tuple[int, ...] = ()
    """Display time of each picture in `time_base`; 0 where unknown."""
    native: av.VideoFrame | None = None
    matte: av.VideoFrame | None = None
    """Beside `native`: the frame whose last plane is the alpha, where `native` itself has none of that depth."""
    ready: object | None = None
    """CUDA event after which the planes hold the picture; None on the CPU."""

    @property
    def valid(self) -> int:
        """Number of real pictures; a padded last batch has more rows than this."""
        return len(self.pts)

    def with_(self, **changes: object) -> FrameBatch:
        """A copy with some fields changed."""
        return replace(self, **changes)  # type: ignore[arg-type]
