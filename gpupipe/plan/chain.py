"""The steps between decoder and encoder: the stages asked for and what must stand between them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gpupipe import stages
from gpupipe.errors import PlanError
from gpupipe.format import PIXEL_FORMATS, FrameFormat
from gpupipe.plan.model import Step
from gpupipe.stages.base import seen

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpupipe.config import StageEntry


_LARGEST_PICTURE = (1 << 31) // 8


class ChainBuilder:
    """Appends steps, keeping track of the format of what comes out so far."""

    def __init__(self, source: FrameFormat) -> None:
        # Unknown tags are filled in once, at the source's own size: a resize must not turn BT.601 into BT.709.
        color, self._guesses = source.color.resolved(source.pixels.family, source.width, source.height)
        self._source, self._filled = source, color
        self.format = source.with_(color=color)
        self.steps: list[Step] = []
        self.notes: list[str] = []

    def _add(self, step: Step) -> None:
        self.steps.append(step)
        self.format = step.target

    def upload(self, device: str) -> None:
        """Host to device, where the decoder runs on the CPU and the stages on the GPU."""
        self._add(Step("upload", "upload", self.format, self.format.with_(device=device), reason="decoded on the CPU"))

    def download(self, encoder: str) -> None:
        """Device to host, for a CPU encoder."""
        target = self.format.with_(device="cpu")
        self._add(Step("download", "download", self.format, target, reason=f"{encoder} runs on the CPU"))

    def convert(self, target: FrameFormat, reason: str) -> None:
        """Another pixel format or colour description of the same picture; nothing where they agree."""
        have = self.format
        same = (have.pixels, have.color.matrix, have.color.range) == (
            target.pixels,
            target.color.matrix,
            target.color.range,
        )
        same = same and have.alpha == target.alpha
        if same and have.color.chroma_location == target.color.chroma_location:
            self.format = target
            return
        if have.pixels.family != target.pixels.family:
            self.notes += [f"{g} (for arithmetic only; the output's tags stay as the input's)" for g in self._guesses]
        dither = target.pixels.layout != "float" and self._source.pixels.depth > target.pixels.depth
        name = f"{have.pixels.name} to {target.pixels.name}"
        if have.pixels.name == target.pixels.name and have.color.range != target.color.range:
            name = f"{have.pixels.name}, {_range(have)} to {_range(target)} range"
        name += ", dithered" if dither else ""
        if have.alpha != target.alpha:
            name += f", alpha {have.alpha} to {target.alpha} bit"
        self._add(Step("convert", name, have, target, {"dither": dither}, reason))

    def stage(self, name: str, settings: dict[str, object], where: str, stage: Any) -> None:
        """One stage, with the conversion it needs before it."""
        if self.format.interlaced and not stage.keeps_fields:
            raise PlanError(
                f"the source is interlaced ({self.format.field_order}) and {name} would mix its fields",
                where=where,
                hint="deinterlace it with another program first (gpupipe has no deinterlacer), or leave the stage out",
            )
        if stage.working == "rgb" and self.format.pixels.layout != "float":
            # Half floats hold 11 bits: enough for 10-bit codes to return, not for 12.
            half = self.format.device != "cpu" and self._source.pixels.depth <= 10
            pixels = PIXEL_FORMATS["rgbf16" if half else "rgbf32"]
            self.convert(self.format.with_(pixels=pixels), f"{name} works in R'G'B'")
        source = seen(stage, self.format)
        target = stage.output_format(source).with_(alpha=self.format.alpha)
        if source.alpha != self.format.alpha and (target.width, target.height) != (source.width, source.height):
            raise PlanError(f"{name} changes the size and does not know of alpha", where=where,
                            hint="use `alpha: drop` under output.video")  # fmt: skip
        _check_size(target, where)
        notes = tuple(stage.notes(source))
        self._add(Step("stage", name, self.format, target, settings, "; ".join(notes)))

    def tagged(self) -> FrameFormat:
        """The format that comes out, with every tag the source left open left open still, where it was not changed."""
        have, said, filled = self.format.color, self._source.color, self._filled
        return self.format.with_(
            color=replace(
                have,
                matrix=said.matrix if have.matrix == filled.matrix else have.matrix,
                range=said.range if have.range == filled.range else have.range,
                chroma_location=(
                    said.chroma_location if have.chroma_location == filled.chroma_location else have.chroma_location
                ),
            )
        )

    def even(self, encoder: str) -> str | None:
        """Repeats the last column or row where the encoder takes whole chroma samples only; returns what to warn of.

        Of an interlaced picture each field is brought to such a height, by its own last row.
        """
        fmt = self.format
        sx, sy = fmt.pixels.chroma_shift
        rows = (2 if fmt.interlaced else 1) << sy
        width, height = fmt.width + (fmt.width & sx), -(-fmt.height // rows) * rows
        if (width, height) == (fmt.width, fmt.height):
            return None
        grown = [name for name, more in (("column", width > fmt.width), ("row", height > fmt.height)) if more]
        message = (
            f"{encoder} takes {'even sizes' if rows <= 2 else f'heights in multiples of {rows}'} only: "
            f"{fmt.width}x{fmt.height} becomes {width}x{height}, its last {' and '.join(grown)} repeated"
        )
        self._add(Step("even", "even", fmt, fmt.with_(width=width, height=height), reason=message))
        return message


def at(where: str, error: PlanError) -> PlanError:
    """A stage's error under its key path; a file that it names (a LUT, an image) stays in the message.

    A stage knows its own keys (`stages.face.operate[0]`), but not which of the stages it is.
    """
    said = error.where or ""
    file = "" if not said or said.startswith(("stages.", "stages[")) else f"{said}: "
    own = f"stages.{where.rpartition('.')[2]}"
    inner = said.removeprefix(own) if said.startswith((f"{own}.", f"{own}[")) else ""
    return PlanError(f"{file}{error.message}", where=where + inner, hint=error.hint)


def _check_size(picture: FrameFormat, where: str) -> None:
    """Raises PlanError for a size that libav's frames cannot have (av_image_check_size)."""
    width, height = picture.width, picture.height
    if not (min(width, height) > 0 and (width + 128) * (height + 128) < _LARGEST_PICTURE):
        raise PlanError(
            f"{width}x{height} is no size a picture can have", where=where, hint="it goes up to 16256x16256 pixels"
        )


def entries(config_stages: tuple[StageEntry, ...]) -> Iterator[tuple[str, str, StageEntry, Any]]:
    """(name, key path, entry, stage object) of every stage in the config."""
    for index, entry in enumerate(config_stages):
        where = f"stages[{index}].{entry.name}"
        try:
            yield entry.name, where, entry, stages.load(entry.name)(entry.settings)
        except PlanError as error:
            raise at(where, error) from None


def _range(picture: FrameFormat) -> str:
    return picture.color.range.name.lower() if picture.color.range else "unknown"
