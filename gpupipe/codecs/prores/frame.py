"""From codewords to frames: headers, slice tables and where every byte goes; torch, on any device."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from gpupipe.codecs.prores.layout import Layout
    from gpupipe.codecs.prores.profile import Profile
    from gpupipe.format import FrameFormat

VENDOR = b"gpup"
_BOX, _HEADER, _PICTURE_HEADER = 8, 148, 8
_LOG2_SLICE_MACROBLOCKS = 3
_ALIGNMENT = 4
"""Frames of a batch begin at multiples of this in the buffer; it is not part of the frames."""


@dataclass(frozen=True, slots=True)
class Placement:
    """Where everything of a batch goes in one buffer of bytes. All tensors int64."""

    frames: torch.Tensor
    """(N,) first byte of each frame."""
    frame_bytes: torch.Tensor
    """(N,) size of each frame."""
    pictures: torch.Tensor
    """(P,) first byte of each picture header."""
    picture_bytes: torch.Tensor
    slices: torch.Tensor
    """(P, slices) first byte of each slice header."""
    slice_bytes: torch.Tensor
    planes: torch.Tensor
    """(P, slices, C) first byte of each plane of each slice."""
    plane_bytes: torch.Tensor


def slice_header_bytes(components: int) -> int:
    """Its own size, the quantiser index, and the size of every plane but the last."""
    return 2 * components


def overhead(layout: Layout, components: int) -> int:
    """Bytes of a frame that no quantiser changes."""
    picture = _PICTURE_HEADER + layout.slices * (2 + slice_header_bytes(components))
    return _BOX + _HEADER + layout.pictures * picture


def arrange(plane_bytes: torch.Tensor, layout: Layout) -> Placement:
    """Places a batch from the (P, slices, C) bytes of its planes."""
    components, per = plane_bytes.shape[2], layout.pictures
    header = slice_header_bytes(components)
    slice_bytes = plane_bytes.sum(dim=2) + header
    picture_bytes = slice_bytes.sum(dim=1) + _PICTURE_HEADER + 2 * layout.slices
    frame_bytes = picture_bytes.view(-1, per).sum(dim=1) + _BOX + _HEADER
    room = (frame_bytes + _ALIGNMENT - 1) // _ALIGNMENT * _ALIGNMENT
    frames = room.cumsum(0) - room
    picture_rows = picture_bytes.view(-1, per)
    pictures = (frames[:, None] + _BOX + _HEADER + picture_rows.cumsum(1) - picture_rows).flatten()
    slices = pictures[:, None] + _PICTURE_HEADER + 2 * layout.slices + slice_bytes.cumsum(1) - slice_bytes
    planes = slices[:, :, None] + header + plane_bytes.cumsum(2) - plane_bytes
    return Placement(frames, frame_bytes, pictures, picture_bytes, slices, slice_bytes, planes, plane_bytes)


_RATES = (
    Fraction(24000, 1001), 24, 25, Fraction(30000, 1001), 30, 50, Fraction(60000, 1001), 60, 100,
    Fraction(120000, 1001), 120,
)  # fmt: skip
"""Frame rates of codes 1 to 11; 0 says nothing."""
_ASPECTS = {Fraction(4, 3): 2, Fraction(16, 9): 3}
_SD_ASPECTS = {Fraction(10, 11): 2, Fraction(12, 11): 2, Fraction(40, 33): 3, Fraction(16, 11): 3}
"""Pixels of 525 and 625 line pictures, by the shape of the picture that 704 of them make."""


def rate_code(rate: Fraction) -> int:
    """Of RDD 36 table 6."""
    return _RATES.index(rate) + 1 if rate in _RATES else 0


def aspect_code(width: int, height: int, sample_aspect: Fraction) -> int:
    """Of RDD 36 table 5: 1 square pixels, 2 a 4:3 picture, 3 16:9, 0 anything else."""
    if sample_aspect == 1:
        return 1
    return _SD_ASPECTS.get(sample_aspect) or _ASPECTS.get(Fraction(width, height) * sample_aspect, 0)


def frame_header(source: FrameFormat, rate: Fraction, layout: Layout, profile: Profile, *, alpha: bool) -> bytes:
    """The frame's box and header, RDD 36 5.1 and 5.2, with a size of 0 in the box; alpha is coded in 16 bits."""
    interlace = {(0,): 0, (0, 1): 1, (1, 0): 2}[layout.fields]
    flags = (3 if layout.chroma_444 else 2) << 6 | interlace << 2
    version = 1 if layout.chroma_444 or alpha else 0
    shown = aspect_code(source.width, source.height, source.sample_aspect) << 4 | rate_code(rate)
    colors = (int(source.color.primaries), int(source.color.transfer), int(source.color.matrix))
    fixed = struct.pack(">HH4sHHBB3BBBB", _HEADER, version, VENDOR, layout.width, layout.height, flags, shown, *colors,
                        2 if alpha else 0, 0, 3)  # fmt: skip
    return struct.pack(">I4s", 0, b"icpf") + fixed + bytes(profile.luma) + bytes(profile.chroma)


def _big_endian(values: torch.Tensor, size: int) -> torch.Tensor:
    """(...,) to (..., size) bytes."""
    shifts = torch.arange(8 * (size - 1), -1, -8, device=values.device)
    return values[..., None] >> shifts & 255


def write_headers(data: torch.Tensor, placed: Placement, quantisers: torch.Tensor, header: torch.Tensor) -> None:
    """Writes everything but the coded planes; the host does not wait.

    Args:
        data: uint8, the buffer that `placed` speaks of.
        placed: of the batch.
        quantisers: (P, slices) index of each slice.
        header: of `frame_header`, as uint8 on the device.
    """
    _, slices, components = placed.planes.shape
    size, device = slice_header_bytes(components), data.device

    def put(at: torch.Tensor, values: torch.Tensor) -> None:
        data[at[..., None] + torch.arange(values.shape[-1], device=device)] = values.to(torch.uint8)

    put(placed.frames, header.expand(len(placed.frames), -1))
    put(placed.frames, _big_endian(placed.frame_bytes, 4))
    constants = (_PICTURE_HEADER << 3, slices >> 8, slices & 255, _LOG2_SLICE_MACROBLOCKS << 4)
    first, *others = (torch.full_like(placed.picture_bytes, value)[:, None] for value in constants)
    put(placed.pictures, torch.cat((first, _big_endian(placed.picture_bytes, 4), *others), dim=1))
    put(placed.pictures + _PICTURE_HEADER, _big_endian(placed.slice_bytes, 2).flatten(1))
    start = torch.stack((torch.full_like(quantisers, size << 3), quantisers.abs()), dim=2)
    planes = _big_endian(placed.plane_bytes[:, :, :-1], 2).flatten(2)
    put(placed.slices, torch.cat((start, planes), dim=2))
