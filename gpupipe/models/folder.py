"""The folder of this machine for fetched weights and built engines.

It belongs to the machine and not to a job: a plan that travels to another one must find what lies there, so the folder
is no part of a plan. The command line chooses it, once; everyone else asks.
"""

from __future__ import annotations

from pathlib import Path

_chosen: list[Path] = []


def choose(folder: Path) -> None:
    """Uses another folder than `~/.cache/gpupipe` from now on."""
    _chosen[:] = [folder]


def weights() -> Path:
    """Where `models fetch` puts weights."""
    return _root() / "models"


def engines() -> Path:
    """Where built engines are kept."""
    return _root() / "engines"


def _root() -> Path:
    return _chosen[0] if _chosen else Path.home() / ".cache" / "gpupipe"
