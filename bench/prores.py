"""ProRes on a GPU: encode alone beside prores_ks on all cores in the same run, kernel by kernel, and in the pipeline.

    python bench/prores.py [--json FILE] [--seconds 1.2] [--rows NAME ...] [--pipeline RECIPE ...]

Each row: frames a second of `ProresEncoder.encode` (device planes in, packets on the host out) on one lane and on
several, and of its parts alone; kernel times by torch.profiler, beside what the memory's bandwidth alone would need for
the bytes that a kernel must move. The pipeline is `gpupipe bench --encode prores_torch`: NVDEC, warp, overlay, HQ to
memory (`encode`) and to a file in memory (`whole`). Last it says which of the lines in LINES hold. Needs a GPU (and
says so); about two minutes, half of it the pipeline (`--pipeline` without a name leaves it out).
"""

from __future__ import annotations

import argparse
import datetime as dt
import io
import json
import os
import sys
import threading
import time
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import av
import numpy as np
import torch

from gpupipe.codecs.base import EncoderSettings
from gpupipe.codecs.prores.coder import Coder
from gpupipe.codecs.prores.encoder import ProresEncoder
from gpupipe.codecs.prores.profile import PROFILES
from gpupipe.color import ColorSpec, Matrix, Range
from gpupipe.device.cuda import CudaLane
from gpupipe.device.driver import enter_context
from gpupipe.format import PIXEL_FORMATS, FrameFormat
from gpupipe.frame import FrameBatch

if TYPE_CHECKING:
    from collections.abc import Callable

DEVICE = "cuda:0"
BANDWIDTH = 4.8e12  # bytes a second of an H200's memory, as its maker says
ROWS = {
    "1080p hq": (1920, 1080, 3, 16),
    "1080p hq, batch 4": (1920, 1080, 3, 4),
    "1080p proxy": (1920, 1080, 0, 16),
    "1080p 4444": (1920, 1080, 4, 16),
    "2160p hq": (3840, 2160, 3, 8),
}
LANES = (1, 2, 4)
LOOKS = 6
"""Times that rate control runs the cost kernel over a frame."""
PIPELINE_FRAMES = 4200
LINES = {
    "422 HQ 1080p, encode alone, frames a second": 1500,
    "times prores_ks on all cores": 30,
    "422 HQ 2160p, encode alone, frames a second": 350,
    "NVDEC, warp, overlay, 422 HQ 1080p to memory, frames a second": 1200,
    "bitstream over device-to-host bytes": 1 / 1.02,
}
"""What each must reach at least."""


def picture(width: int, height: int, profile: int, frames: int) -> tuple[torch.Tensor, ...]:
    """Grain over soft shapes, with text in a corner; every frame its own grain. (N, H, W) uint16 on the device."""
    full = PROFILES[profile].chroma_444
    depth, device = (12 if full else 10), torch.device(DEVICE)
    generator = torch.Generator(device).manual_seed(1)
    planes = []
    for component in range(3):
        wide = width if component == 0 or full else width // 2
        y = torch.arange(height, device=device)[:, None]
        x = torch.arange(wide, device=device)[None, :] * (width // wide)
        shape = 512 + 220 * torch.sin(x / 97 + component) * torch.cos(y / 61)
        grain = torch.randn((frames, height, wide), generator=generator, device=device)
        plane = shape + grain * (6 if component == 0 else 3)
        if component == 0:
            text = (((x // 3) * 7 + (y // 5) * 13) % 5 < 2) & (x < width // 4) & (y < height // 4)
            plane = torch.where(text, 900.0, plane)
        planes.append((plane.clamp(16, 1010) * (1 << depth - 10)).round().to(torch.int32).to(torch.uint16))
    return tuple(planes)


def format_of(width: int, height: int, profile: int) -> FrameFormat:
    name = "yuv444p12le" if PROFILES[profile].chroma_444 else "yuv422p10le"
    color = ColorSpec(Matrix.BT709, 1, 1, Range.LIMITED)
    return FrameFormat(PIXEL_FORMATS[name], width, height, color, device=DEVICE)


def settings(source: FrameFormat, profile: int) -> EncoderSettings:
    return EncoderSettings(
        "prores", "prores_torch", source, Fraction(1, 30), Fraction(30), None, None, None, {"profile": str(profile)}
    )


def repeated(work: Callable[[], int], seconds: float) -> float:
    """Frames a second of `work`, which says how many it did."""
    work()
    torch.cuda.synchronize()
    done, begin = 0, time.perf_counter()
    while (spent := time.perf_counter() - begin) < seconds:
        done += work()
    torch.cuda.synchronize()
    return done / max(spent, time.perf_counter() - begin)


def on_lanes(
    count: int, source: FrameFormat, profile: int, planes: tuple[torch.Tensor, ...], seconds: float, *, graphed: bool
) -> float:
    """Frames a second of `count` encoders, each in its own thread and on its own stream."""
    rows = planes[0].shape[0]
    batch = FrameBatch(source, tuple(range(rows)), Fraction(1, 30), planes)
    most = rows if graphed else 0
    encoders = [ProresEncoder(settings(source, profile), CudaLane(DEVICE), most) for _ in range(count)]
    for encoder in encoders:
        encoder.encode(batch)
    done, stop = [0] * count, threading.Event()

    def work(n: int) -> None:
        enter_context(0)
        while not stop.is_set():
            done[n] += len(encoders[n].encode(batch))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(count)]
    begin = time.perf_counter()
    for thread in threads:
        thread.start()
    time.sleep(seconds)
    stop.set()
    for thread in threads:
        thread.join()
    return sum(done) / (time.perf_counter() - begin)


def kernels(coder: Coder, planes: tuple[torch.Tensor, ...], runs: int = 3) -> dict[str, float]:
    """Microseconds a frame of device time of each kernel; small ones of torch together."""
    from torch.profiler import ProfilerActivity, profile  # noqa: PLC0415

    with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as seen:
        for _ in range(runs):
            coder.write(coder.choose(planes))
        torch.cuda.synchronize()
    frames, ours = runs * planes[0].shape[0], ("_transform", "_cost", "_write")
    times: dict[str, float] = {}
    for event in seen.key_averages():
        spent = getattr(event, "self_device_time_total", 0.0)
        if not spent or str(event.device_type).endswith("CPU"):
            continue
        name = event.key if event.key in ours else "torch's small kernels"
        times[name] = times.get(name, 0.0) + spent / frames
    return {name: round(spent, 2) for name, spent in sorted(times.items(), key=lambda item: -item[1])}


def bandwidth(planes: tuple[torch.Tensor, ...], coded: int, looks: int) -> dict[str, float]:
    """Microseconds a frame that memory alone would need: what each kernel must read and write, once."""
    frames = planes[0].shape[0]
    samples = sum(p.numel() for p in planes) / frames
    moved = {"_transform": 4 * samples, "_cost": 2 * samples * looks, "_write": 2 * samples + 2 * coded / frames}
    return {name: round(1e6 * size / BANDWIDTH, 2) for name, size in moved.items()}


def by_prores_ks(source: FrameFormat, profile: int, planes: tuple[torch.Tensor, ...], seconds: float) -> float:
    """Frames a second of libav's prores_ks on all cores, on the same pictures in 10 bit."""
    host = [(p[:2].to(torch.int32) >> source.pixels.depth - 10).to(torch.uint16).cpu().numpy() for p in planes]
    name = "yuv444p10le" if PROFILES[profile].chroma_444 else "yuv422p10le"
    frames = []
    for n in range(2):
        frame = av.VideoFrame(source.width, source.height, name)
        for to, plane in zip(frame.planes, host, strict=True):
            view: Any = np.asarray(memoryview(to)).view(np.uint16).reshape(to.height, -1)
            view[:, : to.width] = plane[n]
        frames.append(frame)
    with av.open(io.BytesIO(), "w", format="mov") as scratch:
        stream: Any = scratch.add_stream("prores_ks", rate=30, options={"profile": str(profile)})
        stream.width, stream.height, stream.pix_fmt = source.width, source.height, name
        stream.codec_context.thread_type = "AUTO"
        stream.codec_context.thread_count = os.cpu_count() or 1
        done, sent, begin = 0, 0, time.perf_counter()
        while time.perf_counter() - begin < seconds:
            frame = frames[sent % 2]
            frame.pts, sent = sent, sent + 1
            done += len(stream.encode(frame))
        done += len(stream.encode(None))
        return done / (time.perf_counter() - begin)


def measure(row: str, seconds: float) -> dict[str, Any]:
    """All figures of one row, printed as they come."""
    width, height, profile, rows = ROWS[row]
    source, planes = format_of(width, height, profile), picture(width, height, profile, rows)
    torch.cuda.synchronize()
    coder = Coder(source, PROFILES[profile])
    coded = coder.write(coder.choose(planes))
    rates = {f"{n} lanes": round(on_lanes(n, source, profile, planes, seconds, graphed=True), 1) for n in LANES}
    rates["1 lane without graphs"] = round(on_lanes(1, source, profile, planes, seconds, graphed=False), 1)
    alone = {
        "choose (transform and rate)": round(
            repeated(lambda: len(coder.choose(planes).quantisers) and rows, seconds), 1
        ),
        "choose and write, no copy to the host": round(
            repeated(lambda: len(coder.write(coder.choose(planes)).sizes), seconds), 1
        ),
    }
    arithmetic = coder._arithmetic  # noqa: SLF001
    alone["transform"] = round(repeated(lambda: len(arithmetic.coefficients(planes)), seconds), 1)
    rival = round(by_prores_ks(source, profile, planes, seconds), 2)
    figures: dict[str, Any] = {
        "batch": rows,
        "bytes_per_frame": sum(coded.sizes) // rows,
        "rate_allows": PROFILES[profile].frame_bytes(-(-width // 16) * -(-height // 16)),
        "device_to_host_over_bitstream": round((coded.data.numel() + 16 * rows) / sum(coded.sizes), 4),
        "encoder_frames_per_second": rates,
        "parts_frames_per_second": alone,
        "kernel_us_per_frame": kernels(coder, planes),
        "memory_alone_us_per_frame": bandwidth(planes, sum(coded.sizes), looks=LOOKS),
        "peak_MiB": torch.cuda.max_memory_allocated() >> 20,
        "prores_ks_all_cores": rival,
        "times_prores_ks": round(max(rates.values()) / rival, 1),
    }
    torch.cuda.reset_peak_memory_stats()
    print(f"{row}: {rates}, prores_ks {rival} on {os.cpu_count()} cores: {figures['times_prores_ks']} times")
    print(f"    {alone}\n    us a frame {figures['kernel_us_per_frame']}", flush=True)
    return figures


def pipeline(recipe: str) -> dict[str, Any]:
    """What `gpupipe bench --encode prores_torch` reports of a generated clip, of rows that reach memory or a file."""
    from gpupipe.bench import Request, bench  # noqa: PLC0415  needs PyNvVideoCodec

    rows = ("decode", "encode", "whole", "encoder-alone")
    command = f"gpupipe bench --encode prores_torch --codec {recipe} --frames {PIPELINE_FRAMES}"
    request = Request(command, encode="prores_torch", recipe=recipe, frames=PIPELINE_FRAMES, only=rows, checked=12)
    report = bench(request, say=lambda line: print(f"{recipe}: {line}", flush=True), stop=threading.Event())
    found: dict[str, Any] = json.loads(report.to_json())
    return found


def lines(rows: dict[str, Any], pipelines: dict[str, Any]) -> dict[str, dict[str, float | bool]]:
    """Each of LINES that was measured: what it came to, what it must reach, and whether it does."""
    alone, times, large, chain, bytes_ = LINES
    found: dict[str, float] = {}
    if hq := rows.get("1080p hq"):
        found[alone] = max(hq["encoder_frames_per_second"].values())
        found[times] = hq["times_prores_ks"]
        found[bytes_] = round(1 / hq["device_to_host_over_bitstream"], 4)
    if uhd := rows.get("2160p hq"):
        found[large] = max(uhd["encoder_frames_per_second"].values())
    rates = [row["rate"]["median"] for p in pipelines.values() for row in p["rows"] if row["name"] == "encode"]
    if rates:
        found[chain] = min(rates)
    return {
        name: {"reached": value, "at_least": round(LINES[name], 4), "holds": value >= LINES[name]}
        for name, value in found.items()
    }


def main() -> None:
    """Row by row."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--seconds", type=float, default=1.2, help="for each figure")
    parser.add_argument("--rows", nargs="*", default=list(ROWS), choices=list(ROWS))
    parser.add_argument("--pipeline", nargs="*", default=["h264"], help="recipes of `gpupipe bench --codec`")
    args = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("bench/prores.py measures a GPU, and torch sees none here")
    import triton  # noqa: PLC0415  what took part

    rows: dict[str, Any] = {}
    pipelines: dict[str, Any] = {}
    facts = {
        "command": "python bench/prores.py",
        "date": dt.datetime.now(dt.UTC).date().isoformat(),
        "versions": {"torch": torch.__version__, "triton": triton.__version__, "av": av.__version__},
        "gpu": torch.cuda.get_device_name(0),
        "cores": os.cpu_count(),
    }

    def keep() -> dict[str, dict[str, float | bool]]:
        held = lines(rows, pipelines)
        if args.json:
            whole = {**facts, "lines": held, "rows": rows, "pipeline": pipelines}
            args.json.write_text(json.dumps(whole, indent=1) + "\n")
        return held

    for number, row in enumerate(args.rows):
        rows[row] = measure(row, args.seconds)
        keep()
        for recipe in args.pipeline if number == 0 else ():  # early, as it is asked for
            pipelines[recipe] = pipeline(recipe)
            keep()
    for name, line in keep().items():
        print(f"{'holds' if line['holds'] else 'FAILS'}  {name}: {line['reached']}, at least {line['at_least']}")


if __name__ == "__main__":
    main()
