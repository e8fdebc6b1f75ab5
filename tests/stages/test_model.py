"""The stage `model` on the CPU: against the network itself, in tiles, at odd sizes, in whole runs, out of memory."""

from __future__ import annotations

import av
import numpy as np
import pytest
import torch
from stills import filtered, picture, plan, psnr, run, worst

from gpupipe import stages
from gpupipe.engines.eager import Eager
from gpupipe.engines.select import Built
from gpupipe.errors import PlanError, ShortMemoryError
from gpupipe.journal import Journal
from gpupipe.models import folder
from gpupipe.models.card import CARDS, find
from gpupipe.models.fetch import verify
from gpupipe.models.load import load

SR, DENOISE, STYLE = "realesr-animevideov3-x2", "ffdnet-color", "multistyle26"


@pytest.fixture(autouse=True)
def _weights(weights):
    weights(SR)
    weights(DENOISE)
    weights(STYLE)


@pytest.fixture(scope="module")
def real(corpus):
    """A strip with odd sides of a real picture, 33 rows of 121 pixels: networks are slow on two cores."""
    with av.open(str(corpus / "files" / "bt601_full_range.mp4")) as source:
        rgb = next(source.decode(video=0)).to_ndarray(format="rgb24")[60:93, 60:181]
    assert rgb.std() > 5, "a flat picture shows nothing"
    return torch.from_numpy(np.ascontiguousarray(rgb)).permute(2, 0, 1)[None].float() / 255


def network(name):
    """What the stage is compared with: the module as it was loaded, on the whole picture."""
    module = load(find(name), verify(find(name), folder.weights()))
    if name == DENOISE:
        return lambda x: module(x, torch.full((1, 1, 1, 1), find(name).extras[0].default))
    return module


def format_of(x, pixels="rgbf32"):
    return picture(pixels, x.shape[-1], x.shape[-2])


@pytest.mark.parametrize("tile", ["auto", 60, 37, 24])
@pytest.mark.parametrize("name", [SR, DENOISE])
def test_it_is_the_network_whole_and_in_tiles(name, tile, real):
    wanted = network(name)(real)
    (ours,), target = run("model", {"card": name, "tile": tile}, format_of(real), (real,))
    assert (target.width, target.height) == (121 * find(name).scale, 33 * find(name).scale)
    assert ours.shape == wanted.shape
    assert (ours - wanted).abs().max() < (1e-6 if tile == "auto" else 1e-3)


@pytest.mark.parametrize("name", [SR, DENOISE])
def test_alpha_goes_past_the_network(name, real):
    """At its own size as it is; at another it is the picture's alpha, resized as ffmpeg's zscale does."""
    alpha = torch.linspace(0, 1023, 121).round().to(torch.uint16).expand(1, 33, 121).contiguous()
    source = picture("rgbf32", 121, 33, alpha=10)
    (ours, matte), target = run("model", {"card": name, "tile": "off"}, source, (real, alpha))
    assert (ours - network(name)(real)).abs().max() < 1e-6
    if target.width == 121:
        assert torch.equal(matte, alpha)
    else:
        gray, larger = (picture("gray10le", f.width, f.height) for f in (source, target))
        graph = f"setparams=range=pc,zscale=w={target.width}:h={target.height}:filter=bicubic:param_a=0:param_b=0.5"
        theirs = filtered((alpha,), gray, graph, larger)
        assert worst((matte[..., 4:-4],), (theirs[0][..., 4:-4],)) <= 1
    assert "alpha" in " ".join(plan("model", {"card": name}, source)[1])


@pytest.mark.parametrize(("height", "width"), [(1, 1), (3, 2), (1, 40), (33, 3)])
@pytest.mark.parametrize("tile", ["auto", 16])
def test_odd_sizes_and_sizes_below_the_multiple(height, width, tile, real):
    x = real[..., :height, :width].contiguous()
    for name in (SR, DENOISE):
        (ours,), _ = run("model", {"card": name, "tile": tile}, format_of(x), (x,))
        assert (ours - network(name)(x)).abs().max() < 1e-3


@pytest.mark.parametrize("batch", [2, "auto"])
@pytest.mark.parametrize("tile", ["off", 40])
def test_a_picture_does_not_depend_on_those_beside_it(batch, tile, real):
    several = torch.cat((real, real.flip(-1), 1 - real))
    made = prepared({"card": SR, "tile": tile, "batch": batch}, several, rows=3)
    (ours,) = made((several,))
    wanted = network(SR)
    for n in range(3):
        assert (ours[n : n + 1] - wanted(several[n : n + 1])).abs().max() < 1e-3


def test_half_precision_comes_close(real):
    real = real[..., :16, :16].contiguous()  # fp16 takes the CPU a hundred times as long
    wanted = network(SR)(real)
    (ours,), _ = run("model", {"card": SR, "precision": "fp16", "tile": "off", "batch": 1}, format_of(real), (real,))
    assert psnr((ours,), (wanted,), 1.0) >= 50
    assert not torch.equal(ours, wanted)


def test_a_vector_that_every_picture_shares(real):
    numbers = tuple(float(n == 3) for n in range(26))
    module = load(find(STYLE), verify(find(STYLE), folder.weights()))
    padded = torch.nn.functional.pad(real, (0, 3, 0, 3), mode="replicate")  # to its multiple of 4
    wanted = module(padded, torch.tensor(numbers))[..., :33, :121]
    (ours,), _ = run("model", {"card": STYLE, "inputs": {"style_weights": numbers}}, format_of(real), (real,))
    assert torch.equal(ours, wanted)


def test_half_floats_in_and_out(real):
    x = real.half()
    (ours,), _ = run("model", {"card": SR, "precision": "fp32"}, format_of(real, "rgbf16"), (x,))
    assert psnr((ours.float(),), (network(SR)(x.float()),), 1.0) > 65


def test_the_noise_is_an_input(real):
    x = real + 0.1 * torch.randn(real.shape, generator=torch.Generator().manual_seed(1))
    (little,), _ = run("model", {"card": DENOISE, "inputs": {"sigma": 0.0}}, format_of(x), (x,))
    (much,), _ = run("model", {"card": DENOISE, "inputs": {"sigma": 0.1}}, format_of(x), (x,))
    assert psnr((much,), (real,), 1.0) > psnr((little,), (real,), 1.0) + 3


def prepared(settings, x, rows=1, journal=None):
    kind = stages.load("model")
    made = kind(kind.Settings.model_validate(settings))
    made.attend(Journal() if journal is None else journal, rows)
    made.prepare(format_of(x))
    return made


class Narrow:
    """The eager engine on a device that has memory for so many pixels at once, from the `calls`th call on."""

    def __init__(self, monkeypatch, pixels, calls=0):
        self.shapes, self.calls, real = [], 0, Eager.load

        def load(engine, module, profile, where):
            run = real(engine, module, profile, where)

            def limited(x):
                self.calls += 1
                if self.calls > calls and x.shape[0] * x.shape[2] * x.shape[3] > pixels:
                    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
                self.shapes.append(tuple(x.shape))
                return run(x)

            return limited

        monkeypatch.setattr(Eager, "load", load)


def test_windows_are_of_one_shape(monkeypatch, real):
    narrow = Narrow(monkeypatch, 1 << 30)
    prepared({"card": SR, "tile": 24, "batch": 4}, real)((real,))
    assert len(set(narrow.shapes)) == 1
    assert narrow.shapes[0][0] == 4


def test_out_of_memory_halves_the_batch_then_the_tile(monkeypatch, real):
    several = torch.cat((real, real.flip(-1), 1 - real, real.flip(-2)))
    wanted = torch.cat([network(SR)(x[None]) for x in several])
    narrow, journal = Narrow(monkeypatch, 4000), Journal()
    made = prepared({"card": SR, "batch": 4, "tile": "off"}, several, rows=4, journal=journal)
    (ours,) = made((several,))
    assert (ours - wanted).abs().max() < 1e-3
    assert narrow.shapes[-1][0] == 1
    (entry,) = journal.entries.values()
    assert (entry.code, entry.count) == ("out-of-memory", 2)
    assert (
        entry.message
        == f"{SR}: out of memory with whole pictures, 4 at once; it goes on with whole pictures, 2 at once"
    )
    Narrow(monkeypatch, 3000)
    made = prepared({"card": SR, "batch": 1, "tile": 110}, real, journal=journal)
    (ours,) = made((real,))
    assert (ours - wanted[:1]).abs().max() < 1e-3


def test_where_nothing_fits_it_is_one_line(monkeypatch, real):
    Narrow(monkeypatch, 10)
    made = prepared({"card": SR, "batch": 2, "tile": 64}, real)
    with pytest.raises(ShortMemoryError, match=r"^out of memory on cpu even with tiles of 32, 1 at once \("):
        made((real,))


def test_another_error_is_not_taken_for_it(monkeypatch, real):
    def broken(*_):
        raise RuntimeError("expected 4 channels")

    made = prepared({"card": SR}, real)
    monkeypatch.setattr(made._running, "_built", Built(broken, "eager", flexible=True))
    with pytest.raises(RuntimeError, match="expected 4 channels"):
        made((real,))


def test_the_plan_says_what_will_run(real):
    target, (note,) = plan("model", {"card": SR}, format_of(real))
    assert (target.width, target.height, target.pixels.name) == (242, 66, "rgbf32")
    assert note == f"{SR}: super-resolution x2, weights BSD-3-Clause; fp32 on cpu, engine eager"
    _, (note,) = plan("model", {"card": DENOISE}, format_of(real))
    assert "weights unstated, no licence for commercial use" in note


def test_weights_that_were_not_fetched(tmp_path, real):
    folder.choose(tmp_path)
    with pytest.raises(PlanError, match=rf"the weights of {SR} are not there \(gpupipe models fetch {SR}\)$"):
        plan("model", {"card": SR}, format_of(real))


def test_a_precision_that_the_card_forbids(tmp_path, real):
    card = tmp_path / "own.yaml"
    card.write_text((CARDS / f"{SR}.yaml").read_text().replace("bfloat16: true", "bfloat16: false"))
    with pytest.raises(PlanError, match=rf"^{SR} is no good in bf16 \(use `precision: auto`\)$"):
        plan("model", {"card": str(card), "precision": "bf16"}, format_of(real))


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"card": "nothing"}, "there is no card 'nothing'"),
        ({"card": SR, "inputs": {"sigma": 1.0}}, "has no input 'sigma' (it takes pictures only)"),
        ({"card": DENOISE, "inputs": {"sigma": (1.0, 2.0)}}, "ffdnet-color takes a number for sigma, not 2"),
        ({"card": STYLE, "tile": 64}, "multistyle26 must have the picture whole (use `tile: off`)"),
        ({"card": STYLE, "inputs": {"style_weights": (1.0,)}}, "takes 26 numbers for style_weights, not 1"),
        ({"card": "centerface"}, "centerface (face-detection) does not give a picture for every picture"),
        ({"card": DENOISE, "inputs": {"noise": 1.0}}, "has no input 'noise' (it takes sigma)"),
    ],
)
def test_what_cannot_be_planned(settings, says, real):
    with pytest.raises(PlanError) as told:
        plan("model", settings, format_of(real))
    assert says in str(told.value)
