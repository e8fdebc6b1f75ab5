"""A replayed CUDA Graph gives the bits of eager work: every stage, every batch size, whatever memory held before."""

from __future__ import annotations

import gc
import weakref
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

from gpupipe import stages
from gpupipe.collector import no_collection
from gpupipe.device.cuda import CudaLane, plane_dtype, surface_shape
from gpupipe.device.slots import Slot
from gpupipe.format import PIXEL_FORMATS, FrameFormat
from gpupipe.plan.chain import ChainBuilder
from gpupipe.render.chain import Chain

if TYPE_CHECKING:
    from gpupipe.plan import Step

    Planes = tuple[torch.Tensor, ...]

pytestmark = pytest.mark.gpu

ASSETS = Path(__file__).resolve().parents[2] / "configs/assets"
QUARTER = [0, 1 << 16, 0, -(1 << 16), 0, 0, 0, 0, 1 << 30]
CASES: dict[str, list[dict[str, object]]] = {
    "crop": [{"width": 101, "height": 51, "x": 3, "y": 5}, {"width": 100, "height": 50, "x": 4, "y": 6}],
    "face": [],  # asks the GPU, so it is never captured: see test_face_gpu
    "fps": [],  # no work on pixels: see `test_every_stage_has_a_case`
    "lut3d": [{"file": str(ASSETS / "warm.cube")}, {"file": str(ASSETS / "warm.cube"), "interpolation": "trilinear"}],
    "model": [],  # needs weights: see test_model_gpu
    "orient": [{"matrix": QUARTER}],
    "overlay": [{"image": str(ASSETS / "logo.png"), "anchor": "bottom-right", "opacity": 0.5}],
    "pad": [{"width": 400, "height": 300, "x": 7, "y": 9, "color": "#ff8000"}],
    "resize": [
        {"width": 200, "height": 333}, {"width": 400, "height": -2, "filter": "bicubic"},
        {"width": 90, "height": 40, "filter": "area"},
    ],
    "warp": [
        {"rotate": 3, "scale": 1.1, "filter": "bicubic"},
        {"corners": [[5, 9], [250, 3], [270, 160], [2, 150]], "border": "constant"},
        {"translate": [3, -2], "filter": "nearest", "border": "reflect"},
    ],
}  # fmt: skip
SURFACES = ("nv12", "p010le", "p012le", "yuv444p", "yuv444p10msble")
"""What NVDEC gives."""
ALL = [(name, settings) for name, several in CASES.items() for settings in several]
TOGETHER = [("crop", CASES["crop"][1]), ("warp", CASES["warp"][0]), ("overlay", CASES["overlay"][0]),
            ("lut3d", CASES["lut3d"][0]), ("resize", CASES["resize"][1])]  # fmt: skip
BATCHES = 5


def test_every_stage_has_a_case() -> None:
    """A new stage needs one here; only what never reaches the device has none."""
    assert set(CASES) == set(stages.names())
    assert {name for name, several in CASES.items() if not several} - {"face", "model"} == {
        name for name in stages.names() if not hasattr(stages.load(name), "prepare")
    }


def surface(pixels: str, width: int = 271, height: int = 163) -> FrameFormat:
    return FrameFormat(PIXEL_FORMATS[pixels], width, height, device="cuda:0")


def steps_of(listed: list[tuple[str, dict]], source: FrameFormat) -> list[Step]:
    """The stages between the decoder's surfaces and what a CPU encoder of that depth takes."""
    builder = ChainBuilder(source)
    for name, settings in listed:
        kind = stages.load(name)
        chosen = kind.Settings.model_validate(settings, strict=False)
        builder.stage(name, chosen.model_dump(mode="json"), "stages", kind(chosen))
    target = {8: "yuv420p", 10: "yuv420p10le", 12: "yuv420p12le"}[source.pixels.depth]
    builder.convert(builder.format.with_(pixels=PIXEL_FORMATS[target]), "the encoder")
    return builder.steps


def surfaces(source: FrameFormat, rows: int, seed: int) -> torch.Tensor:
    """Random pictures as NVDEC lays them out."""
    made, shape = torch.Generator().manual_seed(seed), surface_shape(source, rows)
    codes = torch.randint(0, 1 << source.pixels.depth, shape, generator=made) << source.pixels.msb_shift
    return codes.to(plane_dtype(source)).to(source.device)


def spoil(planes: Planes) -> None:
    """Garbage in every byte; NaN where floats are read."""
    with torch.inference_mode():  # where slots make theirs
        for plane in planes:
            plane.view(torch.uint8).fill_(0xFF)


def spoil_free_memory(lane: CudaLane) -> None:
    """What torch hands out next on this lane holds NaN."""
    with lane.active():
        held = [
            torch.full((size,), torch.nan, device="cuda:0") for size in (1 << 24, 1 << 20, 1 << 16) for _ in range(4)
        ]
    del held


class Spoiler:
    """A graph in the same memory pool that fills what other graphs use for intermediate values."""

    def __init__(self, lane: CudaLane, pool: object) -> None:
        self._lane, self._graph = lane, torch.cuda.CUDAGraph()
        with no_collection(), torch.cuda.graph(self._graph, pool=pool, stream=lane.stream):
            held = [
                torch.full((size,), torch.nan, device="cuda:0")
                for size in (1 << 22, 1 << 18, 1 << 12)
                for _ in range(6)
            ]
        del held

    def __call__(self) -> None:
        with self._lane.active():
            self._graph.replay()


def eager(chain: Chain, source: FrameFormat, lane: CudaLane, batches: list[torch.Tensor]) -> list[Planes]:
    """The chain called on batches of one size as it is."""
    slot = Slot(source, len(batches[0]), chain.transform, lane, lane, graphed=False, pool=None)
    results = []
    for pictures in batches:
        fill(slot, pictures)
        slot.run().synchronize()
        results.append(tuple(plane.clone() for plane in slot.outputs))
    return results


def fill(slot: Slot, pictures: torch.Tensor) -> None:
    torch.cuda.synchronize()
    for row, picture in enumerate(pictures):
        slot.copy(row, picture.data_ptr())


def same(ours: Planes, theirs: Planes, rows: int) -> bool:
    return all(torch.equal(a[:rows].contiguous().view(torch.uint8), b[:rows].contiguous().view(torch.uint8))
               for a, b in zip(ours, theirs, strict=True))  # fmt: skip


def replayed(chain: Chain, source: FrameFormat, rows: int, batches: list[torch.Tensor]) -> list[Planes]:
    """Every batch through three slots as a runner uses them, all memory spoilt in between, read late by another lane."""
    lane, compute, reader = (CudaLane("cuda:0") for _ in range(3))
    pool = torch.cuda.graph_pool_handle()
    slots = deque[Slot]()
    for _ in range(3):
        like = slots[0] if slots else None
        slots.append(Slot(source, rows, chain.transform, lane, compute, graphed=True, pool=pool, like=like))
    spoiler = Spoiler(compute, pool)
    leased: deque[tuple[Slot, torch.cuda.Event]] = deque()
    results: list[Planes] = []

    def read() -> None:
        slot, ready = leased.popleft()
        reader.wait(ready)
        with reader.active():
            torch.cuda._sleep(2_000_000)  # a consumer that takes about a millisecond
            results.append(tuple(plane.clone() for plane in slot.outputs))
        reader.synchronize()
        spoil((*slot.outputs, slot._store))
        torch.cuda.synchronize()
        slots.append(slot)

    for pictures in batches:
        if not slots:
            read()
        slot = slots.popleft()
        fill(slot, pictures)
        spoiler()
        spoil_free_memory(lane)
        leased.append((slot, slot.run()))
    while leased:
        read()
    return results


@pytest.mark.filterwarnings("ignore:The CUDA Graph is empty")
@pytest.mark.parametrize("pixels", SURFACES)
@pytest.mark.parametrize(
    "listed", [[case] for case in ALL] + [TOGETHER, []], ids=lambda v: "+".join(n for n, _ in v) or "none"
)
def test_a_replay_is_bit_equal_to_eager(listed: list[tuple[str, dict]], pixels: str) -> None:
    source = surface(pixels)
    chain = Chain(steps_of(listed, source), CudaLane("cuda:0"))
    lane = CudaLane("cuda:0")
    every = range(1, 17) if pixels == "nv12" else (1, 4, 16)
    pool = surfaces(source, 16 * BATCHES, 7)
    alone = eager(chain, source, lane, [pool[n : n + 1] for n in range(16)])
    for rows in every:
        batches = [pool[n * rows : (n + 1) * rows] for n in range(BATCHES)]
        wanted = eager(chain, source, lane, batches)
        for row in range(rows):  # what a picture becomes does not depend on those beside it
            assert same(tuple(p[row : row + 1] for p in wanted[0]), alone[row], 1), (rows, row)
        got = replayed(chain, source, rows, batches)
        assert [same(a, b, rows) for a, b in zip(got, wanted, strict=True)] == [True] * BATCHES, rows


@pytest.mark.parametrize("valid", [1, 7, 15])
def test_rows_beyond_the_last_picture_change_nothing(valid: int) -> None:
    source = surface("nv12")
    chain, lane = Chain(steps_of(TOGETHER, source), CudaLane("cuda:0")), CudaLane("cuda:0")
    pictures = surfaces(source, valid, 3)
    (wanted,) = eager(chain, source, lane, [pictures])
    slot = Slot(source, 16, chain.transform, lane, lane, graphed=True, pool=torch.cuda.graph_pool_handle())
    for garbage in (0, 0xFF, 0x5A):
        with torch.inference_mode():
            slot._store.view(torch.uint8).fill_(garbage)
        fill(slot, pictures)
        slot.run().synchronize()
        assert same(slot.outputs, wanted, valid)


def test_only_the_first_slot_is_rehearsed() -> None:
    """The others are captured, and so call the chain once; no capture computes anything."""
    source, compute, calls = surface("nv12"), CudaLane("cuda:0"), list[int]()
    ran = torch.zeros((), dtype=torch.int64, device="cuda:0")

    def chain(planes: Planes) -> Planes:
        calls.append(1)
        ran.add_(1)
        return tuple(255 - plane for plane in planes)

    first, pool = None, torch.cuda.graph_pool_handle()
    for captures in (1, 2, 3):
        slot = Slot(source, 2, chain, compute, compute, graphed=True, pool=pool, like=first)
        first = first or slot
        assert len(calls) == 2 + captures
    if hasattr(torch.cuda.CUDAGraph, "raw_cuda_graph_exec"):  # else they are replayed once
        assert int(ran) == 2
    pictures = surfaces(source, 2, 5)
    fill(slot, pictures)
    slot.run().synchronize()
    assert torch.equal(slot.outputs[0], 255 - slot.inputs[0])


def test_a_graph_that_is_forgotten_does_not_spoil_a_capture() -> None:
    """The collector would free it in the capture's own thread, where CUDA does not allow it."""
    source, compute, pool = surface("nv12"), CudaLane("cuda:0"), torch.cuda.graph_pool_handle()
    old: list[Slot] = []

    def chain(planes: Planes) -> Planes:
        if old:
            cycle: list[object] = [old.pop()]
            cycle.append(cycle)
            del cycle
            assert [[] for _ in range(20 * gc.get_threshold()[0])]  # work for the collector
        return tuple(255 - plane for plane in planes)

    first = Slot(source, 2, chain, compute, compute, graphed=True, pool=pool)
    old.append(Slot(source, 2, chain, compute, compute, graphed=True, pool=pool, like=first))
    freed = weakref.ref(old[0])
    slot = Slot(source, 2, chain, compute, compute, graphed=True, pool=pool, like=first)
    gc.collect()
    assert not old
    assert freed() is None
    fill(slot, surfaces(source, 2, 5))
    slot.run().synchronize()
    assert torch.equal(slot.outputs[0], 255 - slot.inputs[0])


def test_runners_at_once_do_not_spoil_each_other() -> None:
    """Slots of four lanes, with one chain, one lane and one pool to compute in between them."""
    source = surface("nv12", 1280, 720)
    chain = Chain(steps_of(TOGETHER[1:4], source), CudaLane("cuda:0"))
    lanes = [CudaLane("cuda:0") for _ in range(4)]
    compute, pool = CudaLane("cuda:0"), torch.cuda.graph_pool_handle()
    slots = [Slot(source, 8, chain.transform, lane, compute, graphed=True, pool=pool) for lane in lanes]
    pictures = [surfaces(source, 8, n) for n in range(4)]
    wanted = eager(chain, source, lanes[0], pictures)
    for turn in range(12):
        for slot, batch in zip(slots, pictures[turn % 4 :] + pictures[: turn % 4], strict=True):
            for row, picture in enumerate(batch):
                slot.copy(row, picture.data_ptr())
        for event in [slot.run() for slot in slots]:
            event.synchronize()
        for n, slot in enumerate(slots):
            assert same(slot.outputs, wanted[(n + turn) % 4], 8), turn
