"""How much of a GPU's memory a run takes: worked out before it begins, so that it neither fails nor grows later."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpupipe import stages
from gpupipe.codecs.encoders import encoder_facts
from gpupipe.codecs.nvjpeg import lane_bytes
from gpupipe.errors import ShortMemoryError
from gpupipe.plan.segments import stage_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpupipe.format import FrameFormat
    from gpupipe.plan.model import Step

SLOTS = 3
"""Batches a session has in flight: one filling, one computing, one at the encoder."""
ENCODE_LANES = 4
"""Threads that give an encoder work to which every picture stands alone. nvJPEG waits for the GPU in every picture."""
SMALLEST_BATCH = 4
"""Pictures: below it the work of Python a batch shows."""
_MIB = 1 << 20
_CONVERSION, _TABLES = 48, 64
"""Bytes a pixel: of a conversion through R'G'B' in float32, and of the grids and images of all stages together."""
_ALPHA = 48
"""Bytes a pixel more where colours are resampled twice, weighted by alpha and as they lie."""
_SURFACES, _DECODER = 24, 32 * _MIB
"""Of an NVDEC session: 14 to 20 surfaces and 32 MiB were seen with H.264, HEVC and VP9 from 320x240 to 3840x2160."""
_KERNELS, _CODEC, _NVENC_SURFACES = 384 * _MIB, 32 * _MIB, 8
_MARGIN = 0.95
"""Part of the free memory that may be planned with."""


@dataclass(frozen=True, slots=True)
class Need:
    """What a run needs memory for; sizes in bytes, of one picture where nothing else is said."""

    surface: int
    """As the decoder gives it; 0 where it decodes on the CPU."""
    result: int
    """As the encoder or the download takes it."""
    work: int
    """Intermediate values of the most expensive step."""
    tables: int
    """Of the whole run."""
    encoder: str
    workspace: int = 0
    """Of the stage that takes most, beside `work`, for what does not grow with the batch."""
    pixels: int = 0
    """Of a picture as nvJPEG takes it, which knows its own needs."""

    def bytes(self, sessions: int, batch: int) -> int:
        """Of the whole run. Sessions compute on one lane, so intermediate values are held once, and by graphs again."""
        session = SLOTS * batch * (self.surface + self.result)
        if self.surface:
            session += _SURFACES * self.surface + _DECODER
        shared = _KERNELS + self.tables + 2 * (batch * self.work + self.workspace)
        if self.encoder == "nvenc":
            session += _NVENC_SURFACES * self.result + _CODEC
        elif self.pixels:
            shared += ENCODE_LANES * lane_bytes(self.pixels, self.result, batch)
        elif encoder_facts(self.encoder).on_device:
            shared += ENCODE_LANES * (4 * batch * self.result + _CODEC)
        return sessions * session + shared


@dataclass(frozen=True, slots=True)
class Budget:
    """What was decided."""

    sessions: int
    batch: int
    bytes: int
    reason: str


def need_of(surface: FrameFormat, steps: Sequence[Step], encoder: str, free: int | None = None) -> Need:
    """From the chain of a plan; `surface` is what the decoder gives, `free` the bytes that the GPU has left."""
    there = [step for step in steps if step.kind not in ("upload", "download")]
    pictures = [surface, *(step.target for step in steps)]
    work = max((_scratch(step) * max(step.source.area, step.target.area) for step in there), default=0)
    result = next((step.source for step in reversed(steps) if step.kind == "download"), pictures[-1])
    return Need(
        surface=0 if surface.device == "cpu" else surface.frame_bytes,
        result=result.frame_bytes,
        work=work,
        tables=_TABLES * max(picture.area for picture in pictures) if there else 0,
        encoder=encoder,
        workspace=max((workspace(step, free) for step in there), default=0),
        pixels=result.area if encoder == "nvjpeg" else 0,
    )


def _scratch(step: Step) -> int:
    alpha = _ALPHA if step.source.alpha else 0
    if step.kind != "stage":
        return _CONVERSION + alpha
    size: int = stages.load(step.name).scratch
    return size + alpha


def workspace(step: Step, free: int | None) -> int:
    """See `Stage.workspace`; 0 for what is no stage."""
    if step.kind != "stage":
        return 0
    return stage_of(step).workspace(step.source, free)


def fit(need: Need, sessions: int, batch: int, free: int | None, *, device: str, asked: bool) -> Budget:
    """As many of `sessions` as there is memory for; smaller batches come before fewer sessions.

    Args:
        need: of the run.
        sessions: the most that are of use.
        batch: pictures computed at once.
        free: bytes of the GPU's memory that are free; None where nobody can say.
        device: for the words.
        asked: the config says how many sessions, so that fewer are no answer.

    Raises:
        PlanError: not even one session fits, or not those that were asked for.
    """
    if free is None:
        size = need.bytes(sessions, batch)
        return Budget(sessions, batch, size, f"about {size_text(size)} on {device}, whose free memory is not known")
    room = int(free * _MARGIN)
    smaller = batch
    while need.bytes(sessions, smaller) > room and smaller > SMALLEST_BATCH:
        smaller = max(SMALLEST_BATCH, smaller // 2)
    most = next((n for n in range(sessions, 0, -1) if need.bytes(n, smaller) <= room), 0)
    least = 1 if not asked else sessions
    if most < least:
        wanted = "one session" if least == 1 else f"{least} sessions"
        raise ShortMemoryError(
            f"{device} has {size_text(free)} of memory free, and {wanted} of this run need{'s' * (least == 1)} about "
            f"{size_text(need.bytes(least, smaller))}",
            where="device" if most == 0 else "sessions",
            hint="end other programs on the GPU, or use `device: cpu`" if most == 0 else f"there is room for {most}",
        )
    size = need.bytes(most, smaller)
    reason = f"about {size_text(size)} of {size_text(free)} free on {device}"
    if smaller < batch:
        reason += f"; batches of {smaller} instead of {batch}"
    if most < sessions:
        reason += f"; no room for more than {most} of {sessions} sessions"
    return Budget(most, smaller, size, reason)


def size_text(count: int) -> str:
    """`1.5 GiB`, or MiB where it is little."""
    return f"{count / (1 << 30):.1f} GiB" if count >= 1 << 29 else f"{count / _MIB:.0f} MiB"
