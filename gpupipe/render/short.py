"""Out of memory: what each library calls it, as one error."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from gpupipe.device.host import short_of_memory
from gpupipe.errors import GpupipeError, ShortMemoryError, first_line

if TYPE_CHECKING:
    from collections.abc import Iterator

HINT = "use fewer `sessions`, smaller pictures, or a machine with more memory"


@contextmanager
def short_memory() -> Iterator[None]:
    """Raises ShortMemoryError for what libraries raise where memory is short; torch need not be imported."""
    try:
        yield
    except GpupipeError:
        raise
    except Exception as error:
        if short_of_memory(error):
            raise ShortMemoryError(f"out of memory: {first_line(error)}", hint=HINT) from None
        raise
