from __future__ import annotations

import subprocess
import sys
from fractions import Fraction

import pytest
import torch

from gpupipe import device
from gpupipe.device.cpu import CpuLane
from gpupipe.device.cuda import PinnedRing, copy_of
from gpupipe.device.driver import Driver, Gpu
from gpupipe.errors import DeviceError
from gpupipe.format import PIXEL_FORMATS, FrameFormat
from gpupipe.frame import FrameBatch

NONE = Driver(None, None, reason="no NVIDIA driver: libcuda.so.1 is not installed")
TWO = Driver("580.0", "13.0", (Gpu(0, "A", 1, "9.0"), Gpu(1, "B", 1, "9.0")))


@pytest.mark.parametrize(("driver", "wanted", "picked"), [
    (NONE, "auto", "cpu"), (NONE, "cpu", "cpu"), (TWO, "auto", "cuda:0"), (TWO, "cuda", "cuda:0"),
    (TWO, "cuda:1", "cuda:1"), (TWO, "cpu", "cpu"),
])  # fmt: skip
def test_pick(monkeypatch: pytest.MonkeyPatch, driver: Driver, wanted: str, picked: str) -> None:
    monkeypatch.setattr(device, "driver", lambda: driver)
    assert device.pick_device(wanted) == picked


@pytest.mark.parametrize(("driver", "wanted", "text"), [
    (NONE, "cuda", "cuda was asked for, but no NVIDIA driver"), (TWO, "cuda:2", "only 2 GPUs"),
    (TWO, "gpu", "no device is called 'gpu'"), (TWO, "cuda:x", "no device is called"),
])  # fmt: skip
def test_a_gpu_asked_for_by_name_must_be_there(monkeypatch, driver: Driver, wanted: str, text: str) -> None:
    monkeypatch.setattr(device, "driver", lambda: driver)
    with pytest.raises(DeviceError, match=text):
        device.pick_device(wanted)


def test_choosing_imports_neither_torch_nor_av() -> None:
    code = "import sys; from gpupipe.device import pick_device; pick_device('auto'); print({'torch', 'av'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_ring_and_copies_on_the_cpu() -> None:
    """On the CPU the ring has the same contract: rows of the last batches stay, and earlier ones are written over."""
    source = FrameFormat(PIXEL_FORMATS["nv12"], 6, 4)
    ring = PinnedRing(source, CpuLane(), slots=2)

    def batch(value: int) -> FrameBatch:
        planes = tuple(torch.full((1, *s), value, dtype=torch.uint8) for s in source.pixels.plane_shapes(6, 4))
        return FrameBatch(source, (value,), Fraction(1), planes)

    first, second = ring.download(batch(1)), ring.download(batch(2))
    assert [int(b.planes[0].unique()) for b in (first, second)] == [1, 2]
    kept = copy_of(first, CpuLane())
    third = ring.download(batch(3))
    assert [int(b.planes[1].unique()) for b in (first, second, third, kept)] == [3, 2, 3, 1]
    assert third.pts == (3,)
    up = ring.upload(batch(9))
    assert (up.format.device, int(up.planes[0].unique())) == ("cpu", 9)
