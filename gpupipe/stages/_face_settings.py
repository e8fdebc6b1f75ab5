"""The keys of the stage `face`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, model_validator

from gpupipe.faces.templates import Template
from gpupipe.stages import base

_WAYS = ("region", "index", "reference")
Part = Annotated[float, Field(ge=0, le=1)]
Numbers = Annotated[tuple[float, ...], Field(strict=False)]


class Detect(base.Settings):
    """How faces are found."""

    card: str = "centerface"
    score: Part = 0.5
    """Least score of a face."""
    size: int = Field(default=960, ge=64, le=8192)
    """Longer side of the picture as the network sees it; faces below about 10 pixels there are not found. A smaller
    picture is shown as it is, unless `enlarge` is set."""
    enlarge: bool = False
    """Whether smaller pictures are brought up to `size`, for faces of few pixels."""
    smallest: float = Field(default=0.0, ge=0)
    """Pixels of the frame."""
    refine: bool = True
    """Whether points are looked at once more in crops of each face, which halves their error."""
    every: int = Field(default=1, ge=1, le=60)
    """Detect in every so manieth frame, and in the first of each shot; between them faces are followed by motion."""
    most: int = Field(default=8, ge=1, le=256)
    """Most faces in a frame; the best ones are kept."""


class Track(base.Settings):
    """When faces of neighbouring frames are the same."""

    overlap: Part = 0.2
    hold: int = Field(default=3, ge=0, le=30)
    """Frames for which a face that was missed goes on."""
    embedding: bool = False
    """Whether they must look alike too."""
    card: str = "dlib-face-embedding"
    """What tells who a face is; also for `select: {reference: ...}`."""
    distance: float = Field(default=0.6, gt=0)


class Select(base.Settings):
    """One way to choose faces."""

    region: Annotated[tuple[float, float, float, float], Field(strict=False)] | None = None
    """x, y, width, height in parts of the frame: faces whose centre lies there."""
    index: int | None = Field(default=None, ge=0)
    """The face with so many to its left."""
    reference: str | None = None
    """A picture of the person; its largest face."""
    distance: float = Field(default=0.6, gt=0)
    """Largest distance from the reference."""

    @model_validator(mode="after")
    def _one(self) -> Select:
        if sum(value is not None for value in (self.region, self.index, self.reference)) != 1:
            raise ValueError("select is all, largest, {region: ...}, {index: ...} or {reference: ...}")
        return self


class Align(base.Settings):
    """How faces are cut out; what is not set is as the first network wants it."""

    template: Template | None = None
    """ffhq512 (the whole head) where no network says otherwise."""
    size: int | None = Field(default=None, ge=16, le=2048)
    """Pixels of a crop's side; 256 where no network says otherwise."""
    extent: float | None = Field(default=None, gt=0.2, le=5)
    """How many times wider than the template's own crop; 1.35 where faces are only hidden, so that hair and chin go
    too, else 1."""


class Blur(base.Settings):
    """Gaussian."""

    radius: float = Field(default=0.16, gt=0, le=1)
    """Standard deviation as a part of the crop's side."""


class Pixelate(base.Settings):
    """Squares."""

    blocks: int = Field(default=8, ge=1, le=256)
    """Along a side of the crop."""
    contrast: Part = 0.4
    """What is left of each square's difference from the crop's mean: 1 keeps it, 0 leaves one colour."""


class Fill(base.Settings):
    """One colour."""

    color: Annotated[tuple[Part, Part, Part], Field(strict=False)] | None = None
    """R'G'B', 0..1; the face's own mean where not given."""


class Through(base.Settings):
    """A network: a card, or an ONNX file of your own."""

    card: str | None = None
    onnx: str | None = None
    """Takes one square picture, and perhaps one vector; gives a square picture."""
    vector: Numbers | str | None = None
    """For `onnx`: numbers, or a .npy file of them."""
    inputs: dict[str, float | Numbers] = Field(default_factory=dict)
    """For `card`: further inputs by name."""
    template: Template | None = None
    """For `onnx`: how faces lie in its picture; by its size where not given."""
    levels: Annotated[tuple[float, float], Field(strict=False)] = (0.0, 1.0)
    """For `onnx`: what it has for black and for white."""

    @model_validator(mode="after")
    def _one(self) -> Through:
        if (self.card is None) == (self.onnx is None):
            raise ValueError("give a card or an onnx file")
        return self


class Operation(base.Settings):
    """One thing that is done to a face."""

    blur: Blur | None = None
    pixelate: Pixelate | None = None
    fill: Fill | None = None
    generate: Through | None = None
    enhance: Through | None = None

    @model_validator(mode="after")
    def _one(self) -> Operation:
        if len(self.names) != 1:
            raise ValueError("an operation is one of blur, pixelate, fill, generate, enhance with its settings")
        return self

    @property
    def names(self) -> tuple[str, ...]:
        """Which it is."""
        return tuple(name for name in type(self).model_fields if getattr(self, name) is not None)

    @property
    def network(self) -> Through | None:
        """What it runs faces through."""
        return self.generate or self.enhance


class Blend(base.Settings):
    """How faces are laid back."""

    mask: Literal["ellipse", "hull", "box"] | None = None
    """The whole crop, box, where faces are only hidden, else ellipse."""
    feather: Part | None = None
    """Width of the soft edge, in half crops; 0.02 where faces are only hidden, else 0.15."""
    opacity: Part = 1.0
    match_color: bool = False
    """Whether the face gets the colours of the one it covers."""
    method: Literal["alpha", "poisson"] = "alpha"
    steady: float = Field(default=0.0, ge=0, le=0.5)
    """Part of the same face one frame before that is mixed in, against the flicker of a network."""


class Smooth(base.Settings):
    """How calm points are over time; see `faces.smooth`."""

    cutoff: float = Field(default=0.01, gt=0, le=0.5)
    """Cycles a frame."""
    beta: float = Field(default=0.5, ge=0)
    slope: float = Field(default=0.1, gt=0, le=0.5)
    window: int = Field(default=16, ge=2, le=120)
    """Frames."""


def _operation(value: object) -> object:
    value = {value: {}} if isinstance(value, str) else value
    if isinstance(value, dict) and not value.keys() <= Operation.model_fields.keys():
        raise ValueError(f"{', '.join(map(str, value))} is none of {', '.join(Operation.model_fields)}")
    return value


def _select(value: object) -> object:
    if isinstance(value, (Select, dict)) or value in {"all", "largest"}:
        given = value if isinstance(value, dict) else {}
        if isinstance(value, (Select, str)) or sum(given.get(k) is not None for k in _WAYS) == 1:
            return value
    raise ValueError(f"select is all, largest, or one of {', '.join(_WAYS)} with its value")


class FaceSettings(base.Settings):
    """Found, followed, chosen, cut out, worked on, laid back."""

    detect: Detect = Detect()
    track: Track = Track()
    select: Annotated[Literal["all", "largest"] | Select, BeforeValidator(_select)] = "all"
    align: Align = Align()
    operate: Annotated[
        tuple[Annotated[Operation, BeforeValidator(_operation)], ...], Field(strict=False)
    ] = ()  # fmt: skip
    blend: Blend = Blend()
    smooth: Literal["off"] | Smooth = Smooth()
    engine: Literal["auto", "eager", "triton", "inductor", "tensorrt"] = "auto"
    """What runs detector, generator and enhancer; auto: on a GPU the fastest of what is installed, measured."""
    debug: bool = False
    """Draws boxes, points, numbers and scores on the picture."""

    @property
    def hides(self) -> bool:
        """Whether faces are made unknown and nothing else."""
        return bool(self.operate) and all(operation.network is None for operation in self.operate)
