"""Files of the user's own: weights of a named architecture, .pt2, ONNX; and the card that is made of them."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import shutil
import subprocess
import sys
import zipfile

import pytest
import torch
import yaml
from safetensors.torch import save_file
from test_onnx_operators import build
from torch import nn
from torch.nn import functional

from gpupipe.errors import ConfigError, MediaError
from gpupipe.models import pt2
from gpupipe.models.card import CARDS, find, read_card
from gpupipe.models.fetch import fetch, fingerprint, verify
from gpupipe.models.load import load
from gpupipe.models.own import describe

SPANDREL = ("spandrel==0.4.2", "6c93e3ecbeb0e548fd2df45a605472b34c1614287c56b51bb33cdef7ae5235b5")
REFERENCE = """
import sys
import torch
from safetensors.torch import save_file
folder = sys.argv[1]
sys.path.insert(0, folder)
from spandrel.architectures.Compact.__arch.SRVGG import SRVGGNetCompact
from spandrel.architectures.SPAN.__arch.span import SPAN
torch.manual_seed(5)
nets = {
    "srvgg": SRVGGNetCompact(num_feat=12, num_conv=3, upscale=3),
    "span": SPAN(num_in_ch=3, num_out_ch=3, feature_channels=8, upscale=2, norm=False),
    "span_normal": SPAN(num_in_ch=3, num_out_ch=3, feature_channels=8, upscale=4),
}
x, results = torch.rand(2, 3, 21, 34), {}
results["x"] = x
for name, net in nets.items():
    net.eval()
    save_file({k: v.clone() for k, v in net.state_dict().items()}, f"{folder}/{name}.safetensors")
    with torch.no_grad():
        results[name] = net(x)
save_file(results, folder + "/results.safetensors")
"""


@pytest.fixture(scope="module")
def spandrel(tmp_path_factory):
    """Weights and results of spandrel's own networks; its __init__ files, which want torchvision, are left out."""
    folder = tmp_path_factory.mktemp("spandrel")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", SPANDREL[0]]
    subprocess.run([*command, "--dest", str(folder)], check=True, timeout=300)
    (wheel,) = folder.glob("*.whl")
    assert hashlib.sha256(wheel.read_bytes()).hexdigest() == SPANDREL[1]
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    for name in ("", "architectures", "architectures/SPAN", "architectures/Compact"):
        (folder / "spandrel" / name / "__init__.py").write_text("")
    stub = "def store_hyperparameters(*a, **k):\n    return lambda net: net\n"
    (folder / "spandrel" / "util" / "__init__.py").write_text(stub)
    subprocess.run([sys.executable, "-c", REFERENCE, str(folder)], check=True, timeout=240)
    return folder


@pytest.mark.parametrize(("name", "scale", "reach"), [("srvgg", 3, 5), ("span", 2, 21), ("span_normal", 4, 21)])
def test_weights_make_the_network_they_are_named_for(name, scale, reach, spandrel):
    path = spandrel / f"{name}.safetensors"
    card = describe(path, name.removesuffix("_normal"))
    assert (card.scale, card.halo, card.multiple, card.minimum) == (scale, reach, 1, 1)
    with (spandrel / "results.safetensors").open("rb") as file:
        from safetensors.torch import load as tensors  # noqa: PLC0415

        results = tensors(file.read())
    ours = load(card, {"weights": path})(results["x"])
    assert ours.shape == results[name].shape
    assert (ours - results[name]).abs().max() < 1e-5 * max(1, results[name].abs().max())


def test_weights_of_another_network_name_what_is_wrong(spandrel, tmp_path):
    with pytest.raises(
        MediaError, match=r"srvgg\.safetensors: holds no weights of FFDNet: model\.0\.weight is missing"
    ):
        describe(spandrel / "srvgg.safetensors", "ffdnet")
    tensors = {"body.0.weight": torch.zeros(8, 3, 3, 3), "body.2.weight": torch.zeros(12, 8, 3, 3)}
    save_file(tensors, tmp_path / "few.safetensors")
    with pytest.raises(MediaError, match=r"few\.safetensors: holds no weights of SRVGG: body\.0\.bias is missing"):
        describe(tmp_path / "few.safetensors", "srvgg")


def test_weights_alone_want_an_architecture(spandrel):
    with pytest.raises(ConfigError, match=r"holds weights alone: say of which network \(architecture: ffdnet \| span"):
        describe(spandrel / "srvgg.safetensors")
    with pytest.raises(ConfigError, match="no architecture 'gan'"):
        describe(spandrel / "srvgg.safetensors", "gan")


class Net(nn.Module):
    """What exporters meet: sizes computed, an in-place layer, a buffer, parts, a vector beside the picture."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.relu = nn.Conv2d(3, 12, 3, padding=1), nn.BatchNorm2d(12), nn.ReLU(inplace=True)
        self.register_buffer("gain", torch.linspace(0.5, 1.5, 12).view(1, 12, 1, 1))
        self.slope = nn.PReLU(12)

    def forward(self, x, v):
        h, w = x.shape[-2:]
        y = self.slope(self.relu(self.norm(self.conv(x))) * self.gain - 0.2) + torch.ones(1)
        y = functional.interpolate(y, (h // 2, w // 2), mode="bilinear")
        y = functional.interpolate(y, scale_factor=2.0, mode="bilinear")
        a, b = y.chunk(2, 1)
        return functional.pixel_shuffle(torch.cat((b, a), 1) * v, 2)


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    torch.manual_seed(2)
    model = Net().eval()
    any_size = {0: torch.export.Dim.AUTO, 2: torch.export.Dim.AUTO, 3: torch.export.Dim.AUTO}
    given = (torch.rand(2, 3, 16, 20), torch.rand(2, 12, 1, 1))
    program = torch.export.export(model, given, dynamic_shapes=(any_size, {0: torch.export.Dim.AUTO}))
    path = tmp_path_factory.mktemp("pt2") / "net.pt2"
    torch.export.save(program, path)
    return model, path


def test_pt2_gives_what_was_exported(exported):
    model, path = exported
    ours = pt2.read(path)
    x, v = torch.rand(3, 3, 22, 26), torch.rand(3, 12, 1, 1)
    assert torch.allclose(ours(x, v), model(x, v), atol=1e-6)
    assert ours.half()(x.half(), v.half()).dtype == torch.float16


def test_a_card_is_made_of_a_pt2(exported):
    _, path = exported
    card = describe(path)
    assert [(value.name, value.kind, value.shape) for value in card.inputs] == [
        ("x", "picture", ["N", 3, "H", "W"]),
        ("v", "vector", ["N", 12, 1, 1]),
    ]
    assert (card.scale, card.multiple, card.minimum) == (2, 2, 2)
    assert card.halo == 3  # a convolution, then halved and doubled
    load(card, verify(card, path.parent))


def _changed(path, folder, change):
    """The archive with its graph changed, and with what else `change` returns by its name."""
    out = folder / "changed.pt2"
    with zipfile.ZipFile(path) as archive, zipfile.ZipFile(out, "w") as made:
        records = {name: archive.read(name) for name in archive.namelist()}
        graph = next(name for name in records if name.endswith("models/model.json"))
        model = json.loads(records[graph])
        change(model, records)
        records[graph] = json.dumps(model).encode()
        for name, data in records.items():
            made.writestr(name, data)
    return out


def test_what_torch_would_run_in_a_pt2_is_not(exported, tmp_path):
    _, path = exported

    class Evil:
        def __reduce__(self):
            return open, (str(tmp_path / "ran"), "w")

    def pickled(model, records):
        model["guards_code"] = [f"open({str(tmp_path / 'ran')!r}, 'w')"]
        name = next(name for name in records if name.endswith("sample_inputs/model.pt"))
        records[name] = pickle.dumps(Evil())
        records[name.partition("/")[0] + "/data/aotinductor/model/model.so"] = b"\x7fELF"

    x, v = torch.rand(1, 3, 16, 16), torch.rand(1, 12, 1, 1)
    harmless = pt2.read(_changed(path, tmp_path, pickled))
    assert torch.equal(harmless(x, v), pt2.read(path)(x, v))
    assert not (tmp_path / "ran").exists()


REFUSED = {
    "a file is written": (
        "torch.ops.aten.save.default",
        r"node conv2d: the operator torch\.ops\.aten\.save\.default is not read",
    ),
    "a file is read": (
        "torch.ops.aten.from_file.default",
        r"the operator torch\.ops\.aten\.from_file\.default is not read",
    ),
    "code of torch": ("torch.hub.load", r"the operator torch\.hub\.load is not read"),
    "another library": ("torch.ops.evil.run.default", r"the operator torch\.ops\.evil\.run\.default is not read"),
    "a way out": (
        "torch.ops.aten.add.Tensor.__class__",
        r"the operator torch\.ops\.aten\.add\.Tensor\.__class__ is not read",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_operators_beyond_tensors_are_refused(name, exported, tmp_path):
    target, message = REFUSED[name]

    def change(model, records):
        node = next(one for one in model["graph_module"]["graph"]["nodes"] if one["name"] == "conv2d")
        node["target"] = target

    with pytest.raises(MediaError, match=r"changed\.pt2: node conv2d: " + message.removeprefix("node conv2d: ")):
        pt2.read(_changed(exported[1], tmp_path, change))


def test_pickled_weights_in_a_pt2_are_refused(exported, tmp_path):
    def change(model, records):
        name = next(name for name in records if name.endswith("model_weights_config.json"))
        config = json.loads(records[name])
        config["config"]["conv.weight"]["use_pickle"] = True
        records[name] = json.dumps(config).encode()

    with pytest.raises(MediaError, match=r"changed\.pt2: conv\.weight is pickled, which is not read"):
        pt2.read(_changed(exported[1], tmp_path, change))


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 not a zip", b"\x80\x02}q\x00."])
def test_a_damaged_pt2_is_told(content, tmp_path):
    (tmp_path / "net.pt2").write_bytes(content)
    with pytest.raises(MediaError, match=r"net\.pt2: is damaged or not read: ") as told:
        pt2.read(tmp_path / "net.pt2")
    assert "\n" not in str(told.value)


def test_a_torchscript_file_is_no_pt2(tmp_path):
    with zipfile.ZipFile(tmp_path / "net.pt2", "w") as archive:
        archive.writestr("net/code/__torch__.py", "def forward(self, x): pass")
    with pytest.raises(MediaError, match=r"net\.pt2: is no \.pt2 of torch\.export"):
        pt2.read(tmp_path / "net.pt2")


def test_a_generator_of_one_face_takes_many(tmp_path):
    """A network as face generators are exported: one picture 1 x 3 x 32 x 32 and one vector 1 x 8, sizes fixed."""
    body = """one = Constant<value_ints = [1, 3, 1, 1]>() g = MatMul(source, w) r = Reshape(g, one) m = Mul(target, r)
        f = Constant<value_ints = [1, 3, 32, 32]>() y = Reshape(m, f)"""
    path = tmp_path / "swap.onnx"
    build(path, 17, "float[1,3,32,32] target, float[1,8] source", "y", body, {"w": (8, 3)})
    card = describe(path)
    assert card.inputs[0].shape == [1, 3, 32, 32]
    assert (card.inputs[1].kind, card.inputs[1].shape) == ("vector", [1, 8])
    assert (card.task, card.scale, card.halo) == ("generate", 1, None)
    model = load(card, {"onnx": path})
    faces, vectors = torch.rand(3, 3, 32, 32), torch.rand(3, 8)
    ones = [load(card, {"onnx": path})(faces[i : i + 1], vectors[i : i + 1]) for i in range(3)]
    assert torch.allclose(model(faces, vectors), torch.cat(ones), atol=1e-6)
    assert torch.allclose(model(faces, vectors[:1])[2:], model(faces[2:], vectors[:1]), atol=1e-6)


@pytest.mark.parametrize(
    ("inputs", "outputs", "body", "message"),
    [
        ("float[1,1,H,W] x", "y", "y = Relu(x)", "other than one picture N x 3 x H x W|neither a picture nor numbers"),
        ("float[N,3,H,W] x", "y", "y = GlobalAveragePool(x)", r"makes \[1, 3, 1, 1\] of 64 x 64 pixels"),
        ("float[N,3,H,W] x, float[N,3,H,W] z", "y", "y = Add(x, z)", "other than one picture"),
    ],
)
def test_what_needs_a_card_says_so(inputs, outputs, body, message, tmp_path):
    build(tmp_path / "net.onnx", 17, inputs, outputs, body)
    with pytest.raises(ConfigError, match=rf"net\.onnx: .*({message}).*\(write a card for it\)$"):
        describe(tmp_path / "net.onnx")


def test_a_card_of_ones_own_lies_beside_its_files(spandrel, tmp_path):
    shutil.copy(spandrel / "srvgg.safetensors", tmp_path / "net.safetensors")
    card = yaml.safe_load((CARDS / "realesr-animevideov3-x3.yaml").read_text())
    card |= {"name": "mine", "reader": "srvgg", "source": {"files": {"weights": {"path": "net.safetensors"}}}}
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(card))
    mine = find(str(tmp_path / "mine.yaml"))
    files = fetch(mine, tmp_path / "cache")
    assert files == {"weights": tmp_path / "net.safetensors"}
    assert not (tmp_path / "cache").exists()
    load(mine, files)
    before = fingerprint(mine, files)
    (tmp_path / "net.safetensors").write_bytes(b"another")
    assert fingerprint(mine, files) != before
    card["source"]["files"]["weights"]["sha256"] = "0" * 64
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(card))
    with pytest.raises(MediaError, match=r"net\.safetensors: sha256 is .*, the card says 0000000000000000"):
        verify(read_card(tmp_path / "mine.yaml"), tmp_path)
    (tmp_path / "net.safetensors").unlink()
    with pytest.raises(MediaError, match=r"net\.safetensors: the weights of mine are not there$"):
        fetch(mine, tmp_path)


@pytest.mark.parametrize("name", ["realesr-animevideov3-x2", "span-ch48-x2", "ffdnet-color"])
def test_a_cards_halo_is_as_far_as_its_network_looks(name, cache):
    card = find(name)
    files = fetch(card, cache, allowed={name})
    from gpupipe.models.own import _Trial  # noqa: PLC0415

    found = _Trial(load(card, files), list(card.inputs), name)
    assert found.halo() in {card.halo, card.halo - 1}
    assert found.scale == card.scale


@pytest.mark.parametrize("data", [b"", (2**62).to_bytes(8, "little") + b"{", b"\x09" + bytes(7) + b'{"a":1  }'])
def test_a_damaged_safetensors_is_one_line(tmp_path, data):
    path = tmp_path / "net.safetensors"
    path.write_bytes(data)
    with pytest.raises(MediaError, match=r"net\.safetensors: holds no weights"):
        describe(path, "srvgg")


def test_a_pipe_or_an_empty_picture_is_no_network(tmp_path):
    os.mkfifo(tmp_path / "pipe.onnx")
    with pytest.raises(MediaError, match="is no file"):
        describe(tmp_path / "pipe.onnx")
    build(tmp_path / "empty.onnx", 17, "float[1,3,0,0] x", "y", "y = Relu(x)")
    with pytest.raises(ConfigError, match="input x is empty"):
        describe(tmp_path / "empty.onnx")
