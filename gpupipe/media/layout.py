"""Channel layouts of audio, read without the crash that PyAV 18 has in store for those in an order of their own."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

import av

if TYPE_CHECKING:
    from av.audio.layout import AudioLayout

_FREED_TWICE = int(av.__version__.split(".")[0]) < 19
_STANDARD = ("2.1", "4.0", "5.0", "5.1", "5.1(side)", "6.1", "7.1", "7.1(wide)")


def layout_of(owner: Any) -> AudioLayout:
    """The `layout` of a codec context or an audio frame.

    PyAV 18 copies libav's struct flat, and both copies free the channel map of a custom order (7.1 in QuickTime has
    one): the process aborts. There the small copy is kept for ever instead.
    """
    layout: AudioLayout = owner.layout
    if _FREED_TWICE and is_custom(layout):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(layout))
    return layout


def is_custom(layout: AudioLayout) -> bool:
    """Whether the channels stand in an order that has no name, such as '8 channels (FL+FR+FC+LFE+SL+SR+BL+BR)'."""
    return "channels (" in layout.name


def standard(layout: AudioLayout) -> AudioLayout | None:
    """The layout that encoders know with the same channels, in whatever order; itself where it is one.

    One or two channels without names are mono and stereo, as every player takes them.
    """
    if not is_custom(layout):
        unnamed = {"1 channels": "mono", "2 channels": "stereo"}
        return av.AudioLayout(unnamed[layout.name]) if layout.name in unnamed else layout
    channels = set(layout.name.partition("(")[2].rstrip(")").split("+"))
    for name in _STANDARD:
        one = av.AudioLayout(name)
        if {channel.name for channel in one.channels} == channels:
            return one
    return None
