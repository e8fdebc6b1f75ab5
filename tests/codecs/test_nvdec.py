"""What the decoder does when NVDEC's library fails, by a stand-in that fails on demand (pixels: tests/gpu)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING

import av
import pytest

from gpupipe.codecs import nvdec, nvdec_session
from gpupipe.device.cpu import CpuLane
from gpupipe.errors import DeviceError
from gpupipe.format import PIXEL_FORMATS, FrameFormat
from gpupipe.journal import Journal
from gpupipe.media.probe import probe
from gpupipe.media.segments import Segment, SegmentReader, timetable

if TYPE_CHECKING:
    from pathlib import Path

    from gpupipe.media.source import SourceInfo

CLIP = "vfr_63_frames_59_distinct_durations.mp4"


class Session:
    """Gives back one picture a packet at once; raises at the packets (counted over all sessions) it is told to."""

    def __init__(self, owner: SimpleNamespace) -> None:
        self.owner = owner

    def Decode(self, data: SimpleNamespace) -> list[SimpleNamespace]:  # noqa: N802
        if not data.bsl:
            return []
        self.owner.fed += 1
        if self.owner.fed in self.owner.bad:
            raise RuntimeError("HandlePictureDecode :\nError code : 1")
        return [SimpleNamespace(getPTS=lambda: data.pts, format="Pixel_Format.NV12", GetPtrToPlane=lambda _: 0)]

    def GetWidth(self) -> int:  # noqa: N802
        return 640

    def GetHeight(self) -> int:  # noqa: N802
        return 360


def library(*bad: int) -> SimpleNamespace:
    owner = SimpleNamespace(fed=0, bad=bad, opened=0, cudaVideoCodec=SimpleNamespace(H264="H264"))
    owner.PacketData = lambda: SimpleNamespace(bsl=0, bsl_data=0, pts=0)

    def create(**_: object) -> Session:
        owner.opened += 1
        return Session(owner)

    owner.CreateDecoder = create
    return owner


@pytest.fixture
def bare_planes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvdec, "surface_views", lambda *_: ())
    monkeypatch.setattr(nvdec_session, "primary_context", lambda _: 0)


@pytest.fixture
def decode(corpus: Path, bare_planes: None):
    def run(lib: SimpleNamespace) -> tuple[list[int], list[int], Journal]:
        journal, times, keys = Journal(), [], []
        with av.open(str(corpus / "files" / CLIP)) as container:
            stream = container.streams.video[0]
            source = FrameFormat(PIXEL_FORMATS["nv12"], 640, 360)
            decoder = nvdec.NvdecDecoder(stream, source, stream.time_base, journal, CpuLane(), library=lib)
            for packet in container.demux(stream):
                keys += [packet.pts] if packet.is_keyframe and packet.size else []
                times += [b.pts[0] for b in decoder.decode(packet if packet.size else None)]
            decoder.close()
        return times, keys, journal

    return run


def test_without_failures_every_packet_is_a_picture(decode) -> None:
    lib = library()
    times, _, journal = decode(lib)
    assert (len(times), lib.opened, len(journal)) == (63, 1, 0)


def test_a_failed_session_is_replaced_at_the_next_key_frame_and_losses_are_counted(decode) -> None:
    whole, keys, _ = decode(library())
    lib = library(8)
    times, _, journal = decode(lib)
    assert lib.opened == 2
    following = next(k for k in keys if whole.index(k) > 7)
    assert times == whole[:7] + whole[whole.index(following) :]
    assert journal.entries["decode-error"].count >= 63 - len(times)
    assert f"pts {whole[9]}" in journal.entries["decode-error"].places


def test_a_decoder_that_never_works_is_an_error(decode) -> None:
    with pytest.raises(DeviceError, match=r"NVDEC failed: HandlePictureDecode : \(use `device: cpu`\)"):
        decode(library(1))


def rehearsed(
    corpus: Path, lib: SimpleNamespace, journal: Journal
) -> tuple[SourceInfo, SegmentReader, nvdec.NvdecDecoder]:
    info = probe(corpus / "files" / CLIP)
    reader = SegmentReader(info)
    source = FrameFormat(PIXEL_FORMATS["nv12"], 640, 360)
    decoder = nvdec.NvdecDecoder(reader.video_stream, source, info.video.time_base, journal, CpuLane(), library=lib)
    first = reader.peek()
    assert first is not None
    decoder.rehearse(first)
    return info, reader, decoder


def test_a_rehearsal_leaves_no_trace(corpus: Path, bare_planes: None) -> None:
    journal, lib = Journal(), library()
    info, reader, decoder = rehearsed(corpus, lib, journal)
    times = []
    for packet in [*reader.packets(Segment(None, None, 0, closed=False)), None]:
        times += [batch.pts[0] for batch in decoder.decode(packet)]
    assert times == list(timetable(info).pts)
    assert (lib.opened, len(journal)) == (1, 0)
    reader.close()
    decoder.close()


def test_a_rehearsal_that_fails_is_not_told(corpus: Path, bare_planes: None) -> None:
    journal, lib = Journal(), library(1)
    _, reader, decoder = rehearsed(corpus, lib, journal)
    assert (lib.opened, len(journal)) == (2, 0)
    reader.close()
    decoder.close()
