"""Encoder sessions are few on some cards: work goes on with as many as there are. The encoder is a named double."""

from __future__ import annotations

import sys
import threading
from collections import deque
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import av
import pytest
from patience import LIMIT, until

from gpupipe.cli import execute
from gpupipe.cli.console import Console
from gpupipe.config import parse_config
from gpupipe.errors import DeviceError, NoSessionError
from gpupipe.journal import Journal
from gpupipe.media.probe import probe
from gpupipe.plan import make_plan
from gpupipe.render import render
from gpupipe.render.lanes import Crew
from gpupipe.render.sessions import EncoderSessions

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "codecs"))
import nvenc_double
import nvenc_on_cpu
from nvenc_on_cpu import Limited

if TYPE_CHECKING:
    from collections.abc import Callable

FRAMES, SEGMENTS = 200, 8


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory, ffmpeg: Callable[..., str]) -> Path:
    path = tmp_path_factory.mktemp("sessions") / "clip.mp4"
    ffmpeg("-f", "lavfi", "-i", "testsrc2=s=128x96:r=25:d=8", "-c:v", "libx264", "-preset", "ultrafast", "-g", "25",
           "-bf", "0", path)  # fmt: skip
    return path


def run(clip: Path, output: Path, sessions: int = 4) -> Journal:
    video = {"codec": "h264", "encoder": "nvenc", "options": {"bf": "2"}}
    config = {"segments": {"seconds": 1}, "sessions": sessions, "output": {"video": video}}
    plan = make_plan(parse_config(config), probe(clip), output, device="cpu")
    assert (len(plan.segments), plan.sessions) == (SEGMENTS, sessions)
    journal = Journal()
    render(plan, overwrite=False, journal=journal, stop=threading.Event())
    return journal


def pictures(path: Path) -> list[tuple[int, bytes]]:
    with av.open(str(path)) as container:
        return [(f.pts, bytes(f.planes[0])) for f in container.decode(video=0)]


@pytest.mark.parametrize("most", [1, 2, 3])
def test_with_fewer_sessions_than_runners_the_file_is_the_same(
    clip: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    free, few = Limited(64), Limited(most)
    encode = nvenc_double.PyNvEncoder.Encode

    def meeting(*arguments: object) -> object:
        """Whoever has a session waits until all have one, or the first one was refused."""
        until(lambda: library[-1].most_open == 4 or library[-1].refused)
        return encode(*arguments)

    library = [free]
    monkeypatch.setattr(nvenc_double.PyNvEncoder, "Encode", meeting)
    nvenc_on_cpu.use(monkeypatch, free)
    assert len(run(clip, tmp_path / "free.mp4")) == 0
    assert free.most_open == 4
    library.append(few)
    nvenc_on_cpu.use(monkeypatch, few)
    journal = run(clip, tmp_path / "few.mp4")
    assert pictures(tmp_path / "few.mp4") == pictures(tmp_path / "free.mp4")
    assert len(pictures(tmp_path / "few.mp4")) == FRAMES
    assert (few.most_open, few.open) == (most, 0)
    assert list(journal.entries) == ["encoder-sessions"]
    said = str(journal.entries["encoder-sessions"])
    word = "session" if most == 1 else "sessions"
    assert said == f"the encoder opens {most} {word} and no more: so many segments are encoded at once, the others wait"
    assert few.refused == 1, "one refusal tells the limit"


@pytest.mark.parametrize(
    ("status", "code", "text"),
    [
        (10, 7, "no NVENC session is left on this GPU, or no memory for one (close other programs that encode, or use a libav"),
        (2, 5, "cpu: NVENC does not open for nv12 128x96 on cpu: this GPU has no NVENC (use `encoder: auto`, or other options"),
        (12, 5, "nvEncOpenEncodeSessionEx (error 12: this NVENC does not do that) (use `encoder: auto`, or other options"),
    ],
)  # fmt: skip
def test_none_at_all_is_one_line(
    clip: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], status: int, code: int, text: str
) -> None:  # fmt: skip
    nvenc_on_cpu.use(monkeypatch, Limited(0, status))
    config, output = tmp_path / "c.yaml", tmp_path / "out.mp4"
    config.write_text("segments: {seconds: 1}\nsessions: 3\noutput: {video: {codec: h264, encoder: nvenc}}\n")
    assert execute(["run", "--quiet", str(config), str(clip), str(output), "--device", "cpu"], Console()) == code
    lines = [line for line in capsys.readouterr().err.splitlines() if line]
    assert len(lines) == 1
    assert text in lines[0]
    assert not output.exists()
    assert list(tmp_path.glob("*.mp4")) == []


def test_a_run_that_fails_leaves_no_session_open(clip: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = Limited(64)
    nvenc_on_cpu.use(monkeypatch, library)
    encode = nvenc_on_cpu.nvenc_double.PyNvEncoder.Encode

    def fail(self: object, frame: object, picture: object) -> list[dict]:
        if picture.inputTimeStamp == 12:
            del self  # the real one has no frame that would hold it
            raise nvenc_on_cpu.nvenc_double.PyNvVCException("EncodeFrame : \nError code : 20\nError Type : broken\n")
        return encode(self, frame, picture)

    monkeypatch.setattr(nvenc_on_cpu.nvenc_double.PyNvEncoder, "Encode", fail)
    with pytest.raises(DeviceError, match="NVENC failed: broken") as kept:  # and with it the frames of all that ran
        run(clip, tmp_path / "out.mp4")
    assert (library.open, library.most_open > 0) == (0, True)
    assert kept.value.exit_code == 5


class Encoder(SimpleNamespace):
    def close(self) -> None:
        self.closed = True


def sessions(limit: list[int], line: list[int], crew: Crew) -> EncoderSessions:
    open_now: list[Encoder] = []

    def make(lane: object) -> Encoder:
        open_now[:] = [e for e in open_now if not e.closed]
        if len(open_now) >= limit[0]:
            raise NoSessionError("no more", where=str(lane))
        open_now.append(Encoder(closed=False))
        return open_now[-1]

    return EncoderSessions(make, SimpleNamespace(line=deque(line)), crew, Journal())


def test_segments_open_in_the_order_in_which_they_were_taken() -> None:
    """Else segment 0 might wait for 1, which waits for the writer, who waits for 0."""
    opened: list[int] = []
    with Crew() as crew:
        gate = sessions([1], [0, 1, 2], crew)

        def work(index: int) -> None:
            encoder = gate.open(index, f"lane {index}")
            opened.append(index)
            gate.close(encoder)

        late = [threading.Thread(target=work, args=(n,), daemon=True) for n in (2, 1)]
        for thread in late:
            thread.start()
        assert not opened
        work(0)
        for thread in late:
            thread.join(LIMIT)
        crew.check()
    assert opened == [0, 1, 2]


def test_a_limit_that_shrinks_while_a_run_goes_on_is_followed() -> None:
    limit = [2]
    with Crew() as crew:
        gate = sessions(limit, [0, 1, 2], crew)
        first, second = gate.open(0, "a"), gate.open(1, "b")
        limit[0] = 1  # another program has taken one
        gate.close(second)
        done: list[object] = []
        waiting = threading.Thread(target=lambda: done.append(gate.open(2, "c")), daemon=True)
        waiting.start()
        waiting.join(0.2)
        assert not done
        gate.close(first)
        waiting.join(LIMIT)
        assert len(done) == 1


def test_a_failure_of_another_kind_is_not_waited_for() -> None:
    def make(_: object) -> Encoder:
        raise DeviceError("broken")

    with Crew() as crew, pytest.raises(DeviceError, match="broken"):
        EncoderSessions(make, SimpleNamespace(line=deque([0])), crew, Journal()).open(0, "a")
