"""There and back: what is laid over the picture, and what is left of it."""

from __future__ import annotations

from typing import get_args

import pytest
import torch
from stills_of_faces import ASTRONAUT_POINTS, psnr, still

from gpupipe.faces.align import apply, crops, pixels, similarity
from gpupipe.faces.masks import Shape, cover, unit_of
from gpupipe.faces.paste import Mask, Place, Region, extent, paste
from gpupipe.faces.templates import template


def there_and_back(
    rgb: torch.Tensor, points: torch.Tensor, size: int, mask: Mask, *, flip: bool = False
) -> torch.Tensor:
    matrix = similarity(points[None], torch.from_numpy(template("ffhq512", size)))
    faces = crops(rgb, torch.tensor([0]), matrix, size)
    side = int(extent(matrix, size).ceil())
    region = Region(min(side + 2, rgb.shape[3]), min(side + 2, rgb.shape[2]))
    out = rgb.clone()
    paste(out, 1 - faces if flip else faces, Place(matrix, points[None], torch.tensor([True])), mask, region)
    return out


@pytest.mark.parametrize("size", [256, 512])
@pytest.mark.parametrize("shape", get_args(Shape))
def test_nothing_done_is_nothing_seen(shape: str, size: int) -> None:
    rgb = still("astronaut_512.png")
    mask = Mask(shape, 0.1)
    out = there_and_back(rgb, ASTRONAUT_POINTS, size, mask)
    touched = (there_and_back(rgb, ASTRONAUT_POINTS, size, mask, flip=True) != rgb).any(1)[0]
    assert 4000 < int(touched.sum()) < 60000
    assert psnr(out[0][:, touched], rgb[0][:, touched]) > 45
    assert torch.equal(out[0][:, ~touched], rgb[0][:, ~touched])


def test_pixels_outside_the_mask_keep_every_bit_even_those_that_are_no_numbers() -> None:
    rgb = still("astronaut_512.png").clone()
    rgb[..., 400, :] = float("nan")
    rgb[..., 420, :] = float("inf")
    out = there_and_back(rgb.half(), ASTRONAUT_POINTS, 128, Mask("ellipse", 0.2), flip=True)
    assert torch.equal(out[..., 380:, :].nan_to_num(7), rgb.half()[..., 380:, :].nan_to_num(7))
    assert not torch.equal(out[..., :380, :], rgb.half()[..., :380, :])


@pytest.mark.parametrize("shift", [(-215, -110), (290, 0), (0, 390), (-150, 380)])
def test_faces_over_the_edge(shift: tuple[int, int]) -> None:
    rgb = torch.rand(1, 3, 512, 512, generator=torch.Generator().manual_seed(4)) * 0.1 + 0.4
    points = ASTRONAUT_POINTS + torch.tensor(shift)
    out = there_and_back(rgb, points, 128, Mask("box", 0.1), flip=True)
    assert torch.isfinite(out).all()
    assert 0 < int((out != rgb).any(1).sum()) < 60000


def test_a_larger_region_changes_no_bit() -> None:
    rgb = still("astronaut_512.png")
    matrix = similarity(ASTRONAUT_POINTS[None], torch.from_numpy(template("ffhq512", 128)))
    faces = torch.rand(1, 3, 128, 128)
    results = []
    for region in (Region(300, 300), Region(512, 400), Region(512, 512)):
        out = rgb.clone()
        paste(out, faces, Place(matrix, ASTRONAUT_POINTS[None], torch.tensor([True])), Mask("hull", 0.2), region)
        results.append(out)
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])


def test_no_face_changes_nothing() -> None:
    rgb = torch.rand(2, 3, 60, 80)
    out = rgb.clone()
    matrix = similarity(torch.zeros(2, 5, 2), torch.from_numpy(template("ffhq512", 64)))
    paste(
        out,
        torch.rand(2, 3, 64, 64),
        Place(matrix, torch.zeros(2, 5, 2), torch.tensor([False] * 2)),
        Mask("box", 0.1),
        Region(60, 60),
    )
    assert torch.equal(out, rgb)


@pytest.mark.parametrize("shape", get_args(Shape))
def test_masks_end_inside_the_crop_and_fall_smoothly(shape: str) -> None:
    size = 200
    unit = unit_of(pixels(size, torch.device("cpu")), size)[None]
    points = unit_of(torch.from_numpy(template("ffhq512", size)), size)[None]
    mask = cover(shape, unit, points, 0.2)[0]
    assert float(mask[100, 100]) == 1
    border = torch.cat((mask[0], mask[-1], mask[:, 0], mask[:, -1]))
    assert float(border.max()) < 0.01
    assert float((mask[:, 1:] - mask[:, :-1]).abs().max()) < 1.6 / (0.2 * size / 2)
    assert float(mask.min()) >= 0


def test_the_hull_holds_the_face() -> None:
    size = 256
    unit = unit_of(pixels(size, torch.device("cpu")), size)[None]
    aligned = torch.from_numpy(template("ffhq512", size))
    mask = cover("hull", unit, unit_of(aligned, size)[None], 0.05)[0]
    for x, y in aligned.round().long().tolist():
        assert float(mask[y, x]) == 1
    assert float(mask[250, 5]) == 0


def test_the_hull_holds_a_profile() -> None:
    """The man of portrait_pd.jpg as CenterFace sees him: his eyes are almost one, his face lies behind his nose."""
    size = 256
    points = torch.tensor([[[551.0, 166.0], [558.0, 162.0], [545.0, 191.0], [564.0, 214.0], [569.0, 210.0]]])
    matrix = similarity(points, torch.from_numpy(template("ffhq512", size)))
    unit = unit_of(pixels(size, torch.device("cpu")), size)[None]
    for mirrored in (False, True):
        sign = torch.tensor([-1.0 if mirrored else 1.0, 1.0])
        seen = unit_of(apply(matrix, points), size) * sign
        seen = seen[:, [1, 0, 2, 4, 3]] if mirrored else seen
        mask = cover("hull", unit, seen, 0.05)[0]
        assert 0.2 < float(mask.mean()) < 0.4
        face = torch.tensor([[[555.0, 164.0], [549.0, 190.0], [566.0, 212.0], [590.0, 190.0], [570.0, 232.0]]])
        for x, y in ((unit_of(apply(matrix, face), size) * sign + 1) * size / 2).round().long()[0].tolist():
            assert float(mask[y, x]) == 1, "eye, nose, mouth, cheek, chin"
