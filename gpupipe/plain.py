"""Any of our objects as JSON's own types, and JSON of files that anyone may have changed."""

from __future__ import annotations

import dataclasses
import json
from enum import Enum
from typing import Any

from pydantic import BaseModel

from gpupipe.format import PixelFormat

Plain = None | bool | int | float | str | list["Plain"] | dict[str, "Plain"]


def plain(value: object) -> Plain:
    """Dataclasses, fractions, paths and enums as JSON's own types, without fields that are no part of a repr."""
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(v) for v in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, (type, PixelFormat)):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value) if f.repr}
    if isinstance(value, BaseModel):
        return plain(value.model_dump(mode="json"))
    return _scalar(value)


def _scalar(value: object) -> Plain:
    if isinstance(value, PixelFormat):
        return value.name
    if isinstance(value, Enum):
        return value.name.lower() if isinstance(value, int) else str(value.value)
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)


def parsed(text: str | bytes) -> Any:
    """JSON out of a file. Raises ValueError for all that is none, nested too deep to be read among it."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deep") from None
