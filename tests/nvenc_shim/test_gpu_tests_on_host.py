"""NVENC's GPU tests without a GPU: the real wheel over the shim, over a libcuda whose device memory is host memory.

What is left for a GPU: that CUDA's own memory and streams, and NVDEC, fit what lies above and below. This runs one test
of each kind; `make -C tests/nvenc_shim host` runs all.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from conftest import Host

SOME = (
    "place and (h264-4-mkv or hevc10-2-mp4) or variable and h264-mkv or seam and hevc-mp4 or hdr10 or options and aq8 "
    "or whole-device or whole-depth or cut-preset or cut-frame or late and delay or fewer or kept or nvenc_order"
)


def test_gpu_tests_of_nvenc(host: Host) -> None:
    words = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-m", "nvenc", "-k", SOME, "--timeout", "240"]
    done = host.run("-m", "pytest", *words, "tests/gpu", timeout=840, GPUPIPE_NVENC_HOST="1", GPUPIPE_REQUIRE_CUDA="1")
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed is not None
    assert int(passed[1]) >= 18, done.stdout
