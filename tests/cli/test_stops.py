"""Full disks, missing rights, signals and readers that go away: what a machine does to a run."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from patience import hold, until

PYTHON = [sys.executable, "-m", "gpupipe"]
X264 = "output: {video: {encoder: libx264, preset: ultrafast}}\n"
ROOT = Path(__file__).resolve().parents[2]


def settled(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


@pytest.fixture(scope="module")
def volume(tmp_path_factory):
    """Runs shell lines in a mount namespace with a quarter-megabyte tmpfs at $V; needs no rights where namespaces exist."""
    place = tmp_path_factory.mktemp("volume")
    who = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]

    def run(script: str, **variables: object) -> subprocess.CompletedProcess[str]:
        lines = f"mount -t tmpfs -o size=256k none '{place}' || exit 99\n{script}"
        environment = {**os.environ, "V": str(place), "RUN": " ".join(PYTHON)} | {
            k: str(v) for k, v in variables.items()
        }
        command = ["unshare", *who, "--mount", "bash", "-c", lines]
        return subprocess.run(
            command, capture_output=True, text=True, timeout=240, check=False, env=environment, cwd=ROOT
        )

    if shutil.which("unshare") is None or run("true").returncode:
        pytest.skip("no mount namespaces here")
    return run


@pytest.mark.parametrize("kind", ["mp4", "mkv"])
def test_no_space_left(volume, clip, job, kind):
    config = job("output: {video: {encoder: mjpeg, quality: 100}, audio: none}")
    done = volume(
        'echo older >"$V/o.$KIND"\n$RUN run --quiet --device cpu --overwrite "$CONFIG" "$CLIP" "$V/o.$KIND"\n'
        'echo code $?; ls -A "$V"; cat "$V/o.$KIND"', CONFIG=config, CLIP=clip, KIND=kind,
    )  # fmt: skip
    assert done.stdout == f"code 5\no.{kind}\nolder\n"
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("error: ")
    assert f"/o.{kind}: no space left on the volume of " in done.stderr
    assert "free some space and start again" in done.stderr


def test_a_full_disk_from_the_start(volume, clip, job):
    done = volume(
        'head -c 2M /dev/zero >"$V/full" 2>/dev/null\n$RUN run --quiet --device cpu "$CONFIG" "$CLIP" "$V/o.mp4"\n'
        'echo code $?; ls -A "$V"', CONFIG=job(X264), CLIP=clip,
    )  # fmt: skip
    assert done.stdout == "code 5\nfull\n"
    assert "no space left" in done.stderr


def test_a_read_only_volume(volume, clip, job):
    done = volume(
        'mount -o remount,ro "$V"\n$RUN run --quiet --device cpu "$CONFIG" "$CLIP" "$V/o.mp4"\necho code $?; ls -A "$V"',
        CONFIG=job(X264), CLIP=clip,
    )  # fmt: skip
    assert done.stdout == "code 5\n"
    assert done.stderr.startswith("error: ")
    assert "no permission to write" in done.stderr or "read-only" in done.stderr


def test_a_file_size_limit(clip, job, tmp_path):
    config = job("output: {video: {encoder: mjpeg, quality: 100}, audio: none}")
    command = f"ulimit -f 200; exec {' '.join(PYTHON)} run --quiet --device cpu '{config}' '{clip}' '{tmp_path}/o.mkv'"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=240, check=False, cwd=ROOT)
    assert done.returncode == 5
    assert "o.mkv: the file grew beyond what the system allows (check ulimit -f" in done.stderr
    assert settled(tmp_path) == {"c.yaml"}


@pytest.fixture(scope="module")
def as_nobody(clip):
    """A folder that a person without rights can look into, and a way to be that person; rights do not bind root.

    Not one of pytest's: it takes others' rights away from all of those whenever another pytest begins.
    """
    folder = Path(tempfile.mkdtemp(prefix="gpupipe-rights-"))
    folder.chmod(0o755)
    for name, mode in (("open.mov", 0o644), ("secret.mov", 0o000)):
        shutil.copy(clip, folder / name)
        (folder / name).chmod(mode)
    for name, mode in (("c.yaml", 0o644), ("secret.yaml", 0o000)):
        (folder / name).write_text(X264)
        (folder / name).chmod(mode)
    (folder / "closed").mkdir(mode=0o700)
    shutil.copy(clip, folder / "closed" / "in.mov")
    (folder / "closed").chmod(0o000)
    (folder / "read").mkdir(mode=0o555)
    prefix = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"] if os.geteuid() == 0 else []

    def run(*arguments: object) -> subprocess.CompletedProcess[str]:
        command = [*prefix, *PYTHON, "run", "--quiet", "--device", "cpu", *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, timeout=240, check=False, cwd=ROOT)

    yield run, folder
    (folder / "closed").chmod(0o700)
    (folder / "read").chmod(0o700)
    shutil.rmtree(folder)


@pytest.mark.parametrize(
    ("config", "source", "output", "says"),
    [
        ("secret.yaml", "open.mov", "o.mp4", "secret.yaml: cannot read the config: Permission denied"),
        ("c.yaml", "secret.mov", "o.mp4", "secret.mov: no permission to read it (check owner and mode)"),
        ("c.yaml", "closed/in.mov", "o.mp4", "closed/in.mov: no permission to look into its folder"),
        ("c.yaml", "open.mov", "read/o.mp4", "no permission to write in "),
        ("c.yaml", "open.mov", "closed/o.mp4", "o.mp4: no permission to write"),
    ],
)
def test_no_permission(as_nobody, config, source, output, says):
    run, folder = as_nobody
    done = run(folder / config, folder / source, folder / output)
    assert done.returncode == (5 if "to write" in says else 1)
    assert (done.stdout, done.stderr.count("\n")) == ("", 1)
    assert says in done.stderr
    assert settled(folder) == {"open.mov", "secret.mov", "c.yaml", "secret.yaml", "closed", "read"}
    assert not settled(folder / "read")


@pytest.fixture
def begun(corpus, job, tmp_path):
    """A long run at work, in a session of its own, over an older output."""
    (tmp_path / "out.mp4").write_text("older")
    config = job("output: {video: {encoder: libx264, preset: veryslow}}")
    source = corpus / "files" / "long_6min_1080p30_aac.mp4"
    command = [*PYTHON, "run", "--device", "cpu", "--overwrite", "--log", "json", config, source, tmp_path / "out.mp4"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    until(lambda: any(path.suffix == ".part" and path.stat().st_size for path in tmp_path.iterdir()), process)
    yield process
    if process.poll() is None:
        process.kill()
        process.communicate()


def alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def over(process: subprocess.Popen[str], folder: Path) -> str:
    """Waits for the end; no child may be left, no temporary file, and the older output as it was."""
    _, err = process.communicate(timeout=240)
    assert process.returncode == 130
    until(lambda: not alive(process.pid))
    assert settled(folder) == {"c.yaml", "out.mp4"}
    assert (folder / "out.mp4").read_text() == "older"
    return err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_keeps_the_older_output(begun, tmp_path, number):
    begun.send_signal(number)
    events = [json.loads(line) for line in over(begun, tmp_path).splitlines()]
    assert (events[-1]["event"], events[-1]["exit_code"]) == ("error", 130)
    assert "nothing was written under the output's name" in events[-1]["message"]


def test_a_second_signal_takes_the_unfinished_file_away(begun, tmp_path):
    hold(begun)  # both wait for it then, and the second comes before the run can clean up
    begun.send_signal(signal.SIGTERM)
    begun.send_signal(signal.SIGINT)
    begun.send_signal(signal.SIGCONT)
    err = over(begun, tmp_path)
    assert "stopped at once" in err


TWICE = """
import os, signal, sys, threading
from pathlib import Path
from gpupipe.cli.console import Console
from gpupipe.cli.stop import stopping
from gpupipe.media.output import OutputFile
with stopping(threading.Event(), Console()), OutputFile(Path(sys.argv[1])) as file:
    file.path.write_text("whole")
    if sys.argv[2] == "committed":
        file.commit()
    os.kill(os.getpid(), signal.SIGINT)
    os.kill(os.getpid(), signal.SIGINT)
"""


@pytest.mark.parametrize(("when", "said"), [("committed", "is whole"), ("before", "nothing was written")])
def test_a_second_signal_while_decoders_are_closed_tells_the_truth(when, said, tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", TWICE, str(tmp_path / "out.mp4"), when],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 130
    assert said in done.stderr.splitlines()[-1]
    assert settled(tmp_path) == ({"out.mp4"} if when == "committed" else set())


def test_a_killed_run_leaves_nothing_under_the_final_name(begun, tmp_path):
    """SIGKILL cannot be answered: the hidden file stays, and the next run is not disturbed by it."""
    begun.kill()
    begun.communicate()
    assert (tmp_path / "out.mp4").read_text() == "older"
    (left,) = settled(tmp_path) - {"c.yaml", "out.mp4"}
    assert left.startswith(".out.mp4.gpupipe-")
    assert left.endswith(".part")


def test_nobody_reads_the_log(clip, job, tmp_path):
    """A pipe that closes early is no reason to lose the work."""
    command = (
        f"{' '.join(PYTHON)} run --device cpu '{job(X264)}' '{clip}' '{tmp_path}/o.mp4' 2>&1 >/dev/null | head -c 1"
    )
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=240, check=False, cwd=ROOT)
    assert len(done.stdout) == 1
    until(lambda: settled(tmp_path) == {"c.yaml", "o.mp4"})


def test_a_closed_standard_error(clip, job, tmp_path):
    command = f"exec {' '.join(PYTHON)} run --device cpu '{job(X264)}' '{clip}' '{tmp_path}/o.mp4' 2>&-"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=240, check=False, cwd=ROOT)
    assert done.returncode == 0
    assert settled(tmp_path) == {"c.yaml", "o.mp4"}
