"""NVENC reads a picture only when it is there, and no pixel leaves the GPU but by the double below the real library."""

from __future__ import annotations

import ctypes
import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

import av
import numpy as np
import pytest
import torch
from nvenc_clips import H, W, picture, psnr
from nvenc_place import HOST, shim

from gpupipe.bench.clip import RECIPES, make_clip
from gpupipe.cli import execute
from gpupipe.cli.console import Console
from gpupipe.codecs.base import EncoderSettings
from gpupipe.codecs.nvenc import NvencEncoder
from gpupipe.device import open_lane
from gpupipe.format import PIXEL_FORMATS, FrameFormat
from gpupipe.frame import FrameBatch

if TYPE_CHECKING:
    from gpupipe.device.base import Lane

pytestmark = [pytest.mark.gpu, pytest.mark.nvenc]

PICTURES, RUNS, ENCODERS = 6, 20, 1 if HOST else 10  # each encoder goes RUNS times over all pictures: 200 runs in all
LATE = 2_000_000  # cycles: about a millisecond in which a picture is not there yet
LOGO = str(Path(__file__).resolve().parents[2] / "configs/assets/logo.png")


def nv12(number: int, device: str) -> tuple[torch.Tensor, torch.Tensor]:
    whole = torch.from_numpy(picture(number, 8))
    u, v = (whole[H + i * H // 4 : H + (i + 1) * H // 4].reshape(H // 2, W // 2) for i in range(2))
    return whole[:H][None].to(device), torch.stack((u, v), -1)[None].to(device)


@pytest.fixture(scope="module")
def drawn() -> list[tuple[torch.Tensor, torch.Tensor]]:
    return [nv12(n, "cpu" if HOST else "cuda:0") for n in range(PICTURES)]


def encode(drawn: list[tuple[torch.Tensor, torch.Tensor]], maker: Lane, lane: Lane, runs: int = 1) -> float:
    """The worst picture's likeness when one lane draws late into a slot and another encodes it, as runners do.

    An encoder for many runs: opening one makes and destroys a CUDA context.
    """
    source = FrameFormat(PIXEL_FORMATS["nv12"], W, H, device=lane.device)
    settings = EncoderSettings("h264", "nvenc", source, Fraction(1, 25), Fraction(25), 10, None, None, {"bf": "0"})
    encoder, packets = NvencEncoder(settings, lane), []
    with maker.active():
        slot = tuple(torch.zeros_like(plane) for plane in drawn[0])
    for number, planes in enumerate(drawn * runs):
        with maker.active():
            if not HOST:
                torch.cuda._sleep(LATE)
            for to, plane in zip(slot, planes, strict=True):
                to.copy_(plane)
        batch = FrameBatch(source, (number,), settings.time_base, slot, durations=(1,), ready=maker.record())
        packets += encoder.encode(batch)
    packets += encoder.finish()
    encoder.close()
    maker.synchronize()
    context = av.CodecContext.create("h264", "r")
    shown = [f.to_ndarray() for p in packets for f in context.decode(av.Packet(bytes(p)))]
    shown += [f.to_ndarray() for f in context.decode(None)]
    assert len(shown) == len(drawn) * runs
    return min(psnr(ours, picture(n % PICTURES, 8)) for n, ours in enumerate(shown))


def lanes() -> tuple[Lane, Lane]:
    name = "cpu" if HOST else "cuda:0"
    return open_lane(name), open_lane(name)


def test_with_the_wait_no_picture_is_torn_or_repeated(device: str, drawn) -> None:
    maker, lane = lanes()
    worst = min(encode(drawn, maker, lane, RUNS) for _ in range(ENCODERS))
    print(f"{RUNS * ENCODERS} runs of {PICTURES} pictures, the worst {worst:.1f} dB")  # noqa: T201  figures
    assert worst >= 40


@pytest.mark.skipif(HOST, reason="host memory is written when the call returns: nothing can be early")
def test_without_the_wait_the_test_above_would_fail(device: str, drawn, monkeypatch: pytest.MonkeyPatch) -> None:
    maker, lane = lanes()
    monkeypatch.setattr(type(lane), "wait", lambda _self, _event: None)
    worst = [encode(drawn, maker, lane) for _ in range(5)]
    print(f"without the wait: {[round(w, 1) for w in worst]} dB")  # noqa: T201  figures
    assert max(worst) < 30


def test_no_pixel_is_copied_but_by_the_double(device: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    library = shim()
    if library is None:
        pytest.skip("counts the double's own copies: make -C tests/nvenc_shim")
    library.nvenc_shim_bytes.restype = ctypes.c_uint64
    count = 12 if HOST else 240
    clip, config, output = tmp_path / "clip.mp4", tmp_path / "c.yaml", tmp_path / "out.mp4"
    make_clip(clip, replace(RECIPES["h264"], bitrate=2_000_000), count)
    stages = [{"warp": {"rotate": 1.5, "scale": 1.02}}, {"overlay": {"image": LOGO, "opacity": 0.6, "margin": 32}}]
    video = {"codec": "h264", "encoder": "nvenc", "quality": 24}
    config.write_text(json.dumps({"stages": [] if HOST else stages, "output": {"video": video}}))
    before = library.nvenc_shim_bytes()
    words = ["run", str(config), str(clip), str(output), "--device", device, "--audit-copies", "--json"]
    assert execute(words, Console()) == 0
    own = library.nvenc_shim_bytes() - before
    shown = capsys.readouterr()
    print(shown.err)  # noqa: T201  figures
    assert own >= count * 1920 * 1080 * 3 // 2
    told = json.loads(shown.out)["copies"]
    if HOST:
        assert told["to_host"] is None
        return
    others = told["to_host"]["copied"] - own
    print(f"to the host {told['to_host']['copied']:,} bytes, of them the double's {own:,}")  # noqa: T201  figures
    assert told["watched"] > 0.99
    assert -0.01 * own <= others <= 1.02 * told["to_host"]["compressed"] + 1_000_000
    assert told["to_device"]["copied"] <= 1.02 * told["to_device"]["compressed"] + 1_000_000


def test_pictures_are_told_apart() -> None:
    """Neighbours differ by more than the thresholds above allow."""
    assert max(psnr(picture(n, 8), picture(n + 1, 8)) for n in range(PICTURES)) < 30
    assert np.unique([picture(n, 8).sum() for n in range(PICTURES)]).size == PICTURES
