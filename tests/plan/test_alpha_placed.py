"""Where alpha is decoded and computed on a machine with a GPU, which is a double here."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpupipe.config import parse_config
from gpupipe.media.probe import probe
from gpupipe.plan import Plan, make_plan


@pytest.fixture
def made(corpus: Path, gpu):
    """Plans for VP9 with a second bitstream for alpha, which NVDEC would decode without it."""
    gpu(2, 16 << 30)

    def make(config: dict, output: str = "o.mkv") -> Plan:
        info = probe(corpus / "files" / "alpha_vp9_vorbis.webm")
        return make_plan(parse_config({"device": "cuda:0", **config}), info, Path(output))

    return make


def test_nvdec_gives_no_alpha(made) -> None:
    config = {"stages": [{"warp": {"rotate": 3}}], "output": {"video": {"encoder": "prores_torch", "alpha": "keep"}}}
    plan = made(config)
    assert plan.decoder == "libav"
    assert "NVDEC gives no alpha" in plan.decoder_reason
    assert [step.kind for step in plan.steps] == ["upload", "convert", "stage", "convert"]
    assert {step.target.alpha for step in plan.steps} == {8}
    assert plan.encoder.input_format.pixels.chroma_shift == (0, 0)
    assert [step.target.device for step in plan.steps] == ["cuda:0"] * 4
    words = "\n".join(plan.lines())
    assert "yuv444p10le with 8-bit alpha" in words
    assert "alpha: 8 bit, straight, is carried to prores_torch" in words


def test_a_cpu_encoder_gets_it_back(made) -> None:
    plan = made({"stages": [{"resize": {"width": 64, "height": 64}}], "output": {"video": {"codec": "ffv1"}}})
    assert [step.kind for step in plan.steps] == ["upload", "stage", "download"]
    assert {step.source.alpha for step in plan.steps} == {8}


@pytest.mark.parametrize("alpha", ["auto", "drop"])
def test_without_it_nvdec_decodes(made, alpha: str) -> None:
    plan = made({"output": {"video": {"codec": "h264", "alpha": alpha}}})
    assert plan.decoder == "nvdec"
    assert bool([w for w in plan.warnings if "alpha dropped" in w.message]) == (alpha == "auto")
    assert not any(step.target.alpha for step in plan.steps)
