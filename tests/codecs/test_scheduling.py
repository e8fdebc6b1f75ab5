"""Encoders leave the scheduling of the process alone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """
import os
from pathlib import Path
from gpupipe.cli import main
def look(when):
    found = {os.sched_getscheduler(int(task.name)) for task in Path("/proc/self/task").iterdir()}
    assert found == {os.SCHED_OTHER}, (when, found)
look("before")
from gpupipe.codecs.libav import LibavEncoder
encode = LibavEncoder.encode
def looked(self, batch):
    look("while it encodes")
    return encode(self, batch)
LibavEncoder.encode = looked
import sys
try:
    main()
finally:
    look("after")
"""


@pytest.mark.parametrize("encoder", ["libsvtav1", "libx265"])
def test_no_thread_becomes_real_time(tmp_path: Path, sample_clip: Callable[..., Path], encoder: str) -> None:
    """SVT-AV1 would put them all under SCHED_FIFO where it runs as root."""
    if os.sched_getscheduler(0) != os.SCHED_OTHER:
        pytest.skip("the tests themselves run under another scheduling")
    (tmp_path / "c.yaml").write_text(f"output: {{video: {{encoder: {encoder}}}}}\nrange: {{end: 0.2}}\n")
    words = ["run", "--device", "cpu", "--quiet", tmp_path / "c.yaml", sample_clip(1), tmp_path / "o.mkv"]
    done = subprocess.run([sys.executable, "-c", PROGRAM, *map(str, words)], cwd=ROOT, capture_output=True, text=True,
                          timeout=240, check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr
