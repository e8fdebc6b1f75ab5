"""`gpupipe farm template`: the Open Job Description command line itself takes it and makes the same bytes."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from openjd.model import create_job, decode_job_template

from gpupipe.farm.openjd import template
from gpupipe.plan.stored import read_plan

ROOT = Path(__file__).resolve().parents[2]
CONFIG = "device: cpu\nsegments: {seconds: 1}\noutput: {video: {encoder: libx264, preset: veryfast}}\n"
OPENJD = Path(sys.executable).with_name("openjd")


@pytest.fixture(scope="module")
def source(gop_clip) -> Path:
    return gop_clip(5, sound=True)


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """gpupipe as hosts would find it: a program of its own."""
    path = tmp_path / "gpupipe"
    path.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m gpupipe "$@"\n')
    path.chmod(0o755)
    return path


def openjd(*words: object) -> str:
    done = subprocess.run([OPENJD, *map(str, words)], capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize(("name", "together"), [("job.yaml", 2), ("job.json", 5)])
def test_check_and_run(cli, job, source, program, tmp_path, name, together) -> None:
    config, output, to = job(CONFIG), tmp_path / "out.mp4", tmp_path / name
    assert cli("run", "--quiet", config, source, tmp_path / "whole.mp4").code == 0
    assert cli("farm", "template", config, source, output, "--together", together, "--to", to).code == 0
    assert "passes validation" in openjd("check", to)
    told = openjd("run", to, "-p", f"Gpupipe={program}", "--step", "Join", "--run-dependencies")
    assert output.read_bytes() == (tmp_path / "whole.mp4").read_bytes()
    assert told.count("openjd_progress: 100.0") == -(-5 // together) + 1
    assert "openjd_status: join of 5 segments" in told
    again = openjd("run", to, "-p", f"Gpupipe={program}", "--step", "Join")  # a queue may run a task twice
    assert "it was joined before" in again


def test_a_task_that_fails_says_why(cli, job, source, tmp_path) -> None:
    mine = tmp_path / "mine.mkv"
    mine.write_bytes(source.read_bytes())
    to = tmp_path / "job.yaml"
    assert cli("farm", "template", job(CONFIG), mine, tmp_path / "out.mp4", "--to", to).code == 0
    mine.unlink()
    shown = cli("segment", "--openjd", f"{to}.plan", 0)
    assert shown.code == 1
    assert f"openjd_fail: {mine}: cannot be read" in shown.out
    shown = cli("join", "--openjd", f"{to}.plan")
    assert shown.code == 1
    assert "openjd_fail: " in shown.out


def test_hosts_have_a_gpu_where_the_plan_takes_one(cli, job, source, tmp_path) -> None:
    to = tmp_path / "job.yaml"
    assert cli("farm", "template", job(CONFIG), source, tmp_path / "out.mp4", "--to", to).code == 0
    plan = read_plan(Path(f"{to}.plan"))
    assert "hostRequirements" not in to.read_text()
    made = template(replace(plan, device="cuda:0", device_bytes=(3 << 30) + 1), "job.yaml.plan")
    parsed = decode_job_template(template=made)
    amounts = {one.name: one.min for one in parsed.steps[0].hostRequirements.amounts}
    assert amounts == {"amount.worker.gpu": 1, "amount.worker.gpu.memory": 3073}
    ready = create_job(job_template=parsed, job_parameter_values={})
    assert ready.steps[1].dependencies[0].dependsOn == "Segments"


def test_names_and_what_is_there_already(cli, job, source, tmp_path) -> None:
    words = ("farm", "template", job(CONFIG), source, tmp_path / "out.mp4", "--to")
    assert cli(*words, tmp_path / "job.txt").code == 2
    to = tmp_path / "job.json"
    assert cli(*words, to).code == 0
    before = to.read_text()
    shown = cli(*words, to)
    assert shown.code == 1
    assert "the output exists" in shown.err
    assert to.read_text() == before
    assert cli(*words, to, "--overwrite").code == 0
    assert json.loads(to.read_text())["steps"][1]["script"]["actions"]["onRun"]["args"][2] == "--overwrite"
    other = tmp_path / "same.yml"
    assert cli(*words, other, "--overwrite").code == 0
    assert yaml.safe_load(other.read_text())["steps"] == json.loads(to.read_text())["steps"]
