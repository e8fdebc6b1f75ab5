"""What the stage `face` leaves of who is hidden: no face to a detector, and nobody to who knows them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "faces"))

from clips import Move, frames, path
from face_stage import ANONYMISE, CENTRE, MOVES, ROUGH, SIZE, again, found, made, run
from stills_of_faces import still

pytestmark = pytest.mark.usefixtures("face_networks")
HIDDEN = ("fill", "blur", "pixelate")


@pytest.mark.parametrize("operate", [[{"pixelate": {"blocks": blocks}}] for blocks in (6, 8)] + [["blur"], ["fill"]])
@pytest.mark.parametrize("face", [14, 26])
def test_nothing_is_found_again_of_small_faces(operate, face) -> None:
    """So many pixels wide at first: what hides is then no larger than what a detector takes for a face."""
    move = path(16, (192, 160), CENTRE, face / 92, pan=2.0, zoom=0.4, roll=2.0, light=0.2)
    rgb = frames("astronaut_512.png", move, (192, 160))
    stage = made({"detect": {**ROUGH, "most": 2}, "operate": operate}, (192, 160))
    assert int(found(stage, rgb, 0.3).valid.sum()) == len(rgb)
    assert again(stage, run(stage, rgb, 4), 0.3) == []


def test_nobody_is_known_after_anonymise() -> None:
    move = path(6, SIZE, CENTRE, 0.6, **MOVES["all"])
    rgb = frames("astronaut_512.png", move, SIZE)
    stage = made({**ANONYMISE, "track": {"hold": 5, "embedding": True}}, SIZE)
    out = run(stage, rgb)
    assert int(found(stage, rgb).valid.sum()) == len(rgb)
    assert again(stage, out, 0.3) == []
    known = found(stage, rgb[::3])
    identity = stage._line._sight._embed
    number = int(known.valid.sum())
    before, after = (identity(pictures[::3], known, number)[:, 0] for pictures in (rgb, out))
    assert float(torch.linalg.vector_norm(before - after, dim=-1).min()) > 0.6
    assert float(torch.linalg.vector_norm(before - before[0], dim=-1).max()) < 0.4


@pytest.mark.parametrize(
    ("name", "width", "count"),
    [("astronaut_512.png", 256, 1), ("dali_face_1.jpeg", 224, 1), ("portrait_pd.jpg", 448, 2)],
)
def test_what_hides_leaves_no_face_and_tells_no_more_than_a_blank(name, width, count) -> None:
    """With the defaults. A blank's embedding lies 0.62 to 0.83 from those of the corpus: nearest to the profile."""
    rgb = still(name)
    rgb = torch.nn.functional.interpolate(rgb, scale_factor=width / rgb.shape[3], mode="bilinear", antialias=True)
    settings = {"detect": {"refine": False}, "track": {"embedding": True}}
    stages = [made({**settings, "operate": [hidden]}, (rgb.shape[3], rgb.shape[2])) for hidden in HIDDEN]
    out = [run(stage, rgb) for stage in stages]
    known = found(stages[0], rgb)
    assert int(known.valid.sum()) == count
    identity = stages[0]._line._sight._embed
    who, blank, *left = (identity(p, known, count)[known.valid] for p in (rgb, torch.full_like(rgb, 0.5), *out))
    limit = torch.linalg.vector_norm(blank - who, dim=-1)
    for stage, pictures, embeddings in zip(stages, out, left, strict=True):
        assert again(stage, pictures, 0.3) == []
        away = torch.linalg.vector_norm(embeddings - who, dim=-1)
        assert bool(((away > 0.6) & (away > limit - 0.07)).all())


def test_squares_beside_a_collar_are_no_face() -> None:
    """Frames of the clip of `tests/gpu/test_face_gpu.py` in which a detector took a corner of the squares for one."""
    size = (640, 360)
    move = path(32, size, CENTRE, 1.0, pan=4.0, zoom=0.4, roll=2.0, light=0.2)
    some = [5, 14]
    rgb = frames("astronaut_512.png", Move(move.matrix[some], move.gain[some]), size)
    settings = {"detect": {"score": 0.3, "refine": False, "most": 2}, "smooth": "off"}
    bold = {"operate": [{"pixelate": {"blocks": 6, "contrast": 1.0}}], "align": {"extent": 1.2}}
    scores = []
    for changed in ({"operate": [{"pixelate": {"blocks": 6}}]}, bold):
        stage = made({**settings, **changed}, size)
        scores.append(max((score for _, score, _ in again(stage, run(stage, rgb), 0.05)), default=0.0))
    assert scores[0] < 0.2 < scores[1], scores
