"""Which convolutions go to 8 bits: a bad one stays in floats, the limit is kept, and pictures measured on are others."""

from __future__ import annotations

import math

import pytest
import torch

from gpupipe.engines import calibrate as calibrate_module
from gpupipe.engines import calibrated
from gpupipe.engines.calibrate import calibrate, layer_of, watched
from gpupipe.errors import EngineError
from gpupipe.models import folder
from gpupipe.models.quantised import quantised

WIDE = 8


def conv(wide, deep, seed):
    made = torch.nn.Conv2d(deep, wide, 3, padding=1)
    torch.nn.init.normal_(made.weight, std=1 / math.sqrt(9 * deep), generator=torch.Generator().manual_seed(seed))
    torch.nn.init.zeros_(made.bias)
    return made


def network(bad: bool):
    """Five inner convolutions; the third, where `bad`, takes the difference of channels that are large and nearly the same."""
    layers = [conv(WIDE, 3, 1), *(conv(WIDE, WIDE, seed) for seed in range(2, 7)), conv(3, WIDE, 7)]
    if bad:
        with torch.no_grad():
            before, after = layers[2], layers[3]
            before.weight[4:] = 0
            before.bias[:] = 300
            taps = 3 * after.weight[:, :4, 1, 1]  # in the middle: zeros around the picture are not 300
            after.weight[:] = 0
            after.weight[:, :4, 1, 1], after.weight[:, 4:, 1, 1] = taps, -taps
    with torch.no_grad():
        layers[-1].weight *= 10
    parts = [part for layer in layers[:-1] for part in (layer, torch.nn.PReLU(WIDE))]
    return torch.nn.Sequential(*parts, layers[-1]).eval().requires_grad_(requires_grad=False)


def pictures(count, seed=0):
    random = torch.Generator().manual_seed(seed)
    smooth = torch.nn.functional.interpolate(torch.rand(count, 3, 4, 5, generator=random), (24, 30), mode="bicubic")
    return list((smooth + 0.05 * torch.randn(smooth.shape, generator=random)).clamp(0, 1)[:, None])


def parts(count):
    """Pictures that are measured whole."""
    return [(picture,) for picture in pictures(count, 1)]


def decibels(ours, wanted):
    return -10 * math.log10(float((ours.double() - wanted.double()).square().mean()))


def test_all_but_first_and_last_where_that_is_good_enough():
    net = network(bad=False)
    found = calibrate(net, pictures(3), parts(3), "int8", 38)
    assert [layer.name for layer in found.layers] == ["2", "4", "6", "8", "10"]
    inner, outer = 5 * WIDE * WIDE, 2 * 3 * WIDE
    assert found.share == pytest.approx(inner / (inner + outer), abs=1e-4)
    assert found.convolutions == 7


@pytest.mark.parametrize(("numbers", "limit"), [("int8", 38.0), ("fp8", 30.0)])
def test_a_bad_one_stays_in_floats_and_the_limit_is_kept(numbers, limit):
    net, held_out = network(bad=True), pictures(3, 1)
    found = calibrate(net, pictures(3), [(x,) for x in held_out], numbers, limit)
    kept = {layer.name for layer in found.layers}
    assert "6" not in kept
    assert kept <= {"2", "4", "8", "10"}
    assert len(kept) >= 3
    each = [decibels(quantised(net, found)(x), net(x)) for x in held_out]
    ours, wanted = (torch.cat([made(x) for x in held_out]) for made in (quantised(net, found), net))
    assert decibels(ours, wanted) >= limit
    assert (found.decibels, found.worst) == pytest.approx((decibels(ours, wanted), min(each)), abs=0.006)
    bad = found.model_copy(update={"layers": (layer_of(watched(net, pictures(3))[3], numbers),)})
    assert min(decibels(quantised(net, bad)(x), net(x)) for x in held_out) < limit, "or the test shows nothing"


def test_a_higher_limit_leaves_more_in_floats():
    net = network(bad=False)
    all_of_them = calibrate(net, pictures(3), parts(3), "int8", 20)
    fewer = calibrate(net, pictures(3), parts(3), "int8", all_of_them.decibels + 0.1)
    assert fewer.decibels > all_of_them.decibels
    assert fewer.share < all_of_them.share


def test_one_picture_may_not_be_far_below_the_others(monkeypatch):
    """Beside flat pictures, of which 8 bits lose little, the limit holds for all together, and not for the worst."""
    net, (worst,) = network(bad=False), pictures(1, 1)
    held_out = [(worst,), *(((x * 0 + 0.5),) for x in pictures(30, 2))]
    found = calibrate(net, pictures(3), held_out, "int8", 20)
    assert found.decibels > found.worst + 3
    limit, slack = found.decibels - 0.1, found.decibels - found.worst - 0.5
    monkeypatch.setattr(calibrate_module, "SLACK", slack + 1)
    assert calibrate(net, pictures(3), held_out, "int8", limit).share == found.share
    monkeypatch.setattr(calibrate_module, "SLACK", slack)
    stricter = calibrate(net, pictures(3), held_out, "int8", limit)
    assert stricter.share < found.share
    assert stricter.worst >= limit - slack


def test_what_cannot_be_kept_is_one_line():
    with pytest.raises(EngineError, match=r"^int8 gives \d\d\.\d dB of 60, and no part of it keeps that$") as told:
        calibrate(network(bad=True), pictures(2), parts(2), "int8", 60)
    assert "\n" not in str(told.value)


def test_a_network_of_two_layers_has_nothing_for_it():
    net = torch.nn.Sequential(conv(8, 3, 1), conv(3, 8, 2))
    with pytest.raises(EngineError, match="it has no convolutions for fp8 between its first and its last"):
        calibrate(net, pictures(1), parts(1), "fp8", 38)


@pytest.mark.parametrize("bad", [False, True])
def test_the_same_on_any_number_of_threads(bad):
    threads = torch.get_num_threads()
    found = []
    try:
        for count in (1, 2):
            torch.set_num_threads(count)
            found.append(calibrate(network(bad), pictures(3), parts(3), "int8", 34).model_dump_json())
    finally:
        torch.set_num_threads(threads)
    assert found[0] == found[1]


def test_balance_brings_channels_together():
    """Against a range for each layer alone: channels that differ a hundredfold."""
    net = network(bad=False)
    with torch.no_grad():
        scale = torch.logspace(-2, 2, WIDE)
        net[2].weight *= scale.view(-1, 1, 1, 1)
        net[4].weight /= scale.view(1, -1, 1, 1)
    use = watched(net, pictures(3))[2]
    layer = layer_of(use, "int8")
    assert sorted(layer.balance) == list(layer.balance)
    plain = layer.model_copy(update={"balance": (), "top": float(use.tops.max())})
    (x,) = pictures(1, 1)
    alone, balanced = (
        decibels(
            quantised(net, calibrate(net, [x], [(x,)], "int8", 20).model_copy(update={"layers": (one,)}))(x), net(x)
        )
        for one in (plain, layer)
    )
    assert balanced > alone + 10


class Bound:
    """Stands for a card and its files."""

    def __init__(self, monkeypatch, tmp_path, net):
        monkeypatch.setattr(calibrated, "load", lambda *_: net)
        monkeypatch.setattr(calibrated, "bind", lambda _, made, __: made)
        monkeypatch.setattr(calibrated, "origin_of", lambda *_: "origin")
        monkeypatch.setattr(folder, "engines", lambda: tmp_path)
        self.calls, real = [], calibrate

        def watch(net, seen, held_out, *more):
            self.calls.append((seen, held_out))
            return real(net, seen, held_out, *more)

        monkeypatch.setattr(calibrated, "calibrate", watch)

    halo, multiple, minimum = 5, 4, 1

    def ask(self, given, least=38.0, numbers="int8"):
        return calibrated.recipe_for(calibrated.Asked(self, {}, {}, numbers, least, "cpu"), given)


@pytest.fixture
def bound(monkeypatch, tmp_path):
    return Bound(monkeypatch, tmp_path, network(bad=True))


def test_pictures_held_out_are_not_those_calibrated_on(bound):
    given = pictures(7)
    bound.ask(given, 34.0)
    ((seen, held_out),) = bound.calls
    assert (len(seen), len(held_out)) == (4, 3)
    flat = [part for parts in held_out for part in parts]
    assert len(flat) == 12, "four of each"
    for one in (*seen, *flat):
        assert one.shape[-2] % 4 == one.shape[-1] % 4 == 0, "the network's multiple"
    whole = [one[..., :24, :30] for one in seen]
    assert all(any(torch.equal(one, picture) for picture in given[0::2]) for one in whole)
    for parts, picture in zip(held_out, given[1::2], strict=True):
        quarters = [picture[..., y : y + 12, x : x + 15] for y in (0, 12) for x in (0, 15)]
        assert all(torch.equal(part[..., :12, :15], quarter) for part, quarter in zip(parts, quarters, strict=True))


def test_it_is_found_once(bound):
    given = pictures(4)
    first = bound.ask(given, 34.0)
    assert bound.ask([one.clone() for one in given], 34.0) == first
    assert len(bound.calls) == 1
    bound.ask(given, 33.0)
    bound.ask([*given[:3], given[3] * 0.999], 34.0)
    bound.ask(given, 30.0, "fp8")
    assert len(bound.calls) == 4


def test_that_there_is_none_is_known_the_next_time(bound):
    for _ in range(2):
        with pytest.raises(EngineError, match=r"int8 gives .* dB of 60"):
            bound.ask(pictures(2), 60.0)
    assert len(bound.calls) == 1


def test_one_picture_is_not_enough(bound):
    with pytest.raises(EngineError, match="it needs two pictures at least"):
        bound.ask(pictures(1))


def test_ranges_come_from_where_the_contrast_is_and_measures_from_everywhere(monkeypatch):
    monkeypatch.setattr(calibrated, "HARD", 16)
    monkeypatch.setattr(calibrated, "SIDE", 8)
    picture = torch.full((1, 3, 64, 80), 0.5)
    picture[..., 32:48, 48:64] = torch.rand(1, 3, 16, 16)

    class Card:
        halo, multiple, minimum = 3, 1, 1

    assert torch.equal(calibrated._hardest(picture, Card), picture[..., 32:48, 48:64])
    places = [(12, 16), (12, 56), (44, 16), (44, 56)]
    parts = calibrated._quarters(picture, Card)
    assert all(torch.equal(a, picture[..., y : y + 8, x : x + 8]) for a, (y, x) in zip(parts, places, strict=True))
    assert [part.shape[-2:] for part in calibrated._quarters(picture[..., :1, :1], Card)] == [(1, 1)]
    Card.halo = None
    assert torch.equal(calibrated._hardest(picture, Card), picture), "a network that must have the picture whole"
    assert torch.equal(calibrated._quarters(picture, Card)[0], picture)
