"""The stage `face` on moving clips whose truth is known, with its real networks, on the CPU."""

from __future__ import annotations

import sys
from pathlib import Path

import av
import numpy as np
import pytest
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "faces"))

from clips import Move, frames, path, truth
from face_stage import ANONYMISE, CENTRE, CLEAR, MOVES, ROUGH, SIZE, found, made, run, seen
from generators import swap_generator
from stills import picture, plan
from stills_of_faces import ASTRONAUT_POINTS, DALI_POINTS, still

from gpupipe.config import parse_config
from gpupipe.errors import ConfigError, PlanError

pytestmark = pytest.mark.usefixtures("face_networks")
CLOSE = ("dali_face_1.jpeg", (450.0, 400.0), DALI_POINTS, 0.36, {"zoom": 0.6})
"""A face that fills the picture while it zooms."""


@pytest.fixture(scope="module")
def watching():
    return made({"detect": CLEAR}, SIZE), made({"detect": CLEAR, "smooth": "off"}, SIZE)


@pytest.mark.parametrize(
    ("name", "centre", "points", "scale", "moves"),
    [*(("astronaut_512.png", CENTRE, ASTRONAUT_POINTS, 0.6, moves) for moves in MOVES.values()), CLOSE],
    ids=[*MOVES, "close"],
)
def test_every_face_is_found_where_it_is_and_stands_calm(
    name, centre, points, scale, moves, watching, monkeypatch
) -> None:
    torch.manual_seed(4)
    move = path(16, SIZE, centre, scale, **moves)
    rgb = frames(name, move, SIZE)
    rgb = (rgb + 0.01 * torch.randn(rgb.shape)).clamp(0, 1)
    looked: dict[tuple[int, float], tuple[torch.Tensor, ...]] = {}
    sights = [stage._line._sight for stage in watching]
    for part in (sights, [sight._refine for sight in sights]):  # both see the same: once is enough
        ask = part[0]._detector

        def once(small: torch.Tensor, ask=ask) -> tuple[torch.Tensor, ...]:
            key = small.numel(), float(small.double().sum())
            if key not in looked:
                looked[key] = ask(small)
            return looked[key]

        for either in part:
            monkeypatch.setattr(either, "_detector", once)
    calm, raw = (seen(stage, rgb)[0] for stage in watching)
    assert [int(faces.valid.sum()) for faces in calm] == [1] * len(rgb)
    true = truth(points.double(), move)
    ours, theirs = (torch.stack([f.points[0, 0] for f in part]).double() - true for part in (calm, raw))
    width = torch.stack([f.boxes[0, 0, 2] - f.boxes[0, 0, 0] for f in calm]).double()
    eyes = torch.linalg.vector_norm(ours[:, :2], dim=-1) / width[:, None]
    assert float(eyes.median()) < 0.02
    jitter, before = (float(part[4:].diff(dim=0).square().mean().sqrt()) for part in (ours, theirs))
    assert jitter < 0.5 * before
    speed = true[4:].diff(dim=0)
    if float(speed.abs().mean()) > 0.5:
        steady = ours[4:] - ours[4:].mean(0)
        assert abs(float((steady[1:] * speed).sum() / speed.square().sum())) < 1


def test_points_looked_at_again_are_nearer() -> None:
    again, once = (made({"detect": {"most": 2, "refine": refine}, "smooth": "off"}, SIZE) for refine in (True, False))
    errors: list[list[float]] = [[], []]
    for scale, roll in ((0.45, 0.0), (0.6, 20.0), (0.8, -20.0), (0.95, 0.0)):
        move = path(4, SIZE, CENTRE, scale, roll=roll)
        move = Move(move.matrix[1:2], move.gain[1:2])
        rgb, true = frames("astronaut_512.png", move, SIZE), truth(ASTRONAUT_POINTS.double(), move)[0]
        for stage, kept in zip((again, once), errors, strict=True):
            (faces,), _ = seen(stage, rgb)
            width = float(faces.boxes[0, 0, 2] - faces.boxes[0, 0, 0])
            kept.append(
                float(torch.linalg.vector_norm(faces.points[0, 0, :2].double() - true[:2], dim=-1).mean()) / width
            )
    assert max(errors[0]) < 0.02
    assert sum(errors[0]) < 0.7 * sum(errors[1])


def test_no_face_in_the_negative() -> None:
    rgb = torch.nn.functional.interpolate(
        still("dali_business_suit.jpg"), scale_factor=0.5, antialias=True, mode="bilinear"
    )
    size = (rgb.shape[3], rgb.shape[2])
    stage = made({"operate": ["blur"]}, size)
    assert run(stage, rgb) is not None
    assert torch.equal(run(stage, rgb), rgb)
    assert not bool(seen(stage, rgb)[0][0].valid.any())


def test_a_generator_of_ones_own_runs_as_it_is(tmp_path) -> None:
    place = swap_generator(tmp_path, (1, 3, 128, 128), (1, 512))
    np.save(tmp_path / "person.npy", np.full((1, 512), 0.1, dtype=np.float32))
    operate = [{"generate": {"onnx": str(place), "vector": str(tmp_path / "person.npy")}}]
    stage = made({"operate": operate, "smooth": "off", "blend": {"feather": 0.3}}, SIZE)
    assert stage.cut() == ("arcface128", 128)
    rgb = frames("astronaut_512.png", path(2, SIZE, CENTRE, 0.6, pan=20.0), SIZE)
    out = run(stage, rgb)
    changed = (out != rgb).any(1)
    assert all(1500 < int(c.sum()) < 9000 for c in changed)
    middle = found(stage, rgb).points[:, 0, 2].round().long()
    for n, (x, y) in enumerate(middle.tolist()):
        torch.testing.assert_close(out[n, :, y, x], rgb[n, [1, 0, 2], y, x] + 0.1, atol=0.03, rtol=0)


@pytest.mark.parametrize(
    ("picture", "vector", "given", "says"),
    [
        ((1, 3, 128, 128), (1, 512), [0.5] * 128, r"its input source is 1x512, but `vector` holds 128 numbers"),
        ((1, 3, 128, 128), (1, 512), None, r"its input source is 1x512, but `vector` holds 0 numbers"),
        ((1, 3, 128, 128), None, [0.5], r"it takes no vector, but `vector` holds 1 numbers"),
        ((1, 3, 128, 96), None, None, r"its first input target is 1x3x128x96, not a square picture of 3 channels"),
        ((1, 4, 128, 128), None, None, r"its first input target is 1x4x128x128, not a square picture"),
    ],
)
def test_wrong_shapes_give_one_line(tmp_path, picture, vector, given, says) -> None:
    generate = {"onnx": str(swap_generator(tmp_path, picture, vector)), "vector": given}
    with pytest.raises(PlanError, match=says) as error:
        made({"operate": [{"generate": generate}]}, SIZE)
    assert "\n" not in str(error.value)
    assert "operate[0]" in str(error.value)


def test_what_is_no_network_gives_one_line(tmp_path) -> None:
    (tmp_path / "no.onnx").write_bytes(b"nothing")
    for name in ("no.onnx", "absent.onnx"):
        with pytest.raises(PlanError, match=r"stages\.face\.operate\[0\]: .*(no|cannot)"):
            made({"operate": [{"generate": {"onnx": str(tmp_path / name)}}]}, SIZE)


@pytest.mark.parametrize(
    "network", [{"generate": {"card": "multistyle26"}}, {"enhance": {"card": "realesr-animevideov3-x2"}}]
)
def test_cards_go_through(network) -> None:
    rgb = frames("astronaut_512.png", path(1, SIZE, CENTRE, 0.6), SIZE)
    settings = {
        "operate": [network],
        "align": {"size": 64},
        "blend": {"method": "poisson", "match_color": True, "mask": "hull"},
    }
    out = run(made(settings, SIZE), rgb)
    changed = (out != rgb).any(1)
    assert 500 < int(changed.sum()) < 9000
    assert torch.isfinite(out).all()


def test_a_clip_without_faces_is_detected_in_and_nothing_more(monkeypatch) -> None:
    """What follows a face is left out; so is what works on it, and the pictures themselves are not copied."""
    stage = made({**ANONYMISE, "detect": {"most": 2}}, SIZE)
    memory = stage.remember()
    for name in ("motion", "bridged", "smoothed"):
        monkeypatch.setattr(f"gpupipe.faces.sight.{name}", lambda *_: pytest.fail("work for nobody"))
    empty = torch.rand(1, 3, SIZE[1], SIZE[0], generator=torch.Generator().manual_seed(1)) * 0.1 + 0.4
    with torch.inference_mode():
        (out,) = stage.follow((empty,), memory)
    assert out is empty
    monkeypatch.undo()
    rgb = frames("astronaut_512.png", path(1, SIZE, CENTRE, 0.6), SIZE)
    with torch.inference_mode():
        (out,) = stage.follow((rgb,), memory)
        assert not torch.equal(out, rgb)
        (out,) = stage.follow((empty,), memory)
        assert torch.equal(out, empty), "it is gone with the cut"


def test_a_batch_gives_what_single_pictures_give() -> None:
    move = path(5, SIZE, CENTRE, 0.6, **MOVES["all"])
    stage = made({**ANONYMISE, "detect": {"every": 2, "most": 2}, "blend": {"steady": 0.3, "feather": 0.1}}, SIZE)
    rgb = frames("astronaut_512.png", move, SIZE)
    torch.testing.assert_close(run(stage, rgb, 3), run(stage, rgb, 1), atol=2e-4, rtol=0)


def test_a_steady_face_is_mixed_with_itself_one_picture_before(monkeypatch) -> None:
    """Work that gives each picture another grey shows what of which picture is in it."""
    stage = made({"operate": ["fill"], "blend": {"steady": 0.25, "feather": 0.0}, "detect": {"most": 2}}, SIZE)
    greys = iter(n / 8 for n in range(8))
    monkeypatch.setattr(stage._line._rework, "_work", (lambda faces: torch.full_like(faces, next(greys)),))
    rgb = frames("astronaut_512.png", path(4, SIZE, CENTRE, 0.6), SIZE)
    rgb[3] = rgb[3].flip(-1)  # a cut
    out = run(stage, rgb)
    x, y = found(stage, rgb[:1]).points[0, 0, 2].round().long().tolist()
    there = [out[n, 0, y, x if n < 3 else SIZE[0] - 1 - x] for n in range(4)]
    wanted = [0.0, 0.75 / 8, (0.75 * 2 + 0.25) / 8, 3 / 8]
    torch.testing.assert_close(torch.stack(there), torch.tensor(wanted), atol=1e-5, rtol=0)


def test_led_in_it_gives_what_it_gives_from_the_beginning() -> None:
    move = path(13, SIZE, CENTRE, 0.6, **MOVES["all"])
    settings = {
        **ANONYMISE,
        "detect": {**ROUGH, "every": 3, "most": 2},
        "track": {"hold": 1},
        "smooth": {"window": 3},
        "blend": {"steady": 0.3},
    }
    stage = made(settings, SIZE)
    rgb = frames("astronaut_512.png", move, SIZE)
    rgb[9:] = rgb[9:].flip(-1)  # a cut
    whole = run(stage, rgb)
    for first in (8, 11):
        part = run(stage, rgb[first - stage.lead :], number=first - stage.lead)
        assert torch.equal(part[stage.lead :], whole[first:])


def test_detecting_now_and_then_still_covers_every_frame() -> None:
    move = path(12, SIZE, CENTRE, 0.6, pan=3.0, zoom=0.5)
    stage = made({"detect": {**CLEAR, "every": 4}}, SIZE)
    rgb = frames("astronaut_512.png", move, SIZE)
    rgb[6:] = rgb[6:].flip(-1)
    faces, _ = seen(stage, rgb)
    assert [int(f.valid.sum()) for f in faces] == [1] * 12
    true = truth(ASTRONAUT_POINTS.double(), move)
    eyes = torch.stack([f.points[0, 0] for f in faces]).double()[:6, :2] - true[:6, :2]
    assert float(torch.linalg.vector_norm(eyes, dim=-1).median()) < 1.5


def test_a_face_that_comes_and_goes() -> None:
    """In from the left and out at the right: worked on as soon as it is found, over the edge, and left alone when gone."""
    shift = torch.tensor([-85, -50, 0, 60, 100, 130, 260, 300, 300.0], dtype=torch.float64)
    matrix = path(9, SIZE, CENTRE, 0.6).matrix.clone()
    matrix[:, 0, 2] += shift - 20
    rgb = frames("astronaut_512.png", Move(matrix, torch.ones(9)), SIZE)
    settings = {**ANONYMISE, "track": {"hold": 1}, "detect": {**ROUGH, "most": 2}}
    out = run(made(settings, SIZE), rgb)
    changed = (out != rgb).any(1)
    assert changed.flatten(1).any(1).tolist() == [True] * 6 + [False] * 3
    assert bool(changed[0, :, 0].any()), "its mask goes over the left edge"
    assert bool(changed[5, :, -1].any()), "and over the right one"


def crowd(side: int, count: int, columns: int) -> torch.Tensor:
    face = still("astronaut_512.png")[..., 20:220, 130:330]
    one = torch.nn.functional.interpolate(face, size=(side, side), mode="bilinear", antialias=True)
    rows = -(-count // columns)
    out = torch.full((1, 3, rows * side, columns * side), 0.5)
    for n in range(count):
        y, x = divmod(n, columns)
        out[..., y * side : (y + 1) * side, x * side : (x + 1) * side] = one
    return out


def test_forty_faces() -> None:
    rgb = crowd(56, 40, 8)
    size = (rgb.shape[3], rgb.shape[2])
    stage = made({**ANONYMISE, "detect": {**ROUGH, "most": 40}}, size)
    faces, _ = seen(stage, rgb)
    assert int(faces[0].valid.sum()) == 40
    out = run(stage, rgb)
    assert int(found(stage, out, 0.3).valid.sum()) == 0
    few = made({**ANONYMISE, "detect": {**ROUGH, "most": 6}}, size)
    assert int(seen(few, rgb)[0][0].valid.sum()) == 6


def test_faces_of_eight_pixels() -> None:
    rgb = crowd(18, 6, 3)  # the face itself is eight pixels wide
    rgb = torch.nn.functional.pad(rgb, (40, 40, 40, 40), value=0.5)
    size = (rgb.shape[3], rgb.shape[2])
    enlarged = made({"detect": {"score": 0.3, "size": 512, "enlarge": True}, "operate": ["fill"]}, size)
    faces, _ = seen(enlarged, rgb)
    assert int(faces[0].valid.sum()) == 6
    assert float(faces[0].boxes[0, :6, 2].sub(faces[0].boxes[0, :6, 0]).max()) < 12
    assert int((run(enlarged, rgb) != rgb).any(1).sum()) > 6 * 50
    assert torch.isfinite(run(made({"operate": ["blur"]}, size), rgb)).all()


def test_choosing_one_of_two(tmp_path) -> None:
    rgb = torch.nn.functional.interpolate(still("portrait_pd.jpg"), scale_factor=0.5, mode="bilinear", antialias=True)
    size = (rgb.shape[3], rgb.shape[2])
    half = size[0] // 2

    def touched(select: object) -> tuple[bool, bool]:
        settings = {"detect": ROUGH, "select": select, "operate": ["blur"], "align": {"extent": 1.0}}
        changed = (run(made(settings, size), rgb) != rgb).any(1)
        return bool(changed[..., :half].any()), bool(changed[..., half:].any())

    assert touched("all") == (True, True)
    assert touched({"index": 0}) == (True, False)
    assert touched({"index": 1}) == (False, True)
    assert touched({"region": [0.6, 0, 0.4, 1]}) == (False, True)
    with av.open(str(tmp_path / "person.png"), "w", format="image2") as file:
        stream = file.add_stream("png", 1)
        stream.width, stream.height, stream.pix_fmt = 200, 260, "rgb24"
        part = (still("portrait_pd.jpg")[0, :, 100:360, 220:420].permute(1, 2, 0).numpy() * 255).astype(np.uint8)
        file.mux(stream.encode(av.VideoFrame.from_ndarray(np.ascontiguousarray(part), format="rgb24")))
        file.mux(stream.encode())
    assert touched({"reference": str(tmp_path / "person.png")}) == (True, False)
    with pytest.raises(PlanError, match="no picture"):
        made({"select": {"reference": str(tmp_path / "nobody.png")}}, size)


def test_the_debug_view_draws() -> None:
    rgb = frames("astronaut_512.png", path(1, SIZE, CENTRE, 0.6), SIZE)
    out = run(made({"debug": True}, SIZE), rgb)
    x1, y1, *_ = found(made({}, SIZE), rgb).boxes[0, 0].round().long().tolist()
    assert not torch.equal(out[0, :, y1, x1 + 5], rgb[0, :, y1, x1 + 5])
    assert 100 < int((out != rgb).any(1).sum()) < 3000


def test_the_plan_says_what_is_done() -> None:
    _, notes = plan("face", ANONYMISE, picture("rgbf32", 1920, 1080))
    assert "960 pixels" in notes[0]
    assert "pixelate" in notes[1]
    with pytest.raises(PlanError, match="is for face-embedding"):
        plan("face", {"detect": {"card": "dlib-face-embedding"}}, picture("rgbf32", 640, 360))
    with pytest.raises(PlanError, match="there is no card"):
        plan("face", {"operate": [{"generate": {"card": "nothing"}}]}, picture("rgbf32", 640, 360))
    with pytest.raises(PlanError, match=r"stages\.face\.operate: .*nothing.*pixelate"):
        plan("face", {}, picture("rgbf32", 640, 360))
    plan("face", {"debug": True}, picture("rgbf32", 640, 360))


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"detect": {"scor": 1}}, r"stages\[0\]\.face\.detect\.scor: unknown key \(did you mean 'score'\?\)"),
        (
            {"operate": [{"pixelate": {"contrst": 1}}]},
            r"operate\[0\]\.pixelate\.contrst: unknown key \(did you mean 'contrast'\?\)",
        ),
        ({"operate": [{"blurr": {}}]}, r"stages\[0\]\.face\.operate\[0\]: blurr is none of blur, pixelate"),
        ({"operate": [{"blur": {"radius": 5}}]}, r"face\.operate\[0\]\.blur\.radius: .*less than or equal to 1"),
        ({"operate": [{"generate": {}}]}, r"face\.operate\[0\]\.generate: give a card or an onnx file"),
        ({"select": "everyone"}, r"face\.select: select is all, largest, or one of"),
        ({"select": {"index": 0, "region": [0, 0, 1, 1]}}, r"face\.select: select is all, largest, or one of"),
    ],
)
def test_wrong_keys_are_named(settings, says) -> None:
    with pytest.raises(ConfigError, match=says):
        parse_config({"stages": [{"face": settings}]})
