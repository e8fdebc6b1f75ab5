"""Engines side by side: every card on the real shape by eager, inductor and TensorRT in one run, and the pipeline.

    python bench/models.py [--device cuda:0] [--cards NAME ...] [--engines NAME ...] [--size 1920x1080]
                           [--precision fp16] [--batch 1] [--cache FOLDER] [--pipeline FRAMES]
                           [--small] [--json bench/results/models_h200.json]

Each row: milliseconds a picture called from Python and replayed from a CUDA Graph (the median of several), how many
times eager of the same run that is, dB against fp32 on the same device (200: no difference), seconds to build from
nothing and to load from the cache. `eager` has cudnn.benchmark on and channels last; a network between two pictures
takes them as one of six channels. FOLDER holds fetched weights (`models/`) and takes the engines; without it weights
are fetched, and engines are built in a temporary folder.
`--pipeline` runs a clip of that many frames through `gpupipe run` with `engine: auto` as well, when the first card has
its rows, and the fastest of its engines alone for some seconds, which is what the run can be compared with: a GPU at
the limit of its power is slower than in a burst. Of the other cards each engine makes all rows before the next one, so
that one whose building takes minutes may come last. The file is written after every row. `--clips FILES` measures what
8 bits cost on real clips instead, see `eight_bits`:

    python bench/models.py --device cpu --threads 1 --cards NAME ... --clips FILE ... [--numbers int8 fp8]
                           [--accuracy 38] [--json bench/results/int8_cpu.json]
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # as the command line does; read when torch is loaded

import av
import torch

from bench import measured
from bench.eight_bits import eight_bits
from bench.matrix import small
from bench.measured import captured, head, keep
from gpupipe.bench.clip import RECIPES, make_clip
from gpupipe.device.nvml import GpuGauge
from gpupipe.device.timing import seconds_of
from gpupipe.engines.base import Profile, layout_of
from gpupipe.engines.cache import EngineCache
from gpupipe.engines.check import agreement, test_pictures
from gpupipe.engines.identity import digest_of, origin_of
from gpupipe.engines.select import ENGINES, Built, Selector, named
from gpupipe.errors import GpupipeError
from gpupipe.models import folder
from gpupipe.models.bind import bind
from gpupipe.models.card import Card, catalogue, find
from gpupipe.models.extras import pictures_taken
from gpupipe.models.fetch import fetch
from gpupipe.models.load import load

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import nn

    from gpupipe.engines.base import Network

CLIP, WEIGHTS = "realesr-animevideov3-x2", "models"
_RUNS = (
    ("cold", "codec: mjpeg"), ("warm", "codec: mjpeg"), ("cpu encoder", "encoder: libx264, preset: ultrafast"),
)  # fmt: skip
"""The first builds what the others find; nvJPEG works on the same part of the GPU as the network, x264 does not."""
_SUSTAINED = 6.0
"""Seconds."""


@dataclass
class Row:
    """One card by one engine."""

    card: str
    engine: str
    shape: str
    milliseconds: float | None = None
    """A picture, called from Python."""
    graph_milliseconds: float | None = None
    """A picture, replayed from a CUDA Graph."""
    times_eager: float | None = None
    """The better of both, beside eager's better of both."""
    decibels: float | None = None
    """Against fp32 on the same device, range 1."""
    build_seconds: float | None = None
    load_seconds: float | None = None
    failed: str | None = None


class Subject:
    """A card's network on the device, in the precision asked for and in fp32."""

    def __init__(self, card: Card, profile: Profile, cache: Path) -> None:
        self.card, self.profile = card, profile
        files = fetch(card, cache / WEIGHTS, allowed={card.name})
        bound = bind(card, load(card, files), {})
        self.digest = digest_of(bound, origin_of(card, files))
        self.exact = bind(card, load(card, files), {}).to(profile.device)
        self.network: nn.Module = bound.to(profile.device, profile.dtype)
        self.pictures = test_pictures(profile)

    def wanted(self) -> torch.Tensor:
        """What fp32 gives, a picture at a time."""
        exact = named("eager").load(self.exact, replace(self.profile, precision="fp32", batch=1), Path())
        return torch.cat([exact(picture[None].float()) for picture in self.pictures])


def row(subject: Subject, engine: str, cache: Path) -> Row:
    """Builds, loads, checks and times one engine."""
    profile, made = subject.profile, Row(subject.card.name, engine, str(subject.profile))
    try:
        made.build_seconds, first = _selected(subject, engine, cache)
        torch.compiler.reset()  # else the second load finds what this process compiled
        made.load_seconds, built = _selected(subject, engine, cache)
        del first  # not before: the second load would be given what the first lets go of
        made.decibels = min(200.0, agreement(built.run(subject.pictures), subject.wanted()))
        made.milliseconds = 1000 * seconds_of(lambda: built.run(subject.pictures), profile.device) / profile.batch
        if profile.device != "cpu":
            made.graph_milliseconds = 1000 * _replayed(built.run, subject) / profile.batch
    except (GpupipeError, RuntimeError) as error:
        made.failed = str(error).strip().partition("\n")[0]
    return made


def _selected(subject: Subject, engine: str, cache: Path) -> tuple[float, Built]:
    begun = time.perf_counter()
    selector = Selector(subject.network, subject.digest, engine, EngineCache(cache / "engines"), say=_say, warn=_say)
    built = selector(subject.profile)
    return time.perf_counter() - begun, built


def _replayed(run: Network, subject: Subject) -> float:
    """Seconds of a replay, whose result is checked too."""
    graph, out = captured(lambda: run(subject.pictures))
    graph.replay()
    torch.cuda.synchronize()
    if (found := agreement(out, run(subject.pictures))) < 60:
        raise RuntimeError(f"a replay gives something else: {found:.1f} dB")
    return seconds_of(graph.replay, subject.profile.device, rounds=50)


def _say(line: str) -> None:
    print(f"    {line}", flush=True)


def sustained(subject: Subject, engine: str, cache: Path, clip: Path) -> dict[str, float | str | None]:
    """A network alone for seconds on end, on a picture of the clip: what a GPU at the limit of its power leaves of it.

    The first seconds do not count. A burst, as the rows have it, is over before a GPU slows down.
    """
    run, device = _selected(subject, engine, cache)[1].run, subject.profile.device
    picture = _first_picture(clip, subject.profile)
    call = (lambda: run(picture)) if device == "cpu" else captured(lambda: run(picture))[0].replay
    gauge, seen = GpuGauge(device), []
    _repeated(call, device, _SUSTAINED / 2, lambda: None)
    rate = _repeated(call, device, _SUSTAINED, lambda: seen.append(gauge.read()))
    told: dict[str, float | str | None] = {"engine": engine, "rate": rate}
    for name in ("sm_mhz", "power_w"):
        values = [value for one in seen if (value := one.get(name)) is not None]
        told[name] = statistics.median(values) if values else None
    return told


def _repeated(call: Callable[[], object], device: str, seconds: float, look: Callable[[], object]) -> float:
    """Calls a second, a batch of them waited for at a time."""
    begun, count = time.perf_counter(), 0
    while (taken := time.perf_counter() - begun) < seconds or not count:
        for _ in range(50 if device != "cpu" else 1):
            call()
            count += 1
        look()
        if device != "cpu":
            torch.cuda.synchronize(device)
    return count / taken if taken else 0.0


def _first_picture(clip: Path, profile: Profile) -> torch.Tensor:
    with av.open(clip) as container:
        pixels = next(container.decode(video=0)).to_ndarray(format="rgb24")
    picture = torch.from_numpy(pixels).permute(2, 0, 1)[None, :, : profile.height, : profile.width] / 255
    return picture.to(profile.device, profile.dtype).contiguous(memory_format=layout_of(profile))


def pipeline(args: argparse.Namespace, scratch: Path) -> Iterator[tuple[str, dict[str, object]]]:
    """`gpupipe run` of a 1080p clip through super-resolution, as a process of its own: see `_RUNS`."""
    clip, config = scratch / "clip.mp4", scratch / "config.yaml"
    for name, video in _RUNS:
        config.write_text(f"stages: [{{model: {{card: {CLIP}}}}}]\noutput: {{video: {{{video}}}, audio: none}}\n")
        got = measured.run(config, clip, scratch / "out.mov", device=args.device, cache=args.cache.parent)
        yield name, got
        if "failed" in got:
            print(f"gpupipe run, {name}, failed: {got['failed']}", flush=True)
            return
        print(f"{'gpupipe run, ' + name:44} {got['rate']:8.1f} frames a second, {got['startup']:.1f} s until it began",
              flush=True)  # fmt: skip


def words(made: Row) -> str:
    """A line of the table."""
    if made.failed is not None:
        return f"{made.card:28} {made.engine:10} failed: {made.failed}"
    figures = [
        made.milliseconds,
        made.graph_milliseconds,
        made.times_eager,
        made.decibels,
        made.build_seconds,
        made.load_seconds,
    ]
    return f"{made.card:28} {made.engine:10} " + " ".join("       -" if f is None else f"{f:8.2f}" for f in figures)


def best(made: Row) -> float | None:
    """Milliseconds, the better way."""
    return min((t for t in (made.milliseconds, made.graph_milliseconds) if t is not None), default=None)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    suited = [card.name for card in catalogue() if _suits(card)]
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--cards", nargs="*", default=suited, choices=suited)
    parser.add_argument("--engines", nargs="*", default=[e.name for e in reversed(ENGINES)])
    parser.add_argument("--size", default="1920x1080")
    parser.add_argument("--precision", default="fp16", choices=["fp32", "fp16", "bf16"])
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--cache", type=Path, help="ends in /gpupipe where --pipeline is to find it")
    parser.add_argument("--pipeline", type=int, default=0, metavar="FRAMES")
    parser.add_argument("--small", action="store_true", help="small pictures in --pipeline: whether it runs")
    parser.add_argument("--clips", type=Path, nargs="*", default=[])
    parser.add_argument("--numbers", nargs="*", default=["int8", "fp8"], choices=["int8", "fp8"])
    parser.add_argument("--accuracy", type=float, default=38.0)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def _suits(card: Card) -> bool:
    try:
        pictures_taken(card)
    except GpupipeError:
        return False
    return True


def main() -> None:
    """The first card row by row, the pipeline, then the other cards."""
    args = _arguments()
    with tempfile.TemporaryDirectory() as scratch:
        args.cache = args.cache or Path(scratch) / "gpupipe"
        folder.choose(args.cache)
        if args.threads:
            torch.set_num_threads(args.threads)
        report: dict[str, object] = {
            **head(args.device),
            "versions": {name: version for engine in ENGINES for name, version in engine.versions().items()},
        }
        (_eight if args.clips else _all)(args, report, Path(scratch))


def _eight(args: argparse.Namespace, report: dict[str, object], _: Path) -> None:
    cards = [find(name) for name in args.cards]
    for card in cards:
        fetch(card, folder.weights(), allowed={card.name})
    eight_bits(
        cards, args.clips, args.numbers, args.accuracy, args.device,
        lambda rows: keep(args.json, report | {"rows": rows}),
    )  # fmt: skip


def _all(args: argparse.Namespace, report: dict[str, object], scratch: Path) -> None:
    rows: list[dict[str, object]] = []
    piped: dict[str, object] = {}
    eager: dict[str, float | None] = {}
    timed: list[tuple[float, str]] = []
    report |= {"rows": rows} | ({"pipeline": piped} if args.pipeline else {})

    def measure(cards: list[str], engines: list[str]) -> None:
        for made in _rows([find(name) for name in cards], engines, args):
            if made.engine == "eager":
                eager[made.card] = best(made)
            base, mine = eager.get(made.card), best(made)
            made.times_eager = base / mine if base is not None and mine is not None else None
            print(words(made), flush=True)
            rows.append(asdict(made))
            if mine is not None and made.failed is None:
                timed.append((mine, made.engine))
            keep(args.json, report)

    print(f"{'card':28} {'engine':10} ms/call ms/graph  x eager       dB  build s   load s")
    if args.small:
        small("h264")
    measure(args.cards[:1], args.engines)
    if args.pipeline:
        make_clip(scratch / "clip.mp4", RECIPES["h264"], args.pipeline)
        alone = _alone(min(timed)[1], args, scratch)
        report["sustained"] = alone
        print(f"{'the network alone, seconds on end':44} {alone['rate']:8.1f} frames a second, {alone}", flush=True)
        keep(args.json, report)
        for name, got in pipeline(args, scratch):
            piped[name] = got
            keep(args.json, report)
    for engine in args.engines:
        measure(args.cards[1:], [engine])


def _alone(engine: str, args: argparse.Namespace, scratch: Path) -> dict[str, float | str | None]:
    card = find(args.cards[0])
    with torch.inference_mode():
        subject = Subject(card, replace(_profile(card, args), batch=1), args.cache)
        return sustained(subject, engine, args.cache, scratch / "clip.mp4")


def _profile(card: Card, args: argparse.Namespace) -> Profile:
    width, height = (-(-max(int(n), card.minimum) // card.multiple) * card.multiple for n in args.size.split("x"))
    return Profile(args.batch, height, width, args.precision, args.device, channels=3 * pictures_taken(card))


def _rows(cards: list[Card], engines: list[str], args: argparse.Namespace) -> Iterator[Row]:
    for card in cards:
        with torch.inference_mode():
            subject = Subject(card, _profile(card, args), args.cache)
            for engine in engines:
                yield row(subject, engine, args.cache)


if __name__ == "__main__":
    main()
