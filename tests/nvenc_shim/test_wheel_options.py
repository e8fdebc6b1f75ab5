"""The table of NVENC's options is that of the PyNvVideoCodec wheel: what it takes reaches the driver, the rest does not."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gpupipe.codecs import nvenc_options
from gpupipe.codecs.nvenc_options import LEVELS, OPTIONS, OWN, Option

if TYPE_CHECKING:
    from conftest import Host

pytestmark = pytest.mark.nvenc
HERE = Path(__file__).parent
CODECS = ("h264", "hevc", "av1")
CRASHES = {"source_av_format_context"}
"""Names with which the wheel 2.2.4 ends in a segmentation fault."""


def ask(
    host: Host, base: dict[str, str], questions: list[dict[str, str]], faults: str = "tell"
) -> tuple[Path, list[dict]]:
    done = host.run(HERE / "ask_wheel.py", faults=faults, stdin=json.dumps({"base": base, "ask": questions}))
    assert done.returncode == 0, done.stderr[-2000:]
    module, *lines = done.stdout.splitlines()
    return Path(module), [json.loads(line) for line in lines]


def values(option: Option, codec: str) -> list[str]:
    """All words, or numbers at the ends of their range."""
    if option.choices:
        return [v for v in (LEVELS[codec] if option is OPTIONS["level"] else option.choices) if v != "uhq"]
    if option.scale:
        top = {"qp": nvenc_options._MAX_QP, "cq": nvenc_options._MAX_CQ}[option.scale][codec]
        return [str(n) for n in (option.low, option.low + 1, top)] + (["20,22,18"] if option.scale == "qp" else [])
    return [str(n) for n in (option.low, option.low + 1, option.high)]


@pytest.mark.parametrize("codec", CODECS)
def test_every_value_of_every_option_reaches_the_driver(host: Host, codec: str) -> None:
    offered = [
        (name, value) for name, option in OPTIONS.items() if codec in option.codecs for value in values(option, codec)
    ]
    base = {"codec": codec, "preset": "P4", "rc": "vbr", "bitrate": "1000000"}
    _, told = ask(host, base, [{}, *({name: value} for name, value in offered)])
    plain = told[0]["got"]
    assert len(plain) > 10_000
    seen: dict[str, dict[str, str]] = {}
    for (name, value), one in zip(offered, told[1:], strict=True):
        assert one["error"] is None, (name, value, one["error"])
        assert one["said"] == told[0]["said"], (name, value)
        assert one["got"] not in seen.setdefault(name, {}), f"{name}: {value} and {seen[name][one['got']]} are the same"
        seen[name][one["got"]] = value
    unheard = [name for name, found in seen.items() if set(found) == {plain}]
    assert not unheard
    assert {n for n, option in OPTIONS.items() if codec in option.codecs} == set(seen)


@pytest.mark.parametrize(
    ("name", "value"),
    [("aq", "16"), ("tuning_info", "uhq"), ("multipass", "full"), ("numrefl0", "7"), ("level", "41"), ("cq", "0"),
     ("constqp", "20,22"), ("preset", "P8")],
)  # fmt: skip
def test_what_the_table_refuses_the_wheel_does_not_hear(host: Host, name: str, value: str) -> None:
    """It says nothing to the caller: hence the table."""
    _, (plain, nothing, asked) = ask(host, {"codec": "h264", "rc": "constqp"}, [{}, {name: "nonsense"}, {name: value}])
    assert asked["error"] is None
    lost = {
        plain["got"],
        nothing["got"],
        *(o["got"] for o in ask(host, {"codec": "h264", "rc": "constqp"}, [{name: "0"}])[1]),
    }
    assert asked["got"] in lost


def test_uhq_needs_the_newer_module(host: Host) -> None:
    questions = [{"tuning_info": t} for t in ("high_quality", "uhq", "nonsense")]
    old, (_, uhq, nothing) = ask(host, {"codec": "hevc"}, questions)
    assert "_121" in old.name
    assert uhq["got"] == nothing["got"]
    new, (good, uhq, nothing) = ask(host, {"codec": "hevc"}, questions, faults="tell,api=13")
    assert "_130" in new.name
    assert len({good["got"], uhq["got"], nothing["got"]}) == 3


def test_the_wheel_hears_no_other_name(host: Host) -> None:
    """Every lower-case word in the module as a name: a new version's options would be found here."""
    module, _ = ask(host, {"codec": "hevc"}, [])
    words = re.findall(rb"(?<=\0)[a-z][a-z0-9_]{1,24}(?=\0)", module.read_bytes())
    names = sorted(
        {w.decode() for w in words} - set(OPTIONS) - set(OWN) - CRASHES - {"qmin", "self", "width", "height"}
    )
    assert len(names) > 300
    _, told = ask(host, {"codec": "hevc"}, [{}, *({name: "1"} for name in names)])
    heard = [name for name, one in zip(names, told[1:], strict=True) if one != told[0]]
    assert heard == []


def test_three_numbers_are_p_b_i(host: Host) -> None:
    """`rate_control` gives them in that order: in the structure P, B and I lie one behind the other."""
    _, (one,) = ask(host, {"codec": "h264", "rc": "constqp"}, [{"constqp": "33,35,30"}])
    assert "".join(f"{n:02x}000000" for n in (33, 35, 30)) in one["got"]


def test_rates_are_read_as_fractions(host: Host) -> None:
    rates = ["24000/1001", "25/1", "119/5"]
    _, told = ask(host, {"codec": "h264"}, [{"fps": rate} for rate in rates])
    for rate, one in zip(rates, told, strict=True):
        numbers = b"".join(int(n).to_bytes(4, "little") for n in rate.split("/"))
        assert numbers.hex() in one["got"]
    assert all(a["got"] != b["got"] for a, b in pairwise(told))
