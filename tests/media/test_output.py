"""Output files: refused before work where they must be, named so by anything legal, never half there."""

from __future__ import annotations

import os
import re
import resource
import signal
import subprocess
from pathlib import Path

import av
import pytest
from remux import remux

from gpupipe.errors import MediaError, PlanError
from gpupipe.media import carry
from gpupipe.media.output import OutputFile, check_space


def left(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


def test_appears_only_when_whole(tmp_path):
    final = tmp_path / "a.mov"
    with OutputFile(final) as target:
        assert target.path.parent == tmp_path
        assert re.fullmatch(rf"\.a\.mov\.gpupipe-{os.getpid()}\.part", target.path.name)
        target.path.write_bytes(b"whole")
        assert not final.exists()
        assert target.commit() == 5
    assert left(tmp_path) == ["a.mov"]
    assert final.read_bytes() == b"whole"


def test_nothing_is_left_of_a_failure(tmp_path):
    with pytest.raises(RuntimeError, match="boom"), OutputFile(tmp_path / "a.mov") as target:  # noqa: PT012  (the block is what is tested)
        target.path.write_bytes(b"half")
        raise RuntimeError("boom")
    assert left(tmp_path) == []


def test_failure_keeps_the_older_output(tmp_path):
    final = tmp_path / "a.mov"
    final.write_bytes(b"old")
    with pytest.raises(RuntimeError, match="boom"), OutputFile(final, overwrite=True) as target:  # noqa: PT012  (as above)
        target.path.write_bytes(b"new")
        raise RuntimeError("boom")
    assert final.read_bytes() == b"old"
    with OutputFile(final, overwrite=True) as target:
        target.path.write_bytes(b"new")
        target.commit()
    assert (final.read_bytes(), left(tmp_path)) == (b"new", ["a.mov"])


def test_existing_output(tmp_path):
    (tmp_path / "a.mov").write_bytes(b"old")
    with pytest.raises(MediaError, match=r"exists.*--overwrite"), OutputFile(tmp_path / "a.mov"):
        pass
    assert (tmp_path / "a.mov").read_bytes() == b"old"


@pytest.mark.parametrize("links", [True, False])
def test_a_file_that_appears_meanwhile_is_left_alone(tmp_path, monkeypatch, links):
    if not links:
        monkeypatch.setattr(os, "link", lambda *_: (_ for _ in ()).throw(PermissionError("no hard links here")))
    final = tmp_path / "a.mov"
    with pytest.raises(MediaError, match="meanwhile"), OutputFile(final) as target:  # noqa: PT012  (as above)
        target.path.write_bytes(b"mine")
        final.write_bytes(b"theirs")
        target.commit()
    assert (final.read_bytes(), left(tmp_path)) == (b"theirs", ["a.mov"])
    final.unlink()
    with OutputFile(final) as target:
        target.path.write_bytes(b"mine")
        target.commit()
    assert (final.read_bytes(), left(tmp_path)) == (b"mine", ["a.mov"])


@pytest.mark.parametrize("kind", ["same", "symbolic", "hard", "folder link"])
def test_output_is_input(tmp_path, kind):
    source = tmp_path / "in.mov"
    source.write_bytes(b"precious")
    other = tmp_path / "out.mov"
    if kind == "symbolic":
        other.symlink_to(source)
    elif kind == "hard":
        os.link(source, other)
    elif kind == "folder link":
        (tmp_path / "way").symlink_to(tmp_path, target_is_directory=True)
        other = tmp_path / "way" / "in.mov"
    else:
        other = tmp_path / "." / "in.mov"
    with (
        pytest.raises(MediaError, match="the output is the input"),
        OutputFile(other, overwrite=True, inputs=(source,)),
    ):
        pass
    assert source.read_bytes() == b"precious"


def test_places_that_cannot_be_written(tmp_path):
    with pytest.raises(MediaError, match="does not exist"), OutputFile(tmp_path / "no" / "a.mov"):
        pass
    with pytest.raises(MediaError, match="is a folder"), OutputFile(tmp_path):
        pass
    with pytest.raises(MediaError, match="device or pipe"), OutputFile(Path(os.devnull), overwrite=True):
        pass
    os.mkfifo(tmp_path / "pipe.mkv")
    with pytest.raises(MediaError, match="device or pipe"), OutputFile(tmp_path / "pipe.mkv", overwrite=True):
        pass
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(MediaError), OutputFile(tmp_path / "file" / "a.mov"):
        pass


def test_no_permission(tmp_path):
    folder = tmp_path / "locked"
    folder.mkdir(mode=0o500)
    script = (
        "import os, sys; from pathlib import Path; from gpupipe.media.output import OutputFile\n"
        "if os.geteuid() == 0: os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "OutputFile(Path(sys.argv[1])).__enter__()"
    )
    root = Path(__file__).parents[2]
    for folder_of in (tmp_path, *tmp_path.parents):  # pytest's own folders are closed to others
        if folder_of.owner() == Path.home().owner() and folder_of != Path("/") and len(folder_of.parts) > 2:
            folder_of.chmod(0o711)
    command = [os.sys.executable, "-c", script, str(folder / "a.mov")]
    done = subprocess.run(command, capture_output=True, text=True, cwd=root, check=False)
    assert done.returncode != 0
    assert "no permission" in done.stderr


def test_space(tmp_path):
    check_space(tmp_path / "a.mov", 1)
    with pytest.raises(MediaError, match=r"GB free"):
        check_space(tmp_path / "a.mov", 1 << 60)


NAMES = [
    "it's 100% #1, été 漢字 [x].mp4", "-d25.mkv", "a:b.mov", "http:x.mp4", "file%03d.mkv", "%d.mp4", 'quo"te.mov', "new\nline.mkv",
    "pipe:1.mp4", "a|b.mkv", "x?y=1&z.mp4", " lead and trail .mkv", "back\\slash.mov", "concat:a|b.mp4", "long" * 60 + ".mkv",
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_any_legal_name(corpus, tmp_path, name):
    """Bug D25, and names that libav would take for a protocol or a pattern."""
    folder = tmp_path / "o'dir [x] : %d"
    folder.mkdir()
    with OutputFile(folder / name) as target:
        remux(corpus / "files/h264_high10.mp4", target.path, container=carry.container_of(folder / name))
        target.commit()
    assert left(folder) == [name]
    with (folder / name).open("rb") as file, av.open(file) as opened:
        assert sum(p.size > 0 for p in opened.demux(video=0)) == 30


def test_relative_name_with_a_dash(corpus, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with OutputFile(Path("-a.mp4")) as target:
        remux(corpus / "files/h264_high10.mp4", target.path, container="mp4")
        target.commit()
    assert left(tmp_path) == ["-a.mp4"]


def test_name_without_a_container():
    with pytest.raises(PlanError, match=r"'\.xyz'.*\.mkv"):
        carry.container_of(Path("a.xyz"))
    with pytest.raises(PlanError, match="no extension"):
        carry.container_of(Path("a"))


@pytest.mark.parametrize("extension", ["mp4", "mkv", "mov"])
def test_full_disk(corpus, tmp_path, extension):
    """Bug D23: the volume is named, nothing is left."""
    volume = tmp_path / "volume"
    volume.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "none", str(volume)], capture_output=True, check=False
    )
    if mounted.returncode:
        return limited(corpus, volume / f"a.{extension}")
    try:
        with (
            pytest.raises(
                MediaError, match=rf"^{re.escape(str(volume))}/a\.{extension}: no space left on the volume of"
            ),
            OutputFile(volume / f"a.{extension}") as target,
        ):
            remux(
                corpus / "files/two_video_two_audio_two_subs.mp4",
                target.path,
                container=carry.container_of(target.name),
            )
        assert left(volume) == []
    finally:
        subprocess.run(["umount", str(volume)], check=True)


def limited(corpus: Path, path: Path) -> None:
    """Where mounting is not allowed: a limit on file size, which the system reports in the same way."""
    before, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (256 << 10, before[1]))
    try:
        with pytest.raises(MediaError, match="grew beyond"), OutputFile(path) as target:
            remux(corpus / "files/two_video_two_audio_two_subs.mp4", target.path, container=carry.container_of(path))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert left(path.parent) == []
