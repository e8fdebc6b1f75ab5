"""Python's share of a picture between a file and a slot: threads of all decoders take turns at it."""

from __future__ import annotations

import sys
from fractions import Fraction
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import TYPE_CHECKING

from nvdec_double import COUNT, decoder, encoded, library

import gpupipe
from gpupipe.codecs import nvdec_session
from gpupipe.journal import Journal
from gpupipe.media.probe import probe
from gpupipe.media.segments import SegmentReader, cut, timetable
from gpupipe.media.timeline import FrameClock, Window
from gpupipe.render.device_runner import Filling

if TYPE_CHECKING:
    import pytest

OURS = str(Path(gpupipe.__file__).parent)
MOST = 10
"""Calls of our functions a picture, generators that go on among them; all that is done once a segment comes on top."""


def test_few_calls_a_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvdec_session, "primary_context", lambda _: 0)
    path, ours = tmp_path / "x.mp4", []
    encoded("libx264", {"g": "24", "bf": "2"}, path)
    info, lib = probe(path), library("h264")
    (segment,) = cut(timetable(info), Window(None, None), Fraction(10), info.video.time_base)
    reader = SegmentReader(info)
    tested = decoder(reader.video_stream, Journal(), lib)
    copied: list[int] = []
    slots = SimpleNamespace(
        format=tested.format,
        take_slot=lambda: SimpleNamespace(rows=16, copy=lambda row, _: copied.append(row)),
        submit=lambda *_: True,
    )
    clock = FrameClock(info.video.time_base, info.video.rate, Journal())

    def count(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(OURS):
            ours.append(frame.f_code.co_name)

    sys.setprofile(count)
    try:
        filling = Filling(slots, 0, clock, segment)  # type: ignore[arg-type]
        for surface in tested.packed(*reader.packed(segment)):
            filling.add(surface)
        filling.finish()
    finally:
        sys.setprofile(None)
    reader.close()
    assert copied == [n % 16 for n in range(COUNT)]
    assert len(ours) <= MOST * COUNT, len(ours) / COUNT
