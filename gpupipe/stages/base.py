"""What a stage is: a pure function of tensors, described well enough to be planned before it runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, runtime_checkable

from pydantic import BaseModel, ConfigDict

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

    from gpupipe.engines.choice import Choice
    from gpupipe.format import FrameFormat
    from gpupipe.journal import Journal

Working = Literal["any", "rgb"]
Alpha = Literal["kept", "given"]
SourceType = Literal["compositeWithTrainedAlgorithmicMedia", "algorithmicallyEnhanced"]
"""Terms of IPTC's digital source type, the strongest first."""


class Settings(BaseModel):
    """Base of every stage's settings: unknown keys and wrong types are errors."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, allow_inf_nan=False, arbitrary_types_allowed=True
    )


@dataclass(frozen=True, slots=True)
class ModelUse:
    """A network that a stage runs, for the report of a run."""

    name: str
    licence: str
    """SPDX, or in words."""
    source: str
    """Where its weights come from."""
    sha256: str
    engine: str
    """How it runs: `eager`, `inductor`, `tensorrt` ..., with its precision."""


def seen(stage: Stage | type[Stage], source: FrameFormat) -> FrameFormat:
    """`source` as a stage sees it: without alpha where it has no business with it."""
    return source if stage.alpha == "given" else source.with_(alpha=0)


@dataclass(frozen=True, slots=True)
class Learnt:
    """What a stage found in pictures of the clip."""

    settings: BaseModel
    """Its own, completed by what it found; it wants no pictures any more."""
    warning: str = ""
    """What the user must know of it, and did not ask for."""


class Stage(Protocol):
    """One step of the chain; a base class for those who want its defaults.

    A module `gpupipe/stages/NAME.py` holds one: a class `STAGE` whose `Settings` are its keys in the config. Adding a
    stage is that file and its test. It may import torch inside `prepare` and `__call__` only where it can be planned
    without; it neither synchronises, logs nor calls `.item()` in `__call__`.
    """

    Settings: ClassVar[type[Settings]]
    working: ClassVar[Working]
    """`any`: works on the decoder's own planes, planar or semi-planar; `rgb`: needs rgbf16 or rgbf32."""
    graphable: ClassVar[bool] = True
    """Whether `__call__` may be captured in a CUDA Graph."""
    captures: ClassVar[bool] = False
    """Whether one that may not captures parts of its work itself, in `prepare`."""
    scratch: ClassVar[int] = 48
    """Most bytes of input, output and intermediate values that `__call__` holds on the GPU, for each pixel of the
    larger of its two pictures; memory is planned by it. 48 is R'G'B' in and out in half and full floats, and more."""
    keeps_fields: ClassVar[bool] = True
    """Whether interlaced pictures come out with their two fields intact."""
    alpha: ClassVar[Alpha] = "kept"
    """What it does with the alpha of pictures that have it. `kept`: it neither sees nor changes it, and so may not
    change the size; its `source` says that there is none. `given`: alpha is the last of its planes, in and out."""
    chooses: ClassVar[bool] = False
    """Whether `prepare` makes up something that shows in pixels, such as the fastest engine: see `choices`."""
    heavy: ClassVar[bool] = False
    """Whether `__call__` on the CPU is worth all of its cores; else decoder and encoder get most of them. On a GPU
    decoders wait for it, so that more of them are of no use."""

    fresh: ClassVar[bool] = False
    """Whether what it gives is always new tensors of which nobody else knows."""

    def __init__(self, settings: Any) -> None: ...

    def output_format(self, source: FrameFormat) -> FrameFormat:
        """The format of what comes out; raises PlanError where it cannot be done (0x0, crop beyond the edge)."""
        ...

    def notes(self, source: FrameFormat) -> tuple[str, ...]:
        """What the plan should say about this stage on this source (rounding, siting)."""
        del source
        return ()

    def smaller(self) -> BaseModel | None:
        """Settings of its own that give the same pictures in less memory; None where there are none.

        Such as smaller tiles. Asked before the run where memory is short, and in it; each answer is one more step.
        """
        return None

    def samples(self) -> int:
        """Pictures from all over the clip that it must see before the plan is whole; 0 for none."""
        return 0

    def learn(self, source: FrameFormat, pictures: Sequence[tuple[torch.Tensor, ...]]) -> Learnt:
        """Settings that follow from pictures; only where `samples` asks for some.

        What it finds becomes part of the plan, and so is the same for all who render pieces of the run.

        Args:
            source: what comes in.
            pictures: planes of it, on the host, in order and none twice: `samples` of them, fewer in a short clip.
        """
        raise AssertionError(f"{source}: it asks for no pictures, and got {len(pictures)}")

    def models(self) -> tuple[ModelUse, ...]:
        """The networks that it runs, for the report."""
        return ()

    def choices(self) -> tuple[Choice, ...]:
        """What `prepare` has made up, for all who render other pieces of the same run."""
        return ()

    def foreseen(self, source: FrameFormat) -> tuple[Choice, ...] | None:
        """What `choices` would be after `prepare`, where caches say it without that; None where they do not.

        It costs as little as can be: who prepares many times, elsewhere, need not do it here once more.
        """
        del source
        return None

    def hold(self, choices: Sequence[Choice]) -> None:
        """Told before `prepare` what is to be used, where it was made up already; nothing where it was not.

        `prepare` then raises CapabilityError where it cannot be used here.
        """
        del choices

    def own(self) -> None:
        """Told before `prepare` where the planes that it will be given are `fresh`: it may write into them."""
        return

    def source_type(self) -> SourceType | None:
        """What the output must say of pictures that it makes; None where it makes up nothing."""
        return None

    def workspace(self, source: FrameFormat, free: int | None) -> int:
        """Bytes of the device for intermediate values that do not grow with the number of pictures.

        Beside `scratch`, for stages that cut their work in pieces. The largest of all stages is planned for.

        Args:
            source: what comes in.
            free: bytes of the device that are free; None where nobody knows.
        """
        del source, free
        return 0

    def attend(self, journal: Journal, rows: int, *, graphs: bool = False) -> None:
        """Told before `prepare` where to report what the user should know, and the most pictures that come at once.

        And whether it may capture CUDA Graphs of its own: only where no decoder session is at work yet.
        """
        del journal, rows, graphs

    def prepare(self, source: FrameFormat) -> None:
        """Makes what every frame needs (grids, weights, tables) on `source.device`; called once, before any frame."""
        ...

    def __call__(self, planes: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        """Transforms the planes of a batch in `source` format to `output_format(source)`."""
        ...


@dataclass(slots=True)
class Memory:
    """What a temporal stage knows of the pictures before, in one piece of a run; every piece has its own."""

    tensors: tuple[torch.Tensor, ...]
    """On the stage's device; all zeros means that nothing has been seen. Changed in place, so that a graph can."""
    number: int = 0
    """Of the picture that comes next, counted from the first of the run."""

    def forget(self, number: int) -> None:
        """Begins anew before picture `number`."""
        for tensor in self.tensors:
            tensor.zero_()
        self.number = number


@runtime_checkable
class Temporal(Protocol):
    """A stage whose pictures depend on those before them, on `lead` of them and on nothing earlier.

    That is what lets a run be cut: a piece begins `lead` pictures early with an empty memory, and what it makes of them
    is dropped. So a filter must not be recursive; it goes over a window of what it remembers each time.
    """

    lead: int

    def remember(self) -> Memory:
        """A memory of nothing; after `prepare`."""
        ...

    def follow(self, planes: tuple[torch.Tensor, ...], memory: Memory) -> tuple[torch.Tensor, ...]:
        """`__call__` for the next pictures of a piece. The chain counts `memory.number` on."""
        ...
