"""Errors a user can act on: what was wrong, where, and what to do about it."""

from __future__ import annotations


def first_line(error: BaseException) -> str:
    """The first line of a library's message that says something; its messages run over many, or are empty."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


class GpupipeError(Exception):
    """An expected failure.

    `str()` of it is one line: where it happened, what was wrong, what to do.

    Args:
        message: what was wrong, without a full stop.
        where: the file, key path (`stages[1].resize.width`), stage or pts concerned.
        hint: what to do about it.
    """

    exit_code = 1

    def __init__(self, message: str, *, where: str | None = None, hint: str | None = None) -> None:
        self.message, self.where, self.hint = message, where, hint
        super().__init__(message)

    def __str__(self) -> str:
        place = f"{self.where}: " if self.where else ""
        advice = f" ({self.hint})" if self.hint else ""
        return f"{place}{self.message}{advice}"


class ConfigError(GpupipeError):
    """The config is not what it should be; `where` is `file: key.path`."""


class PlanError(GpupipeError):
    """What the config asks of this source on this machine cannot be done; found before work starts."""


class MediaError(GpupipeError):
    """A file cannot be read or written."""


class DeviceError(GpupipeError):
    """A GPU, its driver or its memory failed."""


class EngineError(GpupipeError):
    """A network cannot be built, loaded or run by an engine."""


class StoppedError(GpupipeError):
    """The user or the system asked the run to stop (SIGINT, SIGTERM)."""

    exit_code = 130
