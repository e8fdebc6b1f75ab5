"""Python's share of a GPU run without a GPU: NVDEC, slots and nvJPEG are pretended, all else is the program's own.

    python bench/pretended.py [--sessions 14 28] [--frames 6000] [--rounds 3] [--bytes 150000]
                              [--json bench/results/pretended_cpu.json]

Decoders give a picture for every packet and let go of Python's lock as the library's call does, slots compute nothing,
and every coded picture is the same JPEG; files, packets, lanes, slabs, writer and MOV are real. What it tells is what
Python costs: processor time of this process a picture and how often its threads had to wait (voluntary switches), not
how fast a GPU would be. Each round writes once by a thread and once by a process of its own, in turns.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import resource
import sys
import tempfile
import time
from collections import defaultdict
from contextlib import ExitStack, nullcontext
from fractions import Fraction
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # as the command line does; read when torch is loaded

import av
import numpy as np
import torch

from bench.matrix import small
from bench.measured import head, keep
from bench.writing import whole
from gpupipe.bench.clip import RECIPES, make_clip
from gpupipe.codecs import nvdec_session, pynv
from gpupipe.codecs.described import DescribedEncoder
from gpupipe.codecs.intra import intra_packets
from gpupipe.config import parse_config
from gpupipe.device import cuda
from gpupipe.device.cpu import CpuLane
from gpupipe.format import PIXEL_FORMATS
from gpupipe.media.probe import probe
from gpupipe.plan import make_plan
from gpupipe.render import device_runner, segmented

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpupipe.codecs.base import EncoderSettings, Keep, Packet
    from gpupipe.frame import FrameBatch
    from gpupipe.plan import Plan

BATCH = 16
WAITING = 1 << 30


class Lane(CpuLane):
    """Stands for a CUDA stream."""

    def __init__(self, device: str = "cpu", priority: int = 0) -> None:
        del device, priority


class Slot:
    """Stands for a batch in the GPU's memory."""

    def __init__(self, source: Any, rows: int, *_: object, **__: object) -> None:
        self.rows = rows
        self.outputs = tuple(np.zeros((rows, *shape), np.uint8) for shape in source.plane_shapes)

    def copy(self, row: int, address: int) -> None:
        """Nothing is copied."""

    def run(self) -> Any:
        """Nothing is computed."""
        return SimpleNamespace(synchronize=lambda: None)


class Frame:
    """Of PyNvVideoCodec's."""

    format = "Pixel_Format.NV12"

    def __init__(self, pts: int) -> None:
        self._pts = pts

    def getPTS(self) -> int:  # noqa: N802  the library's name
        """When it is shown."""
        return self._pts

    def GetPtrToPlane(self, _: int) -> int:  # noqa: N802  the library's name
        """Where it lies."""
        return 4096


class Decoder:
    """Of PyNvVideoCodec's; its pictures come out in the order of their packets."""

    def __init__(self, width: int, height: int) -> None:
        self.GetWidth, self.GetHeight = lambda: width, lambda: height

    def Decode(self, data: Any) -> Sequence[Frame]:  # noqa: N802  the library's name
        """A picture; lets others in."""
        time.sleep(0)
        return [Frame(data.pts)] if data.bsl else []


class Encoder(DescribedEncoder):
    """Stands for nvJPEG's lane; meets `base.AloneEncoder`."""

    def __init__(self, settings: EncoderSettings, jpeg: bytes) -> None:
        self.settings = settings
        self._spans = [(n * len(jpeg), (n + 1) * len(jpeg)) for n in range(BATCH)]
        self._data = np.frombuffer(jpeg * BATCH, np.uint8)

    def encode_into(self, batch: FrameBatch, keep: Keep) -> list[Packet]:
        """See `base.AloneEncoder`."""
        time.sleep(0)
        return intra_packets(batch, keep(self._data, self._spans[: batch.valid]), self.settings.time_base)


def jpeg_of(size: int) -> bytes:
    """One of that many bytes; what lies behind the picture is nothing."""
    made = av.CodecContext.create("mjpeg", "w")
    assert isinstance(made, av.VideoCodecContext)
    made.width, made.height, made.pix_fmt, made.time_base = 320, 180, "yuvj420p", Fraction(1, 30)
    data = bytes(made.encode(av.VideoFrame(320, 180, "yuvj420p"))[0])
    return data.ljust(size, b"\0")


def pretended(plan: Plan, sessions: int) -> Plan:
    """The plan as one of a GPU, with nothing between decoder and encoder."""
    encoder = dataclasses.replace(plan.encoder, codec="mjpeg", encoder="nvjpeg")
    return dataclasses.replace(
        plan, decoder="nvdec", steps=(), sessions=sessions, batch=BATCH, graphs="off", encoder=encoder,
        waiting_bytes=WAITING,
    )  # fmt: skip


def doubles(plan: Plan, jpeg: bytes, stack: ExitStack) -> None:
    """Puts all that is pretended where the GPU's would be."""
    video = plan.source.video
    library = SimpleNamespace(
        PacketData=lambda: SimpleNamespace(bsl=0, bsl_data=0, pts=0), cudaVideoCodec=SimpleNamespace(H264=0),
        CreateDecoder=lambda **_: Decoder(video.format.width, video.format.height),
    )  # fmt: skip
    nv12 = video.format.with_(pixels=PIXEL_FORMATS["nv12"])
    for owner, name, value in (
        (pynv, "load", lambda: library),
        (pynv, "gpu_index", lambda _: 0),
        (nvdec_session, "primary_context", lambda _: 0),
        (nvdec_session, "same_context", nullcontext),
        (device_runner, "CudaLane", Lane),
        (device_runner, "Slot", Slot),
        (device_runner, "surface_format", lambda *_: nv12),
        (torch.cuda, "graph_pool_handle", lambda: 0),
        (cuda, "release_spare", lambda: None),
        (segmented, "encoder_maker", lambda plan: lambda _: Encoder(plan.encoder, jpeg)),
    ):
        stack.enter_context(mock.patch.object(owner, name, value))


def spent() -> tuple[float, int]:
    """Processor seconds of this process, and how often its threads waited."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime, usage.ru_nvcsw


def round_of(plan: Plan, *, apart: bool) -> dict[str, float]:
    """One whole run; microseconds and waits a picture."""
    before, (cpu, waits) = time.monotonic(), spent()
    run = whole(plan, apart=apart)
    after = spent()
    each = 1 / run.frames
    return {
        "rate": run.rate, "cpu_us": 1e6 * (after[0] - cpu) * each, "waits": (after[1] - waits) * each,
        "seconds": time.monotonic() - before,
    }  # fmt: skip


def main() -> None:
    """In turns, for each number of sessions."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sessions", type=int, nargs="*", default=[14, 28])
    parser.add_argument("--frames", type=int, default=6000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--bytes", type=int, default=150_000, help="of a coded picture")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    small("h264")
    rows: dict[str, dict[str, float]] = {}
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as name, ExitStack() as stack:
        clip, output = Path(name) / "clip.mp4", Path(name) / "out.mov"
        make_clip(clip, RECIPES["h264"], args.frames)
        config = parse_config({"segments": {"seconds": 2}, "resume": "off", "output": {"video": {"codec": "mjpeg"}}})
        plan = make_plan(config, probe(clip), output, device="cpu")
        doubles(plan, jpeg_of(args.bytes), stack)
        for sessions in args.sessions:
            seen = defaultdict[str, list[dict[str, float]]](list)
            for _ in range(args.rounds):
                for way in ("by a thread", "by a process"):
                    seen[way].append(round_of(pretended(plan, sessions), apart=way == "by a process"))
            for way, found in seen.items():
                row = {key: median(one[key] for one in found) for key in found[0]}
                rows[f"{sessions} sessions, {way}"] = row
                print(
                    f"{sessions} sessions, {way:13}", {key: round(value, 2) for key, value in row.items()}, flush=True
                )
            keep(args.json, {**head("cpu"), "rows": rows})


if __name__ == "__main__":
    main()
