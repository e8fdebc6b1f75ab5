"""`devices:` in the config and the plan; the GPUs are a double."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from gpupipe import device
from gpupipe.config import parse_config
from gpupipe.errors import CapabilityError, ConfigError, PlanError
from gpupipe.media.probe import probe
from gpupipe.plan import Plan, make_plan
from gpupipe.plan.placed import placed
from gpupipe.plan.stored import dump, load


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """A double: two GPUs that decode nothing, with 8 and 6 GiB free."""
    gpus = SimpleNamespace(gpus=("one", "two"), reason=None)
    monkeypatch.setattr(device, "driver", lambda: gpus)
    monkeypatch.setattr("gpupipe.plan.make.choose_decoder", lambda info, _: ("libav", "a double", info.video.format))
    monkeypatch.setattr("gpupipe.plan.machine.free_memory", lambda index: (8 << 30, 6 << 30)[index])


def made(corpus: Path, config: dict, **words: object) -> Plan:
    info = probe(corpus / "files" / "bt601_full_range.mp4")
    stages = [{"warp": {"rotate": 3}}]
    return make_plan(parse_config({"stages": stages, **config}), info, Path("o.mp4"), **words)


def test_names() -> None:
    assert parse_config({"devices": "all"}).devices == "all"
    assert parse_config({"devices": ["cuda:1", "cuda:0"]}).devices == ("cuda:1", "cuda:0")
    for wrong in ("cuda:0", [], ["cpu"], ["cuda"], ["cuda:0", "cuda:0"], 2):
        with pytest.raises(ConfigError, match="devices"):
            parse_config({"devices": wrong})
    with pytest.raises(ConfigError, match="exclude each other"):
        parse_config({"devices": "all", "device": "cuda:0"})


def test_none_there(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "driver", lambda: SimpleNamespace(gpus=(), reason="no NVIDIA driver"))
    for devices in ("all", ["cuda:0", "cuda:1"]):
        with pytest.raises(CapabilityError, match="no NVIDIA driver"):
            made(corpus, {"devices": devices})


@pytest.mark.usefixtures("two_gpus")
def test_two(corpus: Path) -> None:
    both = made(corpus, {"devices": "all"})
    assert both.devices == ("cuda:0", "cuda:1")
    assert both.device == "cuda:0"
    assert both.ledger
    assert any("cuda:0, cuda:1: segments go to whichever is free" in line for line in both.lines())
    assert load(dump(both), "here").devices == both.devices
    one = made(corpus, {"devices": ["cuda:1"], "resume": "keep"})
    assert (one.devices, one.device) == ((), "cuda:1")
    assert one.digest() == both.digest()  # where it is rendered decides no bytes
    assert made(corpus, {"devices": "all"}, device="cpu").devices == ()
    with pytest.raises(CapabilityError, match="only 2 GPUs"):
        made(corpus, {"devices": ["cuda:0", "cuda:2"]})


@pytest.mark.usefixtures("two_gpus")
def test_what_cannot_be_shared_out_is_refused(corpus: Path) -> None:
    with pytest.raises(PlanError, match="kept") as refused:
        made(corpus, {"devices": "all", "resume": "off"})
    assert refused.value.where == "resume"
    with pytest.raises(PlanError, match="cannot be cut") as refused:
        made(corpus, {"devices": "all", "output": {"video": {"bitrate": "1M"}}})
    assert refused.value.where == "devices"


@pytest.mark.usefixtures("two_gpus")
def test_the_same_plan_on_another_gpu(corpus: Path) -> None:
    here = made(corpus, {"devices": "all"})
    there = placed(here, "cuda:1")
    assert there.device == "cuda:1"
    assert there.digest() == here.digest()
    assert "cuda:0" not in str([(step.source, step.target) for step in there.steps])
    assert placed(there, "cuda:0") == here
    on_cpu = made(corpus, {}, device="cpu")
    assert placed(on_cpu, "cuda:1") is on_cpu
