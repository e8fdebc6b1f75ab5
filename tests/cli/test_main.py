"""What holds for every verb: exit codes, one line an error, quiet ends."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest

import gpupipe
from gpupipe.cli import VERBS
from gpupipe.cli import cli as main
from gpupipe.cli.console import printable


def test_version_and_help(cli):
    assert cli("--version").out == f"gpupipe, version {gpupipe.__version__}\n"
    shown = cli("--help")
    assert shown.code == 0
    for verb in VERBS:
        assert re.search(rf"^  {verb} ", shown.out, re.MULTILINE)
        assert cli(verb, "-h").code == 0


def paths(command: click.Command) -> list[click.Path]:
    context = click.Context(command)
    if isinstance(command, click.Group):
        return [one for name in command.list_commands(context) for one in paths(command.get_command(context, name))]
    return [given.type for given in command.params if isinstance(given.type, click.Path)]


def test_a_file_that_may_not_be_read_is_no_wrong_command_line():
    found = paths(main)
    assert len(found) > 20
    assert not [one for one in found if one.readable]


@pytest.mark.parametrize(
    "arguments",
    [
        ["nonsense"],
        ["run"],
        ["run", "c.yaml", "--no-such-option"],
        ["run", "c.yaml", "a", "b", "c"],
        ["run", "c.yaml", "--device", "gpu"],
        ["run", "c.yaml", "--device", "cuda:"],
        ["run", "c.yaml", "--log", "xml"],
        ["probe"],
        ["sample", "x.mov", "--size", "big"],
        ["sample", "x.mov", "--rate", "1/0"],
        ["sample", "x.mov", "--seconds", "0"],
    ],
)
def test_wrong_command_lines_are_2(cli, arguments):
    shown = cli(*arguments)
    assert (shown.code, shown.out) == (2, "")
    assert "Error: " in shown.err


@pytest.mark.parametrize("verb", ["run", "plan"])
def test_a_wrong_config_is_1_and_one_line(cli, tmp_path, verb):
    config = tmp_path / "c.yaml"
    config.write_text("output: {vidoe: {}}")
    shown = cli(verb, config, "in.mov", "out.mp4")
    assert (shown.code, shown.out) == (1, "")
    assert shown.err == f"error: {config}: output.vidoe: unknown key (did you mean 'video'?)\n"


def test_a_bug_is_3_with_its_traceback_in_a_file(cli, monkeypatch, tmp_path):
    def fail(path: Path) -> None:
        raise ZeroDivisionError("boom\n at once")

    monkeypatch.setattr("gpupipe.cli.probe.probe", fail)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    shown = cli("probe", "x.mov")
    assert (shown.code, shown.out) == (3, "")
    assert shown.err.count("\n") == 1
    assert shown.err.startswith("error: a bug in gpupipe: ZeroDivisionError: boom\\n at once")
    log = Path(re.search(r"(\S+gpupipe-bug-\S+\.log)", shown.err)[1])
    assert log.parent == tmp_path
    assert "Traceback (most recent call last)" in log.read_text()
    assert gpupipe.__version__ in log.read_text()


def test_a_bug_is_3_where_its_file_cannot_be_written(cli, monkeypatch):
    monkeypatch.setattr("gpupipe.cli.probe.probe", lambda _: 1 / 0)
    monkeypatch.setattr("tempfile.tempdir", "/nonexistent")
    shown = cli("probe", "x.mov")
    assert shown.code == 3
    assert "could not be written" in shown.err


def test_a_broken_pipe_ends_quietly(clip):
    command = f"set -o pipefail; '{sys.executable}' -m gpupipe probe --json '{clip}' | head -c 1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=240, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "{", "")


def test_output_to_a_full_disk_is_an_error(clip):
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "gpupipe", "probe", str(clip)]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=240, check=False)
    assert done.returncode == 1
    assert done.stderr == "error: standard output: No space left on device\n"


def test_names_cannot_command_the_terminal(cli, tmp_path):
    shown = cli("probe", tmp_path / "a\x1b[31m\n\u202eb\x9b.mov")
    assert shown.code == 1
    assert "a\\x1b[31m\\n\\u202eb\\x9b.mov" in shown.err
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f]", shown.err)


def test_printable_keeps_what_people_write():
    assert printable("Überblick 映画 é 'q' \"d\" \\n") == "Überblick 映画 é 'q' \"d\" \\n"
    assert printable("a\tb\x00\udcff") == "a\\tb\\x00\\udcff"


@pytest.mark.parametrize(
    "name",
    [
        "-x.mov",
        "--json.mov",
        "two words.mov",
        "a'b\"c.mov",
        "line\nbreak.mov",
        "Größe 映画.mov",
        "100%d.mov",
        "a:b.mov",
        "http:x.mov",
    ],
)
def test_probe_takes_any_file_name(cli, clip, tmp_path, monkeypatch, name):
    (tmp_path / name).write_bytes(clip.read_bytes())
    monkeypatch.chdir(tmp_path)
    shown = cli("probe", "--json", "--", name)
    assert (shown.code, shown.err) == (0, "")
    assert json.loads(shown.out)["path"] == name


def test_probe_takes_names_that_are_not_utf_8(program, clip, tmp_path):
    name = bytes(tmp_path) + b"/\xff\xfe.mov"
    Path(name.decode("utf-8", "surrogateescape")).write_bytes(clip.read_bytes())
    shown = program("probe", name)
    assert (shown.code, shown.err) == (0, "")
    assert "\\udcff\\udcfe.mov" in shown.out


def test_starting_up_imports_no_torch_and_no_rich():
    code = "import sys, gpupipe.cli, gpupipe.cli.run, gpupipe.cli.probe; print([m for m in ('torch', 'rich') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=240, check=True)
    assert done.stdout == "[]\n"
