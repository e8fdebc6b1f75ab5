"""`gpupipe run --report`: the JSON against the output, the page in a real browser."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from fractions import Fraction
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from gpupipe.cli import cli
from gpupipe.cli.console import Console
from gpupipe.config import parse_config
from gpupipe.errors import GpupipeError
from gpupipe.events import happened
from gpupipe.media.probe import probe
from gpupipe.plan import make_plan
from gpupipe.render import RenderResult, Watch
from gpupipe.render.watch import WAIT, LaneReading, Reading
from gpupipe.report import recorder
from gpupipe.report.charts import bottleneck, charts
from gpupipe.report.recorder import Sample
from gpupipe.report.run import RunReport
from gpupipe.sample import make_sample
from gpupipe.stages.base import ModelUse

if TYPE_CHECKING:
    from pathlib import Path

CONFIG = """segments: {seconds: 1}
sessions: 2
stages: [{warp: {rotate: 5}}]
output: {video: {encoder: libx264, preset: ultrafast}}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with both reports; its names try to break out of the page."""
    folder = tmp_path_factory.mktemp("report")
    make_sample(folder / "clip.mov", seconds=4, size=(640, 360), rate=Fraction(25))
    (folder / "c.yaml").write_text(CONFIG)
    words = ["run", folder / "c.yaml", folder / "clip.mov", folder / "<b>out&'.mp4", "--device", "cpu", "--quiet"]
    reports = ["--report", folder / "r.html", "--report", folder / "r.json"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recorder, "INTERVAL", 0.05)  # the run lasts about a second, on a fast machine less
        done = CliRunner().invoke(
            cli, [str(word) for word in (*words, *reports)], obj=Console(), catch_exceptions=False
        )
    assert done.exit_code == 0
    return folder


def test_the_json_agrees_with_the_output(folder, ffprobe):
    report = json.loads((folder / "r.json").read_text())
    stream = ffprobe(folder / "<b>out&'.mp4", "-count_frames", "-show_streams")["streams"][0]
    assert (report["format"], report["verdict"]) == (1, "done")
    assert report["result"]["frames"] == int(stream["nb_read_frames"]) == report["samples"][-1]["frames"]
    assert report["result"]["bytes"] == (folder / "<b>out&'.mp4").stat().st_size
    assert report["samples"][-1]["resident_bytes"] > 50_000_000
    assert set(report["samples"][-1]["lanes"]) == {"writer", "runner-0", "runner-1"}
    assert report["no_gpu"] == "this run has no GPU"
    assert "digest" in report["plan"]
    assert report["versions"]["av"]


def test_the_page_is_one_file(folder):
    page = (folder / "r.html").read_text()
    own = re.sub(r"<script>/\*! https://github.com/leeoniya/uPlot.*?</script>", "", page, flags=re.DOTALL)
    assert own != page
    assert not re.search(r"(src|href)\s*=\s*[\"'](?!data:)", own)
    assert not re.search(r"https?://|@import|url\(", own)
    assert "<b>out" not in page
    assert "&lt;b&gt;out&amp;&#39;.mp4" in page
    assert len(page) < 5_000_000


BROWSER = """
import json, sys
from playwright.sync_api import sync_playwright
with sync_playwright() as play:
    browser = play.chromium.launch(executable_path=sys.argv[1], args=["--no-sandbox"], timeout=200_000)
    found = []
    for width, scheme in ((1280, "light"), (390, "dark")):
        context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
        context.set_default_timeout(200_000)
        page, said, asked = context.new_page(), [], []
        page.on("console", lambda m: said.append(m.text))
        page.on("pageerror", lambda e: said.append(str(e)))
        page.on("request", lambda r: asked.append(r.url) if not r.url.startswith("data:") else None)
        page.goto("file://" + sys.argv[2])
        box = page.locator(".compare .stage").first.bounding_box()
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 5)
        page.mouse.down()
        page.mouse.move(box["x"] + box["width"] * 0.8, box["y"] + 5, steps=4)
        page.mouse.up()
        found.append({
            "said": said, "asked": asked,
            "edge": page.evaluate("parseFloat(document.querySelector('.compare').style.getPropertyValue('--at'))"),
            "wide": page.evaluate("document.documentElement.scrollWidth"),
            "points": page.evaluate("gpupipePlots.map(p => p.data[1].filter(v => v != null).length)"),
            "inked": page.evaluate('''[...document.querySelectorAll('.uplot canvas')].map(c =>
                new Set(new Uint32Array(c.getContext('2d').getImageData(0, 0, c.width, c.height).data.buffer)).size)'''),
            "pictures": page.evaluate("[...document.images].filter(i => i.complete && i.naturalWidth).length"),
            "small": page.evaluate('''[...document.querySelectorAll('main *')].filter(e =>
                e.childElementCount == 0 && e.textContent.trim() && parseFloat(getComputedStyle(e).fontSize) < 12).length'''),
            "ink": page.evaluate("[getComputedStyle(document.body).color, getComputedStyle(document.body).backgroundColor]"),
        })
    page = context.new_page()
    page.goto("file://" + sys.argv[3])
    hues = page.evaluate('''gpupipePlots.flatMap(p => p.series.slice(1).map((s, k) => {
        const bar = document.getElementsByClassName('s-' + s.label)[0], ink = document.createElement('i');
        ink.style.color = s.stroke(p, k + 1);
        document.body.append(ink);
        return bar && [s.label, getComputedStyle(ink).color, getComputedStyle(bar).backgroundColor];
    }).filter(Boolean))''')
    print(json.dumps([*found, hues]))
"""


def test_in_a_browser(folder, tmp_path):
    pytest.importorskip("playwright", reason="the browser check needs playwright (extra dev)")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("no chromium here (Debian: apt-get install chromium)")
    (tmp_path / "c.yaml").write_text("output: {video: {encoder: libx264, preset: ultrafast}}\n")
    run = ["run", tmp_path / "c.yaml", folder / "clip.mov", tmp_path / "o.mp4", "--device", "cpu", "--quiet"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recorder, "INTERVAL", 0.05)
        run += ["--report", tmp_path / "one.html"]
        assert CliRunner().invoke(cli, [str(word) for word in run], obj=Console()).exit_code == 0
    words = [sys.executable, "-c", BROWSER, chromium, str(folder / "r.html"), str(tmp_path / "one.html")]
    done = subprocess.run(words, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    *pages, hues = json.loads(done.stdout)
    assert {"decode", "encode"} <= {label for label, _, _ in hues}
    assert all(line == bar for _, line, bar in hues), hues  # one thing, one colour, in charts and bars
    for width, found in zip((1280, 390), pages, strict=True):
        assert found["said"] == []
        assert found["asked"] == [f"file://{folder}/r.html"]
        assert found["edge"] == pytest.approx(80, abs=3)
        assert found["wide"] == width
        assert len(found["points"]) == 3
        assert min(found["points"]) >= 2
        assert min(found["inked"]) > 10
        assert (found["pictures"], found["small"]) == (10, 0)
        inks = [[int(v) for v in re.findall(r"\d+", colour)[:3]] for colour in found["ink"]]
        assert abs(sum(inks[0]) - sum(inks[1])) > 500  # ink against paper


def test_a_failed_run_is_reported(corpus, tmp_path):
    """A picture size that changes in mid-stream, and a config that forbids it."""
    (tmp_path / "c.yaml").write_text("size_change: error\noutput: {video: {encoder: libx264, preset: ultrafast}}\n")
    clip = corpus / "files" / "reschange_848x464_to_424x232.h264"
    words = ["run", tmp_path / "c.yaml", clip, tmp_path / "o.mkv", "--device", "cpu"]
    words += ["--report", tmp_path / "r.json", "--report", tmp_path / "r.html"]
    done = CliRunner().invoke(cli, [str(word) for word in words], obj=Console())
    assert isinstance(done.exception, GpupipeError)
    report = json.loads((tmp_path / "r.json").read_text())
    assert (report["verdict"], report["result"]) == ("failed", None)
    assert report["failure"] == str(done.exception)
    assert report["samples"][-1]["frames"] > 0
    assert "failed: " in (tmp_path / "r.html").read_text()
    assert not (tmp_path / "o.mkv").exists()


def test_refused_before_work(folder, tmp_path):
    words = ["run", str(folder / "c.yaml"), str(folder / "clip.mov"), str(tmp_path / "o.mp4"), "--report"]
    assert CliRunner().invoke(cli, [*words, str(tmp_path / "r.txt")], obj=Console()).exit_code == 2
    done = CliRunner().invoke(cli, [*words, str(tmp_path / "none" / "r.html")], obj=Console())
    assert "does not exist" in str(done.exception)
    assert not list(tmp_path.iterdir())


def reading(elapsed: float, frames: int, **lanes: dict[str, float]) -> Reading:
    clocks = tuple(LaneReading(name.replace("_", "-"), "x", seconds) for name, seconds in lanes.items())
    return Reading(elapsed, frames, frames, 100, 0.0, 0, clocks, (), 0, 0, {}, {})


def test_series_and_the_bottleneck():
    first = reading(0, 0, runner_0={"decode": 0.0}, encode_0={WAIT + "pictures": 0.0})
    last = reading(
        2, 50, runner_0={"decode": 1.8, WAIT + "the writer": 0.2}, encode_0={WAIT + "pictures": 1.5, "encode": 0.5}
    )
    gpu = {"gpu": 40.0, "nvdec": 90.0, "power_w": 300.0, "memory_mib": 2048.0}
    found = {
        chart.title: chart for chart in charts([Sample(first, 1 << 30, None, gpu), Sample(last, 2 << 30, None, gpu)])
    }
    assert found["Frames a second"].series == {"frames/s": [25.0]}
    assert found["Lanes: share of time at work"].series == {"encode": [25.0], "runner": [90.0]}
    assert found["GPU and its video engines"].series == {"GPU": [40.0, 40.0], "NVDEC": [90.0, 90.0]}
    assert found["Memory"].series == {"this process": [1.0, 2.0], "GPU, everyone": [2.0, 2.0]}
    assert "Temperature" not in found
    assert (
        bottleneck(last)
        == "runner lanes set the pace: at work 90% of the time; encode lanes waited for pictures for 1.5 s"
    )


def test_networks_and_what_happened_on_the_way(folder, tmp_path):
    plan = make_plan(parse_config({}), probe(folder / "clip.mov"), tmp_path / "o.mp4", device="cpu")
    watch = Watch()
    watch.lane("writer", "open")
    watch.models["span"] = ModelUse("span", "Apache-2.0 <b>", "span==1.0", 64 * "a", "tensorrt in fp16")
    happened("engine-build", "span in 40 s")
    happened("fewer-sessions", "2 of 4 sessions, after: <i>")
    watch.leave()
    recorded = recorder.Recorder(watch, "cpu")
    recorded.take()
    result = RenderResult(folder / "clip.mov", 10, 10, 0, 0, 2.0, 0.1, 1000)
    report = RunReport(plan, "gpupipe run", "/", recorded, (), result)
    data = json.loads(report.to_json())
    assert [h["kind"] for h in data["happenings"]] == ["engine-build", "fewer-sessions"]
    assert data["models"] == [
        {
            "name": "span",
            "licence": "Apache-2.0 <b>",
            "source": "span==1.0",
            "sha256": 64 * "a",
            "engine": "tensorrt in fp16",
        }
    ]
    assert data["message"].endswith("; 1 step back for lack of memory")
    page = report.to_html()
    assert "Apache-2.0 &lt;b&gt;" in page
    assert "2 of 4 sessions, after: &lt;i&gt;" in page
    assert "tensorrt in fp16" in page
