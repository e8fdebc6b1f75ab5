"""`gpupipe doctor`: true here, and true on machines it is told of."""

from __future__ import annotations

import importlib.metadata
import json
import subprocess

import av
import pytest

from gpupipe import doctor
from gpupipe.codecs.capability import DecoderRow, DecoderTable, EncoderRow, EncoderTable
from gpupipe.device.driver import Driver, Gpu


@pytest.fixture
def machine(monkeypatch):
    """An H200 and a card with NVENC, as the driver would describe them."""
    gpus = (Gpu(0, "NVIDIA H200", 150 << 30, "9.0"), Gpu(1, "NVIDIA L4", 24 << 30, "8.9"))
    monkeypatch.setattr(doctor, "driver", lambda: Driver("580.159.04", "13.0", gpus))
    rows = (
        DecoderRow("h264", "4:2:0", 8, supported=True, max_width=4096, max_height=4096, engines=7),
        DecoderRow("h264", "4:2:0", 10, supported=False, reason="no"),
        DecoderRow("hevc", "4:2:0", 8, supported=True, max_width=8192, max_height=8192, engines=7),
        DecoderRow("hevc", "4:2:0", 12, supported=True, max_width=8192, max_height=8192, engines=7),
        DecoderRow("av1", "4:2:0", 8, supported=False, reason="no"),
    )
    monkeypatch.setattr(doctor, "nvdec_table", lambda gpu: DecoderTable(gpu, 7, rows))
    hevc = EncoderRow("hevc", supported=True, max_width=8192, max_height=8192, ten_bit=True, max_b_frames=5)
    tables = {0: EncoderTable(0, reason="this GPU has no NVENC"), 1: EncoderTable(1, (hevc,))}
    monkeypatch.setattr(doctor, "nvenc_table", tables.__getitem__)


def test_versions_are_those_installed(cli):
    libraries = {item["name"]: item for item in json.loads(cli("doctor", "--json").out)["libraries"]}
    for name, distribution in (("PyAV", "av"), ("numpy", "numpy"), ("torch", "torch")):
        assert libraries[name]["version"] == importlib.metadata.version(distribution)
    assert f"libavcodec {'.'.join(map(str, av.library_versions['libavcodec']))}" in libraries["PyAV"]["detail"]
    said = subprocess.run(["ffmpeg", "-version"], capture_output=True, text=True, check=True).stdout
    assert said.startswith(f"ffmpeg version {libraries['ffmpeg']['version']} ")


def test_everything_missing_has_a_hint(cli):
    shown = cli("doctor", "--json")
    assert (shown.code, shown.err) == (0, "")
    for item in json.loads(shown.out)["libraries"]:
        assert (item["problem"] is None) or item["hint"]
    text = cli("doctor")
    assert (text.code, text.err) == (0, "")


def test_installed_but_broken_is_told_from_missing(cli, monkeypatch, tmp_path):
    """As PyNvVideoCodec raises RuntimeError, not ImportError, where the driver's libraries are not there."""
    (tmp_path / "PyNvVideoCodec.py").write_text("raise RuntimeError('\\nlibnvidia-encode.so.1 not found')")
    (tmp_path / "pynvvideocodec-2.2.4.dist-info").mkdir()
    (tmp_path / "pynvvideocodec-2.2.4.dist-info" / "METADATA").write_text("Name: PyNvVideoCodec\nVersion: 2.2.4\n")
    monkeypatch.syspath_prepend(tmp_path)
    lines = cli("doctor").out.splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("PyNvVideoCodec"))
    assert lines[at].split(maxsplit=1)[1] == "2.2.4, cannot be imported: libnvidia-encode.so.1 not found"
    assert "-> pip install 'gpupipe[gpu]'" in lines[at + 1]


def test_torch_that_does_not_import_is_not_fatal(cli, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "torch", None)
    shown = cli("doctor")
    assert shown.code == 0
    assert "cannot be imported" in next(line for line in shown.out.splitlines() if line.startswith("torch "))


@pytest.mark.usefixtures("machine")
def test_engines_are_told(cli):
    shown = cli("doctor").out
    assert "580.159.04, runs CUDA up to 13.0" in shown
    h200, l4 = shown.split("cuda:1")
    assert "NVIDIA H200, 150 GiB, compute capability 9.0" in h200
    assert "7 engines" in h200
    rows = {line.split()[0]: line.split()[1:] for line in h200.splitlines() if line.strip()}
    assert rows["4:2:0"] == ["4:2:2", "4:4:4", "up", "to"]
    assert rows["h264"] == ["8", "-", "-", "4096x4096"]
    assert rows["hevc"] == ["8", "12", "-", "-", "8192x8192"]
    assert rows["av1"] == ["-", "-", "-", "-"]
    assert "no: this GPU has no NVENC" in h200
    assert "10 bit, up to 5 B-frames, 8192x8192" in l4


@pytest.mark.usefixtures("machine")
def test_lines_fit_a_terminal(cli):
    assert max(map(len, cli("doctor").out.splitlines())) <= 80


@pytest.mark.gpu
def test_an_h200_has_seven_decoders_and_no_encoder(cli):
    """Facts from NVIDIA's own tables; only where the GPU is one."""
    gpus = json.loads(cli("doctor", "--json").out)["gpus"]
    for report in gpus:
        if "H200" in report["gpu"]["name"]:
            assert report["nvdec"]["engines"] == 7
            assert report["nvenc"]["reason"] == "this GPU has no NVENC"
