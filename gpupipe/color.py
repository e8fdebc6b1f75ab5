"""Colour description of a picture in the terms of ITU-T H.273, and the one rule for filling in what is unknown."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum, StrEnum

from av.video.reformatter import ColorPrimaries, ColorTrc


class Matrix(IntEnum):
    """H.273 MatrixCoefficients (same numbers as libavutil's AVColorSpace)."""

    RGB = 0
    BT709 = 1
    UNSPECIFIED = 2
    FCC = 4
    BT470BG = 5
    SMPTE170M = 6
    SMPTE240M = 7
    YCGCO = 8
    BT2020_NCL = 9
    BT2020_CL = 10
    SMPTE2085 = 11
    CHROMA_DERIVED_NCL = 12
    CHROMA_DERIVED_CL = 13
    ICTCP = 14


class Range(StrEnum):
    """Video (limited) or full range."""

    LIMITED = "limited"
    FULL = "full"


AV_RANGE: dict[Range | None, int] = {None: 0, Range.LIMITED: 1, Range.FULL: 2}
"""libavutil's AVColorRange."""


class ChromaLocation(StrEnum):
    """Where a subsampled chroma sample sits among its luma samples (H.273 Chroma420SampleLocType)."""

    LEFT = "left"
    CENTER = "center"
    TOP_LEFT = "topleft"
    TOP = "top"
    BOTTOM_LEFT = "bottomleft"
    BOTTOM = "bottom"


UNSPECIFIED = 2  # of H.273 transfer and primaries
_EVERYDAY = {16: " (PQ)", 18: " (HLG)"}

LUMA_COEFFICIENTS: dict[Matrix, tuple[float, float]] = {  # Kr, Kb of H.273 table 4
    Matrix.BT709: (0.2126, 0.0722),
    Matrix.FCC: (0.30, 0.11),
    Matrix.BT470BG: (0.299, 0.114),
    Matrix.SMPTE170M: (0.299, 0.114),
    Matrix.SMPTE240M: (0.212, 0.087),
    Matrix.BT2020_NCL: (0.2627, 0.0593),
}


@dataclass(frozen=True, slots=True)
class ColorSpec:
    """Colour tags of a stream; None and 2 mean 'not said'."""

    matrix: Matrix = Matrix.UNSPECIFIED
    transfer: int = UNSPECIFIED
    """H.273 TransferCharacteristics."""
    primaries: int = UNSPECIFIED
    """H.273 ColourPrimaries."""
    range: Range | None = None
    chroma_location: ChromaLocation | None = None

    def words(self) -> tuple[str, str, str]:
        """Matrix, transfer and primaries for people, by ffmpeg's names and the everyday ones of HDR."""
        transfer = _name(ColorTrc, self.transfer)
        return (
            f"matrix {self.matrix.name.lower()}",
            f"transfer {transfer}{_EVERYDAY.get(self.transfer, '')}",
            f"primaries {_name(ColorPrimaries, self.primaries)}",
        )

    def resolved(self, family: str, width: int, height: int) -> tuple[ColorSpec, tuple[str, ...]]:
        """Fills in what is needed for arithmetic, and says what was guessed.

        The rule: an unknown matrix is BT.601 for up to 1024x576 and BT.709 above (GBR for an RGB format); an unknown
        range is limited (full for RGB); an unknown chroma location is left. Tags of the output stay as the input's:
        what is guessed here is used for arithmetic only.
        """
        guesses: list[str] = []
        spec = self
        if family == "rgb":
            return replace(spec, matrix=Matrix.RGB, range=spec.range or Range.FULL), ()
        if spec.matrix in (Matrix.UNSPECIFIED, Matrix.RGB):
            standard = Matrix.SMPTE170M if width <= 1024 and height <= 576 else Matrix.BT709
            spec = replace(spec, matrix=standard)
            guesses.append(f"matrix unknown, taken as {standard.name.lower()} by size")
        if spec.range is None:
            spec = replace(spec, range=Range.LIMITED)
            guesses.append("range unknown, taken as limited")
        if spec.chroma_location is None:
            spec = replace(spec, chroma_location=ChromaLocation.LEFT)
            guesses.append("chroma location unknown, taken as left")
        return spec, tuple(guesses)


def _name(names: type[IntEnum], number: int) -> str:
    """As ffprobe says it (`arib-std-b67`); the number where H.273 gives it no meaning."""
    known = {int(one): one.name.lower().replace("_", "-") for one in names}
    return known.get(number, str(number))
