"""What decides the bytes of a segment beside the plan, and what of it has changed since a ledger was begun."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import av

from gpupipe.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpupipe.plan import Plan

_SAMPLES, _SAMPLE = 16, 1 << 16
_WORDS = {
    "version": "gpupipe",
    "libraries.av": "PyAV",
}


def inputs(plan: Plan) -> tuple[Path, ...]:
    """What a run reads, images and LUTs of stages too: none of it may become the output, and all of it decides."""
    texts = (text for step in plan.steps for text in _texts(step.settings))
    return (plan.source.path, *(Path(text) for text in texts if os.path.isfile(text)))  # noqa: PTH113  any text is asked


def _texts(value: object) -> Iterator[str]:
    """Every text in plain data."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, (dict, list, tuple)):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _texts(one)


def fingerprint(path: Path) -> dict[str, object]:
    """Size, time of the last change, and a hash of sixteen samples: a file that was replaced shows in one of them."""
    stat = path.stat()
    seen = hashlib.sha256()
    with path.open("rb") as file:
        for n in range(_SAMPLES):
            file.seek(max(0, stat.st_size - _SAMPLE) * n // (_SAMPLES - 1))
            seen.update(file.read(_SAMPLE))
    return {"size": stat.st_size, "modified": stat.st_mtime_ns, "samples": seen.hexdigest()}


def facts(plan: Plan) -> dict[str, object]:
    """As plain data; equal for equal runs. Raises SourceError where a file cannot be read."""
    libraries = {name: ".".join(map(str, numbers)) for name, numbers in av.library_versions.items()}
    files = {}
    for path in inputs(plan):
        try:
            files[str(path)] = fingerprint(path)
        except OSError as error:
            raise SourceError(f"cannot be read: {error.strerror}", where=str(path), hint="check the path") from None
    return {
        "files": files,
        "libraries": {"av": av.__version__, **libraries},
    }


def digest(plan: Plan, facts: dict[str, object]) -> str:
    """Of a plan and its facts."""
    return hashlib.sha256(json.dumps([plan.digest(), facts], sort_keys=True).encode()).hexdigest()


def changed(before: object, now: object, path: str = "") -> list[str]:
    """Every difference of two pieces of plain data, in words: `encoder.quality was 23, is 20`."""
    if isinstance(before, dict) and isinstance(now, dict):
        keys = [*before, *(k for k in now if k not in before)]
        return [text for k in keys for text in changed(before.get(k), now.get(k), f"{path}.{k}" if path else str(k))]
    if isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        pairs = enumerate(zip(before, now, strict=True))
        return [text for n, (a, b) in pairs for text in changed(a, b, f"{path}[{n}]")]
    if before == now:
        return []
    name = _WORDS.get(path, path)
    if isinstance(before, (dict, list)) or isinstance(now, (dict, list)):
        return [f"{name} is another"]
    return [f"{name} was {before}, is {now}"]
