"""Faces over time: who is who, what is bridged, and that nothing depends on more than it says."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from gpupipe.faces.choose import back_to_front, largest, like, numbered, within
from gpupipe.faces.cuts import cuts, thumbnail
from gpupipe.faces.follow import NOBODY, Likeness, at_lag, bridged, chains
from gpupipe.faces.found import Faces, nothing

SIZE = (400, 300)


def walk(rows: list[list[tuple[float, float, float] | None]]) -> Faces:
    """Faces with centre x, y and side, by picture and place; None is an empty place."""
    faces = nothing(len(rows), len(rows[0]), "cpu")
    for t, row in enumerate(rows):
        for k, face in enumerate(row):
            if face is not None:
                x, y, side = face
                faces.boxes[t, k] = torch.tensor([x - side / 2, y - side / 2, x + side / 2, y + side / 2])
                faces.points[t, k] = torch.tensor([x, y])
                faces.valid[t, k] = True
    return faces


def shots(count: int, *starts: int) -> torch.Tensor:
    return torch.tensor([sum(t >= s for s in starts) for t in range(count)])


def test_two_faces_that_change_places_are_told_apart() -> None:
    faces = walk([[(100, 100, 40), (200, 100, 40)], [(205, 100, 40), (104, 100, 40)], [(108, 101, 40), (210, 99, 40)]])
    found = at_lag(faces, shots(3), 1, Likeness(0.2))
    assert found.tolist() == [[NOBODY, NOBODY], [1, 0], [1, 0]]
    assert chains(found, 0, 1)[0].tolist() == [[0, 1]] * 3
    assert chains(found[1:], 1, 2).tolist() == [[[0, 1]], [[1, 0]]]


def test_a_cut_ends_every_face() -> None:
    faces = walk([[(100, 100, 40)], [(101, 100, 40)], [(102, 100, 40)]])
    assert at_lag(faces, shots(3, 2), 1, Likeness(0.2)).flatten().tolist() == [NOBODY, 0, NOBODY]
    gone = faces.keep(torch.tensor([[True], [True], [False]]))
    assert bridged(gone, shots(3), Likeness(0.2), 2, SIZE).valid.flatten().tolist() == [True, True, True]
    assert bridged(gone, shots(3, 2), Likeness(0.2), 2, SIZE).valid.flatten().tolist() == [True, True, False]


def test_a_missed_face_goes_on_as_it_went_and_then_ends() -> None:
    faces = walk([[(100, 100, 40), None], [(106, 103, 40), None], [None, None], [None, None], [None, None]])
    out = bridged(faces, shots(5), Likeness(0.2), 2, SIZE)
    assert out.valid[:, 0].tolist() == [True, True, True, True, False]
    torch.testing.assert_close(out.centres[2, 0], torch.tensor([112.0, 106.0]))
    torch.testing.assert_close(out.points[3, 0, 0], torch.tensor([118.0, 109.0]))
    assert not bool(out.valid[:, 1].any())


def test_a_face_that_is_found_again_is_not_doubled() -> None:
    faces = walk([[(100, 100, 40), None], [None, None], [(104, 100, 40), None], [(106, 100, 40), None]])
    out = bridged(faces, shots(4), Likeness(0.2), 3, SIZE)
    assert out.valid.sum(1).tolist() == [1, 1, 1, 1]
    assert at_lag(out, shots(4), 1, Likeness(0.2))[:, 0].tolist() == [NOBODY, 0, 0, 0]


def test_a_face_that_left_the_picture_is_let_go() -> None:
    faces = walk([[(380, 100, 40)], [(392, 100, 40)], [None], [None]])
    assert bridged(faces, shots(4), Likeness(0.2), 3, SIZE).valid.flatten().tolist() == [True, True, False, False]


def test_known_motion_finds_a_face_that_is_faster_than_its_size() -> None:
    faces = walk([[(100, 100, 40)], [(180, 100, 40)]])
    assert at_lag(faces, shots(2), 1, Likeness(0.2))[1, 0] == NOBODY
    motion = torch.zeros(2, 1, 5)
    motion[1, 0] = torch.tensor([1, 0, -80, 0, 1])
    assert at_lag(replace(faces, motion=motion), shots(2), 1, Likeness(0.2))[1, 0] == 0


def test_who_does_not_look_alike_is_another() -> None:
    faces = replace(walk([[(100, 100, 40)], [(101, 100, 40)]]), embeddings=torch.tensor([[[1.0, 0.0]], [[0.0, 1.0]]]))
    assert at_lag(faces, shots(2), 1, Likeness(0.2, 2.0))[1, 0] == 0
    assert at_lag(faces, shots(2), 1, Likeness(0.2, 0.6))[1, 0] == NOBODY


@pytest.mark.parametrize("hold", [1, 3])
def test_what_comes_out_depends_on_hold_and_one_pictures_before(hold: int) -> None:
    torch.manual_seed(hold)
    rows = [[None if torch.rand(()) < 0.3 else (60 + 80 * k + 3 * t, 100, 40) for k in range(4)] for t in range(20)]
    faces = walk(rows)
    whole = bridged(faces, shots(20), Likeness(0.2), hold, SIZE)
    for t in range(hold + 1, 20):
        part = faces.map(lambda x, t=t: x[t - hold - 1 : t + 1])
        alone = bridged(part, shots(hold + 2), Likeness(0.2), hold, SIZE)
        assert torch.equal(alone.valid[-1], whole.valid[t])
        assert torch.equal(alone.boxes[-1][alone.valid[-1]], whole.boxes[t][whole.valid[t]])


def test_choosing() -> None:
    faces = walk([[(300, 100, 20), None, (100, 100, 60), (200, 250, 40)]])
    assert largest(faces)[0].nonzero().flatten().tolist() == [2]
    assert [numbered(faces, n)[0].nonzero().flatten().tolist() for n in range(5)] == [[2], [3], [0], [], []]
    assert within(faces, (0, 0, 400, 150))[0].tolist() == [True, False, True, False]
    assert back_to_front(faces)[0, :3].tolist() == [0, 3, 2]
    looks = torch.tensor([[[0.0, 1.0], [1.0, 0.0], [0.9, 0.1], [0.7, 0.2]]])
    assert like(looks, faces.valid, torch.tensor([1.0, 0.0]), 0.6)[0].nonzero().flatten().tolist() == [2]
    assert not bool(like(looks, faces.valid, torch.tensor([1.0, 0.0]), 0.1).any())


def test_the_order_of_places_does_not_show() -> None:
    faces = walk([[(300, 100, 40), (100, 100, 40), None, (200, 250, 41)]])
    other = faces.take(torch.tensor([[3, 2, 0, 1]]))
    ours, theirs = (f.take(back_to_front(f)).boxes[:, :3] for f in (faces, other))
    assert torch.equal(ours, theirs)


def test_cuts_are_seen_and_light_pans_and_fades_are_none() -> None:
    torch.manual_seed(9)
    scene, other = (
        torch.nn.functional.interpolate(torch.rand(1, 1, 9, 16), (180, 480), mode="bicubic")[0] for _ in range(2)
    )
    pan = torch.cat([scene[..., 5 * t : 5 * t + 320] for t in range(8)])
    light = torch.cat([scene[..., :320] * (1 - 0.08 * t) for t in range(8)])
    black = torch.zeros(2, 180, 320)
    for still in (pan, light, torch.lerp(pan[:1], other[..., :320], torch.linspace(0, 1, 14).view(-1, 1, 1))):
        small = thumbnail(still)
        assert not bool(cuts(small[1:], small[0]).any())
    for hard in (torch.cat((pan[:1], other[..., :320])), torch.cat((pan[:1], black)), torch.cat((black[:1], pan[:1]))):
        small = thumbnail(hard)
        assert bool(cuts(small[1:], small[0])[0])
    assert not bool(cuts(thumbnail(black), thumbnail(black)[0]).any())
