"""Errors a user can act on: what was wrong, where, and what to do about it."""

from __future__ import annotations

import re

_SHORT = re.compile(r"out[ _]of[ _]memory|ALLOCATOR_FAILURE", re.IGNORECASE)
"""As CUDA, NVDEC, NVENC, torch and nvJPEG call it."""


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


def carried(error: Exception) -> Exception:
    """An error that can be sent to another process: ours as they are, others in words."""
    if isinstance(error, GpupipeError):
        error.__traceback__ = error.__cause__ = error.__context__ = None
        return error
    return RuntimeError(f"{type(error).__name__}: {first_line(error)}")


class ConfigError(GpupipeError):
    """The config is not what it should be; `where` is `file: key.path`."""


class PlanError(GpupipeError):
    """What the config asks of this source on this machine cannot be done; found before work starts."""


class MediaError(GpupipeError):
    """A file cannot be read or written."""


class BusyError(MediaError):
    """Another run is at work on the same output; when it has ended it may work."""


class SourceError(MediaError):
    """The source cannot be read, or holds no picture: trying again, here or elsewhere, will not help."""


class VolumeError(MediaError):
    """What is written cannot be: no room, no permission, a broken volume. Later or elsewhere it may work."""

    exit_code = 5


class DeviceError(GpupipeError):
    """A GPU, its driver or its memory failed. Later or elsewhere it may work."""

    exit_code = 5


class EngineError(GpupipeError):
    """A network cannot be built, loaded or run by an engine."""


class CapabilityError(PlanError, DeviceError):
    """This machine lacks what is asked for: a GPU, a codec of it, a library. Another machine may have it."""

    exit_code = 6


class ShortMemoryError(PlanError, DeviceError, MediaError):
    """Not enough memory, of the GPU or of the host."""

    exit_code = 7


class NoSessionError(ShortMemoryError):
    """An encoder of the GPU does not open because too many are open already, here or elsewhere."""


def device_failure(message: str, *, where: str | None = None, hint: str | None = None) -> DeviceError:
    """The error for what a library says of a GPU: one of its own where memory is short."""
    kind = ShortMemoryError if _SHORT.search(message) else DeviceError
    return kind(message, where=where, hint=hint)


class FarmError(GpupipeError):
    """The machines that were to do the work are gone; what they had finished is kept."""

    exit_code = 8


class StoppedError(GpupipeError):
    """The user or the system asked the run to stop (SIGINT, SIGTERM)."""

    exit_code = 130
