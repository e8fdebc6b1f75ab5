"""The stages, one a module, found by name: `load("resize")` imports `gpupipe.stages.resize` and no other."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any

_NOT_STAGES = {"base"}


def names() -> tuple[str, ...]:
    """Every stage there is, in alphabetical order."""
    return tuple(
        sorted(m.name for m in pkgutil.iter_modules(__path__) if m.name not in _NOT_STAGES and m.name[0] != "_")
    )


def load(name: str) -> Any:
    """The stage class of that name (see `base.Stage`). KeyError if there is none."""
    if name not in names():
        raise KeyError(name)
    return importlib.import_module(f"{__name__}.{name}").STAGE
