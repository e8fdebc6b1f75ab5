"""HEVC pictures that nobody can decode because decoding begins at the key frame before them (RASL pictures)."""

from __future__ import annotations

from gpupipe.codecs.sei import START, VCL, nal_type

_RASL = (8, 9)
_RADL = (6, 7)
_BLA = (16, 17, 18)
_CRA = 21
_TRAILING = 2
"""Pictures after which no leading ones follow: the second field of the key frame may come before them (7.4.2.2)."""


def slice_type(data: bytes) -> int | None:
    """The NAL unit type of the first coded slice of an HEVC access unit in Annex B; None where it has none."""
    kinds = (nal_type("hevc", data, m.end()) for m in START.finditer(data) if m.end() < len(data))
    return next((kind for kind in kinds if kind in VCL["hevc"]), None)


class Leading:
    """Finds the packets that NVDEC must not be given.

    They refer to pictures before a key frame at which decoding began. ITU-T H.265 (8.1.3) has them not shown. NVDEC's
    parser decodes and hides them, but keeps their times, and whatever it shows next is given the earliest of all it has
    (`display_picture` in NVIDIA's vk_video_samples): on an H200 the key frame came out with the time of a hidden
    picture, outside its segment, and was lost.

    Args:
        codec: as libav names it; only HEVC has such pictures.
    """

    def __init__(self, codec: str) -> None:
        self._hevc = codec == "hevc"
        self._fresh, self._midway = True, False
        self._left = 0
        """Pictures to be seen until no leading ones can follow."""
        self.lost = False
        """Whether those of the last key frame would have been decoded, had the session not failed before it."""

    def anew(self, *, midway: bool = False) -> None:
        """The session holds nothing any more: decoding begins with the next key frame; `midway` after a failure."""
        self._fresh, self._midway, self._left = True, midway, 0

    def asks(self, *, key: bool) -> bool:
        """Whether `bars` has to see a packet. Few: it is asked for each of many thousands a second."""
        return self._hevc and (key or self._left > 0)

    def bars(self, data: bytes, *, key: bool) -> bool:
        """Whether a packet, as Annex B, cannot be decoded."""
        kind = slice_type(data)
        if key:
            self._left = _TRAILING if kind in _BLA or (kind == _CRA and self._fresh) else 0
            self.lost = self._midway
            self._fresh = self._midway = False
            return False
        if kind not in (*_RASL, *_RADL):
            self._left -= 1
        return kind in _RASL
