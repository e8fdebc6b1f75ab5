"""Inductor on the CPU, for real, on a network of one layer."""

from __future__ import annotations

import pytest
import torch
from torch._dynamo.utils import counters

from gpupipe.engines import inductor
from gpupipe.engines.base import Profile
from gpupipe.engines.check import agreement
from gpupipe.engines.inductor import Inductor
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
        "cpp_cache_precompile_headers": False,
        "cpp.vec_isa_ok": True,
    }
    monkeypatch.setattr(inductor, "_FASTER_BUILD", quick)
    return Network().eval().requires_grad_(requires_grad=False)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@compiles
@quietly
def test_what_is_kept_is_right_and_not_compiled_again(network, tmp_path):
    x = torch.rand(PROFILE.shape)
    with torch.inference_mode():
        Inductor().build(network, PROFILE, tmp_path)
        assert names(tmp_path) == ["artifacts"]
        torch._dynamo.reset()
        counters.clear()
        run = Inductor().load(network, PROFILE, tmp_path)
        for n in range(3):
            assert agreement(run(x + n), network(x + n)) > 100
    assert counters["inductor"]["fxgraph_cache_hit"] >= 1
    assert counters["inductor"]["fxgraph_cache_miss"] == 0


def test_short_memory_is_told_as_it_is(network, tmp_path, monkeypatch):
    def fail(*_):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(inductor, "_compiled", fail)
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
