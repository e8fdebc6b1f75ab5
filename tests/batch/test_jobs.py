"""Which files a batch takes, and what they become."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpupipe.batch.book import made_by
from gpupipe.batch.jobs import jobs, sources
from gpupipe.config import parse_config
from gpupipe.errors import ConfigError


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("b.mov", "a.mov", "c [1].mov", "deep/d.mov", "deep/er/a.mov"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["*.mov"], ["a.mov", "b.mov", "c [1].mov"]),
        (["b.mov", "*.mov"], ["b.mov", "a.mov", "c [1].mov"]),
        (["c [1].mov"], ["c [1].mov"]),
        (["**/*.mov"], ["a.mov", "b.mov", "c [1].mov", "deep/d.mov", "deep/er/a.mov"]),
        (["./a.mov", "deep/../a.mov"], ["a.mov"]),
        (["gone.mov", "a.mov"], ["gone.mov", "a.mov"]),
    ],
)
def test_words(folder: Path, words: list[str], expected: list[str]) -> None:
    assert [str(path) for path in sources(words, [])] == expected


def test_a_list(folder: Path) -> None:
    (folder / "list.txt").write_text("# shots\n\n b.mov \ndeep/*.mov\n", encoding="utf-8")
    assert sources(["a.mov"], [Path("list.txt")]) == [Path("a.mov"), Path("b.mov"), Path("deep/d.mov")]
    (folder / "list.txt").write_text("a.mov\nnone*.mov\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"list\.txt, line 2: no file matches none\*\.mov"):
        sources([], [Path("list.txt")])


@pytest.mark.parametrize(
    ("words", "lists", "text"),
    [
        ([], [], "no input"),
        (["deep"], [], r"deep is a folder \(a pattern takes the files in it: 'deep/\*'"),
        (["x*"], [], r"no file matches x\*"),
        ([], ["gone.txt"], r"gone\.txt: cannot be read: No such file"),
        ([], ["deep"], "deep: cannot be read: Is a directory"),
    ],
)
def test_refused(folder: Path, words: list[str], lists: list[str], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        sources(words, [Path(name) for name in lists])


def test_names() -> None:
    made = jobs([Path("x/a.b.mov"), Path("y/c.mkv")], "{parent}/{number:03}_{stem}.{suffix}", Path("out"))
    assert [job.output for job in made] == [Path("out/x/001_a.b.mov"), Path("out/y/002_c.mkv")]


@pytest.mark.parametrize("words", [("deep/d.mov", "1.mov"), ("2.mov", "deep/d.mov")])
def test_no_output_takes_the_place_of_an_input(folder: Path, words: tuple[str, str]) -> None:
    """Whichever of them has its turn first, and however it is called."""
    for name in ("1.mov", "2.mov"):
        (folder / name).touch()
    with pytest.raises(ConfigError, match=r"deep/d\.mov would become .*[12]\.mov, which is an input"):
        jobs([folder / word for word in words], "{number}.mov", Path("deep/.."))


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("{stem}", "no suffix"),
        ("{name}.mp4", "unknown field"),
        ("{stem.__class__}.mp4", "unknown field"),
        ("{0}.mp4", "unknown field"),
        ("{stem.mp4", "no template"),
        ("{stem:d}.mp4", "no template"),
        ("../{stem}.mp4", "no name in the folder"),
        ("/tmp/{stem}.mp4", "no name in the folder"),
        ("same.mp4", "a.mov and b.mov would both become out/same.mp4"),
    ],
)
def test_bad_names(template: str, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        jobs([Path("a.mov"), Path("b.mov")], template, Path("out"))


def test_where_a_batch_runs_changes_no_output() -> None:
    plain = made_by(parse_config({}))
    assert made_by(parse_config({"devices": ["cuda:0", "cuda:1"], "memory": {"host": "8G"}, "sessions": 2})) == plain
    assert made_by(parse_config({"output": {"video": {"quality": 12}}})) != plain


def test_a_list_from_windows(folder: Path) -> None:
    (folder / "list.txt").write_bytes(b"\xef\xbb\xbfa.mov\r\nb.mov\r\n")
    assert sources([], [Path("list.txt")]) == [folder.joinpath(name).relative_to(folder) for name in ("a.mov", "b.mov")]


@pytest.mark.parametrize("template", ["a\0.mp4", "{number:099999999999999}.mp4", "{number:9999999999999999999999}.mp4"])
def test_templates_that_make_no_names(template: str) -> None:
    with pytest.raises(ConfigError, match="--name"):
        jobs([Path("a.mov")], template, Path("out"))


@pytest.mark.parametrize("word", ["a\0b.mov", "n" * 300, "loop"])
def test_paths_that_cannot_be_one(folder: Path, word: str) -> None:
    (folder / "loop").symlink_to("loop")
    with pytest.raises(ConfigError, match="is no path that can be read"):
        sources([word], [])


def test_lines_of_a_list_end_at_line_feeds_only(folder: Path) -> None:
    r"""Whatever else Python calls the end of a line may be part of a name; Windows ends them by \r\n."""
    names = ["a\u2028b.mov", "a\x0bb.mov", "a\x0cb.mov", "a\x85b.mov", "a\x1cb.mov", "a\rb.mov", "end\u2028.mov"]
    for end in ("\n", "\r\n"):
        (folder / "list.txt").write_bytes(end.join([*names, "", "# a\u2028comment"]).encode())
        assert [str(path) for path in sources([], [Path("list.txt")])] == names
