"""FFDNet's frame around its convolutions: odd sizes, and that inductor takes it as it does on a GPU."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from gpupipe.engines.inductor import Inductor
from gpupipe.models.ffdnet import FFDNet


@pytest.fixture
def network() -> FFDNet:
    """Its shuffles, padding and noise map around one convolution."""
    torch.manual_seed(3)
    made = FFDNet()
    made.model = nn.Sequential(nn.Conv2d(13, 12, 3, padding=1))
    return made.eval().requires_grad_(requires_grad=False)


@pytest.mark.parametrize(("height", "width"), [(6, 8), (7, 8), (6, 9), (7, 9), (1, 1)])
def test_odd_sides_are_padded_by_their_last_line(network: FFDNet, height: int, width: int) -> None:
    """By numpy: even sides, channel c at row r and column k of a square of four is channel 4c + 2r + k at half size."""
    x, sigma = torch.rand(2, 3, height, width), torch.full((2, 1, 1, 1), 0.1)
    whole = np.pad(x.numpy(), ((0, 0), (0, 0), (0, height % 2), (0, width % 2)), mode="edge")
    small = np.stack([whole[:, c, r::2, k::2] for c in range(3) for r in range(2) for k in range(2)], 1)
    seen = np.concatenate((small, np.full_like(small[:, :1], 0.1)), 1)
    quarters = network.model(torch.from_numpy(seen)).numpy()
    wanted = np.empty_like(whole)
    for c in range(3):
        for r in range(2):
            for k in range(2):
                wanted[:, c, r::2, k::2] = quarters[:, 4 * c + 2 * r + k]
    assert np.array_equal(network(x, sigma).numpy(), wanted[..., :height, :width])


@pytest.mark.skipif(Inductor().absent("cpu") is not None, reason="no C++ compiler here")
@pytest.mark.filterwarnings("ignore")  # torch's compilers warn of themselves
def test_inductor_takes_it_with_the_concatenation_fused(network: FFDNet) -> None:
    """What it does on a GPU by itself; with `pad` of mode replicate in the way sympy then says "not comparable"."""
    x, sigma = torch.rand(1, 3, 16, 24), torch.full((1, 1, 1, 1), 0.1)
    options = {"force_pointwise_cat": True, "cpp.vec_isa_ok": True, "cpp_cache_precompile_headers": False}
    compiled = torch.compile(network, fullgraph=True, dynamic=False, options=options)
    assert torch.allclose(compiled(x, sigma), network(x, sigma), atol=1e-5)
