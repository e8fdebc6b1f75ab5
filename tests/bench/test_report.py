"""What is told of a bench: JSON, tables, chart; and that README shows what was committed."""

from __future__ import annotations

import io
import json
import re
import threading
from dataclasses import replace
from pathlib import Path

import av
import pytest
from bench_clips import MJPEG, STAGES

from gpupipe.bench import Request, bench
from gpupipe.bench.cases import Case
from gpupipe.bench.chart import chart, obstacle
from gpupipe.bench.flow import Run
from gpupipe.bench.measure import bottleneck, measure
from gpupipe.bench.nvml import Sampler
from gpupipe.bench.record import Report, Row, Spread, Utilisation
from gpupipe.bench.text import lines, markdown
from gpupipe.config import parse_config
from gpupipe.errors import ConfigError, MediaError

ROOT = Path(__file__).resolve().parents[2]


def row(name: str, rate: float, kind: str = "step", **more: object) -> Row:
    return Row(name, f"label of {name}", kind, 60, 1, Spread(rate, rate - 1, rate + 1), **more)


def on_gpu(report: Report) -> Report:
    """As an H200 might give it."""
    used = Utilisation(23.0, 10.0, 98.0, 0.0, 0.0, 200.0, 1980.0, 1500.0, 4000.0, 50)
    machine = replace(report.machine, gpu="NVIDIA H200", driver="580")
    return replace(report, machine=machine, rows=tuple(replace(r, utilisation=used) for r in report.rows))


def test_says_what_was_measured_and_what_not(report):
    assert [r.name for r in report.rows if r.rate is None] == ["cpu", "host-pipe", "host-pipe-threads"]
    assert all(r.reason for r in report.rows if r.rate is None)
    assert report.check.frames == 30
    assert report.check.worst > 30
    assert report.row("whole").whole_rate.median <= report.row("whole").rate.most
    told = " ".join(report.not_measured)
    assert "NVDEC" in told
    assert "`host-pipe`" in told
    assert report.row("warp").of_decode.median > 0
    assert report.row("decode").of_decode is None


def test_ratios_are_run_by_run(report):
    found = {r.to: r for r in report.ratios}
    assert list(found) == ["decode", "encoder-alone", "limit", "cpu", "host-pipe", "host-pipe-threads"]
    whole, decode = report.row("whole").rate, report.row("decode").rate
    assert found["decode"].value.least <= whole.median / decode.median <= found["decode"].value.most
    assert found["limit"].value.median >= max(found["decode"].value.median, found["encoder-alone"].value.median)
    assert found["cpu"].value is None
    assert found["cpu"].reason


def test_the_json_is_read_back(report):
    assert Report.from_json(report.to_json()) == report
    assert Report.from_json(on_gpu(report).to_json()) == on_gpu(report)


def test_the_schema_is_what_it_was(report):
    """Whoever reads these files must not be surprised: a field that goes or moves needs another `SCHEMA`."""
    data = json.loads(report.to_json())
    assert list(data) == [
        "schema", "gpupipe", "command", "date", "machine", "clip", "plan", "check", "runs", "tried", "rows", "ratios",
        "bottleneck", "not_measured",
    ]  # fmt: skip
    assert data["schema"] == 1
    assert list(data["rows"][0]) == [
        "name", "label", "kind", "frames", "sessions", "rate", "whole_rate", "startup", "cores", "of_decode",
        "utilisation", "reason",
    ]  # fmt: skip
    assert set(data["rows"][0]["rate"]) == {"median", "least", "most"}
    assert str(Path("/")) not in "".join(data["plan"]).replace(" / ", "")


@pytest.mark.parametrize(("text", "said"), [("{}", "not a report"), ("[", "not a report")])
def test_other_json_is_refused(text, said):
    with pytest.raises(MediaError, match=said):
        Report.from_json(text)


def test_another_schema_is_refused(report):
    with pytest.raises(MediaError, match="schema 2"):
        Report.from_json(replace(report, schema=2).to_json())


def test_the_markdown_tells_what_the_json_holds(report):
    table = markdown(report).partition("whole run over")[0].splitlines()
    cells = {line.split("|")[1].strip(): line for line in table if line.startswith("| ")}
    data = json.loads(report.to_json())
    for one in data["rows"]:
        if one["rate"] is None:
            assert one["label"] not in cells
            continue
        shown = [cell.strip() for cell in cells[one["label"]].split("|")[2:-1]]
        assert float(shown[0]) == pytest.approx(one["rate"]["median"], rel=0.006)
        least, most = map(float, shown[1].split(".."))
        assert (least, most) == pytest.approx((one["rate"]["least"], one["rate"]["most"]), rel=0.006)


@pytest.mark.parametrize("gpu", [False, True])
def test_the_table_fits_a_terminal(report, gpu):
    shown = list(lines(on_gpu(report) if gpu else report))
    assert max(map(len, shown)) < 80
    assert any(line.split() == ["frames/s", "spread", "of", "decode", "GPU", "NVDEC", "cores"] for line in shown) == gpu
    assert any("98 %" in line for line in shown) == gpu


@pytest.mark.parametrize("gpu", [False, True])
def test_the_chart_is_a_picture(report, gpu):
    with av.open(io.BytesIO(chart(on_gpu(report) if gpu else report)), format="png_pipe") as container:
        picture = next(container.decode(video=0)).to_ndarray(format="rgb24")
    assert picture.shape[1] == 1280
    assert 300 < picture.shape[0] < 1200
    assert (picture != 255).any(axis=(0, 2)).mean() > 0.8


def test_without_matplotlib_there_is_a_reason(monkeypatch):
    assert obstacle() is None
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    assert "gpupipe[metrics]" in obstacle()


def test_nothing_is_timed_where_the_check_fails(small_clip, monkeypatch):
    def wrong(*_: object) -> object:
        raise MediaError("12.0 dB")

    monkeypatch.setattr("gpupipe.bench.check", wrong)
    monkeypatch.setattr("gpupipe.bench.measure", lambda *_: pytest.fail("timed"))
    config = parse_config({"stages": STAGES, "output": MJPEG})
    with pytest.raises(MediaError, match=r"12\.0 dB"):
        bench(Request("", config, source=small_clip, device="cpu"), say=lambda _: None, stop=threading.Event())


def test_rows_are_chosen_by_name(small_clip):
    config = parse_config({"output": MJPEG})
    said: list[str] = []
    request = Request("", config, source=small_clip, device="cpu", frames=30, runs=1, only=("encode",))
    found = bench(request, say=said.append, stop=threading.Event())
    assert [r.name for r in found.rows] == ["encode"]
    assert found.ratios == ()
    assert said[0].startswith("checking")
    with pytest.raises(ConfigError, match="one of decode, convert, encode, whole"):
        bench(replace(request, only=("wrap",)), say=said.append, stop=threading.Event())


def test_the_bottleneck_is_named():
    decode, alone = row("decode", 1000, "limit"), row("encoder-alone", 400, "limit")
    assert bottleneck((decode, row("warp", 990), row("whole", 390, "whole"), alone)).startswith("the encoder (400")
    assert bottleneck((decode, row("warp", 300), row("whole", 290, "whole"), alone)).startswith("the steps (300")
    quick = row("encoder-alone", 4000, "limit")
    assert bottleneck((decode, row("warp", 990), row("whole", 980, "whole"), quick)).startswith("decoding (990")
    assert "hold each other up" in bottleneck((decode, row("warp", 990), row("whole", 500, "whole"), quick))
    assert bottleneck((row("whole", 390, "whole"), alone)).startswith("the encoder (400")
    assert bottleneck((decode, row("warp", 999))) == "of what was measured decoding (999 frames/s)"
    assert bottleneck((decode, row("warp", 300))) == "of what was measured the steps (300 frames/s)"
    assert bottleneck((decode,)).startswith("not known")


def test_drift_meets_all_rows_alike():
    """Rounds, not row after row."""
    order: list[str] = []

    def case(name: str) -> Case:
        return Case(name, name, "step", 60, run=lambda n: order.append(name) or Run(n, 0.0, 1.0, 0.0, 1.0))

    measure([case("a"), case("b")], 2, Sampler("cpu"), lambda _: None)
    assert order == ["a", "b", "a", "b", "a", "b"]


SHOWN = re.compile(r"<!-- bench: (\S+) -->\n(.*?)<!-- end -->", re.DOTALL)


@pytest.mark.parametrize(("path", "text"), SHOWN.findall((ROOT / "README.md").read_text(encoding="utf-8")))
def test_readme_shows_the_committed_figures(path, text):
    found = Report.from_json((ROOT / path).read_text(encoding="utf-8"), path)
    assert text == markdown(found), "run `python bench/readme.py`"
