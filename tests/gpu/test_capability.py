from __future__ import annotations

from fractions import Fraction

import pytest

from gpupipe.codecs import capability, nvenc
from gpupipe.codecs.base import EncoderSettings
from gpupipe.device import pick_device
from gpupipe.device.cuda import CudaLane
from gpupipe.device.driver import driver
from gpupipe.errors import DeviceError, PlanError
from gpupipe.format import PIXEL_FORMATS, FrameFormat

pytestmark = pytest.mark.gpu


@pytest.fixture
def h200() -> None:
    if "H200" not in driver().gpus[0].name:
        pytest.skip("facts of an H200")


def test_driver_facts() -> None:
    facts = driver()
    assert facts.reason is None
    assert facts.version is not None
    assert int(facts.version.split(".")[0]) >= 525
    assert facts.gpus[0].memory_bytes > 1 << 30
    assert pick_device("auto") == "cuda:0"
    with pytest.raises(DeviceError, match="only"):
        pick_device(f"cuda:{len(facts.gpus)}")


@pytest.mark.usefixtures("h200")
def test_h200_has_seven_nvdec_engines() -> None:
    table = capability.nvdec_table()
    assert (table.engines, table.reason) == (7, None)
    can = {(r.codec, r.chroma, r.depth) for r in table.rows if r.supported}
    assert {
        ("h264", "4:2:0", 8),
        ("hevc", "4:2:0", 10),
        ("hevc", "4:4:4", 12),
        ("vp9", "4:2:0", 12),
        ("vp8", "4:2:0", 8),
    } <= can
    assert not {("av1", "4:2:0", 8), ("h264", "4:2:0", 10), ("h264", "4:2:2", 8)} & can


@pytest.mark.usefixtures("h200")
def test_h200_has_no_nvenc_and_says_so_in_one_line() -> None:
    assert capability.nvenc_table().reason == capability.NO_NVENC
    source = FrameFormat(PIXEL_FORMATS["nv12"], 1920, 1080, device="cuda:0")
    assert nvenc.supports("h264", source) == capability.NO_NVENC
    asked = EncoderSettings("h264", "nvenc", source, Fraction(1, 25), Fraction(25), None, None, None)
    with pytest.raises(PlanError, match="this GPU has no NVENC"):
        nvenc.NvencEncoder(asked, CudaLane("cuda:0"))
