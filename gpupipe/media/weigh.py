"""How many bytes a file's main video has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpupipe.media.container import open_input
from gpupipe.media.probe import main_video

if TYPE_CHECKING:
    from pathlib import Path

    from gpupipe.media.timeline import Window


def video_bytes(path: Path, window: Window | None = None) -> int:
    """Bytes of all packets of the main video, counted by reading them; containers' own overhead is left out.

    Args:
        path: the file.
        window: only what is needed for its pictures: from the key frame before its start up to its end.

    Raises:
        MediaError: the file cannot be read.
    """
    total = 0
    with open_input(path) as container:
        stream = main_video(container, str(path))
        for packet in container.demux(stream):
            if window is not None and packet.pts is not None:
                if packet.is_keyframe and window.start is not None and packet.pts <= window.start:
                    total = 0
                if window.past(packet.pts):
                    continue
            total += packet.size
    return total
