"""Faces: frames a second of detection alone, of the whole stage with 0, 1, 4 and 8 faces, and from file to file.

    python bench/faces.py [--device cuda:0] [--size 1920x1080] [--batch 16] [--faces 0 1 4 8] [--every 1 4]
                          [--engines eager auto] [--operate generate] [--face STILL.png] [--cache FOLDER]
                          [--pipeline FRAMES] [--json bench/results/faces_h200.json]

Each row is the stage `face` on batches of one moving picture that repeats itself: milliseconds a frame called from
Python, the median of several, the same with what it records in CUDA Graphs, and of detector and following alone.
`--pipeline` makes a clip of that many frames with each number of faces and runs it through `gpupipe run` before all
rows: NVDEC to nvJPEG on a GPU with all sessions, libav on the CPU. A short run before the first one of an engine builds
what it needs, so that all others find it in the cache. `auto` builds every engine, which may take many minutes. The
still is `../shared/corpus/faces/astronaut_512.png` where not given. FOLDER holds fetched weights (`models/`) and takes
engines; without it weights are fetched. The file is written after every row.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import sys
import tempfile
from dataclasses import asdict, dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # as the command line does; read when torch is loaded

import av
import numpy as np
import torch
from torch.nn import functional

from bench.measured import ROOT, head, keep, run
from gpupipe import stages
from gpupipe.bench.clip import repeat
from gpupipe.device.timing import seconds_of
from gpupipe.errors import GpupipeError
from gpupipe.faces.detect import shown
from gpupipe.format import PIXEL_FORMATS, FrameFormat
from gpupipe.journal import Journal
from gpupipe.models import folder
from gpupipe.models.card import find
from gpupipe.models.fetch import fetch

if TYPE_CHECKING:
    from collections.abc import Iterator

STILL = ROOT.parent / "shared" / "corpus" / "faces" / "astronaut_512.png"
CYCLE = 60
"""Pictures that are encoded for a clip, two GOPs of them; then they begin again."""
BUILDING = 300
"""Frames of the run that builds engines."""
CARDS = ("centerface", "multistyle26")
WORK: dict[str, list[dict[str, object]]] = {
    "generate": [{"generate": {"card": "multistyle26"}}],
    "blur": [{"blur": {"radius": 0.15}}],
}


@dataclass
class Row:
    """One way to run the stage."""

    faces: int
    every: int
    engine: str
    found: float | None = None
    """Faces a frame that were worked on."""
    detect_ms: float | None = None
    """A frame: the detector alone."""
    sight_ms: float | None = None
    """A frame: detected, followed, calmed, called from Python."""
    stage_ms: float | None = None
    """A frame: all of it, `graphs: off`."""
    stage_graph_ms: float | None = None
    """The same with what is recorded in CUDA Graphs."""
    rate: float | None = None
    """Frames a second of all of it."""
    failed: str | None = None


def pictures(still: Path, faces: int, size: tuple[int, int], count: int) -> torch.Tensor:
    """(count, 3, H, W) float32: so many faces in a grey gradient, each moving a little."""
    with av.open(str(still)) as container:
        codes = next(container.decode(video=0)).to_ndarray(format="rgb24")
    head = torch.from_numpy(codes.astype(np.float32) / 255).permute(2, 0, 1)[None, :, 10:230, 120:340]
    width, height = size
    columns = max(1, min(faces, 4))
    side = min(width // (columns + 1), height // (2 if faces <= 4 else 3))
    head = functional.interpolate(head, size=(side, side), mode="bilinear", antialias=True)[0]
    out = torch.linspace(0.2, 0.6, width).expand(count, 3, height, width).clone()
    for t, n in itertools.product(range(count), range(faces)):
        row, column = divmod(n, columns)
        x = (column + 1) * width // (columns + 1) - side // 2 + 2 * t % 16
        y = (row + 1) * height // (-(-faces // columns) + 1) - side // 2 + t % 8
        x, y = max(0, min(x, width - side)), max(0, min(y, height - side))
        out[t, :, y : y + side, x : x + side] = head
    return out


def stage_of(every: int, engine: str, args: argparse.Namespace, *, graphs: bool = False) -> Any:
    """The stage, prepared for a batch."""
    width, height = size_of(args)
    kind = stages.load("face")
    settings = {
        "detect": {"every": every, "most": 8}, "operate": WORK[args.operate], "engine": engine,
        "align": {"template": "ffhq512", "size": 256},
    }  # fmt: skip
    stage = kind(kind.Settings.model_validate(settings, strict=False))
    pixels = PIXEL_FORMATS["rgbf32" if args.device == "cpu" else "rgbf16"]
    source = FrameFormat(pixels, width, height, device=args.device)
    stage.attend(Journal(), args.batch, graphs=graphs)
    stage.output_format(source)
    stage.prepare(source)
    return stage


def rows(every: int, engine: str, args: argparse.Namespace) -> Iterator[Row]:
    """Times one way with each number of faces."""
    try:
        plain = stage_of(every, engine, args)
        graphed = None if args.device == "cpu" else stage_of(every, engine, args, graphs=True)
    except (GpupipeError, RuntimeError) as error:
        yield from (Row(faces, every, engine, failed=_line(error)) for faces in args.faces)
        return
    for faces in args.faces:
        made = Row(faces, every, engine)
        rgb = pictures(args.face, faces, size_of(args), args.batch).to(args.device)
        try:
            _timed(made, plain, graphed, rgb if args.device == "cpu" else rgb.half())
        except (GpupipeError, RuntimeError) as error:
            made.failed = _line(error)
        yield made


def _line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


def _timed(made: Row, plain: Any, graphed: Any, rgb: torch.Tensor) -> None:
    each, device = 1000 / len(rgb), str(rgb.device)

    def used(stage: Any) -> tuple[float, Any]:
        """Milliseconds a frame, once every face has a past; and that past."""
        memory = stage.remember()
        for _ in range(3):
            stage.follow((rgb,), memory)
        return each * seconds_of(lambda: stage.follow((rgb,), memory), device), memory

    line, sight = plain._line, plain._line._sight  # noqa: SLF001  its parts are timed
    made.stage_ms, memory = used(plain)
    made.found = float(line.look(rgb, memory.tensors, 0)[1].sum()) / len(rgb)
    past = memory.tensors  # `steady` is off: all of it is sight's
    small = shown(rgb, sight.how.look)
    made.detect_ms = each * seconds_of(lambda: sight._detector(small), device)  # noqa: SLF001
    made.sight_ms = each * seconds_of(lambda: sight(rgb, past, 0), device)
    if graphed is not None:
        made.stage_graph_ms, _ = used(graphed)
    made.rate = 1000 / (made.stage_graph_ms or made.stage_ms)


def pipeline(faces: int, engine: str, args: argparse.Namespace, scratch: Path, *, built: bool) -> dict[str, object]:
    """`gpupipe run` of a clip with so many faces, as a process of its own, once engines are `built`."""
    clip, few, config = scratch / f"clip{faces}.mp4", scratch / f"few{faces}.mp4", scratch / "config.yaml"
    if not clip.exists():
        short = scratch / "short.mp4"
        write_clip(short, pictures(args.face, faces, size_of(args), CYCLE // 2), min(args.pipeline, CYCLE))
        repeat(short, clip, args.pipeline)
        repeat(short, few, min(args.pipeline, BUILDING))
    stage = {
        "detect": {"most": 8}, "operate": WORK[args.operate], "align": {"template": "ffhq512", "size": 256},
        "engine": engine,
    }  # fmt: skip
    output = {"video": {"codec": "mjpeg"}, "audio": "none"}
    config.write_text(json.dumps({"stages": [{"face": stage}], "output": output}))
    told: dict[str, object] = {"faces": faces, "engine": engine}
    for source in (clip,) if built else (few, clip):
        told |= run(config, source, scratch / "out.mov", device=args.device, cache=args.cache.parent)
        if "failed" in told:
            print(f"gpupipe run, {faces} faces by {engine} failed: {told['failed']}", flush=True)
            return told
    print(f"gpupipe run, {faces} faces by {engine}: {told['rate']:.1f} frames a second", flush=True)
    return told


def write_clip(path: Path, shown: torch.Tensor, frames: int) -> None:
    """H.264 with a key frame a second, there and back through the pictures."""
    codes = (shown.permute(0, 2, 3, 1) * 255).round().to(torch.uint8).numpy()
    with av.open(str(path), "w") as file:
        stream = file.add_stream("libx264", 30, options={"preset": "ultrafast", "crf": "18", "g": "30"})
        stream.width, stream.height, stream.pix_fmt = codes.shape[2], codes.shape[1], "yuv420p"
        for n in range(frames):
            frame = av.VideoFrame.from_ndarray(codes[abs(n % (2 * len(codes) - 2) - len(codes) + 1)], format="rgb24")
            frame.pts, frame.time_base = n, Fraction(1, 30)
            file.mux(stream.encode(frame))
        file.mux(stream.encode())


def size_of(args: argparse.Namespace) -> tuple[int, int]:
    """Width and height."""
    width, height = args.size.split("x")
    return int(width), int(height)


def words(made: Row) -> str:
    """A line of the table."""
    if made.failed is not None:
        return f"{made.faces:5} {made.every:5}  {made.engine:9} failed: {made.failed}"
    figures = [made.found, made.detect_ms, made.sight_ms, made.stage_ms, made.stage_graph_ms, made.rate]
    return f"{made.faces:5} {made.every:5}  {made.engine:9}" + "".join(
        "        -" if figure is None else f"{figure:9.2f}" for figure in figures
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--size", default="1920x1080")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--faces", type=int, nargs="*", default=[0, 1, 4, 8])
    parser.add_argument("--every", type=int, nargs="*", default=[1, 4])
    parser.add_argument("--engines", nargs="*", default=["eager", "auto"])
    parser.add_argument("--operate", default="generate", choices=sorted(WORK))
    parser.add_argument("--face", type=Path, default=STILL)
    parser.add_argument("--cache", type=Path, help="ends in /gpupipe where --pipeline is to find it")
    parser.add_argument("--pipeline", type=int, default=0, metavar="FRAMES")
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def main() -> None:
    """The pipeline, then the stage, row by row."""
    args = _arguments()
    with tempfile.TemporaryDirectory() as scratch:
        args.cache = args.cache or Path(scratch) / "gpupipe"
        folder.choose(args.cache)
        for name in CARDS:
            fetch(find(name), folder.weights(), allowed={name})
        report: dict[str, Any] = {**head(args.device), "rows": [], "pipeline": []}
        built = {"eager"}
        for faces, engine in itertools.product(args.faces, args.engines) if args.pipeline else ():
            told = pipeline(faces, engine, args, Path(scratch), built=engine in built)
            built.add(engine)
            report["pipeline"].append(told)
            keep(args.json, report)
        print("faces every  engine       found   detect    sight    stage   graphs  frames/s   (ms a frame)")
        with torch.inference_mode():
            for engine, every in itertools.product(args.engines, args.every):
                for made in rows(every, engine, args):
                    print(words(made), flush=True)
                    report["rows"].append(asdict(made))
                    keep(args.json, report)


if __name__ == "__main__":
    main()
