from __future__ import annotations

import dataclasses
import json
from types import SimpleNamespace

import nvenc_double
import pytest

from gpupipe.codecs import capability, nvdec, pynv
from gpupipe.device.driver import Driver, Gpu
from gpupipe.errors import DeviceError
from gpupipe.format import PIXEL_FORMATS, FrameFormat

H200 = Driver("580.0", "13.0", (Gpu(0, "NVIDIA H200", 150 << 30, "9.0"),))


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch):
    """Sets what driver and library are there: machine(driver, library, reason)."""

    def forget() -> None:
        capability.decoder_row.cache_clear()
        capability.encoder_row.cache_clear()

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


def _decoder_library(supported: set[tuple[str, str, int]]) -> SimpleNamespace:
    """Answers GetDecoderCaps in PyNvVideoCodec's words."""
    codecs = SimpleNamespace(**{name: name for name in capability.NVDEC_CODECS.values()})
    chroma = SimpleNamespace(**{name: name for name in capability.CHROMA.values()})

    def caps(gpuid: int, codec: str, chromaformat: str, bitdepth: int) -> dict[str, int]:
        yes = int((codec, chromaformat, bitdepth) in supported)
        sizes = {"width_min": 48, "height_min": 16, "width_max": 4096, "height_max": 4096, "mb_num_max": 65536}
        return {"supported": yes, "num_decoder_engines": 7 * yes, **{k: v * yes for k, v in sizes.items()}}

    return SimpleNamespace(GetDecoderCaps=caps, cudaVideoCodec=codecs, cudaVideoChromaFormat=chroma)


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
    ({"codec": "prores"}, "does not decode prores"), ({"native_pixels": "yuva420p"}, "does not decode yuva420p"),
    ({"native_pixels": "yuv420p10le"}, "does not decode h264 4:2:0 10-bit"), ({"codec": "av1"}, "does not decode av1 4:2:0 8-bit"),
    ({"field_order": "tt"}, "interlaced"), ({"field_order": "unknown"}, "unknown field order"),
    ({"width": 32}, "below"), ({"width": 5000}, "beyond"), ({"width": 4096, "height": 4097}, "beyond"),
    ({"profile": "Extended"}, "profile Extended"),
])  # fmt: skip
def test_nvdec_says_why_not(machine, changes: dict, text: str | None) -> None:
    machine(H200, _decoder_library({("H264", "420", 8), ("HEVC", "420", 10)}))
    reason = nvdec.supports(stream(**changes))
    assert (reason is None) if text is None else (reason is not None and text in reason)


def test_engines_are_counted(machine) -> None:
    machine(H200, _decoder_library({("H264", "420", 8)}))
    table = capability.nvdec_table()
    assert table.engines == 7
    assert [(r.codec, r.chroma, r.depth) for r in table.rows if r.supported] == [("h264", "4:2:0", 8)]
