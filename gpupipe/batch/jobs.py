"""Which files a batch takes, and what each output is called."""

from __future__ import annotations

import glob
import os
import string
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

from gpupipe.errors import ConfigError
from gpupipe.media.output import describe_os_error

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

FIELDS = ("stem", "suffix", "parent", "number")
"""What a name may be made of: `clip`, `mov`, the name of the folder, the place in the list from 1."""


@dataclass(frozen=True, slots=True)
class Job:
    """One file of a batch."""

    source: Path
    output: Path


def sources(words: Sequence[str], lists: Sequence[Path]) -> list[Path]:
    """The files that paths and patterns (`*`, `?`, `[]`, `**`) name, then those of the list files; each once.

    A list file has a path or pattern a line; empty lines and those that begin with # do not count. Relative paths start
    from the current directory. A path that does not exist stays in: its turn says so. Raises ConfigError for a pattern
    that nothing matches, for a folder and for a list that cannot be read.
    """
    found: dict[Path, Path] = {}
    for where, word in (*(("INPUT", word) for word in words), *_listed(lists)):
        for path in _matches(word, where):
            try:
                found.setdefault(path.resolve(), path)
            except OSError as error:
                raise describe_os_error(error, path) from None
    if not found:
        raise ConfigError("no input", hint="give files, patterns, or --list FILE")
    return list(found.values())


def _listed(lists: Iterable[Path]) -> Iterable[tuple[str, str]]:
    for path in lists:
        try:
            # Windows begins a text with a mark, and ends lines by \r\n; all else may be part of a name.
            lines = path.read_bytes().decode("utf-8-sig").split("\n")
        except UnicodeDecodeError:
            raise ConfigError("is no list of paths: it is not UTF-8", where=str(path)) from None
        except OSError as error:
            why = f"cannot be read: {error.strerror}"
            raise ConfigError(why, where=str(path), hint="--list takes a text file, a path a line") from None
        for number, line in enumerate(lines, 1):
            name = line.removesuffix("\r").strip(" \t")
            if name and not name.startswith("#"):
                yield f"{path}, line {number}", name


def _matches(word: str, where: str) -> list[Path]:
    path = Path(word)
    try:
        os.stat(path)  # noqa: PTH116  asks what can be asked at all
    except (FileNotFoundError, NotADirectoryError):
        pass
    except (OSError, ValueError) as error:
        if not glob.has_magic(word) or isinstance(error, ValueError):
            why = getattr(error, "strerror", None) or str(error)
            raise ConfigError(f"is no path that can be read: {why}", where=where, hint="check the list") from None
    if path.is_dir():
        hint = f"a pattern takes the files in it: '{word.rstrip('/')}/*'"
        raise ConfigError(f"{word} is a folder", where=where, hint=hint)
    if path.exists() or not glob.has_magic(word):
        return [path]
    names = (Path(name) for name in sorted(glob.glob(word, recursive=True)))  # noqa: PTH207  Path.glob takes no absolute ones
    matches = [name for name in names if not name.is_dir()]
    if not matches:
        raise ConfigError(f"no file matches {word}", where=where)
    return matches


def jobs(files: Sequence[Path], template: str, folder: Path) -> list[Job]:
    """What each file becomes: `template` in `folder`, with `FIELDS` in braces (`{stem}_graded.mov`, `{number:04}.mp4`).

    Raises ConfigError where the template makes no names, the same for two files, or that of an input: with --overwrite
    it would be gone before its turn.
    """
    made: dict[Path, Path] = {}
    inputs = {source.resolve() for source in files}
    for number, source in enumerate(files, 1):
        output = folder / _name(template, source, number)
        if output in made:
            raise ConfigError(
                f"{made[output]} and {source} would both become {output}",
                where="--name",
                hint="tell them apart by {parent} or {number}",
            )
        if output.resolve() in inputs:
            hint = "choose other names, or another folder"
            raise ConfigError(f"{source} would become {output}, which is an input", where="--name", hint=hint)
        made[output] = source
    return [Job(source, output) for output, source in made.items()]


def _name(template: str, source: Path, number: int) -> PurePath:
    hint = f"fields are {', '.join(f'{{{name}}}' for name in FIELDS)}, as in '{{stem}}_graded.mov'"
    values: tuple[str | int, ...] = (source.stem, source.suffix[1:], source.absolute().parent.name, number)
    try:
        # No attributes, no indices: `{stem.__class__}` is no name of a file.
        if any(field not in (None, *FIELDS) for _, field, _, _ in string.Formatter().parse(template)):
            raise ConfigError(f"{template!r} has an unknown field", where="--name", hint=hint)
        name = PurePath(template.format_map(dict(zip(FIELDS, values, strict=True))))
    except (ValueError, MemoryError, OverflowError) as error:
        raise ConfigError(f"{template!r} is no template: {error}", where="--name", hint=hint) from None
    if name.is_absolute() or ".." in name.parts or "\0" in str(name) or not name.suffix:
        why = (
            "is no name in the folder of outputs" if name.suffix else "has no suffix, by which the container is chosen"
        )
        raise ConfigError(f"{template!r} {why}", where="--name", hint=hint)
    return name
