"""Low-rank changes: the same picture as the change made beside the network, and files that do not fit."""

from __future__ import annotations

import onnx
import pytest
import torch
from safetensors.torch import save_file
from test_onnx_operators import build
from torch.nn import functional

from gpupipe.errors import MediaError
from gpupipe.models.card import Card, Change
from gpupipe.models.lora import Lora, merge
from gpupipe.models.onnx import read
from gpupipe.models.own import describe
from gpupipe.models.srvgg import Srvgg


@pytest.fixture
def model():
    torch.manual_seed(1)
    return Srvgg(8, 2, 2).eval()


def _change(name, *, rank=2, peft=False, alpha=None, out=8, deep=8):
    generator = torch.Generator().manual_seed(6)
    down = torch.rand(rank, deep, 3, 3, generator=generator) - 0.5
    up = torch.rand(out, rank, 1, 1, generator=generator) - 0.5
    first, second = ("lora_A", "lora_B") if peft else ("lora_down", "lora_up")
    tensors = {f"{name}.{first}.weight": down, f"{name}.{second}.weight": up}
    return tensors | ({} if alpha is None else {f"{name}.alpha": torch.tensor(alpha)})


def _beside(model, x, change, factor):
    """The network with the change of body.2 as its own two convolutions beside the layer."""
    down, up = (value for value in change.values() if value.dim() == 4)
    y = x
    for number, layer in enumerate(model.body):
        added = functional.conv2d(functional.conv2d(y, down, padding=1), up) if number == 2 else 0
        y = layer(y) + factor * added
    return functional.pixel_shuffle(y, 2) + functional.interpolate(x, scale_factor=2.0)


@pytest.mark.parametrize(("peft", "alpha", "factor"), [(False, None, 0.5), (False, 4.0, 1.0), (True, None, 0.5)])
def test_the_change_is_what_it_would_be_beside_the_layer(peft, alpha, factor, model, tmp_path):
    change = _change("base_model.model.body.2" if peft else "body.2", peft=peft, alpha=alpha)
    save_file(change, tmp_path / "style.safetensors")
    x = torch.rand(1, 3, 12, 15)
    with torch.no_grad():
        wanted, before = _beside(model, x, change, factor), model(x)
        merge(model, Lora(tmp_path / "style.safetensors", 0.5))
        assert (wanted - before).abs().max() > 0.01
        assert torch.allclose(model(x), wanted, atol=1e-5)


def test_a_network_from_onnx_is_changed_by_the_files_own_names(tmp_path):
    shape = (4, 3, 3, 3)
    build(tmp_path / "net.onnx", 17, "float[1,3,6,7] x", "y", "y = Conv<pads = [1, 1, 1, 1]>(x, W)", {"W": shape})
    renamed = onnx.load(tmp_path / "net.onnx")
    renamed.graph.initializer[0].name = renamed.graph.node[0].input[1] = "body.2.weight"
    onnx.save(renamed, tmp_path / "net.onnx")
    model = read(tmp_path / "net.onnx")
    before = model.layers[0].weight.clone()
    change = _change("body.2", out=4, deep=3)
    save_file(change, tmp_path / "style.safetensors")
    merge(model, Lora(tmp_path / "style.safetensors", 2.0))
    down, up = change.values()
    assert torch.allclose(model.layers[0].weight, before + 2 * (up.flatten(1) @ down.flatten(1)).view(shape), atol=1e-6)


WRONG = {
    "body.9": (_change("body.9"), r"changes body\.9\.weight, which the network has not"),
    "shape": (_change("body.2", deep=7), r"body\.2: \[8, 2, 1, 1\] times \[2, 7, 3, 3\] is no change of \[8, 8, 3, 3\]"),
    "half": ({"body.2.lora_down.weight": torch.zeros(2, 8, 3, 3)}, r"has body\.2\.lora_down\.weight but no body\.2\.lora_up\.weight"),
    "more": (_change("body.2") | {"body.2.bias": torch.zeros(8)}, r"body\.2\.bias is no part of a low-rank change"),
    "none": ({}, "holds no low-rank weights"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_changes_that_do_not_fit_name_the_weight(name, model, tmp_path):
    tensors, message = WRONG[name]
    path = tmp_path / "style.safetensors"
    save_file(tensors, path)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    with pytest.raises(MediaError, match=rf"style\.safetensors: {message}$"):
        merge(model, Lora(path))
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())


def test_a_card_may_name_changes(model, tmp_path):
    from gpupipe.models.fetch import fingerprint  # noqa: PLC0415
    from gpupipe.models.load import load  # noqa: PLC0415

    save_file(model.state_dict(), tmp_path / "net.safetensors")
    save_file(_change("body.2"), tmp_path / "style.safetensors")
    card: Card = describe(tmp_path / "net.safetensors", "srvgg")
    files = {"weights": tmp_path / "net.safetensors"}
    changed = card.model_copy(update={"lora": [Change(path=str(tmp_path / "style.safetensors"), strength=0.5)]})
    x = torch.rand(1, 3, 8, 8)
    merge(model, Lora(tmp_path / "style.safetensors", 0.5))
    assert torch.allclose(load(changed, files)(x), model(x), atol=1e-6)
    assert not torch.allclose(load(card, files)(x), model(x), atol=1e-3)
    assert fingerprint(changed, files) != fingerprint(card, files)
