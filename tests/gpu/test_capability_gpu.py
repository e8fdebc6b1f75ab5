from __future__ import annotations

from fractions import Fraction

import pytest
import torch

from gpupipe.codecs import capability, nvdec, nvenc, pynv
from gpupipe.codecs.base import EncoderSettings
from gpupipe.codecs.cuvid import decoder_caps
from gpupipe.device import pick_device
from gpupipe.device.cuda import CudaLane
from gpupipe.device.driver import driver, same_context
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


def test_the_drivers_answer_is_the_librarys() -> None:
    """PyNvVideoCodec reads the same structure, by its own header."""
    library = pynv.load()
    for codec, name in {**nvdec.CODECS, "mpeg4": "MPEG4"}.items():
        for chroma, depth in (("4:2:0", 8), ("4:4:4", 10)):
            with same_context():
                theirs = library.GetDecoderCaps(
                    0,
                    getattr(library.cudaVideoCodec, name),
                    getattr(library.cudaVideoChromaFormat, chroma.replace(":", "")),
                    depth,
                )
            ours = decoder_caps(codec, chroma, depth, 0)
            assert theirs == {
                "codec_id": ours.codec, "chromaformat_id": ours.chroma, "bitdepth": depth, "supported": ours.supported,
                "num_decoder_engines": ours.engines, "width_max": ours.max_width, "height_max": ours.max_height,
                "mb_num_max": ours.max_macroblocks, "width_min": ours.min_width, "height_min": ours.min_height,
            }  # fmt: skip


def test_asking_leaves_torchs_context_and_memory_alone() -> None:
    lane = CudaLane("cuda:0")
    capability._encoder_row.cache_clear()
    capability.ask_encoder(pynv.load(), "h264", 0)
    leaks = []
    for _ in range(3):
        before = torch.cuda.mem_get_info()[0]
        capability.ask_encoder(pynv.load(), "h264", 0)
        leaks.append(before - torch.cuda.mem_get_info()[0])
    assert min(leaks) < 64 << 20  # a leaked context takes half a GiB each time; others use this GPU meanwhile
    other = CudaLane("cuda:0")
    with lane.active():
        numbers = torch.arange(100, device="cuda") * 2
    other.wait(lane.record())
    with other.active():
        assert int(numbers.sum()) == 9900


@pytest.mark.usefixtures("h200")
def test_h200_has_no_nvenc_and_says_so_in_one_line() -> None:
    assert capability.nvenc_table().reason == capability.NO_NVENC
    source = FrameFormat(PIXEL_FORMATS["nv12"], 1920, 1080, device="cuda:0")
    assert nvenc.supports("h264", source) == capability.NO_NVENC
    asked = EncoderSettings("h264", "nvenc", source, Fraction(1, 25), Fraction(25), None, None, None)
    with pytest.raises(PlanError, match="this GPU has no NVENC"):
        nvenc.NvencEncoder(asked, CudaLane("cuda:0"))
