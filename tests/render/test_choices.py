"""What `auto` has chosen for a network holds for the whole file: resumed, on a node, by any process; or it is said why not.

The engines are doubles on the CPU: `fast` adds a little to what the network gives, so that it shows which of them it was.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import av
import numpy as np
import onnx
import pytest

from gpupipe.cli import execute
from gpupipe.cli.console import Console
from gpupipe.cli.job import prepare
from gpupipe.engines import assemble, check, select
from gpupipe.engines.choice import Choice
from gpupipe.engines.eager import Eager
from gpupipe.engines.running import Running
from gpupipe.errors import CapabilityError
from gpupipe.farm.job import job_of
from gpupipe.farm.worker import Worker
from gpupipe.journal import Journal
from gpupipe.models import folder
from gpupipe.render.choices import decided, settle
from gpupipe.render.folder import CHOICES, SEGMENTS
from gpupipe.render.ledger import Ledger
from gpupipe.render.pieces import PieceWriter
from gpupipe.render.runner import Runner
from gpupipe.stages import model

if TYPE_CHECKING:
    from collections.abc import Callable

CLOCK = [0.0]


class Double(Eager):
    """`pause` is what a call takes of the double's own time."""

    builds = True

    def __init__(self, name: str, shift: float = 0.0, pause: float = 0.001) -> None:
        self.name, self.shift, self.pause = name, shift, pause
        self.why: str | None = None
        self.version = "1"

    def absent(self, device: str) -> str | None:
        del device
        return self.why

    def versions(self) -> dict[str, str]:
        return {"double": self.version}

    def build(self, network, profile, folder) -> None:
        del network, profile
        (folder / "data").write_text("engine")

    def load(self, network, profile, folder):
        run = super().load(network, profile, folder)

        def call(x):
            CLOCK[0] += self.pause
            return run(x) + self.shift

        return call


class Plain(Eager):
    def load(self, network, profile, folder):
        run = super().load(network, profile, folder)

        def call(x):
            CLOCK[0] += 0.01
            return run(x)

        return call


@pytest.fixture
def fast(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Double:
    """The fastest there is, until a test says otherwise."""
    monkeypatch.setattr(folder, "engines", lambda: tmp_path / "engines")
    double = Double("fast", shift=0.05)
    there = (double, Plain())

    def candidates(wanted: str, device: str) -> tuple[object, ...]:
        if wanted == "auto":
            return tuple(one for one in there if one.absent(device) is None)
        return (select.named(wanted),)

    monkeypatch.setattr(select, "ENGINES", there)
    for module in (select, assemble, model):
        monkeypatch.setattr(module, "candidates", candidates)
    monkeypatch.setitem(check.LEAST, "fp32", 20.0)
    monkeypatch.setattr("gpupipe.device.timing.time", SimpleNamespace(perf_counter=lambda: CLOCK[0]))
    return double


@pytest.fixture(scope="module")
def media(tmp_path_factory: pytest.TempPathFactory, ffmpeg) -> Path:
    """A source of three segments and a network that blurs."""
    place = tmp_path_factory.mktemp("choices")
    ffmpeg("-f", "lavfi", "-i", "testsrc2=s=96x64:r=4:d=3", "-c:v", "libx264", "-g", "4", "-bf", "0", place / "s.mkv")
    graph = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]>
        net (float[N,3,H,W] frame) => (float[N,3,H,W] y) { y = Conv<pads = [1, 1, 1, 1]>(frame, w) }""")
    kernel = np.zeros((3, 3, 3, 3), np.float32)
    for channel in range(3):
        kernel[channel, channel] = 1 / 9.5
    graph.graph.initializer.append(onnx.numpy_helper.from_array(kernel, "w"))
    onnx.save(graph, place / "net.onnx")
    return place


@pytest.fixture
def words(media: Path, tmp_path: Path) -> list[str]:
    stages = f"stages: [{{model: {{path: '{media / 'net.onnx'}'}}}}]\n"
    video = "output: {video: {codec: ffv1, pixel_format: gbrp10le}}\n"
    (tmp_path / "c.yaml").write_text(
        f"device: cpu\nresume: keep\nsegments: {{seconds: 1}}\nsessions: 2\n{stages}{video}"
    )
    return ["run", "--quiet", *(str(path) for path in (tmp_path / "c.yaml", media / "s.mkv", tmp_path / "o.nut"))]


@pytest.fixture
def says(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str]]:
    def run(*arguments: object) -> tuple[int, str]:
        code = execute([str(one) for one in arguments], Console())
        told = capsys.readouterr()
        return code, told.out + told.err

    return run


@pytest.fixture
def whole(words: list[str], fast: Double, tmp_path: Path) -> bytes:
    """What an undisturbed run writes."""
    assert execute([*words[:-1], str(tmp_path / "whole.nut")], Console()) == 0
    return (tmp_path / "whole.nut").read_bytes()


@pytest.fixture
def stopped(words: list[str], whole: bytes, says, monkeypatch) -> Path:
    """The ledger of a run that failed after its first segment."""
    seal, sealed = PieceWriter.seal, []

    def failing(self: PieceWriter, *args: object) -> object:
        if sealed:
            raise OSError(28, "No space left on device")
        sealed.append(self)
        return seal(self, *args)

    with monkeypatch.context() as patch:
        patch.setattr(PieceWriter, "seal", failing)
        assert says(*words)[0] == 5
    ledger = Path(words[-1] + ".gpupipe")
    assert len(list((ledger / SEGMENTS).glob("*.seg"))) == 1
    return ledger


def test_a_run_that_goes_on_takes_the_engine_it_was_begun_on(words, whole, stopped, fast, says, tmp_path) -> None:
    """Though another one is the fastest by now, and nothing of the cache is left."""
    (one,) = json.loads((stopped / CHOICES).read_text())["choices"]
    assert (one["engine"], one["precision"], one["tile"], one["batch"]) == ("fast", "fp32", None, 1)
    shutil.rmtree(tmp_path / "engines")
    fast.pause = 1.0
    assert says(*words)[0] == 0
    assert Path(words[-1]).read_bytes() == whole
    assert says("run", "--overwrite", *words[1:])[0] == 0  # what it would have been
    assert Path(words[-1]).read_bytes() != whole


def test_what_caches_say_needs_no_network_made(words, whole, monkeypatch, tmp_path) -> None:
    """It is the same that making it finds; where a part of that is gone, it is made."""
    plan = prepare(*map(Path, words[2:]), device="cpu", strict=False)
    with monkeypatch.context() as patch:
        patch.setattr(model.Model, "foreseen", lambda *_: None)
        made = decided(plan, Journal()).choices
    assert [one.engine for one in made] == ["fast"]
    monkeypatch.setattr(model.Model, "prepare", lambda *_: pytest.fail("it was made"))
    assert decided(plan, Journal()).choices == made
    kept = {
        path: path.read_bytes() for path in (tmp_path / "engines").glob("*/*") if path.name in {"choice.json", "data"}
    }
    assert {path.name for path in kept} == {"choice.json", "data"}
    for path, data in kept.items():
        path.write_bytes(b"cut sh")
        with pytest.raises(pytest.fail.Exception, match="it was made"):
            decided(plan, Journal())
        path.write_bytes(data)
    assert decided(plan, Journal()).choices == made


@pytest.mark.parametrize(("what", "told"), [
    ("why", "it is not installed"), ("version", "double is 2, it was 1"),
])  # fmt: skip
def test_what_is_missing_is_one_line(words, stopped, fast, says, what: str, told: str) -> None:
    setattr(fast, what, "it is not installed" if what == "why" else "2")
    before = {path: path.stat().st_ino for path in (stopped / SEGMENTS).iterdir()}
    code, said = says(*words)
    assert (code, said.count("\n")) == (6, 1)
    hint = "(install it, or begin anew by --restart; 1 of 3 segments are kept, the same command goes on)"
    assert f"the run was begun on engine fast, and here {told} {hint}" in said
    assert {path: path.stat().st_ino for path in (stopped / SEGMENTS).iterdir()} == before
    assert says("run", "--restart", *words[1:])[0] == 0


@pytest.mark.parametrize("text", [None, "{cut sh", '{"choices": [{"engine": 5}]}'])
def test_a_choice_that_is_lost_is_told(words, stopped, says, text: str | None) -> None:
    (stopped / CHOICES).unlink() if text is None else (stopped / CHOICES).write_text(text)
    code, said = says(*words)
    assert (code, said.count("\n")) == (1, 1)
    assert "1 segments are kept, and what says which engine their networks ran on is lost or damaged" in said
    assert len(list((stopped / SEGMENTS).glob("*.seg"))) == 1


def test_other_processes_hold_to_it(words, whole, fast, says, tmp_path) -> None:
    """`gpupipe segment` here and there; each would choose another one by itself."""
    plan = tmp_path / "plan.json"
    assert says("plan", "--save", plan, *words[2:])[0] == 0
    assert says("segment", "--quiet", plan, 1)[0] == 0
    fast.pause = 1.0
    shutil.rmtree(tmp_path / "engines")
    assert says("segment", "--quiet", plan, 0, 2)[0] == 0
    assert says("join", "--quiet", plan)[0] == 0
    assert Path(words[-1]).read_bytes() == whole


def test_a_run_without_a_ledger_holds_to_it_too(words, whole, fast, says, monkeypatch) -> None:
    """Each session has networks of its own; the second one would take another engine."""
    (config := Path(words[2])).write_text(config.read_text().replace("resume: keep", "resume: off"))
    made, make = [], Runner.__init__

    def slower(self: Runner, *arguments: object) -> None:
        make(self, *arguments)
        made.append(self)
        fast.pause = 1.0
        shutil.rmtree(folder.engines())

    monkeypatch.setattr(Runner, "__init__", slower)
    assert says(*words)[0] == 0
    assert len(made) == 2
    assert video(Path(words[-1])) == video(Path(words[-1]).with_name("whole.nut"))


def video(path: Path) -> list[bytes]:
    with av.open(str(path)) as container:
        return [bytes(packet) for packet in container.demux(video=0) if packet.size]


def plan_of(words: list[str]):
    return prepare(*map(Path, words[2:]), device="cpu", strict=False)


def test_of_two_that_choose_at_once_one_counts(words, fast) -> None:
    first = Choice("net", "fast", "fp32", 1, None, (("double", "1"),))
    with Ledger(plan_of(words), shared=True) as one, Ledger(plan_of(words), shared=True) as other:
        one.begin()
        other.begin()
        assert one.choices() is None
        one.choose((first,))
        other.choose((replace(first, engine="eager"),))
        settle(other, Journal())
        assert one.choices() == other.choices() == other.plan.choices == (first,)
        assert not list(one.folder.glob(".*.part"))
    shutil.rmtree(one.folder)


def test_a_choice_of_another_run_that_got_nothing_done_is_forgotten(words, fast, tmp_path) -> None:
    """A node was stopped before its first segment, and the config was changed then."""
    plan = plan_of(words)
    with Ledger(plan, shared=True) as ledger:
        ledger.begin()
        settle(ledger, Journal())
    other = replace(plan, encoder=replace(plan.encoder, options={"slices": "4"}))
    fast.pause = 1.0
    shutil.rmtree(tmp_path / "engines")
    with Ledger(other, shared=True) as ledger, Ledger(other, shared=True) as beside:
        ledger.begin()
        settle(ledger, Journal())
        beside.begin()
        assert beside.choices() == ledger.plan.choices
        assert [one.engine for one in ledger.plan.choices] == ["eager"]
    shutil.rmtree(ledger.folder)


def test_a_node_that_cannot_is_refused(words, fast, tmp_path) -> None:
    with Ledger(plan_of(words)) as ledger:
        ledger.begin()
        settle(ledger, Journal())
        job = job_of(ledger, url=None, cache=None, token="none")
        fast.pause = 1.0
        worker = Worker(job, "cpu")
        assert worker.prepare() is False, "it sees no ledger, and is well"
        assert worker._warm._guard.plan.choices == ledger.plan.choices
        worker.close()
        fast.why = "it is not installed"
        worker = Worker(job, "cpu")
        told = worker.prepare()
        worker.close()
    assert isinstance(told, CapabilityError)
    assert str(told) == "model net: the run was begun on engine fast, and here it is not installed (install it, or begin anew by --restart)"  # fmt: skip


def test_sizes_are_held_whatever_memory_there_is(words, fast, monkeypatch) -> None:
    """All sessions, and those that come later, take what fitted where the run began; less only where memory fails."""
    seen: list[tuple[int | None, int]] = []
    ready = Running.prepare
    monkeypatch.setattr(
        Running, "prepare", lambda self: (ready(self), seen.append((self.sizes.tile, self.sizes.batch)))[0]
    )
    held = Choice("net", "fast", "fp32", 3, 40, (("double", "1"),))
    (step,) = [step for step in plan_of(words).steps if step.kind == "stage"]
    made = model.Model(model.ModelSettings(path=step.settings["path"]))
    made.hold((held,))
    made.prepare(step.source)
    assert made.choices() == (held,)
    smaller = made.smaller()
    assert smaller is not None
    less = model.Model(smaller)
    less.hold((held,))
    less.prepare(step.source)
    assert seen == [(40, 3), (40, 1)]
