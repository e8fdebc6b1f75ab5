"""From YAML or JSON to a Config. Every error names the file, the key path and the nearest key."""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING, Any, get_args

from pydantic import BaseModel, ValidationError

from gpupipe import stages
from gpupipe.config.model import Config, StageEntry
from gpupipe.document import read_document
from gpupipe.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from gpupipe.stages.base import Settings


def near_miss(key: str, known: list[str]) -> str:
    """'; did you mean X?' for the closest known key, or a list of all keys."""
    close = difflib.get_close_matches(key, known, n=1, cutoff=0.6)
    return f"did you mean '{close[0]}'?" if close else f"known here: {', '.join(sorted(known))}"


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    """Models that a field's type may hold, alone, in unions, in lists."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _models(part)


def _known_keys(model: type[BaseModel], path: tuple[int | str, ...]) -> list[str]:
    """Field names at `path` below `model`, for the nearest-key hint."""
    for part in path:
        if isinstance(part, str) and part in model.model_fields:
            model = next(_models(model.model_fields[part].annotation), model)
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
