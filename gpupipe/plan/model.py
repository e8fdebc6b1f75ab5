"""The plan: everything that was decided, frozen, and writable as JSON."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from gpupipe.plain import Plain, plain

if TYPE_CHECKING:
    from fractions import Fraction
    from pathlib import Path

    from gpupipe.codecs.base import EncoderSettings
    from gpupipe.config import AudioEncode, Quality
    from gpupipe.engines.choice import Choice
    from gpupipe.format import FrameFormat
    from gpupipe.media.provenance import Provenance
    from gpupipe.media.segments import Segment
    from gpupipe.media.source import SourceInfo, Track

Graphs = Literal["whole", "parts", "off"]
"""What of the work on a batch is captured in CUDA Graphs: all of it as one, or what stages capture themselves."""
_ANYWHERE = {
    "warnings",
    "notes",
    "output",
    "sessions",
    "decoder_reason",
    "encoder_reason",
    "segments_reason",
    "device_bytes",
    "memory_reason",
    "batch",
    "quality",
    "ledger",
    "host_limit",
    "host_bytes",
    "host_reason",
    "waiting_bytes",
    "provenance",
    "devices",
    "choices",
}
"""What of a plan decides neither pixels nor times."""
StepKind = Literal["stage", "convert", "upload", "download", "even"]


@dataclass(frozen=True, slots=True)
class Step:
    """One thing done to every frame between decoder and encoder."""

    kind: StepKind
    name: str
    source: FrameFormat
    target: FrameFormat
    settings: dict[str, object] = field(default_factory=dict)
    """Of a stage: what its Settings are made from."""
    reason: str = ""
    """Why the planner put it there; for a stage what it wants to be said."""


@dataclass(frozen=True, slots=True)
class Notice:
    """A warning that is known before work starts."""

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run will do. Made once by `make_plan`; `render` follows it to the letter."""

    version: str
    source: SourceInfo
    output: Path
    container: str
    """libav's muxer name."""
    device: str
    """Where the stages run: `cpu` or `cuda:N`."""
    decoder: Literal["libav", "nvdec"]
    decoder_reason: str
    start_pts: int | None
    end_pts: int | None
    """The range shown, half-open, in the video's time base; None is open."""
    origin: Fraction
    """Seconds of the source that become 0 of the output."""
    segments: tuple[Segment, ...]
    """Half-open, in order, together the range; one open segment where the run is not cut."""
    sessions: int
    """Segments that are rendered side by side."""
    segments_reason: str
    device_bytes: int
    """Memory of the GPU that the run takes, as planned; 0 on the CPU."""
    memory_reason: str
    batch: int
    """Pictures computed at once on the GPU."""
    graphs: Graphs
    steps: tuple[Step, ...]
    retime: Fraction | None
    """Constant rate to retime to, where the config has an `fps` stage."""
    encoder: EncoderSettings
    encoder_reason: str
    tracks: tuple[Track, ...]
    audio: AudioEncode | None
    """How audio is re-encoded; None copies it."""
    metadata: bool
    display_matrix: tuple[int, ...] | None
    """Carried to the output; None where the pixels were turned, or there is none."""
    timecode: str | None
    size_change: Literal["scale", "error"]
    warnings: tuple[Notice, ...]
    notes: tuple[str, ...]
    host_limit: int | None = None
    """Bytes of the host's memory that the run is to hold at most, where the config says so."""
    host_bytes: int = 0
    """Memory of the host that the run takes, as planned."""
    host_reason: str = ""
    waiting_bytes: int = 0
    """Of them those for encoded pictures that wait for the writer; 0 where they are few or small."""
    provenance: Provenance | None = None
    """What the output says of generated pictures; None where nothing is generated, or it must not be said."""
    quality: Quality | None = None
    """What is measured of the result before it gets its name."""
    ledger: bool = False
    """Whether finished segments are kept beside the output, so that a run that was stopped goes on."""
    devices: tuple[str, ...] = ()
    """GPUs that render segments side by side, `device` the first of them; empty where there is only one."""
    choices: tuple[Choice, ...] = ()
    """What networks run on, where that is made up: whoever renders a piece holds to it. A planner makes up nothing."""

    def to_json(self) -> dict[str, Plain]:
        """The whole plan as plain data."""
        data = plain(self)
        assert isinstance(data, dict)
        return {**data, "digest": self.digest()}

    def lines(self) -> list[str]:
        """The whole plan in words, a fact a line."""
        from gpupipe.plan.text import lines  # noqa: PLC0415  words are made from the plan, not the plan from words

        return lines(self)

    def digest(self) -> str:
        """Of everything that decides the pixels and the times, and so tells whether a stored piece still fits."""
        return hashlib.sha256(json.dumps(self.deciding(), sort_keys=True).encode()).hexdigest()

    def deciding(self) -> dict[str, Plain]:
        """Everything that decides the pixels and the times.

        Which of several GPUs it is does not; nor do words, such as which engines a machine has for a network.
        """
        data = plain(self)
        assert isinstance(data, dict)
        data["steps"] = [{**step, "reason": ""} for step in data["steps"]]  # type: ignore[union-attr,dict-item]
        text = json.dumps({k: v for k, v in data.items() if k not in _ANYWHERE})
        relevant: dict[str, Plain] = json.loads(re.sub(r'"cuda:\d+"', '"cuda"', text))
        return relevant
