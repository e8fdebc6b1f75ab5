"""The choice between engines, with doubles that build, fail, run out of memory or compute something else."""

from __future__ import annotations

import re
import warnings
from types import SimpleNamespace

import pytest
import torch
from patience import until

from gpupipe.engines import select
from gpupipe.engines.base import Profile
from gpupipe.engines.cache import EngineCache
from gpupipe.engines.check import agreement
from gpupipe.engines.eager import Eager
from gpupipe.engines.identity import digest_of
from gpupipe.errors import EngineError

PROFILE = Profile(1, 16, 16, "fp32", "cpu")


class Double:
    """An engine that runs the network after a pause; `fails` raises when built, `wrong` is added to its output."""

    builds, flexible, recipe = True, False, 1

    def __init__(self, name, pause=0.0, fails=None, wrong=0.0, unreadable=0, delay=1.0, suited=True):
        self.delay, self.suited = delay, suited
        self.name, self.pause, self.fails, self.wrong, self.unreadable = name, pause, fails, wrong, unreadable
        self.built, self.loaded, self.version = 0, 0, "1"

    def absent(self, device):
        return None

    def suits(self, network, profile):
        return self.suited

    def versions(self):
        return {self.name: self.version}

    def build(self, network, profile, folder):
        self.built += 1
        if self.fails is not None:
            raise self.fails
        (folder / "data").write_text("engine")

    def load(self, network, profile, folder):
        assert (folder / "data").read_text() == "engine"
        self.loaded += 1
        if self.unreadable > 0:
            self.unreadable -= 1
            raise EngineError("does not load")

        def run(x):
            CLOCK[0] += self.pause
            return network(x) + self.wrong

        return run


class Slow(Eager):
    """Eager, and slower than most doubles."""

    def load(self, network, profile, folder):
        run = super().load(network, profile, folder)

        def slow(x):
            CLOCK[0] += 0.01
            return run(x)

        return slow


CLOCK = [0.0]
"""Seconds that pass for doubles alone: how busy the machine is does not count."""


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    monkeypatch.setattr("gpupipe.device.timing.time", SimpleNamespace(perf_counter=lambda: CLOCK[0]))


@pytest.fixture
def network():
    torch.manual_seed(1)
    return torch.nn.Conv2d(3, 3, 3, padding=1).eval().requires_grad_(requires_grad=False)


@pytest.fixture
def choose(network, tmp_path, monkeypatch):
    """Asks a selector of its own, as another process would; what it said and warned of comes too."""

    def ask(*engines, wanted="auto", profile=PROFILE):
        there = (*engines, Slow())
        monkeypatch.setattr(select, "ENGINES", there)
        monkeypatch.setattr(select, "candidates", lambda name, _: there if name == "auto" else (select.named(name),))
        said, warned = [], []
        selector = select.Selector(
            network, digest_of(network, "card"), wanted, EngineCache(tmp_path), say=said.append, warn=warned.append
        )
        return selector(profile), said, warned

    return ask


def test_the_advice_of_compilers_is_no_error(choose, monkeypatch):
    """As torch.compile's on TF32, and torch_tensorrt's on its own options: under `-W error` neither may end a build."""

    def advising(method):
        def advises(*arguments):
            warnings.warn("consider something else", stacklevel=1)
            return method(*arguments)

        return advises

    monkeypatch.setattr(Double, "build", advising(Double.build))
    monkeypatch.setattr(Double, "load", advising(Double.load))
    built, _, warned = choose(Double("fast"))
    assert (built.engine, warned) == ("fast", [])
    with pytest.raises(UserWarning, match="something else"):
        warnings.warn("consider something else", stacklevel=1)


def test_the_fastest_is_taken_and_remembered(choose, network):
    fast, slow = Double("fast"), Double("slow", pause=0.004)
    built, said, warned = choose(slow, fast)
    assert (built.engine, warned) == ("fast", [])
    assert "fast for 1 x 16x16 in fp32 on cpu built in 0.0 s" in said
    assert any(line.startswith("engine fast is taken for 1 x 16x16 in fp32 on cpu: slow ") for line in said)
    x = torch.rand(1, 3, 16, 16)
    assert torch.equal(built.run(x), network(x))
    again, said, warned = choose(slow, fast)
    assert (again.engine, said, warned) == ("fast", [], [])
    assert (fast.built, slow.built, slow.loaded) == (1, 1, 1)


@pytest.mark.parametrize(("pause", "taken"), [(0.00101, "soon"), (0.00104, "late")])
def test_of_engines_as_fast_as_each_other_the_one_that_starts_sooner(choose, pause, taken):
    late, soon = Double("late", pause=0.001, delay=7), Double("soon", pause=pause, delay=0.5)
    for engines in ((late, soon), (soon, late)):
        assert choose(*engines)[0].engine == taken


def test_an_engine_that_has_nothing_for_a_network_is_not_tried(choose):
    idle, other = Double("idle", suited=False), Double("other", pause=0.001)
    built, said, warned = choose(idle, other)
    assert (built.engine, idle.built, warned) == ("other", 0, [])
    assert not any("idle" in line for line in said)


def test_eager_is_taken_where_it_is_the_fastest(choose):
    lame = Double("lame", pause=0.05)
    assert choose(lame)[0].engine == "eager"
    assert choose(lame)[0].engine == "eager"
    assert lame.built == 1


@pytest.mark.parametrize(
    ("engine", "why"),
    [
        (Double("bad", fails=EngineError("no converter for aten.foo")), "no converter for aten.foo"),
        (Double("bad", fails=RuntimeError("the driver says no\nand more")), "the driver says no"),
        (Double("bad", fails=torch.OutOfMemoryError("CUDA out of memory")), "out of memory"),
        (Double("bad", wrong=0.01), "its output is not the network's: 40.0 dB of 70"),
        (Double("bad", wrong=float("nan")), "its output is not the network's: -inf dB of 70"),
        (Double("bad", unreadable=9), "does not load"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_fails_is_left_out_with_one_line(engine, why, choose):
    built, _, warned = choose(engine, Double("good"))
    assert built.engine == "good"
    assert warned == [f"engine bad is left out: {why}"]
    engine.built = 0
    built, _, warned = choose(engine, Double("good"))
    assert (built.engine, warned) == ("good", [] if why != "out of memory" else [f"engine bad is left out: {why}"])
    assert engine.built == (1 if why == "out of memory" else 0), "only memory may be there another day"


@pytest.mark.parametrize(
    ("engine", "why"),
    [
        (Double("bad", fails=EngineError("no converter for aten.foo")), "no converter for aten.foo"),
        (Double("bad", wrong=0.01), "engine bad: its output is not the network's: 40.0 dB of 70"),
    ],
    ids=["fails", "wrong"],
)
def test_an_engine_that_is_named_must_do(engine, why, choose):
    for _ in range(2):
        with pytest.raises(EngineError, match=why):
            choose(engine, wanted="bad")


def test_memory_that_is_short_for_a_named_engine_is_told_as_it_is(choose):
    with pytest.raises(torch.OutOfMemoryError):
        choose(Double("big", fails=torch.OutOfMemoryError("CUDA out of memory")), wanted="big")


def test_another_version_is_another_choice(choose):
    engine = Double("one")
    choose(engine)
    engine.version = "2"
    choose(engine)
    assert engine.built == 2


def test_another_shape_is_built_for_itself(choose):
    engine = Double("one")
    choose(engine, wanted="one")
    choose(engine, wanted="one", profile=Profile(2, 16, 16, "fp32", "cpu"))
    assert engine.built == 2


def test_whole_in_the_cache_but_not_to_be_loaded_is_built_anew(choose):
    engine = Double("one")
    choose(engine, wanted="one")
    engine.unreadable = 1
    assert choose(engine, wanted="one")[0].engine == "one"
    assert engine.built == 2


def test_a_choice_that_does_not_load_any_more_is_made_again(choose):
    one, other = Double("one"), Double("other", pause=0.002)
    assert choose(one, other)[0].engine == "one"
    one.unreadable, one.fails = 9, EngineError("another GPU")
    built, said, warned = choose(one, other)
    assert built.engine == "other"
    assert "what was chosen before cannot be used any more: another GPU" in said
    assert warned == ["engine one is left out: another GPU"]


def test_long_builds_are_heard_of(monkeypatch):
    monkeypatch.setattr(select, "_TICK", 0.02)
    said = []
    with select._ticking(said.append, "building"):
        until(lambda: len(said) > 1)
    assert said[0] == "building"
    assert re.fullmatch(r"building: \d+ s", said[1])


@pytest.mark.parametrize(("wanted", "says"), [
    ("tensorrt", "engine tensorrt cannot be used on cpu: it runs on a GPU only (use `engine: auto`)"),
])  # fmt: skip
def test_what_cannot_be_used_here_is_said_without_building(wanted, says):
    with pytest.raises(EngineError) as told:
        select.candidates(wanted, "cpu")
    assert str(told.value) == says
    assert [engine.name for engine in select.candidates("auto", "cpu")] == ["eager"]


def test_torch_tensorrt_that_is_missing_is_no_candidate(monkeypatch):
    monkeypatch.setattr("gpupipe.engines.tensorrt.find_spec", lambda _: None)
    assert "tensorrt" not in [engine.name for engine in select.candidates("auto", "cuda:0")]
    with pytest.raises(EngineError, match=r"torch-tensorrt is not installed \(pip install 'gpupipe\[tensorrt\]'\)"):
        select.candidates("tensorrt", "cuda:0")


class Scaled(torch.nn.Module):
    def __init__(self, dilation=1, second=0.5):
        super().__init__()
        self.conv = torch.nn.Conv2d(1, 1, 3, dilation=dilation)
        self.register_buffer("offset", torch.tensor(second), persistent=False)
        with torch.no_grad():
            self.conv.weight.fill_(0.5)
            self.conv.bias.fill_(0.25)

    def forward(self, x):
        return self.conv(x) + self.offset


def test_a_network_is_known_by_weights_layers_and_card():
    first = digest_of(Scaled(), "card")
    assert first == digest_of(Scaled(), "card")
    changed = [Scaled(dilation=2), Scaled(second=0.6), Scaled().half(), Scaled()]
    with torch.no_grad():
        changed[-1].conv.weight[0, 0, 1, 1] += 1e-3
    digests = {digest_of(network, "card") for network in changed} | {digest_of(Scaled(), "another")}
    assert len(digests) == len(changed) + 1
    assert first not in digests


def test_agreement_is_psnr():
    a = torch.zeros(1, 3, 4, 4)
    assert agreement(a + 0.1, a) == pytest.approx(20.0, abs=1e-4)
    assert agreement(a, a) == float("inf")
    assert agreement(a[..., 1:], a) == float("-inf")
