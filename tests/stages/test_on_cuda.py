"""Every stage gives on CUDA what it gives on the CPU, eagerly and replayed from a CUDA Graph."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from stills import dtype_of, picture, psnr

from gpupipe import stages
from gpupipe.collector import no_collection

if TYPE_CHECKING:
    from pathlib import Path

    from gpupipe.format import FrameFormat

pytestmark = pytest.mark.gpu
QUARTER = (0, 1 << 16, 0, -(1 << 16), 0, 0, 0, 0, 1 << 30)
ANY = [
    ("crop", {"width": 101, "height": 51, "x": 3, "y": 5}),
    ("resize", {"width": 200, "height": 333}),
    ("resize", {"width": 400, "height": -2, "filter": "bicubic"}),
    ("resize", {"width": 90, "height": 40, "filter": "area"}),
    ("pad", {"width": 400, "height": 300, "x": 7, "y": 9, "color": "#ff8000"}),
    ("orient", {"matrix": QUARTER}),
]
RGB = [
    ("warp", {"rotate": 3, "scale": 1.1, "filter": "bicubic"}),
    ("warp", {"corners": [[5, 9], [250, 3], [270, 160], [2, 150]], "border": "constant"}),
    ("lut3d", {"file": "look.cube"}),
    ("lut3d", {"file": "look.cube", "interpolation": "trilinear"}),
    ("overlay", {"image": "logo.png", "anchor": "bottom-right", "opacity": 0.5}),
]


def planes_of(source: FrameFormat) -> tuple[torch.Tensor, ...]:
    made, pixels = torch.Generator().manual_seed(1), source.pixels
    if source.alpha:
        codes = torch.randint(0, 1 << source.alpha, (2, source.height, source.width), generator=made)
        alpha = codes.to(torch.uint8 if source.alpha == 8 else torch.uint16)
        return (*planes_of(source.with_(alpha=0)), alpha)
    shapes = [(2, *s) for s in pixels.plane_shapes(source.width, source.height)]
    if pixels.layout == "float":
        return tuple(torch.rand(s, generator=made).to(dtype_of(source)) for s in shapes)
    return tuple(
        (torch.randint(0, 1 << pixels.depth, s, generator=made) << pixels.msb_shift).to(dtype_of(source))
        for s in shapes
    )


def both(name: str, settings: dict, source: FrameFormat) -> tuple[tuple[torch.Tensor, ...], ...]:
    kind, planes, results = stages.load(name), planes_of(source), []
    for device in ("cpu", "cuda:0"):
        stage = kind(kind.Settings.model_validate(settings))
        stage.prepare(source.with_(device=device))
        there = tuple(p.to(device) for p in planes)
        results.append(tuple(p.cpu() for p in stage(there)))
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        stage(there)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with no_collection(), torch.cuda.graph(graph):
        out = stage(there)
    graph.replay()
    torch.cuda.synchronize()
    results.append(tuple(p.cpu() for p in out))
    return tuple(results)


@pytest.mark.parametrize("pixels", ["nv12", "p010le", "yuv422p10le", "yuv444p", "gray", "gbrp12le", "rgbf16"])
@pytest.mark.parametrize(("name", "settings"), ANY)
@pytest.mark.parametrize("order", ["progressive", "tt"])
@pytest.mark.filterwarnings("ignore:The CUDA Graph is empty")  # a crop of whole samples is a view: nothing to run
def test_on_the_decoders_planes(name: str, settings: dict, pixels: str, order: str) -> None:
    if order == "tt" and name != "resize":
        pytest.skip("only resize treats fields on their own")
    source = picture(pixels, 271, 163, field_order=order)
    cpu, cuda, replayed = both(name, settings, source)
    for a, b, c in zip(cpu, cuda, replayed, strict=True):
        step = 2e-3 if source.pixels.layout == "float" else 1 << source.pixels.msb_shift
        assert float((a.double() - b.double()).abs().max()) <= step
        assert torch.equal(b.view(torch.uint8), c.view(torch.uint8))


@pytest.mark.parametrize(("pixels", "bits"), [("yuv420p", 8), ("yuv444p12le", 16), ("rgbf16", 10)])
@pytest.mark.parametrize(("name", "settings"), ANY + [entry for entry in RGB if entry[0] == "warp"])
@pytest.mark.filterwarnings("ignore:The CUDA Graph is empty")
def test_alpha_beside(name: str, settings: dict, pixels: str, bits: int) -> None:
    if name == "warp" and pixels != "rgbf16":
        pytest.skip("warp works in R'G'B'")
    source = picture(pixels, 271, 163, alpha=bits)
    cpu, cuda, replayed = both(name, settings, source)
    assert float((cpu[-1].double() - cuda[-1].double()).abs().max()) <= 1
    seen = cpu[-1].double() > (1 << bits) / 8
    for a, b, c in zip(cpu, cuda, replayed, strict=True):
        assert torch.equal(b.view(torch.uint8), c.view(torch.uint8))
        if a.shape[-2:] == seen.shape[-2:]:
            apart = (a.double() - b.double()).abs() * (seen[:, None] if a.dim() == 4 else seen)
            assert float(apart.max()) <= (2e-2 if a.is_floating_point() else 4)


@pytest.mark.parametrize("pixels", ["rgbf16", "rgbf32"])
@pytest.mark.parametrize(("name", "settings"), RGB)
def test_on_rgb(name: str, settings: dict, pixels: str, tmp_path: Path) -> None:
    rows = torch.rand((5**3, 3), generator=torch.Generator().manual_seed(2)).tolist()
    (tmp_path / "look.cube").write_text("LUT_3D_SIZE 5\n" + "\n".join(" ".join(map(str, row)) for row in rows))
    import av  # noqa: PLC0415

    with av.open(str(tmp_path / "logo.png"), "w", format="image2", options={"update": "1"}) as container:
        stream = container.add_stream("png", 1)
        stream.width, stream.height, stream.pix_fmt = 40, 20, "rgba"
        codes = torch.randint(0, 256, (20, 40, 4), dtype=torch.uint8, generator=torch.Generator().manual_seed(3))
        container.mux([*stream.encode(av.VideoFrame.from_ndarray(codes.numpy(), format="rgba")), *stream.encode(None)])
    paths = {k: str(tmp_path / v) if k in ("file", "image") else v for k, v in settings.items()}
    cpu, cuda, replayed = both(name, paths, picture(pixels, 271, 163))
    assert psnr(cpu, cuda, 1.0) > 60
    assert torch.equal(cuda[0], replayed[0])
