"""A test clip that is the same, byte by byte, on every run: bars, ramp, motion, frame numbers, sound, timecode."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

import av
import numpy as np
from av.codec.context import Flags
from numpy.typing import NDArray

from gpupipe.errors import MediaError
from gpupipe.media.output import OutputFile, describe_os_error, libav_url

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from av.container import OutputContainer

Plane = NDArray[np.uint8]

TIMECODE = "01:00:00:00"
SAMPLE_RATE = 48_000
DIGITS = 6
_FORMATS = {".mov": "mov", ".mp4": "mp4", ".m4v": "mp4", ".mkv": "matroska"}
_THREADS = 2  # x264's result depends on the number of threads, so it must not depend on the machine
_X264 = {"preset": "veryfast", "crf": "18", "x264-params": "mbtree=0"}
"""x264's macroblock tree gives one of several results for the same pictures, by what memory held before."""

_GLYPHS = (  # of 0 to 9: 7 rows of five bits
    (14, 17, 19, 21, 25, 17, 14),
    (4, 12, 4, 4, 4, 4, 14),
    (14, 17, 1, 2, 4, 8, 31),
    (31, 2, 4, 2, 1, 17, 14),
    (2, 6, 10, 18, 31, 2, 2),
    (31, 16, 30, 1, 1, 17, 14),
    (6, 8, 16, 30, 17, 17, 14),
    (31, 1, 2, 4, 8, 8, 8),
    (14, 17, 17, 14, 17, 17, 14),
    (14, 17, 17, 15, 1, 2, 12),
)
_BITS = np.array([[[row >> (4 - x) & 1 for x in range(5)] for row in glyph] for glyph in _GLYPHS], bool)
"""(10, 7, 5): the dots of each digit."""


def make_sample(
    out: Path,
    *,
    seconds: int = 10,
    size: tuple[int, int] = (1280, 720),
    rate: Fraction = Fraction(25),
    overwrite: bool = False,
) -> None:
    """Writes the clip to `out`: H.264 4:2:0 8 bit, BT.709 limited, AAC 48 kHz stereo, start timecode 01:00:00:00.

    The file appears under its name only when it is whole. Raises MediaError.
    """
    width, height = size
    if out.suffix.lower() not in _FORMATS:
        raise MediaError("the sample is a .mov, .mp4 or .mkv file", where=str(out))
    if width % 2 or height % 2 or not (96 <= width <= 8192 and 64 <= height <= 8192):
        raise MediaError(f"a size of {width}x{height} cannot be made", hint="even numbers, 96x64 to 8192x8192")
    if not 1 <= rate <= 240:
        raise MediaError(f"a rate of {rate} frames a second cannot be made", hint="1 to 240")
    with OutputFile(out, overwrite=overwrite) as target:
        try:
            _encode(target.path, _FORMATS[out.suffix.lower()], int(seconds * rate), size, rate)
        except (OSError, av.FFmpegError) as error:
            raise describe_os_error(error, out) from None
        target.commit()


def _encode(path: Path, container: str, frames: int, size: tuple[int, int], rate: Fraction) -> None:
    with av.open(libav_url(path), "w", format=container, options={"fflags": "+bitexact"}) as muxer:
        video = _video_stream(muxer, size, rate)
        audio = muxer.add_stream("aac", rate=SAMPLE_RATE, layout="stereo")
        audio.codec_context.flags |= Flags.bitexact
        sound = _sound(round(frames / rate * SAMPLE_RATE))
        for number, picture in enumerate(pictures(frames, size)):
            frame = av.VideoFrame.from_ndarray(picture, format="yuv420p")
            frame.pts, frame.time_base = number, 1 / rate
            frame.colorspace, frame.color_range = 1, 1
            muxer.mux(video.encode(frame))
            begin, end = (round(n / rate * SAMPLE_RATE) for n in (number, number + 1))
            samples = np.ascontiguousarray(sound[:, begin:end])
            block = av.AudioFrame.from_ndarray(samples, format="fltp", layout="stereo")
            block.sample_rate, block.pts, block.time_base = SAMPLE_RATE, begin, Fraction(1, SAMPLE_RATE)
            muxer.mux(audio.encode(block))
        muxer.mux(video.encode(None))
        muxer.mux(audio.encode(None))


def _video_stream(muxer: OutputContainer, size: tuple[int, int], rate: Fraction) -> av.VideoStream:
    video = muxer.add_stream("libx264", rate=rate, options=_X264)
    assert isinstance(video, av.VideoStream)
    video.width, video.height, video.pix_fmt = *size, "yuv420p"
    context = video.codec_context
    context.time_base = 1 / rate
    context.gop_size = round(2 * rate)
    context.thread_count = _THREADS
    context.colorspace = context.color_primaries = context.color_trc = 1  # BT.709 in H.273
    context.color_range = 1  # limited
    context.flags |= Flags.bitexact
    video.metadata["timecode"] = TIMECODE
    return video


def pictures(frames: int, size: tuple[int, int]) -> Iterator[Plane]:
    """Each picture as one (height * 3 / 2, width) array, Y above U above V as libav lays out yuv420p."""
    width, height = size
    still = _still(width, height)
    top = height * 3 // 4
    y, x = np.mgrid[top:height, 0:width]
    scale, left, above = _number_place(width, height)
    for number in range(frames):
        picture = still.copy()
        picture[top:height] = 126 + 70 * np.sign(
            np.sin((x + y - 4 * number) * (2 * np.pi / 64))
        )  # stripes, 4 px a frame
        box = slice((number * 8) % width, min((number * 8) % width + width // 10, width))
        picture[top + height // 16 : height - height // 16, box] = 235
        cells = np.zeros((9, 6 * DIGITS + 1), bool)
        for place, digit in enumerate(f"{number:0{DIGITS}}"):
            cells[1:8, 6 * place + 1 : 6 * place + 6] = _BITS[int(digit)]
        text = np.where(cells, 235, 16).repeat(scale, 0).repeat(scale, 1)
        picture[above : above + text.shape[0], left : left + text.shape[1]] = text
        yield picture


def frame_number(luma: Plane, size: tuple[int, int] = (1280, 720)) -> int:
    """Reads the number burnt into a decoded picture of a sample made at `size`, also where it was scaled since.

    Args:
        luma: (H, W), limited range of 8 bit.
        size: width and height of the sample when it was made.
    """
    scale, left, above = _number_place(*size)
    rows = ((above + (np.arange(1, 8) + 0.5) * scale) * luma.shape[0] / size[1]).astype(int)
    number = 0
    for place in range(DIGITS):
        columns = ((left + (6 * place + np.arange(1, 6) + 0.5) * scale) * luma.shape[1] / size[0]).astype(int)
        seen = luma[np.ix_(rows, columns)] > 126
        number = 10 * number + int((seen == _BITS).sum((1, 2)).argmax())
    return number


def _number_place(width: int, height: int) -> tuple[int, int, int]:
    """Pixels a dot, left and upper edge of the number's box."""
    scale = max(1, min(height // 90, width // 80))
    return scale, (width - (6 * DIGITS + 1) * scale) // 2 & ~1, height // 4 & ~1


def _still(width: int, height: int) -> Plane:
    """75 % bars on the upper 5/8, a gray ramp below them; the lower quarter is left to what moves."""
    luma = np.empty((height, width), np.uint8)
    chroma = np.full((2, height // 2, width // 2), 128, np.uint8)
    bars = height * 5 // 16 * 2
    for i, rgb in enumerate(((1, 1, 1), (1, 1, 0), (0, 1, 1), (0, 1, 0), (1, 0, 1), (1, 0, 0), (0, 0, 1), (0, 0, 0))):
        y, cb, cr = _bt709(0.75 * np.array(rgb))
        span = slice(width * i // 16 * 2, width * (i + 1) // 16 * 2 if i < 7 else width)
        luma[:bars, span] = y
        chroma[:, : bars // 2, span.start // 2 : (span.stop + 1) // 2] = np.array([cb, cr])[:, None, None]
    luma[bars:] = np.rint(np.linspace(16, 235, width))
    number_scale, left, above = _number_place(width, height)
    box = np.s_[
        :, above // 2 : above // 2 + (9 * number_scale + 1) // 2, left // 2 : left // 2 + (37 * number_scale + 1) // 2
    ]
    chroma[box] = 128
    return np.concatenate((luma.ravel(), chroma.ravel())).reshape(-1, width)


def _bt709(rgb: NDArray[np.float64]) -> tuple[int, int, int]:
    """R'G'B' in 0..1 to limited 8 bit Y'CbCr (ITU-R BT.709-6, 3.2 to 3.4)."""
    y = float(rgb @ np.array([0.2126, 0.7152, 0.0722]))
    cb, cr = (float(rgb[2]) - y) / 1.8556, (float(rgb[0]) - y) / 1.5748
    return round(16 + 219 * y), round(128 + 224 * cb), round(128 + 224 * cr)


def _sound(samples: int) -> NDArray[np.float32]:
    """(2, samples): 440 Hz at -20 dBFS, and from the start of each second 40 ms of 1 kHz at -6 dBFS."""
    n = np.arange(samples)
    tone = 0.1 * np.sin(n * (2 * np.pi * 440 / SAMPLE_RATE))
    blip = 0.5 * np.sin(n * (2 * np.pi * 1000 / SAMPLE_RATE)) * (n % SAMPLE_RATE < SAMPLE_RATE // 25)
    return np.tile((tone + blip).astype(np.float32), (2, 1))
