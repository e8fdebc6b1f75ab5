"""The stage `face` made and run by itself, and what its detector sees of pictures."""

from __future__ import annotations

import torch
from stills import picture

from gpupipe import stages
from gpupipe.faces.detect import Wanted, faces_of, look, shown
from gpupipe.faces.found import Faces

SIZE = (224, 168)
CENTRE = (225.0, 120.0)
MOVES = {"pan": {"pan": 3.0}, "all": {"pan": 1.5, "zoom": 0.3, "roll": 1.0, "light": 0.3}}
CLEAR = {"most": 2}
ROUGH = {"score": 0.3, "refine": False}
ANONYMISE = {
    "detect": ROUGH,
    "track": {"hold": 5},
    "operate": ["pixelate"],
    "blend": {"mask": "box", "feather": 0.02},
}
"""As `configs/anonymise.yaml` has it."""


def made(settings: dict, size: tuple[int, int]) -> object:
    kind = stages.load("face")
    stage = kind(kind.Settings.model_validate(settings if settings.get("operate") else settings | {"debug": True}))
    source = picture("rgbf32", *size)
    assert stage.output_format(source) == source
    stage.prepare(source)
    return stage


def run(stage, rgb: torch.Tensor, rows: int = 1, number: int = 0) -> torch.Tensor:
    memory = stage.remember()
    memory.forget(number)
    out = []
    with torch.inference_mode():
        for part in rgb.split(rows):
            before = part.clone()
            out.append(stage.follow((part,), memory)[0])
            memory.number += len(part)
            assert torch.equal(part, before), "a stage must not write to its input"
    return torch.cat(out)


def seen(stage, rgb: torch.Tensor) -> tuple[list[Faces], list[torch.Tensor]]:
    memory = stage.remember()
    with torch.inference_mode():
        both = [stage._line.look(part, memory.tensors, n) for n, part in enumerate(rgb.split(1))]
    return [seen.faces for seen, _ in both], [chosen for _, chosen in both]


def found(stage, rgb: torch.Tensor, score: float = 0.5) -> Faces:
    """What its detector alone says of pictures."""
    how = look(rgb.shape[3], rgb.shape[2], max(rgb.shape[2:]))
    with torch.inference_mode():
        parts = [
            faces_of(stage._line._sight._detector(shown(part, how)), how, Wanted(score, 0.0, 8))
            for part in rgb.split(1)
        ]
    return Faces(*(torch.cat(tensors) for tensors in zip(*(p.tensors() for p in parts), strict=True)))


def again(stage, rgb: torch.Tensor, score: float) -> list[tuple[int, float, list[int]]]:
    """Picture, score and box of each face that its detector finds, so that a failure says what it saw and where."""
    faces = found(stage, rgb, score)
    return [
        (n, round(float(faces.scores[n, k]), 2), faces.boxes[n, k].round().int().tolist())
        for n, k in faces.valid.nonzero().tolist()
    ]
