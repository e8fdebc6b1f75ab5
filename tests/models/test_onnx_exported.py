"""What torch's own exporter makes of networks of several kinds, read again: sizes computed in the file, any picture."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
import torch
from torch import nn
from torch.nn import functional

from gpupipe.models.onnx import read


class Windows(nn.Module):
    """Attention within windows of 8 x 8, as SwinIR has it."""

    def __init__(self):
        super().__init__()
        self.norm, self.triple, self.out = nn.LayerNorm(3), nn.Linear(3, 48), nn.Linear(16, 3)

    def forward(self, x):
        b, c, h, w = x.shape
        y = x.permute(0, 2, 3, 1).reshape(b, h // 8, 8, w // 8, 8, c).permute(0, 1, 3, 2, 4, 5).reshape(-1, 64, c)
        q, k, v = self.triple(self.norm(y)).chunk(3, -1)
        y = self.out(functional.gelu(torch.softmax(q @ k.transpose(-2, -1) * 0.25, -1) @ v))
        return y.reshape(b, h // 8, w // 8, 8, 8, 3).permute(0, 5, 1, 3, 2, 4).reshape(b, 3, h, w)


class Modulated(nn.Module):
    """Weights made from a vector, as StyleGAN and swap generators have them."""

    def __init__(self):
        super().__init__()
        self.weight, self.style = nn.Parameter(torch.randn(8, 3, 3, 3)), nn.Linear(16, 3)
        self.group, self.instance, self.out = nn.GroupNorm(2, 8), nn.InstanceNorm2d(8, affine=True), nn.Conv2d(8, 3, 1)

    def forward(self, x, v):
        n, _, h, w = x.shape
        weight = self.weight[None] * self.style(v)[:, None, :, None, None]
        weight = weight * torch.rsqrt(weight.pow(2).sum([2, 3, 4]) + 1e-8)[:, :, None, None, None]
        y = functional.conv2d(x.reshape(1, -1, h, w), weight.reshape(-1, 3, 3, 3), padding=1, groups=n)
        y = functional.leaky_relu(y.reshape(n, 8, h, w), 0.2)
        return torch.tanh(self.out(self.instance(self.group(y))))


class UpDown(nn.Module):
    """Half the size and back, with a way around."""

    def __init__(self):
        super().__init__()
        self.down, self.norm, self.up = nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.ConvTranspose2d(8, 8, 4, 2, 1)
        self.slope, self.out = nn.PReLU(8), nn.Conv2d(11, 3, 3, padding=1, padding_mode="reflect")

    def forward(self, x):
        y = functional.silu(self.norm(self.down(x)))
        y = self.slope(self.up(functional.max_pool2d(functional.pad(y, (1, 1, 1, 1), mode="replicate"), 3, 1)))
        y = functional.interpolate(y, size=x.shape[-2:], mode="bilinear")
        around = functional.interpolate(functional.avg_pool2d(x, 2), scale_factor=2, mode="bicubic")
        return torch.clamp(self.out(torch.cat([y, around], 1)), 0, 1)


class Warped(nn.Module):
    """A flow made of the picture, a mask, and what is left after channels and columns are moved."""

    def forward(self, x):
        n, _, h, w = x.shape
        rows, columns = torch.meshgrid(torch.linspace(-1, 1, h), torch.linspace(-1, 1, w), indexing="ij")
        grid = torch.stack([columns, rows], -1)[None].expand(n, -1, -1, -1)
        light = x.mean(1, keepdim=True)
        mask = (light > 0.5).float()
        moved = functional.grid_sample(x, grid + 0.01 * light.permute(0, 2, 3, 1), align_corners=True)
        return moved * mask + torch.where(light > 0.4, x, x * 0.5) * (1 - mask) + x[:, [2, 0, 1]].roll(1, -1)


@pytest.mark.filterwarnings("ignore")  # the exporter's own, of tracing and of its successor
@pytest.mark.parametrize("network", [Windows, Modulated, UpDown, Warped])
def test_an_exported_network_is_read_as_it_was(network, tmp_path):
    torch.manual_seed(3)
    model = network().eval()
    more = (torch.rand(1, 16),) if network is Modulated else ()
    given = (torch.rand(1, 3, 32, 40), *more)
    torch.onnx.export(
        model, given, str(tmp_path / "net.onnx"), dynamo=False, opset_version=17, input_names=["x", "v"][: len(given)],
        dynamic_axes={"x": {2: "h", 3: "w"}},
    )  # fmt: skip
    x = torch.rand(1, 3, 48, 64)
    session = onnxruntime.InferenceSession(str(tmp_path / "net.onnx"))
    (theirs,) = session.run(None, {"x": x.numpy()} | ({"v": more[0].numpy()} if more else {}))
    ours = read(tmp_path / "net.onnx")
    with torch.no_grad():
        assert torch.allclose(ours(x, *more), model(x, *more), atol=1e-5)
    assert np.abs(ours(x, *more).numpy() - theirs).max() < 1e-5
