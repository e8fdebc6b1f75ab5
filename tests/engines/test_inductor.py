"""Inductor on the CPU, for real, on a network of one layer."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from torch._dynamo.utils import counters

from gpupipe.engines import inductor
from gpupipe.engines.base import Profile
from gpupipe.engines.check import agreement
from gpupipe.engines.inductor import Inductor
from gpupipe.engines.trial import tried
from gpupipe.errors import EngineError

PROFILE = Profile(1, 8, 12, "fp32", "cpu")
compiles = pytest.mark.skipif(Inductor().absent("cpu") is not None, reason="no C++ compiler here")
quietly = pytest.mark.filterwarnings("ignore")  # torch's compilers warn of themselves


class Network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.conv = torch.nn.Conv2d(3, 3, 3, padding=1)

    def forward(self, x):
        return x + self.conv(x).relu()


@pytest.fixture
def network(monkeypatch):
    monkeypatch.setattr(inductor, "layout_of", lambda _: torch.channels_last)  # as on a GPU
    quick = {
        "aot_inductor.compile_wrapper_opt_level": "O0",
        "cpp_cache_precompile_headers": False,
        "cpp.vec_isa_ok": True,
    }
    monkeypatch.setattr(inductor, "_FASTER_BUILD", quick)
    return Network().eval().requires_grad_(requires_grad=False)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@compiles
@quietly
def test_a_package_is_tried_is_right_and_needs_no_compiler_to_load(network, tmp_path, monkeypatch):
    x, went_well = torch.rand(PROFILE.shape), []
    monkeypatch.setattr(inductor, "tried", lambda *args: went_well.append(tried(*args)))
    with torch.inference_mode():
        Inductor().build(network, PROFILE, tmp_path)
        assert names(tmp_path) == ["network.pt2"]
        assert went_well == [True]
        counters.clear()
        run = Inductor().load(None, PROFILE, tmp_path)
        for n in range(3):
            assert agreement(run(x + n), network(x + n)) > 100
        assert not counters["inductor"], "something was compiled"
    (tmp_path / "network.pt2").write_bytes(b"no archive")
    with pytest.raises(EngineError, match="torch does not load what it compiled: "):
        Inductor().load(None, PROFILE, tmp_path)


@compiles
@quietly
def test_where_no_package_can_be_made_torch_compile_does_it(network, tmp_path, monkeypatch):
    def fail(*_):
        raise OSError("CUDA_HOME environment variable is not set")

    monkeypatch.setattr(inductor, "_package", fail)
    x = torch.rand(PROFILE.shape)
    with torch.inference_mode():
        Inductor().build(network, PROFILE, tmp_path)
        assert names(tmp_path) == ["artifacts", "note.txt"]
        torch._dynamo.reset()
        counters.clear()
        run = Inductor().load(network, PROFILE, tmp_path)
        assert agreement(run(x), network(x)) > 100
    assert counters["inductor"]["fxgraph_cache_hit"] >= 1
    assert counters["inductor"]["fxgraph_cache_miss"] == 0
    assert "CUDA_HOME" in (tmp_path / "note.txt").read_text()


def test_a_package_that_crashes_is_no_package(network, tmp_path, monkeypatch):
    def crash(package, profile):
        tried(package, profile, ("-c", "import os; os.abort()"))

    monkeypatch.setattr(inductor, "_package", lambda network, profile, path: path.write_bytes(b"machine code"))
    monkeypatch.setattr(inductor, "tried", crash)
    monkeypatch.setattr(inductor, "_keep_artifacts", lambda network, profile, path: path.write_bytes(b"cache"))
    Inductor().build(network, PROFILE, tmp_path)
    assert names(tmp_path) == ["artifacts", "note.txt"]
    assert "crashes when it is tried (SIGABRT)" in (tmp_path / "note.txt").read_text()


@compiles
@quietly
def test_it_compiles_where_no_other_process_does(network, tmp_path, monkeypatch):
    """And leaves nothing behind, nor what it compiles for others, where it fails."""
    shared, seen = tmp_path / "shared", []
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(shared))

    def fail(*_):
        seen.append(Path(os.environ["TORCHINDUCTOR_CACHE_DIR"]))
        assert seen[0].is_dir()
        raise RuntimeError("no such operator")

    monkeypatch.setattr(inductor, "_compile_package", fail)
    with pytest.raises(RuntimeError, match="no such operator"):
        inductor._package(network, PROFILE, tmp_path / "network.pt2")
    assert os.environ["TORCHINDUCTOR_CACHE_DIR"] == str(shared)
    assert seen != [shared]
    assert not seen[0].exists()


def test_short_memory_is_told_as_it_is(network, tmp_path, monkeypatch):
    def fail(*_):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(inductor, "_package", fail)
    with pytest.raises(torch.OutOfMemoryError):
        Inductor().build(network, PROFILE, tmp_path)


def test_what_it_does_not_read_is_an_error(tmp_path):
    (tmp_path / "artifacts").write_bytes(b"nothing of torch's")
    with pytest.raises(EngineError, match="torch does not read what it kept"):
        Inductor().load(Network(), PROFILE, tmp_path)


@quietly
def test_what_it_cannot_compile_is_one_line(tmp_path):
    class Branches(torch.nn.Module):
        def forward(self, x):
            return x if x.sum() > 0 else -x

    with pytest.raises(EngineError, match=r"^torch.compile failed: .+") as told:
        Inductor().build(Branches(), PROFILE, tmp_path)
    assert "\n" not in str(told.value)


def test_without_a_compiler_it_says_so(monkeypatch):
    monkeypatch.setattr("gpupipe.engines.inductor.shutil.which", lambda _: None)
    assert Inductor().absent("cpu") == "it needs a C++ compiler (g++)"
