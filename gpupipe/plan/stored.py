"""A plan as a file: written once, read by other processes and machines, which render pieces of it."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import types
import typing
from enum import Enum, IntEnum
from fractions import Fraction
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel

from gpupipe.codecs.base import EncoderSettings
from gpupipe.config import AudioEncode, Quality
from gpupipe.errors import PlanError
from gpupipe.format import PIXEL_FORMATS, FrameFormat, PixelFormat
from gpupipe.media.segments import Segment
from gpupipe.media.source import SourceInfo, Track
from gpupipe.plan.model import Plan

T = TypeVar("T")
FORMAT = 1
_NAMES = {
    kind.__name__: kind
    for kind in (
        *(AudioEncode, EncoderSettings, Fraction, FrameFormat, Path, PixelFormat),
        *(Quality, Segment, SourceInfo, Track),
    )
}
"""What the annotations of a plan's parts name, and their modules import for type checkers only."""


def absolute(plan: Plan) -> Plan:
    """The plan with every path absolute: it means the same from any folder, and has the same digest."""

    def whole(value: object) -> object:
        return os.path.abspath(value) if isinstance(value, str) and os.path.isfile(value) else value  # noqa: PTH113, PTH100  any text is asked

    steps = tuple(
        dataclasses.replace(step, settings={k: whole(v) for k, v in step.settings.items()}) for step in plan.steps
    )
    source = dataclasses.replace(plan.source, path=plan.source.path.absolute())
    return dataclasses.replace(plan, source=source, steps=steps, output=plan.output.absolute())


def dump(plan: Plan) -> dict[str, object]:
    """A plan as JSON's own types; `load` makes the same of it."""
    return {"format": FORMAT, **absolute(plan).to_json()}


def load(data: dict[str, Any], where: str) -> Plan:
    """What `dump` gave, as a plan again. Raises PlanError where it is none, or was changed by hand."""
    if not isinstance(data, dict) or data.get("format") != FORMAT or "digest" not in data:
        raise PlanError("is no plan of this version", where=where, hint="make one by `gpupipe plan --save`")
    try:
        plan = restored(Plan, {k: v for k, v in data.items() if k not in ("format", "digest")})
        chapters = tuple({**c, "time_base": Fraction(str(c["time_base"]))} for c in plan.source.chapters)
        plan = dataclasses.replace(plan, source=dataclasses.replace(plan.source, chapters=chapters))
    except (KeyError, TypeError, ValueError) as error:
        raise PlanError(f"is no plan: {error}", where=where, hint="make one by `gpupipe plan --save`") from None
    if plan.digest() != data["digest"]:
        raise PlanError("was changed after it was made", where=where, hint="make it again by `gpupipe plan --save`")
    return plan


def read_plan(path: Path) -> Plan:
    """The plan in a file. Raises PlanError."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise PlanError(f"cannot be read: {error.strerror}", where=str(path), hint="check the path") from None
    except ValueError:
        raise PlanError("is no plan: it is not JSON", where=str(path), hint="see `gpupipe plan --save`") from None
    return load(data, str(path))


def restored(kind: type[T], data: Any) -> T:
    """The inverse of `plain`: an object of that type from JSON's own types. Raises KeyError, TypeError, ValueError."""
    found: T = _made(kind, data)
    return found


def _made(kind: Any, data: Any) -> Any:  # noqa: PLR0911  one answer a kind of type
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return None if data is None else _made(next(one for one in inner if one is not type(None)), data)
    if origin is tuple:
        many = len(inner) == 2 and inner[1] is ...
        pairs = zip([inner[0]] * len(data) if many else inner, data, strict=True)
        return tuple(_made(one, value) for one, value in pairs)
    if origin is dict:
        return {key: _made(inner[1], value) for key, value in data.items()}
    if kind is PixelFormat:
        return PIXEL_FORMATS[data]
    if dataclasses.is_dataclass(kind):
        return _object(kind, data)
    if isinstance(kind, type):
        return _scalar(kind, data)
    return data  # Literal, Any


def _object(kind: Any, data: dict[str, Any]) -> Any:
    hints = typing.get_type_hints(kind, vars(sys.modules[kind.__module__]), _NAMES)
    if unknown := set(data) - set(hints):
        raise KeyError(f"{kind.__name__} has no {min(unknown)}")
    return kind(**{name: _made(hints[name], value) for name, value in data.items()})


def _scalar(kind: type, data: Any) -> Any:
    if issubclass(kind, BaseModel):
        return kind.model_validate(data)
    if issubclass(kind, IntEnum):
        return kind[data.upper()]
    if issubclass(kind, Enum) or kind in (Fraction, Path):
        return kind(data)
    return data
