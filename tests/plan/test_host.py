"""Sessions that the host has memory for; what a run really takes stands in `gpupipe.plan.host`."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from gpupipe.config import parse_config
from gpupipe.device import host
from gpupipe.device.host import Room, rooms
from gpupipe.errors import PlanError
from gpupipe.media.probe import probe
from gpupipe.plan import machine, make_plan
from gpupipe.plan.chain import ChainBuilder
from gpupipe.plan.host import HostNeed, fit_host

if TYPE_CHECKING:
    from pathlib import Path

GIB, MIB = 1 << 30, 1 << 20
NEED = HostNeed(session=GIB)


@pytest.fixture(scope="module")
def clip(sample_clip) -> Path:
    return sample_clip(4)


@pytest.mark.parametrize(("left", "sessions"), [(64 * GIB, 4), (4 * GIB, 3), (2 * GIB, 1)])
def test_what_is_planned_fits_with_a_margin(left: int, sessions: int) -> None:
    budget = fit_host(NEED, 4, Room(left, 64 * GIB))
    assert (budget.sessions, budget.enough) == (sessions, True)
    assert budget.bytes <= 0.9 * left
    assert ("no room for more" in budget.reason) is (sessions < 4)


def test_one_session_is_tried_all_the_same() -> None:
    budget = fit_host(NEED, 4, Room(600 * MIB, GIB))
    assert (budget.sessions, budget.enough) == (1, False)
    assert budget.reason.startswith("about 1.4 GiB of the host's 0.6 GiB that are left: not enough")


def test_a_limit_of_the_config_makes_sessions_fewer_and_says_so(clip: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(host, "resident_bytes", lambda: 100 * MIB)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    config = {"segments": {"seconds": 1}, "sessions": 2, "output": {"video": {"encoder": "libx264"}},
              "stages": [{"resize": {"width": 3840, "height": 2160}}]}  # fmt: skip
    free = make_plan(parse_config(config), probe(clip), tmp_path / "o.mp4", device="cpu")
    assert (free.sessions, free.host_limit) == (2, None)
    tight = {**config, "memory": {"host": "5G"}}
    plan = make_plan(parse_config(tight), probe(clip), tmp_path / "o.mp4", device="cpu")
    assert (plan.sessions, plan.host_limit) == (1, 5 * GIB)
    assert plan.warnings[-1].code == "memory-short"
    assert "no room for more than 1 of 2 sessions" in plan.warnings[-1].message
    assert f"memory   {plan.host_reason}" in plan.lines()
    assert plan.digest() == free.digest()
    with pytest.raises(PlanError, match="no room for more than 1 of 2"):
        make_plan(parse_config(tight), probe(clip), tmp_path / "o.mp4", device="cpu", strict=True)


def test_a_limit_on_the_gpu_is_planned_with(clip: Path, monkeypatch) -> None:
    monkeypatch.setattr(machine, "free_memory", lambda _: 100 * GIB)
    seen = []
    monkeypatch.setattr(machine, "fit", lambda *a, **_: seen.append(a[3]) or machine.Budget(1, 4, 0, ""))
    config = parse_config({"memory": {"device": "6G"}, "stages": [{"resize": {"width": 64, "height": 36}}]})
    info = probe(clip)
    builder = ChainBuilder(info.video.format)
    builder.upload("cuda:0")
    machine.device_budget(config, info.video.format, builder.steps, "libx264", 1, places=("cuda:0",))
    assert seen == [6 * GIB]


def test_the_tightest_limit_counts() -> None:
    """In a process of its own, since an address space that was limited stays so."""
    code = """
import resource
from gpupipe.device.host import rooms, total_bytes
assert [room.total for room in rooms()] == [total_bytes()]
limit, machine = rooms(1 << 30)
assert (limit.total, machine.total) == (1 << 30, total_bytes())
assert (1 << 30) - 200_000_000 < limit.left < (1 << 30) - 5_000_000
resource.setrlimit(resource.RLIMIT_AS, (1 << 29, resource.RLIM_INFINITY))
before = rooms()[0]
ballast = bytearray(100 << 20)
assert before.total == 1 << 29
assert 95 << 20 < before.left - rooms()[0].left < 105 << 20
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    assert rooms()


def test_a_network_on_the_cpu_is_planned_with_a_share_of_what_is_left(
    clip: Path, tmp_path: Path, monkeypatch, weights
) -> None:
    weights("realesr-animevideov3-x2")
    stages = {"none": [{"resize": {"width": 2560, "height": 1440}}],
              "model": [{"resize": {"width": 1280, "height": 720}}, {"model": {"card": "realesr-animevideov3-x2"}}]}  # fmt: skip
    made = {}
    for left in (64 * GIB, 4 * GIB):
        monkeypatch.setattr(machine, "rooms", lambda _, left=left: [Room(left, 64 * GIB)])
        for name, chain in stages.items():
            config = parse_config({"stages": chain, "output": {"video": {"encoder": "libx264"}}})
            made[left, name] = make_plan(config, probe(clip), tmp_path / "o.mp4", device="cpu").host_bytes
    more = {left: made[left, "model"] - made[left, "none"] for left in (64 * GIB, 4 * GIB)}
    assert more == {64 * GIB: 2048 * 1280 * 720, 4 * GIB: GIB}
