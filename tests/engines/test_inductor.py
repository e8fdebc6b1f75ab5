"""torch.compile on the CPU, for real, on a network of one layer."""

from __future__ import annotations

import pytest
import torch
from torch._dynamo.utils import counters

from gpupipe.engines.base import Profile
from gpupipe.engines.check import agreement
from gpupipe.engines.inductor import Inductor
from gpupipe.errors import EngineError

PROFILE = Profile(1, 8, 12, "fp32", "cpu")


class Network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.conv = torch.nn.Conv2d(3, 3, 3, padding=1)

    def forward(self, x):
        return x + self.conv(x).relu()


@pytest.mark.skipif(Inductor().absent("cpu") is not None, reason="no C++ compiler here")
@pytest.mark.filterwarnings("ignore")  # torch's compilers warn of themselves
def test_what_is_compiled_is_right_and_kept(tmp_path, monkeypatch):
    monkeypatch.setattr("gpupipe.engines.inductor.layout_of", lambda _: torch.channels_last)  # as on a GPU
    network, engine = Network().eval().requires_grad_(requires_grad=False), Inductor()
    x = torch.rand(PROFILE.shape)
    with torch.inference_mode():
        engine.build(network, PROFILE, tmp_path)
        assert [path.name for path in tmp_path.iterdir()] == ["artifacts"]
        torch._dynamo.reset()
        counters.clear()
        run = engine.load(network, PROFILE, tmp_path)
        assert agreement(run(x), network(x)) > 100
    assert counters["inductor"]["fxgraph_cache_hit"] >= 1
    assert counters["inductor"]["fxgraph_cache_miss"] == 0


def test_what_it_does_not_read_is_an_error(tmp_path, caplog):
    (tmp_path / "artifacts").write_bytes(b"nothing of torch's")
    with pytest.raises(EngineError, match="torch does not read what it kept"):
        Inductor().load(Network(), PROFILE, tmp_path)


@pytest.mark.filterwarnings("ignore")
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
