"""What a network's memory is measured to be, and when it is not measured."""

from __future__ import annotations

import subprocess
import sys
from functools import partial

import pytest
import torch

from gpupipe.device.room import taken_by
from gpupipe.engines import assemble
from gpupipe.engines.assemble import Wanted
from gpupipe.engines.cache import EngineCache
from gpupipe.engines.sizes import Shape

HD = Shape(1080, 1920, 1, 2)


class Chain(torch.nn.Module):
    """Two layers of 16 channels: never more than two of their pictures are alive at once."""

    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Conv2d(3, 16, 3, padding=1),
            torch.nn.Conv2d(16, 16, 3, padding=1),
            torch.nn.Conv2d(16, 3, 3, padding=1),
        )
        self.requires_grad_(requires_grad=False)

    def forward(self, x):
        return self.layers(x)


def test_bytes_for_each_pixel_are_those_that_live_at_once():
    found = assemble._measured(Chain(), HD, Wanted(room=1 << 30), "cpu", assemble._anew)
    assert found == pytest.approx(2 * 16 * 4, rel=0.01)
    half = assemble._measured(Chain().half(), HD, Wanted(precision="fp16", room=1 << 30), "cpu", assemble._anew)
    assert half == pytest.approx(found / 2, rel=0.01)


@pytest.mark.parametrize(
    ("shape", "wanted"),
    [
        (HD, Wanted(tile=256, batch=2, room=1 << 30, rows=8)),
        (HD, Wanted(tile="off", room=1 << 30)),
        (Shape(48, 64, 1, 2), Wanted(room=1 << 30)),
    ],
    ids=["both given", "whole and one at a time", "small"],
)
def test_where_nothing_depends_on_it_nothing_is_measured(shape, wanted, monkeypatch):
    monkeypatch.setattr(assemble, "pixel_bytes", lambda *_: pytest.fail("measured"))
    assert assemble._measured(Chain(), shape, wanted, "cpu", assemble._anew) == 1.0


def test_it_is_measured_once_for_each_network_and_kept(monkeypatch, tmp_path):
    found = assemble._measured(Chain(), HD, Wanted(room=1 << 30), "cpu", assemble._anew)
    first, second = (partial(assemble._kept, EngineCache(tmp_path), digest) for digest in ("a", "b"))
    wanted = Wanted(room=1 << 30)
    assert assemble._measured(Chain(), HD, wanted, "cpu", first) == found
    monkeypatch.setattr(assemble, "pixel_bytes", lambda *_: 7.0)
    assert assemble._measured(Chain(), HD, wanted, "cpu", first) == found
    assert assemble._measured(Chain(), HD, wanted, "cpu", second) == 7.0
    (kept,) = [path for path in tmp_path.glob("*/bytes.json") if float(path.read_text()) == found]
    kept.write_text("9.0")  # as no whole entry is
    assert assemble._measured(Chain(), HD, wanted, "cpu", first) == 7.0


def test_tensors_that_were_there_before_do_not_count():
    x = torch.zeros(1000)
    assert taken_by(lambda: x.view(10, 100).t().add_(1), "cpu") == 0
    assert taken_by(lambda: (x + 1) * 2, "cpu") == 2 * 4000
    assert taken_by(lambda: [x + n for n in range(3)], "cpu") == 3 * 4000
    assert taken_by(lambda: [(x + n).sum().item() for n in range(3)], "cpu") < 2 * 4000 + 100


def test_counting_them_loads_no_compiler():
    code = """
import sys, torch
from gpupipe.device.room import taken_by
x = torch.zeros(1000)
assert taken_by(lambda: (x + 1) * 2, "cpu") == 8000
assert "torch._dynamo" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
