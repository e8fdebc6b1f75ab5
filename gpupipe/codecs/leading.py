"""Pictures that nobody can decode because decoding begins at the key frame before them, in an open GOP."""

from __future__ import annotations

from gpupipe.codecs.sei import VCL, nal_spans, nal_type

_IDR = 5
_RASL = (8, 9)
_RADL = (6, 7)
_BLA = (16, 17, 18)
_CRA = 21
_TRAILING = 2
"""Pictures after which no leading ones follow: the second field of the key frame may come before them (7.4.2.2)."""


def slice_type(data: bytes, codec: str = "hevc") -> int | None:
    """The NAL unit type of the first coded slice of an access unit in Annex B; None where it has none."""
    kinds = (nal_type(codec, data, begin) for begin, _ in nal_spans(data))
    return next((kind for kind in kinds if kind in VCL[codec]), None)


class Leading:
    """Finds the pictures that NVDEC must not be given, or whose surfaces must not be shown.

    They refer to pictures before a key frame at which decoding began. ITU-T H.265 (8.1.3) has them not shown. NVDEC's
    parser decodes and hides them, but keeps their times, and whatever it shows next is given the earliest of all it has
    (`display_picture` in NVIDIA's vk_video_samples): on an H200 the key frame came out with the time of a hidden
    picture, outside its segment, and was lost.

    H.264 does not mark them. The parser shows them, damaged, each at its time; other pictures may count on their frame
    numbers, so they are decoded. As libav does, none is shown that comes before the key frame in display order.

    Args:
        codec: as libav names it; only H.264 and HEVC have such pictures.
    """

    def __init__(self, codec: str) -> None:
        self._hevc, self._h264 = codec == "hevc", codec == "h264"
        self._fresh, self._midway = True, False
        self._left = 0
        """HEVC: pictures to be seen until no leading ones can follow."""
        self._entry: int | None = None
        """H.264: pts of the key frame at which decoding began; None where, or as soon as, nothing can refer back."""
        self.lost = False
        """Whether those of the last key frame would have been decoded, had the session not failed before it."""
        self.watches = False
        """Whether other packets than key frames matter to it now."""

    def anew(self, *, midway: bool = False) -> None:
        """The session holds nothing any more: decoding begins with the next key frame; `midway` after a failure."""
        self._fresh, self._midway, self._left, self._entry = True, midway, 0, None
        self.watches = False

    def asks(self, *, key: bool) -> bool:
        """Whether `bars` has to see a packet. Few: it is asked for each of many thousands a second."""
        if self._hevc:
            return key or self._left > 0
        return self._h264 and key and (self._fresh or self._entry is not None)

    def bars(self, data: bytes, pts: int | None, *, key: bool) -> bool:
        """Whether a packet, as Annex B, must not be given to NVDEC."""
        barred = self._looked_at(data, pts, key=key)
        self.watches = self._left > 0 or self._entry is not None
        return barred

    def _looked_at(self, data: bytes, pts: int | None, *, key: bool) -> bool:
        kind = slice_type(data, "hevc" if self._hevc else "h264")
        if kind is None:  # no picture: nothing begins there, nor is one of those that are counted seen
            return False
        if key:
            self._left = _TRAILING if self._hevc and (kind in _BLA or (kind == _CRA and self._fresh)) else 0
            self._entry = pts if self._h264 and self._fresh and kind != _IDR else None
            self.lost = self._midway
            self._fresh = self._midway = False
            return False
        if kind not in (*_RASL, *_RADL):
            self._left -= 1
        return kind in _RASL

    def hides(self, pts: int | None) -> bool:
        """Whether a picture that NVDEC is given must not be shown."""
        return self._entry is not None and pts is not None and pts < self._entry
