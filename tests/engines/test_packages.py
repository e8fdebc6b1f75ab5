"""Packages in a process: loaded as often as they run at once, and tried elsewhere first. Loaders are doubles here."""

from __future__ import annotations

import gc
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
import torch

from gpupipe.engines import packages, trial
from gpupipe.engines.base import Profile
from gpupipe.engines.packages import network_in
from gpupipe.engines.trial import tried
from gpupipe.errors import EngineError

if TYPE_CHECKING:
    from pathlib import Path

PROFILE = Profile(1, 8, 12, "fp32", "cpu")
PLAIN = torch.contiguous_format


class Loader:
    """Gives what it gets, times ten to the power of its number."""

    made = 0

    def __init__(self, *arguments: object) -> None:
        type(self).made += 1
        self.arguments = arguments
        self.factor = 10.0**self.made

    def run(self, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        return [inputs[0] * self.factor]


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(Loader, "made", 0)
    monkeypatch.setattr(packages, "_idle", type(packages._idle)(list))
    monkeypatch.setattr(torch._C._aoti, "AOTIModelPackageLoader", Loader)
    path = tmp_path / "network.pt2"
    path.write_bytes(b"machine code")
    return path


def factor(run) -> float:
    return float(run(torch.ones(PROFILE.shape)).flatten()[0])


def test_what_nobody_runs_any_more_is_run_again(package: Path) -> None:
    first = network_in(package, PROFILE, PLAIN)
    second = network_in(package, PROFILE, PLAIN)
    assert [factor(first), factor(second)] == [10, 100], "two that run at once share nothing"
    del first
    gc.collect()
    third = network_in(package, PROFILE, PLAIN)
    assert [factor(third), factor(second), Loader.made] == [10, 100, 2]
    assert factor(network_in(package, replace(PROFILE, device="cpu:0"), PLAIN)) == 1000, "another device"


def test_another_package_of_the_same_name_is_loaded(package: Path) -> None:
    network_in(package, PROFILE, PLAIN)
    package.write_bytes(b"other machine code")
    assert factor(network_in(package, PROFILE, PLAIN)) == 100


def test_large_weights_are_given_back(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "_KEPT", 4)
    network_in(package, PROFILE, PLAIN)
    gc.collect()
    assert factor(network_in(package, PROFILE, PLAIN)) == 100


def test_memory_that_torch_holds_for_later_is_given_to_it(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[object] = []

    def loads(*arguments: object) -> Loader:
        done.append(arguments[-1])
        if "emptied" not in done:
            raise RuntimeError("create_func_( &container_handle, ...) API call failed\nmore")
        return Loader()

    monkeypatch.setattr(torch._C._aoti, "AOTIModelPackageLoader", loads)
    monkeypatch.setattr(torch.cuda, "device", lambda device: done.append(str(device)) or nullcontext())
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: done.append("emptied"))
    network_in(package, replace(PROFILE, device="cuda:1"), PLAIN)
    assert done == ["cuda:1", 1, "emptied", "cuda:1", 1]
    done.clear()
    with pytest.raises(EngineError, match=r"does not load what it compiled: create_func_.* failed$") as told:
        network_in(package, PROFILE, PLAIN)
    assert done == [-1]
    assert told.value.where == str(package)


def test_a_package_that_is_gone_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="cannot read what was compiled: No such file"):
        network_in(tmp_path / "network.pt2", PROFILE, PLAIN)


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", r"crashes when it is tried \(SIGSEGV\)"),
        ("import os; os.kill(os.getpid(), 40)", r"crashes when it is tried \(signal 40\)"),
        ("import time; time.sleep(60)", r"does not come to its end when it is tried \(1 s\)"),
    ],
)
def test_a_crash_and_a_hang_are_told(code: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "_PATIENCE", 1.0 if "sleep" in code else 60.0)
    with pytest.raises(EngineError, match=said):
        tried(tmp_path / "network.pt2", PROFILE, ("-c", code))


def test_whatever_raises_there_is_left_to_be_raised_here(tmp_path: Path) -> None:
    """The process of its own, for real, on a file that is not there."""
    assert not tried(tmp_path / "network.pt2", PROFILE)


def test_it_goes_without_an_interpreter_that_can_be_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for where in ("", str(tmp_path / "python")):
        monkeypatch.setattr(trial.sys, "executable", where)
        assert not tried(tmp_path / "network.pt2", PROFILE)


def test_the_folder_where_a_run_is_started_is_not_searched_for_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "json.py").write_text("import os; open('seen', 'w').close(); os._exit(0)")
    monkeypatch.chdir(tmp_path)
    assert not tried(tmp_path / "network.pt2", PROFILE)
    assert not (tmp_path / "seen").exists()


def test_ctrl_c_in_a_terminal_is_no_crash_there(tmp_path: Path) -> None:
    code = "import os, sys; sys.exit(os.getpgrp() == os.getpgid(os.getppid()))"
    assert tried(tmp_path / "network.pt2", PROFILE, ("-c", code))
