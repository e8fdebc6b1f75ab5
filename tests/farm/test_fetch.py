"""Sources behind URLs."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import fsspec
import pytest

from gpupipe.errors import CapabilityError, SourceError
from gpupipe.farm.fetch import is_url, local_copy

if TYPE_CHECKING:
    from pathlib import Path


def test_what_is_a_url() -> None:
    assert all(map(is_url, ("s3://bucket/a.mov", "https://host/a.mov", "file:///a.mov")))
    assert not any(map(is_url, ("a.mov", "/a/b.mov", "C:\\a.mov", "a:b.mov", "//host/a.mov")))


def test_one_copy_a_version(tmp_path: Path, monkeypatch) -> None:
    memory = fsspec.filesystem("memory")
    memory.pipe("/clips/a.mov", b"first")
    calls = []
    get = type(memory).get_file
    monkeypatch.setattr(type(memory), "get_file", lambda *a: (calls.append(a), get(*a)))
    with ThreadPoolExecutor(4) as pool:
        copies = set(pool.map(lambda _: local_copy("memory://clips/a.mov", tmp_path), range(4)))
    assert len(copies) == len(calls) == 1
    (copy,) = copies
    assert (copy.suffix, copy.read_bytes(), copy.stat().st_mtime_ns) == (".mov", b"first", 0)
    memory.pipe("/clips/a.mov", b"second")
    other = local_copy("memory://clips/a.mov", tmp_path)
    assert (other.read_bytes(), copy.read_bytes()) == (b"second", b"first")
    assert not list(tmp_path.glob("*.part"))


def test_what_cannot_be_fetched(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="cannot be fetched"):
        local_copy("memory://clips/none.mov", tmp_path)
    with pytest.raises((SourceError, CapabilityError)):
        local_copy("nonsense://clips/none.mov", tmp_path)
    (tmp_path / "file").touch()
    memory = fsspec.filesystem("memory")
    memory.pipe("/clips/a.mov", b"first")
    with pytest.raises(SourceError, match="cannot be fetched"):
        local_copy("memory://clips/a.mov", tmp_path / "file")
