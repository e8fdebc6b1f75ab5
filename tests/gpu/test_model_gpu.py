"""Networks on the GPU: engines against fp32, inside the chain's CUDA Graph, from the cache, and out of memory.

What an engine needs and this machine lacks is skipped by name.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from dataclasses import asdict, replace
from importlib.util import find_spec
from pathlib import Path

import av
import pytest
import torch
from test_graphs_gpu import eager, replayed, same, steps_of, surface, surfaces

from gpupipe import stages
from gpupipe.device.cuda import CudaLane
from gpupipe.device.timing import seconds_of
from gpupipe.engines.base import Profile
from gpupipe.engines.cache import EngineCache
from gpupipe.engines.calibrated import SAMPLES, Asked, recipe_for
from gpupipe.engines.check import agreement, test_pictures
from gpupipe.engines.identity import digest_of
from gpupipe.engines.select import Selector, named
from gpupipe.errors import EngineError
from gpupipe.format import PIXEL_FORMATS, FrameFormat
from gpupipe.journal import Journal
from gpupipe.models import folder
from gpupipe.models.bind import bind
from gpupipe.models.card import find
from gpupipe.models.fetch import verify
from gpupipe.models.load import load
from gpupipe.models.quantised import quantised
from gpupipe.render.chain import Chain

pytestmark = pytest.mark.gpu
ROOT = Path(__file__).resolve().parents[2]
SR = "realesr-animevideov3-x2"
CARDS = (SR, "span-ch48-x2", "ffdnet-color", "multistyle26")
NOT_BY_RTX = {"int8": "TensorRT-RTX does not support int8", "fp8": "its output is not the network's: -inf dB"}
"""It builds FP8 convolutions, and half of what they give are no numbers."""
ENGINES = ("eager", "triton", "inductor", "tensorrt")


@pytest.fixture(autouse=True)
def _cache(fetched) -> None:
    fetched(*CARDS)


def there(engine: str, name: str = SR) -> None:
    if (why := named(engine).absent("cuda:0")) is not None:
        pytest.skip(why)
    if engine == "triton" and name != SR:
        pytest.skip("it has no kernels for this network")


def network(name: str, dtype: torch.dtype) -> torch.nn.Module:
    card = find(name)
    return bind(card, load(card, verify(card, folder.weights())), {}).to("cuda:0", dtype)


def selected(name: str, engine: str, profile: Profile, at: Path, say: list[str] | None = None):
    card, module = find(name), network(name, profile.dtype)
    digest = digest_of(module.cpu().float(), card.model_dump_json())
    said = [] if say is None else say
    selector = Selector(
        module.to("cuda:0", profile.dtype), digest, engine, EngineCache(at), say=said.append, warn=said.append
    )
    with torch.inference_mode():
        return selector(profile)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", CARDS)
def test_half_floats_come_to_50_db_of_fp32(name: str, engine: str, cache: Path) -> None:
    there(engine, name)
    profile = Profile(2, 256, 384, "fp16", "cuda:0")
    built = selected(name, engine, profile, cache / "engines")
    assert built.engine == engine
    pictures = test_pictures(profile)
    with torch.inference_mode(), torch.backends.cudnn.flags(enabled=True, allow_tf32=False, fp32_precision=None):
        wanted = network(name, torch.float32)(pictures.float())
        assert agreement(built.run(pictures), wanted) >= 50


@pytest.mark.parametrize("numbers", ["int8", "fp8"])
@pytest.mark.parametrize("engine", ["eager", "inductor", "tensorrt"])
@pytest.mark.parametrize("name", CARDS[:2])
def test_8_bits_come_near_fp32_and_how_fast_they_are_is_told(
    name: str, engine: str, numbers: str, cache: Path, clips: Path
) -> None:
    """On a real clip's own pictures; what TensorRT for RTX 1.4 does not do on an H200 is told in a line."""
    there(engine)
    if engine == "tensorrt" and find_spec("modelopt") is None:
        pytest.skip("nvidia-modelopt is not installed (pip install 'gpupipe[int8]')")
    shown = pictures_of(clips / "gopro_tmcd_timecode_gpmf_data.mp4", SAMPLES)
    card = find(name)
    recipe = recipe_for(Asked(card, verify(card, folder.weights()), {}, numbers, 38.0, "cuda:0"), shown)
    profile = Profile(1, *shown[0].shape[-2:], "fp16", "cuda:0", numbers=numbers)
    module = quantised(network(name, torch.float32), recipe)
    digest = digest_of(module.cpu(), card.model_dump_json())
    said: list[str] = []
    selector = Selector(
        module.to("cuda:0", torch.float16), digest, engine, EngineCache(cache / "engines"), say=said.append,
        warn=said.append,
    )  # fmt: skip
    with torch.inference_mode(), torch.backends.cudnn.flags(enabled=True, allow_tf32=False, fp32_precision=None):
        try:
            built = selector(profile)
        except EngineError as error:
            if engine == "tensorrt" and NOT_BY_RTX[numbers] in str(error):
                pytest.skip(str(error))
            raise
        exact = network(name, torch.float32)
        held_out = [picture.to("cuda:0") for picture in shown[1::2]]
        found = agreement(
            *(torch.cat([made(x).float() for x in held_out]) for made in (lambda x: built.run(x.half()), exact))
        )
        x = held_out[0].half()
        floats = selected(name, engine, replace(profile, numbers=""), cache / "engines")
        times = [seconds_of(lambda run=one.run: run(x), "cuda:0") for one in (built, floats)]
    print(f"{name} {engine} {recipe}: {found:.2f} dB, {times[0] * 1e3:.3f} ms, fp16 {times[1] * 1e3:.3f} ms")  # noqa: T201
    assert found >= 36, "of whole pictures in fp16, where 38 was of parts of them in fp32"


def pictures_of(clip: Path, count: int) -> list[torch.Tensor]:
    """R'G'B' in 0..1, evenly over a clip, by libav and not by our decoder."""
    with av.open(str(clip)) as file:
        frames = [frame.to_ndarray(format="rgb24") for frame in file.decode(video=0)]
    chosen = frames[:: len(frames) // count][:count]
    return [torch.from_numpy(one).permute(2, 0, 1)[None].float() / 255 for one in chosen]


@pytest.mark.parametrize("name", CARDS)
def test_fp32_is_fp32_of_the_cpu(name: str, cache: Path) -> None:
    profile = Profile(1, 64, 96, "fp32", "cuda:0")
    built = selected(name, "eager", profile, cache / "engines")
    pictures = test_pictures(profile)
    with torch.inference_mode():
        assert (
            float((built.run(pictures).cpu() - network(name, torch.float32).cpu()(pictures.cpu())).abs().max()) < 1e-3
        )


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("tile", "batch"), [("off", 1), ("off", 2), (96, 2), (96, 5)])
def test_a_replay_of_the_stage_is_the_stage(engine: str, tile: int | str, batch: int) -> None:
    """Several windows and a short last batch in one graph; slots of one pool, memory spoilt in between."""
    there(engine)
    source = surface("nv12", 320, 192)
    settings = {"card": SR, "engine": engine, "tile": tile, "batch": batch}
    assert_replayed(settings, source, rows=3, several=4, seed=7)


def assert_replayed(settings: dict, source: FrameFormat, *, rows: int, several: int, seed: int) -> None:
    """Batches through the stage in CUDA Graphs of one pool give the bits of the stage called."""
    chain = Chain(steps_of([("model", settings)], source), CudaLane("cuda:0"), rows=rows)
    pool = surfaces(source, rows * several, seed)
    batches = [pool[n * rows : (n + 1) * rows] for n in range(several)]
    wanted = eager(chain, source, CudaLane("cuda:0"), batches)
    got = replayed(chain, source, rows, batches)
    assert [same(a, b, rows) for a, b in zip(got, wanted, strict=True)] == [True] * several


def test_tiles_leave_no_seam() -> None:
    source = surface("p010le", 321, 193)
    outs = []
    for tile in ("off", 64, 100):
        settings = {"card": SR, "engine": "eager", "tile": tile, "precision": "fp32"}
        chain = Chain(steps_of([("model", settings)], source), CudaLane("cuda:0"))
        outs.append(eager(chain, source, CudaLane("cuda:0"), [surfaces(source, 1, 3)])[0])
    for other in outs[1:]:
        for a, b in zip(outs[0], other, strict=True):
            assert int((a.int() - b.int()).abs().max()) <= 2  # of 1023


@pytest.mark.parametrize("engine", ["inductor", "tensorrt"])
def test_the_second_time_it_comes_from_the_cache(engine: str, tmp_path: Path) -> None:
    there(engine)
    profile, said = Profile(1, 128, 192, "fp16", "cuda:0"), []
    first = selected(SR, engine, profile, tmp_path, said)
    assert any("built in" in line for line in said)
    said.clear()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of inductor's import, which it brings about
        torch.compiler.reset()
    built = selected(SR, engine, profile, tmp_path, said)  # beside the first, so that it is loaded indeed
    assert said == []
    pictures = test_pictures(profile)
    with torch.inference_mode():
        wanted = network(SR, torch.float16)(pictures)
        assert [agreement(one.run(pictures), wanted) >= 50 for one in (first, built)] == [True, True]


def test_what_is_built_side_by_side_is_each_its_own(tmp_path: Path) -> None:
    """Two processes at once, the same graph with other weights: what torch compiles has one name in both."""
    there("inductor")
    script = (
        "import sys, json, torch; from pathlib import Path; from gpupipe.engines.base import Profile\n"
        "from gpupipe.engines.inductor import Inductor; from gpupipe.models.srvgg import Srvgg\n"
        "torch.manual_seed(int(sys.argv[1])); profile = Profile(**json.loads(sys.argv[3]))\n"
        "network = Srvgg(16, 2, 2).eval().requires_grad_(requires_grad=False).to('cuda:0', torch.float16)\n"
        "place = Path(sys.argv[2]); place.mkdir(); Inductor().build(network, profile, place)\n"
        "x = torch.linspace(0, 1, 3 * 64 * 96, device='cuda:0').half().view(1, 3, 64, 96)\n"
        "run = Inductor().load(network, profile, place)\n"
        "with torch.inference_mode(): print(float((run(x) - network(x)).abs().max()))\n"
    )
    profile = Profile(1, 64, 96, "fp16", "cuda:0")
    asked = [
        [sys.executable, "-c", script, str(n), str(tmp_path / str(n)), json.dumps(asdict(profile))] for n in (0, 1)
    ]
    running = [subprocess.Popen(one, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for one in asked]
    try:
        ended = [(*one.communicate(timeout=180), one.returncode) for one in running]
    finally:
        for one in running:
            one.kill()
    assert [code for _, _, code in ended] == [0, 0], ended
    assert all(float(out) < 0.02 for out, _, _ in ended), ended


def test_auto_takes_the_fastest_and_remembers(tmp_path: Path) -> None:
    profile, said = Profile(1, 540, 960, "fp16", "cuda:0"), []
    first = selected(SR, "auto", profile, tmp_path, said)
    assert any(line.startswith(f"engine {first.engine} is taken for") for line in said)
    said.clear()
    assert selected(SR, "auto", profile, tmp_path, said).engine == first.engine
    assert said == []


def test_a_memory_cap_makes_windows_smaller_and_pixels_stay() -> None:
    picture = FrameFormat(PIXEL_FORMATS["rgbf16"], 1280, 720, device="cuda:0")
    kind, x = stages.load("model"), torch.rand((2, 3, 720, 1280), device="cuda:0").half()
    settings = kind.Settings.model_validate({"card": SR, "engine": "eager", "tile": "off", "batch": 2})

    def made(journal: Journal):
        stage = kind(settings)
        stage.attend(journal, 2)
        stage.prepare(picture)
        return stage

    with torch.inference_mode():
        wanted, journal = made(Journal())((x,))[0].cpu(), Journal()
        stage = made(journal)
        torch.cuda.empty_cache()
        total = torch.cuda.get_device_properties("cuda:0").total_memory
        room = torch.cuda.memory_allocated("cuda:0") + wanted.numel() * 2 + (160 << 20)
        torch.cuda.set_per_process_memory_fraction(room / total, "cuda:0")
        try:
            ours = stage((x,))[0].cpu()
        finally:
            torch.cuda.set_per_process_memory_fraction(1.0, "cuda:0")
    assert agreement(ours, wanted) >= 50
    assert journal.entries["out-of-memory"].count >= 1


def run(cache: Path, config: Path, clip: Path, out: Path) -> tuple[dict, str]:
    paths = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache.parent), "PYTHONPATH": paths}
    command = [sys.executable, "-m", "gpupipe", "run", str(config), str(clip), str(out), "--json", "--device", "cuda:0"]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=280, check=False, cwd=out.parent
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)["result"], done.stderr


def test_a_run_from_a_warm_cache_begins_within_5_seconds(cache: Path, clips: Path, tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(f"stages: [{{model: {{card: {SR}}}}}]\noutput: {{video: {{codec: ffv1}}, audio: none}}\n")
    clip = clips / "sar_2_1_640x360.mp4"
    _, cold = run(cache, config, clip, tmp_path / "cold.mkv")
    assert "built in" in cold
    result, warm = run(cache, config, clip, tmp_path / "warm.mkv")
    assert "building" not in warm
    print("first frame after", result["startup"], "s")  # noqa: T201
    assert result["startup"] < 5
