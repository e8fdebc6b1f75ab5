"""How near the lanes come to the GPU's own limits: decode alone, with the chain, with nvJPEG, by number of sessions.

    python bench/lanes.py [--json FILE] [--frames 6000] [--codecs h264 hevc]

Decode alone is the same runners with no stage and nothing encoded; nvJPEG alone is the same encode lanes fed with the
same pictures from memory, so every row stands beside its limits of this run.
Medians of three after a warm-up; frames are counted in every row.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import statistics
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import av

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

from bench.device import CHAIN, make_clip, versions
from gpupipe.bench.alone import encoder_alone, keep
from gpupipe.config import parse_config
from gpupipe.journal import Journal
from gpupipe.media.probe import probe
from gpupipe.plan import make_plan
from gpupipe.render import render
from gpupipe.render.segmented import start_lanes

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpupipe.frame import FrameBatch
    from gpupipe.plan import Plan

RUNS = 3
RATE = "frames_per_second"
KEPT_SECONDS = 8
"""Of pictures kept for nvJPEG alone: 0.7 GB at 1080p30."""


class Discard:
    """Stands in for an encoder: waits for each batch and drops it."""

    def encode(self, batch: FrameBatch) -> list[Any]:
        """Waits until the batch is computed."""
        batch.ready.synchronize()  # type: ignore[attr-defined]
        return []

    def finish(self) -> list[Any]:
        """Nothing is held."""
        return []


def longer(clip: Path, times: int, out: Path) -> None:
    """The same stream again and again, with pts that go on: a long clip without a long encode."""
    with av.open(str(clip)) as source, av.open(str(out), "w") as target:
        stream = source.streams.video[0]
        copy = target.add_stream_from_template(stream, opaque=True)
        data = [
            (bytes(p), p.pts or 0, p.dts or 0, p.duration or 0, p.is_keyframe) for p in source.demux(stream) if p.size
        ]
        length = max(pts for _, pts, *_ in data) + data[0][3]
        for n in range(times):
            for payload, pts, dts, duration, key in data:
                packet = av.Packet(payload)
                packet.pts, packet.dts, packet.duration = pts + n * length, dts + n * length, duration
                packet.is_keyframe, packet.stream = key, copy
                assert stream.time_base
                packet.time_base = stream.time_base
                target.mux(packet)


def discard(plan: Plan) -> float:
    """Frames a second of the lanes with nothing encoded."""
    frames = 0
    with ExitStack() as stack:
        board = start_lanes(plan, stack, Journal(), lambda _: Discard(), threading.Event())  # type: ignore[arg-type,return-value]
        began = time.monotonic()  # runners are made, graphs captured and decoders open
        for _, part in board.in_order(threading.Event()):
            frames += part.frames
        elapsed = time.monotonic() - began
    wanted = sum(s.frames for s in plan.segments)
    if frames != wanted:
        raise SystemExit(f"{frames} frames, not {wanted}")
    return frames / elapsed


def whole(plan: Plan) -> float:
    """Frames a second of a complete run to a file."""
    result = render(plan, overwrite=True, journal=Journal(), stop=threading.Event())
    print(f"{'':7}{result.bytes / result.frames / 1000:.0f} kB a frame", flush=True)
    return result.frames / result.seconds


def rows(clip: Path, folder: Path) -> dict[str, dict[str, Any]]:
    """All rows of one clip."""
    table: dict[str, dict[str, Any]] = {}
    info = probe(clip)
    config: dict[str, Any] = {"output": {"video": {"codec": "mjpeg", "quality": 90}}, "segments": {"seconds": 3}}
    for sessions in (1, 7, 14):
        config["sessions"] = sessions
        bare = make_plan(parse_config(config), info, folder / "a.mov", device="cuda")
        chain = make_plan(parse_config({**config, "stages": CHAIN}), info, folder / "b.mov", device="cuda")
        cases: dict[str, Callable[[], float]] = {
            f"decode only, {sessions}": partial(discard, replace(bare, steps=())),
            f"warp + overlay, output dropped, {sessions}": partial(discard, chain),
            f"warp + overlay, nvJPEG to MOV, {sessions}": partial(whole, chain),
        }
        for name, run in cases.items():
            table[name] = median(f"{clip.stem:6} {name}", run)
    few = {**config, "stages": CHAIN, "range": {"end": KEPT_SECONDS}}
    kept = keep(make_plan(parse_config(few), info, folder / "c.mov", device="cuda"), threading.Event())
    frames = sum(segment.frames for segment in chain.segments)
    row = table["nvJPEG alone, the same pictures"] = median(
        f"{clip.stem:6} nvJPEG alone, the same pictures", lambda: encoder_alone(chain, kept, frames).rate
    )
    decode, whole_ = (max(r[RATE] for name, r in table.items() if kind in name) for kind in ("decode only", "to MOV"))
    table["whole / the slower of decode only and nvJPEG alone"] = {"ratio": round(whole_ / min(decode, row[RATE]), 3)}
    print(f"{clip.stem:6} whole / the slower of both limits: {whole_ / min(decode, row[RATE]):.3f}", flush=True)
    return table


def median(name: str, run: Callable[[], float]) -> dict[str, Any]:
    """Frames a second of several runs after one that warms up."""
    run()
    rates = [run() for _ in range(RUNS)]
    middle, spread = round(statistics.median(rates), 1), [round(min(rates)), round(max(rates))]
    print(f"{name:52} {middle:8} {spread}", flush=True)
    return {RATE: middle, "spread": spread}


def main() -> None:
    """Makes the clips, measures, prints and writes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--frames", type=int, default=6000)
    parser.add_argument("--codecs", nargs="+", default=["h264", "hevc"])
    args = parser.parse_args()
    results = {}
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as name:
        folder = Path(name)
        for codec in args.codecs:
            base, clip = folder / f"{codec}-base.mp4", folder / f"{codec}.mp4"
            make_clip(base, {"h264": "libx264", "hevc": "libx265"}[codec], 300)
            longer(base, args.frames // 300, clip)
            results[codec] = rows(clip, folder)
            if args.json:
                facts = {
                    "command": "python bench/lanes.py",
                    "date": dt.datetime.now(dt.UTC).date().isoformat(),
                    "clip": f"1080p30, {args.frames} frames, key frame every 30",
                    "versions": versions(),
                    "rows": results,
                }
                args.json.write_text(json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    main()
