"""Runs a network over every picture: super-resolution, denoising, and whatever else gives a picture for a picture."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, cast

from pydantic import BeforeValidator, Field, model_validator

from gpupipe.engines.choice import Choice, holding, versions_of
from gpupipe.engines.select import candidates
from gpupipe.errors import ConfigError, EngineError, MediaError, PlanError
from gpupipe.models import folder
from gpupipe.models.card import Card, Change, find
from gpupipe.models.extras import extras, one_to_one
from gpupipe.models.fetch import fingerprint, verify
from gpupipe.models.recipe import Recipe
from gpupipe.stages import base

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

    from gpupipe.engines.assemble import Wanted
    from gpupipe.engines.base import Precision
    from gpupipe.engines.running import Running
    from gpupipe.format import FrameFormat
    from gpupipe.journal import Journal
    from gpupipe.ops.regrid import Regrid

_GUESS, _LEAST_ROOM = 1024, 256 << 20
"""Bytes for each input pixel that a network in half floats is planned with; what it gets at least."""
_SHARE = 4
"""A network gets that part of the free memory at most."""


def _size(value: object) -> object:
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    if isinstance(value, str):
        return value
    raise ValueError("give a number from 1 up, or auto")


Tile = Annotated[Literal["auto", "off"] | Annotated[int, Field(ge=1, le=16384)], BeforeValidator(_size)]
Batch = Annotated[Literal["auto"] | Annotated[int, Field(ge=1, le=256)], BeforeValidator(_size)]


class ModelSettings(base.Settings):
    """Which network, and how it is run."""

    card: str | None = Field(default=None, min_length=1)
    """Its name, see `gpupipe models list`, or a card of the user's own, a path that ends in .yaml."""
    path: str | None = Field(default=None, min_length=1)
    """Instead of a card: ONNX, .pt2, TFLite, or weights alone; relative to the current directory."""
    architecture: str | None = None
    """Of weights alone."""
    lora: Annotated[tuple[Change, ...], Field(strict=False)] = ()
    """Low-rank changes to the weights."""
    precision: Literal["auto", "fp32", "fp16", "bf16", "int8", "fp8"] = "auto"
    """auto: fp16 on a GPU for sources of up to 10 bits, else fp32. int8, fp8: as auto, but with convolutions in 8 bits,
    as many as pictures of the clip show to keep `accuracy`."""
    accuracy: float = Field(default=38.0, ge=20, le=60)
    """dB against fp32 that 8 bits must keep in pictures that they were not calibrated on, each of them 6 dB less."""
    recipe: Annotated[Recipe, Field(strict=False)] | None = Field(default=None, repr=False)
    """Which convolutions and in what ranges; found by calibration, and part of the plan."""
    engine: Literal["auto", "eager", "triton", "inductor", "tensorrt"] = "auto"
    """auto: on a GPU the fastest of what is installed, measured; on the CPU eager."""
    tile: Tile = "auto"
    """Longest side of a tile in input pixels; auto cuts where memory asks for it, off never."""
    batch: Batch = "auto"
    """Pictures, or tiles, at once."""
    inputs: dict[str, float | Annotated[tuple[float, ...], Field(strict=False)]] = Field(default_factory=dict)
    """Further inputs of the network by name, such as the noise of a denoiser."""

    @model_validator(mode="after")
    def _one_network(self) -> ModelSettings:
        if (self.card is None) == (self.path is None):
            raise ValueError("give a card or a path")
        if self.architecture is not None and self.path is None:
            raise ValueError("an architecture is of a path")
        if self.recipe is not None and self.recipe.numbers != self.precision:
            raise ValueError(f"the recipe is for {self.recipe.numbers}")
        return self


class Model(base.Stage):
    """R'G'B' in the source's own primaries and transfer go in as they are, and come out in the same.

    Values beyond 0..1 are given to the network as they are.
    """

    Settings: ClassVar[type[base.Settings]] = ModelSettings
    working: ClassVar[base.Working] = "rgb"
    alpha: ClassVar[base.Alpha] = "given"
    keeps_fields: ClassVar[bool] = False
    heavy: ClassVar[bool] = True
    chooses: ClassVar[bool] = True

    def __init__(self, settings: ModelSettings) -> None:
        self.settings = settings
        self._held: Choice | None = None
        self._journal: Journal | None = None
        self._rows = 1
        self._known: tuple[Card, dict[str, Path]] | None = None
        self._running: Running | None = None
        self._regrid: Regrid | None = None

    def _model(self) -> tuple[Card, dict[str, Path]]:
        """The card and its weights, checked once."""
        if self._known is None:
            try:
                card = self._card()
                one_to_one(card)
                extras(card, self.settings.inputs)
                self._suits(card)
                self._known = card, verify(card, folder.weights())
            except (ConfigError, MediaError) as error:
                raise PlanError(error.message, where=error.where, hint=error.hint) from None
        return self._known

    def _card(self) -> Card:
        settings = self.settings
        if settings.path is None:
            card = find(settings.card or "")
        else:
            from gpupipe.models.own import describe  # noqa: PLC0415  imports torch

            card = describe(Path(settings.path), settings.architecture)
        return card.model_copy(update={"lora": [*card.lora, *settings.lora]}) if settings.lora else card

    def _suits(self, card: Card) -> None:
        """Raises PlanError where the card forbids what the settings ask."""
        settings = self.settings
        if isinstance(settings.tile, int) and card.halo is None:
            message = f"{card.name} must have the picture whole"
            raise PlanError(message, hint="use `tile: off`")
        if (settings.precision == "fp16" and not card.half) or (settings.precision == "bf16" and not card.bfloat16):
            raise PlanError(f"{card.name} is no good in {settings.precision}", hint="use `precision: auto`")

    def output_format(self, source: FrameFormat) -> FrameFormat:
        """The source's own, larger by the card's scale. Raises PlanError where card or weights are not there."""
        card, _ = self._model()
        return source.with_(width=source.width * card.scale, height=source.height * card.scale)

    def notes(self, source: FrameFormat) -> tuple[str, ...]:
        """The network, its licence, and what it will run on."""
        card, _ = self._model()
        use = "" if card.licence.commercial else ", no licence for commercial use"
        how = f"{self._precision(source)} on {source.device}, {self._engine(source.device)}"
        notes: tuple[str, ...] = (
            f"{card.name}: {card.task} x{card.scale}, weights {card.licence.weights}{use}; {how}",
        )
        if self.settings.recipe is not None:
            slow = "" if "tensorrt" in how else "; no faster here, as only TensorRT computes in 8 bits"
            notes = (*notes, f"{self.settings.recipe}{slow}")
        kept = "as it is" if card.scale == 1 else "scaled (bicubic)"
        return (*notes, f"the network does not see alpha, which is {kept}") if source.alpha else notes

    def _engine(self, device: str) -> str:
        """In words. Raises PlanError where one is named that cannot be used there."""
        try:
            there = [engine.name for engine in candidates(self.settings.engine, device)]
        except EngineError as error:
            raise PlanError(error.message, hint=error.hint) from None
        return f"engine {there[0]}" if len(there) == 1 else f"engine: the fastest of {', '.join(there)}"

    def _precision(self, source: FrameFormat) -> Precision:
        if self.settings.precision not in {"auto", "int8", "fp8"}:
            return cast("Precision", self.settings.precision)
        return "fp16" if source.pixels.name == "rgbf16" and self._model()[0].half else "fp32"

    def workspace(self, source: FrameFormat, free: int | None) -> int:
        """Bytes of the device that the network gets for what it computes in between, however many pictures come."""
        from gpupipe.engines.sizes import ENOUGH  # noqa: PLC0415

        pixel = _GUESS * (2 if self._precision(source) == "fp32" else 1)
        pixels = source.area  # on a GPU several small pictures go together
        wanted = max(_LEAST_ROOM, pixel * (pixels if source.device == "cpu" else max(ENOUGH, pixels)))
        return wanted if free is None else max(min(wanted, free // _SHARE), min(_LEAST_ROOM, free))

    def smaller(self) -> ModelSettings | None:
        """See `base.Stage`: one window at a time, then smaller ones."""
        settings = self.settings
        if settings.batch != 1:
            half = settings.batch // 2 if isinstance(settings.batch, int) else 1
            return settings.model_copy(update={"batch": half})
        if self._model()[0].halo is None or (isinstance(settings.tile, int) and settings.tile < 128):
            return None
        return settings.model_copy(update={"tile": settings.tile // 2 if isinstance(settings.tile, int) else 512})

    def samples(self) -> int:
        """See `base.Stage`: in 8 bits it is calibrated first."""
        if self.settings.precision not in {"int8", "fp8"} or self.settings.recipe is not None:
            return 0
        from gpupipe.engines.calibrated import SAMPLES  # noqa: PLC0415  imports torch

        return SAMPLES

    def learn(self, source: FrameFormat, pictures: Sequence[tuple[torch.Tensor, ...]]) -> base.Learnt:
        """The recipe of 8 bits; floats, and why, where there is none and `engine: auto` leaves the choice.

        Raises EngineError where there is none and an engine is named.
        """
        from gpupipe.engines.calibrated import Asked, recipe_for  # noqa: PLC0415  imports torch

        (card, files), settings, numbers = self._model(), self.settings, self.settings.precision
        assert numbers == "int8" or numbers == "fp8", "it asked for no pictures"  # noqa: PLR1714  mypy narrows by ==
        try:
            asked = Asked(card, files, settings.inputs, numbers, settings.accuracy, source.device)
            recipe = recipe_for(asked, [planes[0] for planes in pictures])
        except EngineError as error:
            if settings.engine != "auto":
                hint = "use `engine: auto`, which goes on in floats, or less `accuracy`"
                raise EngineError(error.message, where=error.where or f"model {card.name}", hint=hint) from error
            floats = settings.model_copy(update={"precision": "auto"})
            return base.Learnt(floats, f"{card.name} goes on in {self._precision(source)}: {error.message}")
        return base.Learnt(settings.model_copy(update={"recipe": recipe}))

    def models(self) -> tuple[base.ModelUse, ...]:
        """See `base.Stage`."""
        card, files = self._model()
        how = self._running.how if self._running is not None else self.settings.engine
        return (base.ModelUse(card.name, card.licence.weights, card.source.label, fingerprint(card, files), how),)

    def hold(self, choices: Sequence[Choice]) -> None:
        """See `base.Stage`."""
        self._held = next(iter(choices), None)

    def choices(self) -> tuple[Choice, ...]:
        """See `base.Stage`."""
        running, name = self._running, self._model()[0].name
        assert running is not None, "prepare() first"
        sizes, engine = running.sizes, running.engine
        return (Choice(name, engine, running.precision, sizes.batch, sizes.tile, versions_of(engine)),)

    def attend(self, journal: Journal, rows: int, *, graphs: bool = False) -> None:  # noqa: ARG002  it is captured whole
        """See `base.Stage`."""
        self._journal, self._rows = journal, rows

    def prepare(self, source: FrameFormat) -> None:
        """Loads the network, chooses how much it gets at once from what it takes, and builds it for that."""
        from gpupipe.engines.assemble import assemble  # noqa: PLC0415  imports torch

        (card, files), held = self._model(), self._held
        if self.samples():
            hint = "make the plan by `gpupipe run` or `gpupipe plan`, which calibrate it"
            raise EngineError(f"{self.settings.precision} was not calibrated", where=f"model {card.name}", hint=hint)
        wanted = self._wanted(source)
        if held is not None:
            tile, batch = self._sizes(held)
            wanted = replace(wanted, engine=held.engine, tile=tile or "off", batch=batch, exact=True)
        with holding(held, source.device):
            self._running = assemble(card, files, wanted, source.with_(alpha=0), self._journal)
        if source.alpha and card.scale != 1:
            from gpupipe.ops.regrid import Regrid, Window  # noqa: PLC0415  imports torch

            step = Fraction(1, card.scale)
            self._regrid = Regrid(source, self.output_format(source), Window(scale_x=step, scale_y=step), "bicubic")

    def foreseen(self, source: FrameFormat) -> tuple[Choice, ...] | None:
        """See `base.Stage`: it reads the weights, whose digest the caches want."""
        from gpupipe.engines.assemble import foreseen  # noqa: PLC0415  imports torch

        if self._held is not None or self.samples():
            return None
        card, files = self._model()
        wanted = self._wanted(source)
        found = foreseen(card, files, wanted, source.with_(alpha=0))
        if found is None:
            return None
        engine, sizes = found
        return (Choice(card.name, engine, wanted.precision, sizes.batch, sizes.tile, versions_of(engine)),)

    def _wanted(self, source: FrameFormat) -> Wanted:
        from gpupipe.device.room import free_bytes  # noqa: PLC0415  imports torch
        from gpupipe.engines.assemble import Wanted  # noqa: PLC0415  imports torch

        settings = self.settings
        return Wanted(
            precision=self._precision(source), engine=settings.engine, tile=settings.tile, batch=settings.batch,
            inputs=settings.inputs, recipe=settings.recipe, rows=self._rows,
            room=self.workspace(source, free_bytes(source.device)),
        )  # fmt: skip

    def _sizes(self, held: Choice) -> tuple[int | None, int]:
        """Tile and batch as they were chosen; less where memory was short since then, see `smaller`."""
        tile, batch = self.settings.tile, self.settings.batch
        tiles = [side for side in (held.tile, tile) if isinstance(side, int)]
        return min(tiles, default=None), min(held.batch, batch) if isinstance(batch, int) else held.batch

    def __call__(self, planes: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        """What the network makes of the pictures, one (N, 3, scale * H, scale * W) tensor; alpha of that size."""
        assert self._running is not None, "prepare() first"
        alpha = planes[1:]
        if alpha and self._regrid is not None:
            alpha = (self._regrid.plane(1, alpha[0]),)
        return (self._running(planes[0]), *alpha)


STAGE = Model
