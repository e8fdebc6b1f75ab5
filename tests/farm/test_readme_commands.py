"""The page 'Long renders and farms' of the README: its commands run as written, in order, in one folder.

Those that need a cluster or a store are read by the command line and not carried out; test_on_ray has a cluster.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest

from gpupipe.cli import cli as group

ROOT = Path(__file__).resolve().parents[2]
_, _, _after = (ROOT / "README.md").read_text(encoding="utf-8").partition("\n## Long renders and farms\n")
PAGE = _after.partition("\n## ")[0]
COMMANDS = [line.split("  #")[0].strip() for line in re.findall(r"^    ((?:gpupipe|openjd) .*)$", PAGE, re.MULTILINE)]
ELSEWHERE = ("--address", "s3://")
CONFIG = "device: cpu\nsegments: {seconds: 1}\nresume: keep\noutput: {video: {encoder: libx264, preset: veryfast}}\n"


@pytest.fixture
def place(tmp_path: Path, ffmpeg) -> dict[str, str]:
    """A folder as the page has it, and the environment in which `gpupipe` and `openjd` are found."""
    ffmpeg("-f", "lavfi", "-i", "testsrc2=s=192x108:r=25:d=3", "-f", "lavfi", "-i", "sine=d=3", "-c:v", "libx264",
           "-g", "25", "-preset", "ultrafast", "-c:a", "aac", tmp_path / "in.mov")  # fmt: skip
    (tmp_path / "config.yaml").write_text(CONFIG)
    (tmp_path / "rushes").mkdir()
    shutil.copy(tmp_path / "in.mov", tmp_path / "rushes" / "one.mov")
    (tmp_path / "shots.txt").write_text("rushes/one.mov\n")
    program = tmp_path / "bin" / "gpupipe"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m gpupipe "$@"\n')
    program.chmod(0o755)
    path = os.pathsep.join([str(program.parent), str(Path(sys.executable).parent), os.environ["PATH"]])
    return {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)}


@pytest.mark.timeout(1800)
def test_as_written(place: dict[str, str], tmp_path: Path) -> None:
    ran = 0
    whole: set[bytes] = set()
    for command in COMMANDS:
        if any(word in command for word in ELSEWHERE):
            continue
        output = tmp_path / "out.mp4"
        if " status " not in command:
            output.unlink(missing_ok=True)  # each of them begins where nothing has been written
        done = subprocess.run(
            command, shell=True, cwd=tmp_path, env=place, capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        if output.exists():
            whole.add(output.read_bytes())
        ran += 1
    assert ran >= 12
    assert len(whole) == 1  # by run, segment and join, farm, openjd
    assert (tmp_path / "out" / "one.mp4").exists()


@pytest.mark.parametrize("command", [one for one in COMMANDS if any(word in one for word in ELSEWHERE)])
def test_read_by_the_command_line(command: str) -> None:
    program, *words = shlex.split(command)
    assert program == "gpupipe"
    verb: click.Command = group
    while isinstance(verb, click.Group):
        found = verb.get_command(click.Context(verb), words.pop(0))
        assert found is not None
        verb = found
    assert verb.make_context(verb.name, words).params["address"] or "s3://" in command
