"""TensorRT with every network: cold and from the cache, in CUDA Graphs of two runners at once; one that refuses the GPU.

Building fails where an operator would be left in torch. What this machine lacks is skipped by name.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import av
import pytest
import torch
from test_graphs_gpu import surface
from test_model_gpu import CARDS, SR, assert_replayed, network, run, selected, there

from gpupipe.collector import no_collection
from gpupipe.engines.base import Profile
from gpupipe.engines.check import agreement, test_pictures
from gpupipe.errors import EngineError
from gpupipe.models.card import find
from gpupipe.models.extras import pictures_taken

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.gpu
ROUNDS = 10


@pytest.fixture(autouse=True)
def _there(fetched) -> None:
    there("tensorrt")
    fetched(SR)


def takes_this_gpu(at: Path) -> str:
    """Empty, or why not."""
    try:
        selected(SR, "tensorrt", Profile(1, 64, 96, "fp16", "cuda:0"), at)
    except EngineError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(("name", "precision"), [*((name, "fp16") for name in CARDS), ("rife-3.9", "fp32")])
def test_cold_and_from_the_cache_in_two_runners_at_once(name: str, precision: str, fetched, tmp_path: Path) -> None:
    """RIFE in fp16 comes out wrong by TensorRT for RTX 1.4 (18 dB), which the comparison with eager finds."""
    fetched(name)
    profile, said = Profile(1, 256, 384, precision, "cuda:0", channels=3 * pictures_taken(find(name))), []
    cold = selected(name, "tensorrt", profile, tmp_path, said)
    assert any("built in" in line for line in said)
    said.clear()
    warm = selected(name, "tensorrt", profile, tmp_path, said)
    assert said == []
    pictures = [test_pictures(profile), test_pictures(profile).flip(-1).contiguous()]
    with torch.inference_mode(), torch.backends.cudnn.flags(enabled=True, allow_tf32=False, fp32_precision=None):
        exact = network(name, torch.float32)
        wanted = [exact(x.float()) for x in pictures]
        runners = [runner(built.run, x) for built, x in zip((cold, warm), pictures, strict=True)]
        for _ in range(ROUNDS):
            for stream, graph, out in runners:
                with torch.cuda.stream(stream):
                    out.fill_(torch.nan)
                    graph.replay()
            torch.cuda.synchronize()
            found = [agreement(out, one) for (_, _, out), one in zip(runners, wanted, strict=True)]
            assert min(found) >= 50
    print(name, [f"{one:.1f} dB" for one in found])  # noqa: T201


def runner(run, x: torch.Tensor) -> tuple[torch.cuda.Stream, torch.cuda.CUDAGraph, torch.Tensor]:
    """A stream of its own, what is replayed there and where it writes."""
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        run(x)
    stream.synchronize()
    with no_collection(), torch.cuda.graph(graph, stream=stream):
        out = run(x)
    return stream, graph, out


@pytest.mark.parametrize("name", CARDS)
def test_in_the_chains_graph(name: str, fetched) -> None:
    fetched(name)
    settings = {"card": name, "engine": "tensorrt", "tile": "off", "batch": 1}
    assert_replayed(settings, surface("nv12", 320, 192), rows=2, several=3, seed=5)


def test_one_that_refuses_this_gpu_leaves_the_run_to_the_next_engine(cache: Path, clips: Path, tmp_path: Path) -> None:
    """TensorRT for RTX 1.7.1 does so on an H200; one that takes the GPU has nothing to show here."""
    if not (why := takes_this_gpu(tmp_path)):
        pytest.skip("the TensorRT that is installed takes this GPU")
    clip, auto, told = clips / "sar_2_1_640x360.mp4", tmp_path / "auto.mkv", tmp_path / "named.mkv"
    said = run(cache, config(tmp_path, "auto"), clip, auto)[1]
    lines = [line for line in said.splitlines() if "engine tensorrt is left out" in line]
    print(lines, why)  # noqa: T201
    assert len(lines) == 1, said
    taken = re.search(r"engine (\w+) is taken for", said)
    assert taken is not None, said
    run(cache, config(tmp_path, taken[1]), clip, told)
    assert pixels(auto) == pixels(told)


def config(at: Path, engine: str) -> Path:
    made = at / f"{engine}.yaml"
    made.write_text(
        f"stages: [{{model: {{card: {SR}, engine: {engine}}}}}]\noutput: {{video: {{codec: ffv1}}, audio: none}}\n"
    )
    return made


def pixels(path: Path) -> list[bytes]:
    with av.open(str(path)) as file:
        return [frame.to_ndarray().tobytes() for frame in file.decode(video=0)]
