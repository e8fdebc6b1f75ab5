"""Segments of which the decoder shows nothing are told, one by one, and a strict run does not end well."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from gpupipe.cli import DONE, WARNED
from gpupipe.codecs.libav import LibavDecoder
from gpupipe.render import runner

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpupipe.codecs.base import Packet
    from gpupipe.frame import FrameBatch

JOB = """
device: cpu
segments: {seconds: 1}
sessions: 1
resume: %s
output: {video: {codec: h264, encoder: libx264, preset: ultrafast}}
"""


class Blind(LibavDecoder):
    """Shows the first pictures up to an end, and then no more: as NVDEC did where it had no parameter sets."""

    _over = False

    def decode(self, packet: Packet | None) -> Iterator[FrameBatch]:
        shown = list(super().decode(packet))
        yield from shown if not self._over else ()

    def restart(self) -> None:
        super().restart()
        self._over = True


@pytest.mark.parametrize("resume", ["off", "keep"])
def test_they_are_told_and_strict_fails(cli, job, tmp_path, gop_clip, monkeypatch, resume: str) -> None:
    def blind(plan, stream, lane, journal):
        video = plan.source.video
        return Blind(stream, video.format, video.time_base, journal, opaque=True)

    monkeypatch.setattr(runner, "make_decoder", blind)
    config, source = job(JOB % resume), gop_clip(4)
    loose = cli("run", "--json", config, source, tmp_path / "a.mp4")
    assert loose.code == DONE
    told = json.loads(loose.out)
    (entry,) = (one for one in told["warnings"] if one["code"] == "frames-missing")
    assert entry["message"] == "a segment held 25 pictures and 0 could be decoded"
    assert entry["count"] == 3
    assert [place.split(",")[0] for place in entry["places"]] == ["segment 1", "segment 2", "segment 3"]
    assert "a segment held 25 pictures and 0 could be decoded" in loose.err
    assert told["result"]["frames"] == 25
    assert cli("run", "--strict", config, source, tmp_path / "b.mp4").code == WARNED
