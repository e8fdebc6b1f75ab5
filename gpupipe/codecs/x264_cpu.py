"""Keeps x264 off AVX-512 where its code for it reads memory that nobody wrote.

`mbtree_propagate_list` of x264 (core 164 and 165 at least) takes eight macroblocks at a time under AVX-512 and does not
stop at the end of a row: up to seven that do not exist count too, with amounts left over in a scratch buffer. Rows of a
multiple of eight macroblocks (widths that round up to a multiple of 128: 1280, 1920, 3840) have none. With others the
quantisers of pictures depend on what the memory held before, so the same pictures give other bytes in each run.
All other code of x264 gives the same bytes with AVX2.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

AVX2 = "MMX2,SSE,SSE2,SSE3,SSSE3,SSE4.1,SSE4.2,AVX,FMA3,BMI1,BMI2,LZCNT,AVX2"
"""Every set of instructions before AVX-512, by x264's names; a processor with AVX-512 has them all."""
_ROW = 8 * 16
_CPUINFO = Path("/proc/cpuinfo")


@cache
def has_avx512() -> bool:
    """Whether this processor has AVX-512; False where the system does not say (it is no Linux)."""
    try:
        return re.search(r"^flags\s*:.*\bavx512f\b", _CPUINFO.read_text(), re.MULTILINE) is not None
    except OSError:
        return False


def asm(width: int) -> str:
    """x264's parameter for pictures of `width`; empty where its own choice is right."""
    return f"asm={AVX2}" if -(-width // 16) * 16 % _ROW and has_avx512() else ""
