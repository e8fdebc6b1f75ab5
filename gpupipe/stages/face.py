"""Finds faces, follows them and makes them unknown, new or better, all on the device."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from gpupipe.errors import PlanError, first_line
from gpupipe.faces.networks import Slot, card_of, own_slot, slot_of
from gpupipe.journal import Journal
from gpupipe.stages import base
from gpupipe.stages._face_settings import FaceSettings, Select, Through

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

    from gpupipe.engines.choice import Choice
    from gpupipe.faces.line import Line
    from gpupipe.faces.templates import Template
    from gpupipe.format import FrameFormat

_WHERE = "stages.face"
_HIDDEN = 1.35
"""In a crop of the template's own size enough of forehead and jaw is left for CenterFace to score 0.43 on the stills of
the corpus. Up to 1.2, squares of faces below 30 pixels, and dark squares beside a collar, score above 0.3 in clips."""


class Face(base.Stage):
    """R'G'B' as they are; outside of the masks every pixel keeps its bits."""

    Settings: ClassVar[type[base.Settings]] = FaceSettings
    working: ClassVar[base.Working] = "rgb"
    keeps_fields: ClassVar[bool] = False
    graphable: ClassVar[bool] = False
    """Only as many faces are worked on as there are, which is asked once a batch; what lies between is captured."""
    captures: ClassVar[bool] = True
    scratch: ClassVar[int] = 192
    heavy: ClassVar[bool] = True
    chooses: ClassVar[bool] = True

    def __init__(self, settings: FaceSettings) -> None:
        self.settings = settings
        self.held: dict[str, Choice] = {}
        self.made: dict[str, Choice] = {}
        """What each network runs on, once `prepare` has chosen it."""
        self.journal, self.rows, self.graphs = Journal(), 1, False
        self.used: dict[str, str] = {}
        """The engine of each network, once `prepare` has chosen it."""
        self._slots: dict[int, Slot] | None = None
        self._line: Line | None = None

    @property
    def lead(self) -> int:
        """See `base.Temporal`: `faces.seen.Following.lead`, which is not asked since it imports torch."""
        smooth, hold = self.settings.smooth, self.settings.track.hold
        window = 2 if isinstance(smooth, str) else smooth.window
        extra = self.settings.detect.every - 1 + (self.settings.blend.steady > 0)
        return window + hold + (0 if hold else 1) + extra

    def slots(self) -> dict[int, Slot]:
        """What each operation's network takes, by the operation's index. Raises PlanError where one does not fit."""
        if self._slots is None:
            wanted = enumerate(self.settings.operate)
            self._slots = {n: _slot(n, op.network) for n, op in wanted if op.network is not None}
        return self._slots

    def cut(self) -> tuple[Template, int]:
        """Template and size of crops: what is set, else what the first network wants."""
        template, size = self.settings.align.template, self.settings.align.size
        for n, slot in self.slots().items():
            network = self.settings.operate[n].network
            assert network is not None, "it has a slot"
            template = template or network.template or _template(network, slot)
            size = size or slot.size
        return template or "ffhq512", size or 256

    @property
    def extent(self) -> float:
        """How many times wider than the template's own crop a face is cut out."""
        return self.settings.align.extent or (_HIDDEN if self.settings.hides else 1.0)

    def output_format(self, source: FrameFormat) -> FrameFormat:
        """The source's own. Raises PlanError where nothing is asked for, or a network does not fit or is not there."""
        card_of(self.settings.detect.card, "face-detection", f"{_WHERE}.detect.card")
        if self.identifies:
            card_of(self.settings.track.card, "face-embedding", f"{_WHERE}.track.card")
        select = self.settings.select
        if isinstance(select, Select) and select.reference is not None and not Path(select.reference).is_file():
            raise PlanError(f"there is no picture {select.reference}", where=f"{_WHERE}.select.reference")
        self.cut()
        if not self.settings.operate and not self.settings.debug:
            raise PlanError(
                "nothing is to be done with the faces that are found",
                where=f"{_WHERE}.operate",
                hint="give `operate: [pixelate]`, blur, fill, generate or enhance; `debug: true` shows them",
            )
        return source

    @property
    def identifies(self) -> bool:
        """Whether it must know who a face is."""
        select = self.settings.select
        return self.settings.track.embedding or (isinstance(select, Select) and select.reference is not None)

    def notes(self, source: FrameFormat) -> tuple[str, ...]:
        """What is looked for, at what size, and what is done."""
        detect = self.settings.detect
        longest = self.longest(source)
        every = "every frame" if detect.every == 1 else f"every {detect.every}th frame, motion between"
        template, size = self.cut()
        wide = "" if self.extent == 1 else f", {self.extent:g} times as wide"
        done = ", ".join(name for op in self.settings.operate for name in op.names) or "nothing"
        return (
            f"face: {detect.card} sees {longest} pixels of the longer side in {every}, up to {detect.most} faces",
            f"face: {done} on crops of {size}x{size} ({template}{wide}), {self.lead} frames lead into each segment",
        )

    def longest(self, source: FrameFormat) -> int:
        """Longer side of the picture as the detector sees it."""
        detect, own = self.settings.detect, max(source.width, source.height)
        return detect.size if detect.enlarge else min(detect.size, own)

    def models(self) -> tuple[base.ModelUse, ...]:
        """Detector, embedding and the operations' cards; a user's own file has no licence that we know."""
        names = [self.settings.detect.card] + [self.settings.track.card] * self.identifies
        names += [op.network.card for op in self.settings.operate if op.network is not None and op.network.card]
        cards = [card_of(name, "", _WHERE)[0] for name in dict.fromkeys(names)]
        used = [
            base.ModelUse(
                card.name,
                card.licence.weights,
                card.source.label,
                card.source.sha256 or "",
                self.used.get(card.name, self.settings.engine),
            )
            for card in cards
        ]
        own = [op.network.onnx for op in self.settings.operate if op.network is not None and op.network.onnx]
        return (
            *used,
            *(
                base.ModelUse(
                    Path(path).name, "the user's own", path, "", self.used.get(Path(path).name, self.settings.engine)
                )
                for path in own
            ),
        )

    def source_type(self) -> base.SourceType | None:
        """See `base.Stage`: anonymised faces hide, generated ones claim."""
        names = {name for op in self.settings.operate for name in op.names}
        if "generate" in names:
            return "compositeWithTrainedAlgorithmicMedia"
        return "algorithmicallyEnhanced" if "enhance" in names else None

    def foreseen(self, source: FrameFormat) -> tuple[Choice, ...] | None:
        """See `base.Stage`: it reads weights, whose digests the caches want."""
        from gpupipe.stages._face_networks import foreseen_choices  # noqa: PLC0415  imports torch

        return None if self.held else foreseen_choices(self, source)

    def hold(self, choices: Sequence[Choice]) -> None:
        """See `base.Stage`."""
        self.held = {choice.network: choice for choice in choices}

    def choices(self) -> tuple[Choice, ...]:
        """See `base.Stage`."""
        return tuple(self.made.values())

    def attend(self, journal: Journal, rows: int, *, graphs: bool = False) -> None:
        """See `base.Stage`."""
        self.journal, self.rows, self.graphs = journal, rows, graphs

    def prepare(self, source: FrameFormat) -> None:
        """Loads every network and runs each once."""
        from gpupipe.stages._face_build import build  # noqa: PLC0415  imports torch

        self._line = build(self, source)

    def remember(self) -> base.Memory:
        """See `base.Temporal`."""
        assert self._line is not None, "prepare() first"
        return base.Memory(self._line.remember())

    def follow(self, planes: tuple[torch.Tensor, ...], memory: base.Memory) -> tuple[torch.Tensor, ...]:
        """The next pictures with their faces worked on, one (N, 3, H, W) tensor."""
        assert self._line is not None, "prepare() first"
        return (self._line(planes[0], memory.tensors, memory.number),)

    def __call__(self, planes: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        """As `follow`, of pictures that nothing comes before."""
        return self.follow(planes, self.remember())


def _slot(number: int, network: Through) -> Slot:
    where = f"{_WHERE}.operate[{number}]"
    if network.card is not None:
        card, _ = card_of(network.card, "", where)
        return slot_of(card, network.inputs, where)
    assert network.onnx is not None, "the settings say so"
    return own_slot(Path(network.onnx), _vector(network.vector, where), network.levels, where)


def _vector(given: tuple[float, ...] | str | None, where: str) -> tuple[float, ...] | None:
    if given is None or isinstance(given, tuple):
        return given
    try:
        numbers = np.load(given, allow_pickle=False)
    except OSError as error:
        raise PlanError(f"{given} cannot be read: {error.strerror}", where=f"{where}.vector") from None
    except (ValueError, EOFError) as error:
        raise PlanError(f"{given} is no .npy file: {first_line(error)}", where=f"{where}.vector") from None
    return tuple(float(number) for number in np.asarray(numbers, dtype=np.float64).ravel())


def _template(network: Through, slot: Slot) -> Template | None:
    """As the card says, or as networks of that size mostly want it."""
    if network.card is not None:
        card, _ = card_of(network.card, "", _WHERE)
        align = card.crop.align if card.crop else None
        return None if align is None or align == "box" else align
    if slot.size is None:
        return None
    if slot.size % 112 == 0:
        return "arcface112"
    return "arcface128" if slot.size == 128 else "ffhq512"


STAGE = Face
