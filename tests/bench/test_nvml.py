"""NVML's figures, with a module that stands in for pynvml."""

from __future__ import annotations

import sys
import time
from types import SimpleNamespace

import pytest
from patience import until

from gpupipe.bench.nvml import Sampler, summed_up
from gpupipe.device import nvml


class NVMLError(Exception):
    pass


def refuses(*_: object) -> object:
    raise NVMLError("Not Supported")


@pytest.fixture
def pynvml(monkeypatch):
    rates = iter([(100, 0), *[(40, 96)] * 10_000])

    def decoder(_: object) -> list[int]:
        return [next(rates)[1], 166_000]

    module = SimpleNamespace(
        NVMLError=NVMLError,
        NVML_CLOCK_SM=1,
        NVML_CLOCK_VIDEO=3,
        nvmlInit=lambda: None,
        nvmlDeviceGetUtilizationRates=lambda _: SimpleNamespace(gpu=40, memory=12),
        nvmlDeviceGetDecoderUtilization=decoder,
        nvmlDeviceGetEncoderUtilization=refuses,
        nvmlDeviceGetJpgUtilization=lambda _: [0, 166_000],
        nvmlDeviceGetPowerUsage=lambda _: 212_500,
        nvmlDeviceGetClockInfo=lambda _, clock: {1: 1980, 3: 1500}[clock],
        nvmlDeviceGetMemoryInfo=lambda _: SimpleNamespace(used=3 << 30),
    )
    monkeypatch.setitem(sys.modules, "pynvml", module)
    monkeypatch.setattr(nvml, "_handle", lambda *_: "handle")
    return module


def test_medians_of_what_was_asked(pynvml):
    with Sampler("cuda:0") as sampler:
        began = time.monotonic()
        until(lambda: len(sampler.between(began, time.monotonic())) >= 2)
        ended = time.monotonic()
    used = summed_up(sampler.between(began, ended))
    assert (used.gpu, used.nvdec, used.nvenc, used.power_w, used.sm_mhz) == (40, 96, None, 212.5, 1980)
    assert used.memory_mib == 3072
    assert sampler.between(ended, ended) == []
    assert summed_up([]) is None


def test_each_run_has_its_own_samples(pynvml):
    sampler = Sampler("cuda:0")
    with sampler:
        until(lambda: sampler.between(0, time.monotonic()))
    with sampler:
        began = time.monotonic()
    assert sampler.between(began - 10, began) == []


def test_reasons(pynvml, monkeypatch):
    assert Sampler("cpu").reason == "this run has no GPU"
    assert Sampler("cuda:0").reason is None
    pynvml.nvmlInit = refuses
    assert "Not Supported" in Sampler("cuda:0").reason
    monkeypatch.setitem(sys.modules, "pynvml", None)
    sampler = Sampler("cuda:0")
    assert "gpupipe[metrics]" in sampler.reason
    with sampler:
        pass
    assert sampler.between(0, 1e9) == []
