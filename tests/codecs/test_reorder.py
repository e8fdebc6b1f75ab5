from __future__ import annotations

import itertools
from fractions import Fraction

import av
import pytest

from gpupipe.codecs.reorder import DtsClock, reorder_depth
from gpupipe.errors import MediaError

VFR = [-700, -660, -520, -519, -300, 0, 40, 1000, 1001, 5000, 5040, 5080, 9000, 9001, 9002, 9003, 9999]


def coded(pts: int) -> av.Packet:
    packet = av.Packet(b"x")
    packet.pts, packet.time_base = pts, Fraction(1, 1000)
    return packet


def pyramid(first: int, last: int) -> list[int]:
    """Display indexes between two anchors in the decode order of a binary tree of references."""
    if last - first < 2:
        return []
    middle = (first + last) // 2
    return [middle, *pyramid(first, middle), *pyramid(middle, last)]


def decode_order(count: int, b_frames: int) -> list[int]:
    order, anchor = [0], 0
    while anchor + 1 < count:
        following = min(anchor + b_frames + 1, count - 1)
        order += [following, *pyramid(anchor, following)]
        anchor = following
    return order


@pytest.mark.parametrize("b_frames", [0, 1, 2, 3, 4, 7])
@pytest.mark.parametrize("count", [1, 2, 3, 17])
def test_dts_rises_and_never_passes_pts_in_the_deepest_pyramid(b_frames: int, count: int) -> None:
    clock = DtsClock(reorder_depth(b_frames), step=40)
    for pts in VFR[:count]:
        clock.shown(pts)
    out = [p for i in decode_order(count, b_frames) for p in clock.coded(coded(VFR[i]))] + clock.drain()
    assert [p.pts for p in out] == [VFR[i] for i in decode_order(count, b_frames)]
    dts = [p.dts for p in out]
    assert all(a < b for a, b in itertools.pairwise(dts))
    assert all(p.dts <= p.pts for p in out)


def test_same_dts_as_x264_gives_itself() -> None:
    context = av.CodecContext.create("libx264", "w")
    context.width, context.height, context.pix_fmt, context.time_base = 64, 64, "yuv420p", Fraction(1, 1000)
    context.options = {"bf": "2", "x264-params": "b-pyramid=2:b-adapt=0:scenecut=0"}
    packets = []
    for pts in VFR:
        frame = av.VideoFrame(64, 64, "yuv420p")
        frame.pts, frame.time_base = pts, Fraction(1, 1000)
        packets += context.encode(frame)
    packets += context.encode(None)
    clock = DtsClock(2)
    for pts in VFR:
        clock.shown(pts)
    stamped = [p for packet in packets for p in clock.coded(coded(packet.pts))] + clock.drain()
    assert any(p.pts != q.pts for p, q in zip(packets, sorted(packets, key=lambda p: p.pts), strict=True))
    assert [p.dts for p in stamped] == [p.dts for p in packets]


def test_early_packets_wait_until_their_dts_is_known() -> None:
    clock = DtsClock(2)
    clock.shown(0)
    assert clock.coded(coded(0)) == []
    clock.shown(10)
    clock.shown(40)
    assert [(p.pts, p.dts) for p in clock.coded(coded(40))] == [(0, -40), (40, -30)]


def test_pictures_out_of_order_and_deeper_reordering_are_errors() -> None:
    clock = DtsClock(1)
    clock.shown(5)
    with pytest.raises(MediaError, match="out of order"):
        clock.shown(5)
    clock = DtsClock(0)
    for pts in (0, 1, 2):
        clock.shown(pts)
    clock.coded(coded(0))
    clock.coded(coded(2))
    with pytest.raises(MediaError, match="further than it said"):
        clock.coded(coded(1))
