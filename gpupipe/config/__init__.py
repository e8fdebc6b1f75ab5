"""The config: YAML to frozen models. Every error names the file, the key path and the nearest key."""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from gpupipe import stages
from gpupipe.device import NAMES
from gpupipe.document import read_document
from gpupipe.errors import ConfigError
from gpupipe.stages.base import Settings

if TYPE_CHECKING:
    from pathlib import Path


class Strict(BaseModel):
    """Unknown keys and wrong types are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


def _time_text(value: object) -> object:
    """Numbers are seconds; texts are read later, when the source's time base and rate are known."""
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise ValueError("a time is seconds (12.5), 'HH:MM:SS.fff', a timecode 'HH:MM:SS:FF' or 'pts:N'")  # noqa: TRY004  pydantic's
    return str(value)


TimeText = Annotated[str, BeforeValidator(_time_text)]


LEAST_BITRATE = 4000


def _bits_per_second(value: object) -> object:
    """`192k`, `8M` or a plain number."""
    text = str(value).strip() if isinstance(value, (str, int, float)) and not isinstance(value, bool) else ""
    match = re.fullmatch(r"([0-9]{1,12}(?:\.[0-9]{0,12})?)([kM]?)", text)
    rate = round(float(match[1]) * {"": 1, "k": 1_000, "M": 1_000_000}[match[2]]) if match else 0
    if not 0 < rate < 1 << 31:
        raise ValueError(f"a bitrate is a number with k or M, such as 192k or 8M, not {value!r}")
    if not match[2] and rate < LEAST_BITRATE:  # type: ignore[index]  # a rate above 0 comes from a match
        raise ValueError(f"{rate} bits a second is next to nothing; write {rate}k for kilobits")
    return rate


Bitrate = Annotated[int, BeforeValidator(_bits_per_second)]


def _device(value: str) -> str:
    if NAMES.fullmatch(value):
        return value
    raise ValueError(f"a device is auto, cpu, cuda or cuda:N, not {value!r}")


Device = Annotated[str, AfterValidator(_device)]


def _devices(value: object) -> object:
    if value == "all":
        return value
    if isinstance(value, list) and value and all(isinstance(one, str) and _GPU.fullmatch(one) for one in value):
        if len(set(value)) == len(value):
            return tuple(value)
        raise ValueError("a device is named twice")
    raise ValueError(f"devices is all, or a list such as [cuda:0, cuda:1], not {value!r}")


_GPU = re.compile(r"cuda:[0-9]{1,4}")
Devices = Annotated[Literal["all"] | tuple[str, ...], BeforeValidator(_devices)]


def _sessions(value: object) -> object:
    if value == "auto" or (isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MOST_SESSIONS):
        return value
    raise ValueError(f"sessions is auto or a number from 1 to {MOST_SESSIONS}, not {value!r}")


MOST_SESSIONS = 64
Sessions = Annotated[Literal["auto"] | int, BeforeValidator(_sessions)]


def _bytes(value: object) -> object:
    """`800M`, `12G` (of 1024) or a plain number."""
    text = str(value).strip() if isinstance(value, (str, int)) and not isinstance(value, bool) else ""
    match = re.fullmatch(r"([0-9]{1,15}(?:\.[0-9]{0,6})?)([MG]?)", text)
    size = round(float(match[1]) * {"": 1, "M": 1 << 20, "G": 1 << 30}[match[2]]) if match else 0
    if not LEAST_MEMORY <= size < 1 << 50:
        raise ValueError(f"memory is a number with M or G, such as 800M or 12G, not {value!r}")
    return size


LEAST_MEMORY = 64 << 20
Bytes = Annotated[int, BeforeValidator(_bytes)]


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


class VideoOutput(Strict):
    """How the pictures are encoded."""

    codec: str = "h264"
    encoder: str = "auto"
    """auto, nvenc, nvjpeg, prores_torch, or a libav encoder by name (libx264, prores_ks, ...)."""
    quality: float | None = Field(default=None, ge=0)
    """Constant quality on the encoder's own scale (CRF, CQ, JPEG's 1 to 100); by default its usual value."""
    bitrate: Bitrate | None = None
    preset: str | None = Field(default=None, min_length=1)
    pixel_format: str = "auto"
    """auto keeps depth and chroma as far as the encoder can."""
    options: dict[str, str | int | float] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _one_rate_control(self) -> VideoOutput:
        if self.quality is not None and self.bitrate is not None:
            raise ValueError("quality and bitrate exclude each other; give one")
        return self


def _audio(value: object) -> object:
    if isinstance(value, str) and value not in ("copy", "none"):
        raise ValueError(f"audio is copy, none, or {{codec: aac, bitrate: 192k}}, not {value!r}")
    return value


class AudioEncode(Strict):
    """Re-encoded audio."""

    codec: str
    bitrate: Bitrate | None = None


class Signature(Strict):
    """Who signs a C2PA manifest."""

    certificate: str
    """A PEM file, the signer's certificate first."""
    key: str
    """A PEM file."""
    algorithm: Literal["es256", "es384", "es512", "ps256", "ps384", "ps512", "ed25519"] = "es256"
    timestamps: str | None = None
    """URL of a time stamp authority."""


class Output(Strict):
    """Where the result goes and what it holds."""

    path: str | None = None
    video: VideoOutput = VideoOutput()
    audio: Annotated[Literal["copy", "none"] | AudioEncode, BeforeValidator(_audio)] = "copy"
    subtitles: Literal["copy", "none"] = "copy"
    metadata: Literal["copy", "none"] = "copy"
    """Chapters, tags, timecode, attachments, data streams, cover art."""
    provenance: Literal["auto", "none"] | Signature = "auto"
    """Whether the file says that pictures were generated or enhanced, where they were; signed with a certificate."""


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


def near_miss(key: str, known: list[str]) -> str:
    """'; did you mean X?' for the closest known key, or a list of all keys."""
    close = difflib.get_close_matches(key, known, n=1, cutoff=0.6)
    return f"did you mean '{close[0]}'?" if close else f"known here: {', '.join(sorted(known))}"


def _known_keys(model: type[BaseModel], path: tuple[int | str, ...]) -> list[str]:
    """Field names at `path` below `model`, for the nearest-key hint."""
    for part in path:
        annotation = (
            model.model_fields[part].annotation if isinstance(part, str) and part in model.model_fields else None
        )
        options = [annotation, *getattr(annotation, "__args__", ())]
        nested = [o for o in options if isinstance(o, type) and issubclass(o, BaseModel)]
        if nested:
            model = nested[0]
    return list(model.model_fields)


_OF_A_UNION = re.compile(r"(AudioEncode|SegmentLength|Signature|literal\[.*|str|int|float)$")
"""What pydantic adds to a key's path to say which of several types it tried."""
_WORDS = {
    "missing": "is missing",
    "model_type": "must be a mapping of keys",
    "dict_type": "must be a mapping of keys",
    "tuple_type": "must be a list",
    "string_type": "must be a text",
}


def _raise(error: ValidationError, model: type[BaseModel], source: str, prefix: str = "") -> None:
    """Turns pydantic's first and best complaint into one line."""
    first = max(error.errors(), key=lambda e: (e["type"] == "extra_forbidden", len(e["loc"])))
    *above, last = first["loc"] or ("",)
    names = [p for p in above if not (isinstance(p, str) and _OF_A_UNION.match(p))]
    if first["type"] == "extra_forbidden" or not (isinstance(last, str) and _OF_A_UNION.match(last)):
        names.append(last)
    key = prefix + "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in names if p != "")
    hint = None
    message = _WORDS.get(first["type"], first["msg"].removeprefix("Value error, "))
    if first["type"] == "extra_forbidden":
        message = "unknown key"
        hint = near_miss(str(names[-1]), _known_keys(model, tuple(names[:-1])))
    elif "input" in first and isinstance(first["input"], (str, int, float, type(None))):
        message += f", not {first['input']!r}" if repr(first["input"]) not in message else ""
    raise ConfigError(message, where=f"{source}: {key.lstrip('.')}", hint=hint) from None


def _stage_entry(entry: Any, index: int, source: str) -> StageEntry:
    """Validates `{name: settings}` or a bare `name`."""
    where = f"stages[{index}]"
    if isinstance(entry, str):
        entry = {entry: {}}
    if not isinstance(entry, dict) or len(entry) != 1:
        raise ConfigError(
            "a stage is one name with its settings, such as `- resize: {width: 1280}`", where=f"{source}: {where}"
        )
    name, raw = next(iter(entry.items()))
    try:
        stage = stages.load(str(name))
    except KeyError:
        hint = near_miss(str(name), list(stages.names()))
        raise ConfigError("unknown stage", where=f"{source}: {where}.{name}", hint=hint) from None
    settings: type[Settings] = stage.Settings
    try:
        return StageEntry(name=str(name), settings=settings.model_validate({} if raw is None else raw))
    except ValidationError as error:
        _raise(error, settings, source, f"{where}.{name}")
        raise AssertionError from None


def parse_config(data: Any, source: str = "config") -> Config:
    """Validates a config already read from YAML or JSON. Raises ConfigError."""
    if data is None:
        data = {}
    if not isinstance(data, dict):
        raise ConfigError("a config is a mapping of keys, see configs/", where=source)
    raw_stages = data.get("stages")
    if raw_stages is not None and not isinstance(raw_stages, list):
        raise ConfigError("stages is a list, each item one stage", where=f"{source}: stages")
    entries = tuple(_stage_entry(e, i, source) for i, e in enumerate(raw_stages or ()))
    try:
        return Config.model_validate({**data, "stages": entries})
    except ValidationError as error:
        _raise(error, Config, source)
        raise AssertionError from None


def load_config(path: Path) -> Config:
    """Reads a YAML config. Raises ConfigError naming file, line and key."""
    return parse_config(read_document(path), str(path))
