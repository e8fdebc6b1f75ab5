"""A plan as a file: written once, read by other processes and machines, which render pieces of it."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import os
import sys
import types
import typing
from enum import Enum, IntEnum
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel

from gpupipe.errors import PlanError
from gpupipe.format import PIXEL_FORMATS, PixelFormat
from gpupipe.plain import parsed
from gpupipe.plan.model import Plan

T = TypeVar("T")
FORMAT = 1
_AROUND = ("format", "digest", "facts", "run")
"""What of a file is no field of the plan; a ledger's has the facts that it was begun with."""


@cache
def _names(module: str) -> dict[str, object]:
    """What a module's annotations name: its own names, and those that it imports for type checkers only."""
    found = dict(vars(sys.modules[module]))
    for block in ast.walk(ast.parse(inspect.getsource(sys.modules[module]))):
        if isinstance(block, ast.If) and isinstance(block.test, ast.Name) and block.test.id == "TYPE_CHECKING":
            for node in block.body:
                if isinstance(node, ast.ImportFrom) and node.module:
                    owner = vars(importlib.import_module(node.module))
                    found |= {name.asname or name.name: owner[name.name] for name in node.names if name.name in owner}
    return found


def absolute(plan: Plan) -> Plan:
    """The plan with every path absolute: it means the same from any folder, and has the same digest."""
    steps = tuple(dataclasses.replace(step, settings=_whole(step.settings)) for step in plan.steps)
    source = dataclasses.replace(plan.source, path=plan.source.path.absolute())
    signer = plan.provenance
    if signer is not None:
        signer = dataclasses.replace(signer, certificate=_whole(signer.certificate), key=_whole(signer.key))
    return dataclasses.replace(plan, source=source, steps=steps, output=plan.output.absolute(), provenance=signer)


def _whole(value: Any) -> Any:
    """Plain data with every text absolute that is the name of a file."""
    if isinstance(value, dict):
        return {key: _whole(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_whole(one) for one in value]
    return os.path.abspath(value) if isinstance(value, str) and os.path.isfile(value) else value  # noqa: PTH113, PTH100  any text is asked


def dump(plan: Plan) -> dict[str, object]:
    """A plan as JSON's own types; `load` makes the same of it."""
    return {"format": FORMAT, **absolute(plan).to_json()}


def load(data: dict[str, Any], where: str) -> Plan:
    """What `dump` gave, as a plan again. Raises PlanError where it is none, or was changed by hand."""
    if not isinstance(data, dict) or data.get("format") != FORMAT or "digest" not in data:
        raise PlanError("is no plan of this version", where=where, hint="make one by `gpupipe plan --save`")
    try:
        plan = restored(Plan, {k: v for k, v in data.items() if k not in _AROUND})
        chapters = tuple({**c, "time_base": Fraction(str(c["time_base"]))} for c in plan.source.chapters)
        plan = dataclasses.replace(plan, source=dataclasses.replace(plan.source, chapters=chapters))
    except (KeyError, TypeError, ValueError, ArithmeticError) as error:
        raise PlanError(f"is no plan: {error}", where=where, hint="make one by `gpupipe plan --save`") from None
    if plan.digest() != data["digest"]:
        raise PlanError("was changed after it was made", where=where, hint="make it again by `gpupipe plan --save`")
    return plan


def read_plan(path: Path) -> Plan:
    """The plan in a file. Raises PlanError."""
    try:
        data = parsed(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise PlanError(f"cannot be read: {error.strerror}", where=str(path), hint="check the path") from None
    except ValueError:
        raise PlanError("is no plan: it is not JSON", where=str(path), hint="see `gpupipe plan --save`") from None
    return load(data, str(path))


def restored(kind: type[T], data: Any) -> T:
    """The inverse of `plain`: an object of that type from JSON's own types. Raises KeyError, TypeError, ValueError."""
    try:
        found: T = _made(kind, data)
    except (AttributeError, ArithmeticError, RecursionError) as error:
        raise ValueError(str(error)) from None
    return found


def _made(kind: Any, data: Any) -> Any:  # noqa: PLR0911  one answer a kind of type
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return None if data is None else _made(next(one for one in inner if one is not type(None)), data)
    if origin is tuple:
        many = len(inner) == 2 and inner[1] is ...
        pairs = zip([inner[0]] * len(data) if many else inner, data, strict=True)
        return tuple(_made(one, value) for one, value in pairs)
    if origin is typing.Literal and data not in inner:
        raise ValueError(f"{data!r} is none of {inner}")
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
    hints = typing.get_type_hints(kind, _names(kind.__module__))
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
    if kind in (bool, int, float, str) and not isinstance(data, (int, float) if kind is float else kind):
        raise TypeError(f"{data!r} is no {kind.__name__}")
    return data
