"""What takes long to load, beside other work."""

from __future__ import annotations

import importlib
import threading
from contextlib import suppress


def load_meanwhile(name: str) -> threading.Thread:
    """Imports a package that will be needed, in a thread: whoever imports it next waits for what is left of that.

    To find the source's key frames and to ask the driver what it can takes seconds in which Python has nothing to do.
    Where the package is missing or broken, who needs it will say so.
    """

    def load() -> None:
        with suppress(Exception):
            importlib.import_module(name)

    thread = threading.Thread(target=load, name=f"loads {name}", daemon=True)
    thread.start()
    return thread
