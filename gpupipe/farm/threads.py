"""The number of threads that x264 and x265 choose by themselves, which they write into the stream.

On machines with different numbers of cores the same pictures would give other bytes; here every node takes what the
machine that joins would take.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpupipe.codecs.base import EncoderSettings

MOST = 128
"""X264_THREAD_MAX."""


def x264_threads(cores: int, height: int) -> int:
    """What x264 takes for `threads=auto`: 3/2 of the cores, at most one for two rows of macroblocks.

    Source: x264, encoder/encoder.c, validate_parameters (frame threads).
    """
    rows = -(-height // 16)
    return max(1, min(cores * 3 // 2, rows // 2, MOST))


def x265_threads(cores: int, height: int) -> int:
    """What x265 takes for `frame-threads=0`, with wavefronts.

    Source: x265, encoder.cpp, Encoder::create.
    """
    steps = ((32, 6 if height > 2000 else 5), (16, 4), (8, 3), (4, 2))
    return next((threads for least, threads in steps if cores >= least), 1)


def encoder_threads(settings: EncoderSettings, wanted: int, cores: int) -> EncoderSettings:
    """Settings by which a machine with `cores` makes the bytes of one that has `wanted`; the same where it is one.

    A number of threads that the config gives stays.
    """
    choose = {"libx264": x264_threads, "libx264rgb": x264_threads, "libx265": x265_threads}.get(settings.encoder)
    if choose is None or wanted == cores or "threads" in settings.options:
        return settings
    threads = choose(wanted, settings.input_format.height)
    return replace(settings, options={**settings.options, "threads": str(threads)})
