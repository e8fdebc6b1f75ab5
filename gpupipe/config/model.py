"""The whole config as frozen models."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from gpupipe.config.output import Output
from gpupipe.config.values import Bytes, Device, Devices, Sessions, Strict, TimeText
from gpupipe.stages.base import Settings


class MemoryLimits(Strict):
    """What a run may take at most, where others share the machine."""

    host: Bytes | None = None
    device: Bytes | None = None
    """Of the GPU."""
    device_only: bool = False
    """Refuse what would copy pixels to or from the host."""


def _memory(value: object) -> object:
    if isinstance(value, str) and value not in ("auto", "device_only"):
        raise ValueError(f"memory is auto, device_only, or {{host: 8G, device: 20G}}, not {value!r}")
    return {"device_only": True} if value == "device_only" else {} if value == "auto" else value


class TimeRange(Strict):
    """Half-open: the first frame at or after `start`, up to but not including the first at or after `end`."""

    start: TimeText | None = None
    end: TimeText | None = None


class Quality(Strict):
    """What is measured of the result, before it gets its name."""

    metrics: tuple[Literal["psnr", "ssim", "vmaf"], ...] = Field(default=("psnr", "ssim"), min_length=1, strict=False)
    against: Literal["input", "stages"] = "stages"
    """What the decoder gave, or what the encoder got."""
    frames: Literal["all"] | Annotated[int, Field(ge=1)] = 30
    """How many pictures, evenly over the run."""
    minimum: dict[Literal["psnr", "ssim", "vmaf"], float] = Field(default_factory=dict)
    """Least scores of the whole: less fails the run."""

    @model_validator(mode="after")
    def _measured(self) -> Quality:
        if unmeasured := set(self.minimum) - set(self.metrics):
            raise ValueError(f"minimum.{min(unmeasured)} needs it among the metrics")
        return self


class SegmentLength(Strict):
    """Segments of at least so many seconds, cut at key frames."""

    seconds: float = Field(gt=0)


class StageEntry(BaseModel):
    """One entry of `stages`: its name and its validated settings."""

    model_config = ConfigDict(frozen=True)
    name: str
    settings: Settings


class Config(Strict):
    """A whole config file."""

    input: str | None = None
    range: TimeRange = TimeRange()
    device: Device = "auto"
    devices: Devices | None = None
    """GPUs that render segments side by side, in place of `device`."""
    memory: Annotated[MemoryLimits, BeforeValidator(_memory)] = MemoryLimits()
    size_change: Literal["scale", "error"] = "scale"
    """What to do when the picture size changes in mid-stream: scale to the first size with a warning, or stop."""
    segments: Literal["auto", "off"] | SegmentLength = "auto"
    """Whether the source is cut at key frames into pieces that are rendered side by side."""
    sessions: Sessions = "auto"
    """How many segments run side by side."""
    resume: Literal["auto", "keep", "off"] = "auto"
    """Whether finished segments are kept beside the output until it is whole, so that the same command goes on."""
    graphs: Literal["auto", "off"] = "auto"
    """Whether the GPU's work on a batch is captured as one CUDA Graph."""
    stages: tuple[StageEntry, ...] = ()
    output: Output = Output()
    quality: Quality | None = None

    @model_validator(mode="after")
    def _one_or_many(self) -> Config:
        if self.devices is not None and self.device != "auto":
            raise ValueError("device and devices exclude each other; give one")
        return self
