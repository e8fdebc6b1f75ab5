"""The engine cache: whole entries or none, one builder, anything damaged or foreign is built anew."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from engine_keys import key

from gpupipe.engines.cache import EngineCache
from gpupipe.errors import EngineError

HERE = Path(__file__).parent


def write(text):
    def build(folder):
        (folder / "data").write_text(text)

    return build


def never(_):
    pytest.fail("built what was there")


def names(folder):
    return sorted(path.name for path in folder.iterdir() if not path.name.endswith(".lock"))


def test_what_was_built_is_found(tmp_path):
    cache = EngineCache(tmp_path / "new" / "folder")
    place, fresh = cache.entry(key(), write("engine"))
    assert fresh
    assert cache.entry(key(), never) == (place, False)
    assert (place / "data").read_text() == "engine"
    assert names(tmp_path / "new" / "folder") == [key().digest]


@pytest.mark.parametrize(
    "change",
    [
        {"network": "1" * 64}, {"shape": (2, 3, 8, 8)}, {"least": 1}, {"precision": "fp32"}, {"engine": "tensorrt"}, {"recipe": 2},
        {"versions": (("torch", "2.12.0"),)}, {"device": "NVIDIA H100"}, {"capability": "8.0"}, {"driver": "590.1"},
    ],
)  # fmt: skip
def test_every_part_of_the_key_counts(change, tmp_path):
    cache = EngineCache(tmp_path)
    cache.entry(key(), write("one"))
    place, fresh = cache.entry(key(**change), write("other"))
    assert fresh
    assert (place / "data").read_text() == "other"
    assert len(names(tmp_path)) == 2


def truncate(place):
    (place / "data").write_bytes(b"en")


def flip(place):
    (place / "data").write_bytes(b"enginf")


def lose(place):
    (place / "data").unlink()


def add(place):
    (place / "more").write_bytes(b"")


def no_manifest(place):
    (place / "entry.json").unlink()


def not_json(place):
    (place / "entry.json").write_bytes(b"\xff{")


def other_json(place):
    (place / "entry.json").write_text("[1]")


def foreign(place):
    manifest = json.loads((place / "entry.json").read_text())
    manifest["key"]["device"] = "NVIDIA A100"
    (place / "entry.json").write_text(json.dumps(manifest))


def a_file(place):
    shutil.rmtree(place)
    place.write_text("not a folder")


@pytest.mark.parametrize(
    "damage", [truncate, flip, lose, add, no_manifest, not_json, other_json, foreign, a_file], ids=lambda f: f.__name__
)
def test_damaged_or_foreign_is_built_anew(damage, tmp_path):
    cache = EngineCache(tmp_path)
    place, _ = cache.entry(key(), write("engine"))
    damage(place)
    again, fresh = cache.entry(key(), write("second"))
    assert (again, fresh) == (place, True)
    assert (again / "data").read_text() == "second"
    cache.entry(key(), never)
    assert names(tmp_path) == [key().digest]


def test_a_build_that_fails_leaves_nothing(tmp_path):
    def fail(folder):
        (folder / "data").write_text("half")
        raise EngineError("no such operator")

    cache = EngineCache(tmp_path)
    with pytest.raises(EngineError, match="no such operator"):
        cache.entry(key(), fail)
    assert names(tmp_path) == []
    assert cache.entry(key(), write("engine"))[1]


def test_what_is_discarded_is_built_again(tmp_path):
    cache = EngineCache(tmp_path)
    cache.entry(key(), write("one"))
    cache.discard(key())
    assert names(tmp_path) == []
    assert cache.entry(key(), write("two"))[1]


def start(folder):
    """It says `building` where it has to, and is done with that when it is told `go on`."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(HERE), str(HERE.parents[1])])}
    command = [sys.executable, str(HERE / "slow_builder.py"), str(folder)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)


def test_two_processes_at_once_build_once(tmp_path):
    first = start(tmp_path)
    assert first.stdout.readline() == "building\n"
    second = start(tmp_path)
    assert second.stdout.readline() == "another process builds inductor; waiting for it\n"
    told = [process.communicate("go on\n", timeout=240)[0] for process in (first, second)]
    assert told == ["built whole\n", "found whole\n"]


def test_a_builder_that_is_killed_holds_nobody_up(tmp_path):
    first = start(tmp_path)
    assert first.stdout.readline() == "building\n"
    first.send_signal(signal.SIGKILL)
    first.communicate(timeout=240)
    place, fresh = EngineCache(tmp_path, patience=240).entry(key(), write("whole"))
    assert fresh
    assert (place / "data").read_text() == "whole"
    left = [name for name in names(tmp_path) if name != key().digest]
    assert len(left) == 1, "what the killed one wrote is nobody's entry"
    os.utime(tmp_path / left[0], (0, 0))
    EngineCache(tmp_path).entry(key(recipe=9), write("later"))
    assert left[0] not in names(tmp_path)


def test_patience_ends(tmp_path):
    first = start(tmp_path)
    try:
        assert first.stdout.readline() == "building\n"
        with pytest.raises(EngineError, match="another process has been building inductor for 0 s"):
            EngineCache(tmp_path, patience=0.2).entry(key(), never)
    finally:
        first.kill()
        first.communicate(timeout=240)


def test_where_nothing_can_be_written_it_is_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(EngineError) as told:
        EngineCache(tmp_path / "file" / "engines").entry(key(), write("x"))
    assert "\n" not in str(told.value)
    assert str(tmp_path / "file") in str(told.value)
