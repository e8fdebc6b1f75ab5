from __future__ import annotations

import ctypes
import dataclasses
import json
from types import SimpleNamespace
from typing import TYPE_CHECKING

import av
import nvenc_double
import pytest

from gpupipe.codecs import capability, nvdec, pynv
from gpupipe.codecs.cuvid import DecoderCaps
from gpupipe.device.driver import Driver, Gpu
from gpupipe.errors import DeviceError
from gpupipe.format import PIXEL_FORMATS, FrameFormat

if TYPE_CHECKING:
    from pathlib import Path

H200 = Driver("580.0", "13.0", (Gpu(0, "NVIDIA H200", 150 << 30, "9.0"),))


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch):
    """Sets what driver and library are there: machine(driver, library, reason)."""

    def forget() -> None:
        capability.decoder_row.cache_clear()
        capability._encoder_row.cache_clear()

    def there(driver: Driver, library: object = None, reason: str | None = None) -> None:
        monkeypatch.setattr(capability, "driver", lambda: driver)
        monkeypatch.setattr(pynv, "_import", lambda: (library, reason))
        forget()

    yield there
    forget()


def test_without_a_gpu_everything_is_a_reason_and_json(machine) -> None:
    machine(Driver(None, None, reason="no NVIDIA driver: libcuda.so.1 is not installed"))
    for table in (capability.nvdec_table(), capability.nvenc_table()):
        assert "no NVIDIA driver" in json.dumps(dataclasses.asdict(table))
        assert table.rows == ()
    assert capability.decoder_row("h264", "4:2:0", 8).reason == "no NVIDIA driver: libcuda.so.1 is not installed"


def test_a_library_that_does_not_load_is_a_reason(machine) -> None:
    machine(H200, None, "PyNvVideoCodec cannot be used: libnvidia-encode.so.1: cannot open shared object file")
    assert "libnvidia-encode" in capability.nvenc_table().reason
    with pytest.raises(DeviceError, match=r"libnvidia-encode.*NVIDIA_DRIVER_CAPABILITIES"):
        pynv.load()


def test_import_error_of_any_kind_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(name: str) -> None:
        raise RuntimeError(f"\nlibnvidia-encode.so.1: cannot open\n\n=== TROUBLESHOOTING STEPS ({name}) ===")

    monkeypatch.setattr(pynv.importlib, "import_module", fail)
    pynv._import.cache_clear()
    assert pynv.missing() == "PyNvVideoCodec cannot be used: libnvidia-encode.so.1: cannot open"
    pynv._import.cache_clear()


def test_gpu_without_nvenc(machine) -> None:
    machine(H200, nvenc_double.without_nvenc())
    assert capability.nvenc_table().reason == "this GPU has no NVENC"


@pytest.fixture
def engines(machine, monkeypatch: pytest.MonkeyPatch):
    """NVDEC that decodes H.264 4:2:0 in 8 bit, HEVC 4:2:0 in 10 bit and VP8, in place of the driver's answers."""

    def caps(codec: str, chroma: str, depth: int, gpu: int) -> DecoderCaps:
        if (codec, chroma, depth) not in {("h264", "4:2:0", 8), ("hevc", "4:2:0", 10), ("vp8", "4:2:0", 8)}:
            return DecoderCaps()
        return DecoderCaps(
            supported=1, engines=7, min_width=48, min_height=16, max_width=4096, max_height=4096, max_macroblocks=65536
        )

    machine(H200, SimpleNamespace())
    monkeypatch.setattr(capability, "decoder_caps", caps)


def stream(**changes: object) -> SimpleNamespace:
    facts = {
        "codec": "h264",
        "profile": "High",
        "native_pixels": "yuv420p",
        "width": 1920,
        "height": 1080,
        "field_order": "progressive",
    }
    facts |= changes
    form = FrameFormat(PIXEL_FORMATS["yuv420p"], facts["width"], facts["height"], field_order=facts["field_order"])
    return SimpleNamespace(**facts, format=form, coded_width=facts["width"], coded_height=facts["height"])


@pytest.mark.parametrize(("changes", "text"), [
    ({}, None), ({"native_pixels": "yuvj420p"}, None),
    ({"codec": "prores"}, "does not decode prores"), ({"codec": "mpeg2video"}, "rounds mpeg2video otherwise"), ({"native_pixels": "yuva420p"}, "does not decode yuva420p"),
    ({"native_pixels": "yuv420p10le"}, "does not decode h264 4:2:0 10-bit"), ({"codec": "av1"}, "does not decode av1 4:2:0 8-bit"),
    ({"field_order": "tt"}, "interlaced"), ({"field_order": "unknown"}, "unknown field order"),
    ({"width": 32}, "below"), ({"width": 5000}, "beyond"), ({"width": 4096, "height": 4097}, "beyond"),
    ({"profile": "Extended"}, "profile Extended"),
])  # fmt: skip
@pytest.mark.usefixtures("engines")
def test_nvdec_says_why_not(changes: dict, text: str | None) -> None:
    reason = nvdec.supports(stream(**changes))
    assert (reason is None) if text is None else (reason is not None and text in reason)


@pytest.mark.usefixtures("engines")
def test_engines_are_counted() -> None:
    table = capability.nvdec_table()
    assert table.engines == 7
    assert [(r.codec, r.chroma, r.depth) for r in table.rows if r.supported] == [
        ("h264", "4:2:0", 8), ("hevc", "4:2:0", 10), ("vp8", "4:2:0", 8),
    ]  # fmt: skip


@pytest.mark.usefixtures("engines")
@pytest.mark.parametrize(("name", "text"), [
    ("ps_h264_most_pts_dts_missing.mpeg", "some packets have no timestamp"), ("reschange_848x464_to_424x232.h264", None),
    ("ts_pts_33bit_rollover_inside.ts", None), ("odd_175x143_vp8.ivf", "odd-sized VP8"),
    ("avchd_1080i50_field_coded_ac3_pgs.mts", "interlaced"),
])  # fmt: skip
def test_nvdec_and_real_files(corpus: Path, name: str, text: str | None) -> None:
    with av.open(str(corpus / "files" / name)) as container:
        opened = container.streams.video[0]
        context = opened.codec_context
        order = "tt" if "1080i" in name else "progressive"
        facts = stream(codec=context.codec.canonical_name, native_pixels=context.pix_fmt, width=context.width,
                       height=context.height, field_order=order)  # fmt: skip
        reason = nvdec.supports(facts, 0, opened)
    assert (reason is None) if text is None else (reason is not None and text in reason)


def test_layout_of_the_drivers_answer() -> None:
    """CUVIDDECODECAPS of cuviddec.h is 88 bytes, with the sizes from byte 28 on."""
    assert ctypes.sizeof(DecoderCaps) == 88
    assert (DecoderCaps.max_width.offset, DecoderCaps.min_width.offset) == (28, 40)


WHEEL = "PyNvEncoder : \nError code : 20\nError Type : PyNvEncoder constructor failed: "
OPENING = (
    "PyNvEncoderCaps : \nError code : {0}\nError Type : m_nvenc.nvEncOpenEncodeSessionEx(&encodeSessionExParams, "
    "&hEncoder) returned error {0}\nat /p/PyNvEncoder.cpp:1103\n"
)
"""How messages of PyNvVideoCodec 2.2.4 begin; those below are its own, word for word."""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (OPENING.format(2), "this GPU has no NVENC"),
        (OPENING.format(10), "no NVENC session is left on this GPU, or no memory for one"),
        (WHEEL + "Failed to get preset configuration. Error code 12\n\nat /p/PyNvEncoder.cpp:329\n",
         "PyNvEncoder constructor failed: Failed to get preset configuration (error 12: this NVENC does not do that)"),
        ("EncodeFrame : \nError code : 20\nError Type : nvEncEncodePicture API failed\nat /p/NvEncoder_121.cpp:599\n",
         "nvEncEncodePicture API failed (error 20: a failure without a name)"),
        ("PyNvEncoder : \nError code : 8\nError Type : Format P010 is not supported by current encoder.\nSupported:\n",
         "Format P010 is not supported by current encoder (error 8: a wrong parameter)"),
        ("Lock : returned error 22 at x.cpp:1", "Lock : returned error 22 at x.cpp:1 (error 22: see NVENCSTATUS in nvEncodeAPI.h)"),
        ("something else\nand more", "something else"),
    ],
)  # fmt: skip
def test_what_the_library_says_becomes_one_line(text: str, said: str) -> None:
    assert capability.encoder_reason(RuntimeError(text)) == said


def test_a_gpu_that_had_no_session_left_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [capability.EncoderRow("h264", supported=False, reason=capability.NO_SESSION),
               capability.EncoderRow("h264", supported=True)]  # fmt: skip
    monkeypatch.setattr(capability, "unusable", lambda _: None)
    monkeypatch.setattr(capability.pynv, "load", lambda: None)
    monkeypatch.setattr(capability, "ask_encoder", lambda *_: answers.pop(0))
    found = [capability.encoder_row("h264").supported for _ in range(3)]
    assert found == [False, True, True]
