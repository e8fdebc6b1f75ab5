"""Quality that could not be measured is refused by `plan` already, before any work."""

from __future__ import annotations

import pytest

from gpupipe.render import quality


@pytest.fixture(scope="module")
def clip(sample_clip):
    return sample_clip(1, (160, 90))


@pytest.mark.parametrize("verb", ["plan", "run"])
@pytest.mark.parametrize(("text", "says"), [
    ("{metrics: [psnr], against: input}", "quality.against: 160x90 cannot be compared with 80x44"),
    ("{metrics: [vmaf]}", "quality.metrics: no libvmaf here"),
])  # fmt: skip
def test_refused(cli, clip, tmp_path, monkeypatch, verb, text, says):
    monkeypatch.setattr(quality, "vmaf_program", lambda: None)
    config = tmp_path / "c.yaml"
    config.write_text(f"stages: [{{resize: {{width: 80, height: 44}}}}]\nquality: {text}\n")
    done = cli(verb, config, clip, tmp_path / "o.mp4", "--device", "cpu")
    assert done.code != 0
    assert f"error: {config}: {says}" in done.err
    assert not (tmp_path / "o.mp4").exists()
