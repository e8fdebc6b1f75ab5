"""A GPU for the planner, on machines that have none."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gpupipe.codecs.capability import DecoderRow

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, int], None]:
    """Makes a GPU whose NVDEC takes H.264, with so many engines and bytes free; nothing can be rendered on it."""

    def make(engines: int, free: int) -> None:
        monkeypatch.setattr("gpupipe.plan.machine.pick_device", lambda device: "cpu" if device == "cpu" else "cuda:0")
        monkeypatch.setattr("gpupipe.plan.machine.free_memory", lambda _: free)
        row = DecoderRow("h264", "4:2:0", 8, True, 48, 16, 4096, 4096, 65536, engines)
        monkeypatch.setattr("gpupipe.codecs.nvdec_support.decoder_row", lambda *_: row)
        monkeypatch.setattr("gpupipe.codecs.nvjpeg.supports", lambda *_: None)

    return make
