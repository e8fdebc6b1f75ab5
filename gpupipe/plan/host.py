"""How much of the host's memory a run takes, as far as that can be known before."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpupipe.plan.memory import size_text, workspace
from gpupipe.stages.base import Stage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpupipe.device.host import Room
    from gpupipe.format import FrameFormat
    from gpupipe.plan.model import Step

_BASE = 400 << 20
"""The interpreter, torch and libav, and what waits to be written in an ordinary run."""
_PICTURES, _A_CORE, _MOST_CORES = 160, 4, 32
"""Pictures that a libav decoder and an x264 of medium preset hold together: 116 to 190 were seen on two cores, from
1280x720 to 3840x2160. Each further core adds a thread to both, which holds some of its own."""
_DECODER_ALONE, _ENCODER_ALONE = 0.2, 0.8
"""Their parts of it."""
WAITING, _WAITING_PART = 1 << 30, 1 / 8
"""Bytes of encoded pictures that may wait for the writer, and the part of the memory left that they may be."""
_CODED = 16
"""Times fewer bytes than a picture has as it is coded by itself: nvJPEG's at its usual quality are about that."""
_WORK = 3
"""Times `Stage.scratch` bytes a pixel: full floats, input and output and what lies between."""
_MARGIN = 0.9
"""Part of the memory that is left that may be planned with."""


@dataclass(frozen=True, slots=True)
class HostNeed:
    """Bytes of a session."""

    session: int
    waiting: int = 0
    """Of all sessions together: see `waiting_bytes`."""

    @classmethod
    def of(
        cls,
        picture: FrameFormat,
        steps: Sequence[Step],
        *,
        decodes: bool,
        encodes: bool,
        free: int | None = None,
        waiting: int = 0,
    ) -> HostNeed:
        """From the source's pictures and the chain.

        `decodes` and `encodes` say what is done on the CPU, `free` how many bytes are left.
        """
        formats = [picture, *(step.target for step in steps)]
        largest = max(one.frame_bytes for one in (picture, formats[-1]))
        share = _DECODER_ALONE * decodes + _ENCODER_ALONE * encodes
        pictures = share * (_PICTURES + _A_CORE * min(_MOST_CORES, os.cpu_count() or 1))
        on_cpu = [step for step in steps if step.target.device == "cpu" and step.kind != "download"]
        work = max((_WORK * Stage.scratch * max(step.source.area, step.target.area) for step in on_cpu), default=0)
        network = max((workspace(step, free) for step in on_cpu), default=0)
        return cls(round(pictures * largest) + work + network, waiting)

    def bytes(self, sessions: int) -> int:
        """Of the whole run."""
        return _BASE + sessions * self.session + self.waiting * (sessions > 1)


def waiting_bytes(result: FrameFormat, frames: int, room: Room | None) -> int:
    """For pictures coded by themselves that wait for those before them, as segments are rendered side by side.

    The last of several segments begun together waits until all others are written, so that is soon what is allowed.

    Args:
        result: what is encoded.
        frames: that wait at most.
        room: what is left of the host's memory; None where the system does not say.
    """
    most = WAITING if room is None else min(WAITING, int(_WAITING_PART * room.left))
    return min(most, frames * result.frame_bytes // _CODED)


@dataclass(frozen=True, slots=True)
class HostBudget:
    """What was decided."""

    sessions: int
    bytes: int
    reason: str
    enough: bool = True
    """Whether one session fits; where it does not the run is tried all the same, since this is an estimate."""
    waiting: int = 0
    """Of the bytes those for encoded pictures that wait; 0 for one session."""


def fit_host(need: HostNeed, sessions: int, room: Room | None) -> HostBudget:
    """As many of `sessions` as there is memory for, one at least.

    Args:
        need: of a session.
        sessions: the most that are of use.
        room: what is left; None where the system does not say.
    """
    if room is None:
        size = need.bytes(sessions)
        reason = f"about {size_text(size)} of the host, whose free memory is not known"
        return HostBudget(sessions, size, reason, waiting=need.waiting * (sessions > 1))
    usable = int(room.left * _MARGIN)
    most = next((n for n in range(sessions, 0, -1) if need.bytes(n) <= usable), 0)
    size = need.bytes(max(1, most))
    reason = f"about {size_text(size)} of the host's {size_text(room.left)} that are left"
    if most == 0:
        return HostBudget(
            1, size, f"{reason}: not enough even for one session by this estimate, a tenth left free", enough=False
        )
    if most < sessions:
        reason += f"; no room for more than {most} of {sessions} sessions"
    return HostBudget(most, size, reason, waiting=need.waiting * (most > 1))
