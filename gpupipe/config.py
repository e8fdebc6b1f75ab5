"""The config: YAML to frozen models. Every error names the file, the key path and the nearest key."""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING, Annotated, Any, Literal

import yaml
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from gpupipe import stages
from gpupipe.errors import ConfigError
from gpupipe.stages.base import Settings

if TYPE_CHECKING:
    from pathlib import Path


class Strict(BaseModel):
    """Unknown keys and wrong types are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


def _time_text(value: object) -> object:
    """Numbers are seconds; texts are read later, when the source's time base and rate are known."""
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise ValueError("a time is seconds (12.5), 'HH:MM:SS.fff', a timecode 'HH:MM:SS:FF' or 'pts:N'")  # noqa: TRY004  pydantic's
    return str(value)


TimeText = Annotated[str, BeforeValidator(_time_text)]


def _bits_per_second(value: object) -> object:
    """`192k`, `8M` or a plain number."""
    text = str(value).strip()
    scale = {"k": 1_000, "M": 1_000_000}.get(text[-1:], 1)
    digits = text[:-1] if scale != 1 else text
    if isinstance(value, bool) or not digits.replace(".", "", 1).isdigit() or float(digits) <= 0:
        raise ValueError(f"a bitrate is a number with k or M, such as 192k or 8M, not {value!r}")
    return round(float(digits) * scale)


Bitrate = Annotated[int, BeforeValidator(_bits_per_second)]


def _device(value: str) -> str:
    if value in ("auto", "cpu", "cuda") or (value.startswith("cuda:") and value[5:].isdigit()):
        return value
    raise ValueError(f"a device is auto, cpu, cuda or cuda:N, not {value!r}")


Device = Annotated[str, AfterValidator(_device)]


class TimeRange(Strict):
    """Half-open: the first frame at or after `start`, up to but not including the first at or after `end`."""

    start: TimeText | None = None
    end: TimeText | None = None


class VideoOutput(Strict):
    """How the pictures are encoded."""

    codec: str = "h264"
    encoder: str = "auto"
    """auto, nvenc, nvjpeg, or a libav encoder by name (libx264, prores_ks, ...)."""
    quality: float | None = Field(default=None, ge=0)
    """Constant quality on the encoder's own scale (CRF, CQ, JPEG's 1 to 100); by default its usual value."""
    bitrate: Bitrate | None = None
    preset: str | None = None
    pixel_format: str = "auto"
    """auto keeps depth and chroma as far as the encoder can."""
    options: dict[str, str | int | float] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _one_rate_control(self) -> VideoOutput:
        if self.quality is not None and self.bitrate is not None:
            raise ValueError("quality and bitrate exclude each other; give one")
        return self


class AudioEncode(Strict):
    """Re-encoded audio."""

    codec: str
    bitrate: Bitrate | None = None


class Output(Strict):
    """Where the result goes and what it holds."""

    path: str | None = None
    video: VideoOutput = VideoOutput()
    audio: Literal["copy", "none"] | AudioEncode = "copy"
    subtitles: Literal["copy", "none"] = "copy"
    metadata: Literal["copy", "none"] = "copy"
    """Chapters, tags, timecode, attachments, data streams, cover art."""


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
    memory: Literal["auto", "device_only"] = "auto"
    size_change: Literal["scale", "error"] = "scale"
    """What to do when the picture size changes in mid-stream: scale to the first size with a warning, or stop."""
    stages: tuple[StageEntry, ...] = ()
    output: Output = Output()


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


def _raise(error: ValidationError, model: type[BaseModel], source: str, prefix: str = "") -> None:
    """Turns pydantic's first and best complaint into one line."""
    first = max(error.errors(), key=lambda e: (e["type"] == "extra_forbidden", len(e["loc"])))
    names = [p for p in first["loc"] if not (isinstance(p, str) and (p[:1].isupper() or p.startswith("literal[")))]
    key = prefix + "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in names)
    hint = None
    message = first["msg"].removeprefix("Value error, ")
    if first["type"] == "extra_forbidden":
        message = "unknown key"
        hint = near_miss(str(names[-1]), _known_keys(model, tuple(names[:-1])))
    elif "input" in first and not isinstance(first["input"], (dict, list)):
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


class _Loader(yaml.SafeLoader):
    """YAML without its two traps: a key given twice is an error, and 00:10:00 is a text, not a number in base 60."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if key.value in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key '{key.value}' stands twice", key.start_mark
                )
            seen.add(str(key.value))
        return super().construct_mapping(node, deep)


_Loader.yaml_implicit_resolvers = {
    first: [(tag, regex) for tag, regex in resolvers if tag not in ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver("tag:yaml.org,2002:int", re.compile(r"^[-+]?(0|[1-9][0-9]*)$"), list("-+0123456789"))
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?([0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))([eE][-+]?[0-9]+)?$"),
    list("-+.0123456789"),
)


def load_config(path: Path) -> Config:
    """Reads a YAML config. Raises ConfigError naming file, line and key."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot read the config: {error.strerror}", where=str(path)) from None
    except UnicodeDecodeError:
        raise ConfigError(
            "is not a text file in UTF-8", where=str(path), hint="a config is YAML, see configs/"
        ) from None
    try:
        data = yaml.load(text, Loader=_Loader)  # noqa: S506  it is a SafeLoader
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f"{path}:{mark.line + 1}" if mark else str(path)
        raise ConfigError(
            f"not valid YAML: {getattr(error, 'problem', None) or str(error).splitlines()[0]}", where=line
        ) from None
    return parse_config(data, str(path))
