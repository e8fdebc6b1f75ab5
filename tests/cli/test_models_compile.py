"""`gpupipe models compile`: what it builds is there for the run."""

from __future__ import annotations

import pytest

from gpupipe.engines.inductor import Inductor

SR = "realesr-animevideov3-x2"


@pytest.fixture
def builds(weights, monkeypatch):
    """The builds of an engine that takes no time, in place of inductor's."""
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    cache, made = weights(SR), []

    def build(engine, network, profile, folder):
        made.append(str(profile))
        (folder / "artifacts").write_bytes(b"x")

    monkeypatch.setattr(Inductor, "absent", lambda *_: None)
    monkeypatch.setattr(Inductor, "build", build)
    monkeypatch.setattr(Inductor, "load", lambda _, network, *__: network)
    yield made
    for entry in (cache / "engines").iterdir():
        if entry.is_dir():
            (entry / "entry.json").unlink(missing_ok=True)


def config(job, engine):
    small = "{crop: {width: 32, height: 24, x: 40, y: 30}}"
    stages = f"[{small}, {{model: {{card: {SR}, engine: {engine}}}}}]"
    return job(f"range: {{end: '0.08'}}\nstages: {stages}\noutput: {{video: {{codec: ffv1}}, audio: none}}\n")


def test_the_run_finds_what_was_compiled(cli, job, clip, tmp_path, builds):
    path = config(job, "inductor")
    shown = cli("models", "compile", path, clip, "--device", "cpu")
    assert (shown.code, shown.out) == (0, f"{SR}: inductor in fp32 for 32x24\n")
    assert shown.err.startswith(f"{SR}: building inductor for 1 x 32x24 in fp32 on cpu\n")
    assert f"{SR}: inductor for 1 x 32x24 in fp32 on cpu built in " in shown.err
    assert builds == ["1 x 32x24 in fp32 on cpu"]
    ran = cli("run", path, clip, tmp_path / "out.mkv", "--device", "cpu")
    assert ran.code == 0, ran.err
    assert "building" not in ran.err
    assert len(builds) == 1
    assert not (tmp_path / "compiled.mkv").exists()


def test_the_cpu_needs_nothing_built(cli, job, clip, builds):
    shown = cli("models", "compile", config(job, "auto"), clip, "--device", "cpu")
    assert (shown.code, shown.out, shown.err) == (0, f"{SR}: eager in fp32 for 32x24\n", "")
    assert builds == []


def test_networks_of_every_stage(cli, job, clip, weights):
    weights("centerface")
    shown = cli("models", "compile", job("stages: [{face: {operate: [blur]}}]"), clip, "--device", "cpu")
    assert (shown.code, shown.out.partition(" for ")[0]) == (0, "centerface: eager"), shown.err


def test_a_config_without_networks(cli, job, clip):
    shown = cli("models", "compile", job("stages: []"), clip)
    assert shown.code == 1
    assert shown.err.endswith("c.yaml: stages: no stage of it runs a network\n")


def test_an_engine_that_cannot_be_used_is_refused_by_the_plan(refused, job, clip, tmp_path, builds):
    said = refused(config(job, "tensorrt"), clip, tmp_path / "out.mkv")
    assert said.endswith(
        "stages[1].model: engine tensorrt cannot be used on cpu: it runs on a GPU only (use `engine: auto`)"
    )
