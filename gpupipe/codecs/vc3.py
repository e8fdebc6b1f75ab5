"""What libav's encoder of DNxHD and DNxHR leaves out of its frames."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gpupipe.color import Matrix

if TYPE_CHECKING:
    from gpupipe.codecs.base import Packet

_PREFIX: Final = b"\x00\x00\x02\x80"
_SCAN: Final = 0x22
_VOLUME: Final = 0x2C
"""Where a frame's, or a field's, header has its colour volume, in bits 1 and 2 (SMPTE ST 2019-1, CLV)."""
_CODES: Final = {Matrix.BT709: 0, Matrix.BT2020_NCL: 1}
_ELSEWHERE: Final = 3


def state_matrix(packet: Packet, matrix: Matrix) -> None:
    """Says it in a coded picture's headers, where the encoder writes BT.709 whatever it was told.

    Readers go by it rather than by the container. What has no code there is marked as said elsewhere.
    """
    if matrix == Matrix.UNSPECIFIED:
        return
    data = memoryview(packet).cast("B")
    for at in (0, len(data) // 2) if data[_SCAN] & 4 else (0,):  # an interlaced picture is two units of one size
        if bytes(data[at : at + len(_PREFIX)]) == _PREFIX:
            data[at + _VOLUME] |= _CODES.get(matrix, _ELSEWHERE) << 1
