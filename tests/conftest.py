"""Shared fixtures: real files, independent oracles, and the rule for tests that need a GPU."""

from __future__ import annotations

import gc
import json
import os
import shutil
import subprocess
import sys
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # as the command line does: torch's waiting threads must not spin

ROOT = Path(__file__).resolve().parents[1]


def _has_cuda() -> bool:
    try:
        import torch  # noqa: PLC0415  (only where a test needs it)
    except ImportError:
        return False
    return torch.cuda.is_available()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """GPU tests are skipped where there is no CUDA, and fail there under GPUPIPE_REQUIRE_CUDA=1."""
    wanting = [item for item in items if item.get_closest_marker("gpu")]
    if not wanting or os.environ.get("GPUPIPE_REQUIRE_CUDA") == "1":
        return
    if not _has_cuda():
        for item in wanting:
            item.add_marker(pytest.mark.skip(reason="no CUDA device here"))


@pytest.fixture(scope="module", autouse=True)
def _what_lives_on() -> None:
    """Modules and test items are looked at once a module by the collector, not at the end of every render."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def corpus() -> Path:
    """The folder of real files, `../shared/corpus` beside the repository."""
    folder = ROOT.parent / "shared" / "corpus"
    if not (folder / "manifest.csv").is_file():
        pytest.fail("the corpus of real files is missing: expected ../shared/corpus beside the repository")
    return folder


@pytest.fixture
def by_the_interpreter(request: pytest.FixtureRequest) -> Callable[[], None]:
    """Runs the test's own file as a program, with kernels by Triton's interpreter, which Triton reads when imported."""
    return lambda: _of_its_own(["-W", "error", str(request.path)], {"TRITON_INTERPRET": "1"})


COMPILED = """
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
def compiled(kernel, constants, kinds={}, *, capability=90, warps=4, aligned=False):
    names = [p.name for p in kernel.params]
    others = {n: kinds.get(n, "*fp16" if n.endswith("_ptr") else "i32") for n in names}
    signature = {n: "constexpr" if n in constants else others[n] for n in names}
    pointers = [(i,) for i, n in enumerate(names) if signature[n] == "*fp16"] if aligned else []
    attrs = {place: [["tt.divisibility", 16]] for place in pointers}
    source = ASTSource(fn=kernel, signature=signature, constexprs=constants, attrs=attrs)
    done = triton.compile(source, target=GPUTarget("cuda", capability, 32), options=dict(num_warps=warps))
    assert done.asm["cubin"]
    return done
"""
"""What such programs begin with. Parameters that end in _ptr are pointers to half floats, others integers, unless
`kinds` says so; `aligned`: pointers are multiples of 16 bytes."""


@pytest.fixture
def by_the_compiler() -> Callable[[str], None]:
    """Runs a program with kernels as they are, to compile them for a GPU that is not there: it has `compiled`."""
    return lambda program: _of_its_own(["-c", COMPILED + program], {})


def _of_its_own(words: list[str], more: dict[str, str]) -> None:
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"} | {"PYTHONPATH": str(ROOT)} | more
    done = subprocess.run(
        [sys.executable, *words], env=environment, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.fixture(scope="session")
def kept(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that stays from run to run, for what pip has fetched."""
    kept = getattr(pytestconfig, "cache", None)  # none under -p no:cacheprovider
    return Path(kept.mkdir("fetched")) if kept is not None else tmp_path_factory.mktemp("fetched")


@pytest.fixture(scope="session")
def weights(kept: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Fetches the weights of a card and makes this process look where they are; returns that cache, empty but for them."""
    from gpupipe.models import folder  # noqa: PLC0415
    from gpupipe.models.card import find  # noqa: PLC0415
    from gpupipe.models.fetch import fetch, place  # noqa: PLC0415

    cache = tmp_path_factory.mktemp("cache")

    def get(name: str) -> Path:
        folder.choose(cache)
        fetch(find(name), kept / "weights", allowed={name})
        link = place(find(name), folder.weights())
        link.parent.mkdir(exist_ok=True)
        if not link.exists():
            link.symlink_to(place(find(name), kept / "weights"))
        return cache

    return get


def _tool(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        pytest.fail(f"{name} is missing: it is the independent oracle of these tests (Debian: apt-get install ffmpeg)")
    return path


@pytest.fixture(scope="session")
def ffmpeg() -> Callable[..., str]:
    """Runs `ffmpeg -y ARGS` and returns what it wrote on stderr; fails the test where ffmpeg fails."""
    tool = _tool("ffmpeg")

    def run(*args: object) -> str:
        command = [tool, "-nostdin", "-hide_banner", "-y", *map(str, args)]
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=240, check=False)
        assert done.returncode == 0, done.stderr[-2000:]
        return done.stderr

    return run


@pytest.fixture(scope="session")
def ffprobe() -> Callable[..., dict]:
    """`ffprobe(path, "-show_streams", ...)` as a dict; streams and format where no arguments are given."""
    tool = _tool("ffprobe")

    def run(path: Path, *args: object) -> dict:
        shown = map(str, args) if args else ("-show_streams", "-show_format", "-show_chapters")
        command = [tool, "-v", "error", *shown, "-of", "json", f"file:{path}"]
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=240, check=False)
        return json.loads(done.stdout or "{}")

    return run


@pytest.fixture(scope="session")
def sample_clip(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """`sample_clip(seconds, size)`: gpupipe's own sample at 25 frames a second; one file for all who want the same."""
    from gpupipe.sample import make_sample  # noqa: PLC0415

    @cache
    def make(seconds: int, size: tuple[int, int] = (320, 180)) -> Path:
        path = tmp_path_factory.mktemp("sample") / "clip.mov"
        make_sample(path, seconds=seconds, size=size, rate=Fraction(25))
        return path

    return make


@pytest.fixture(scope="session")
def gop_clip(tmp_path_factory: pytest.TempPathFactory, ffmpeg: Callable[..., str]) -> Callable[..., Path]:
    """`gop_clip(seconds, sound=True)`: 25 small pictures a second with a key frame at each; one file for all as above."""

    @cache
    def make(seconds: int, *, sound: bool = False) -> Path:
        path = tmp_path_factory.mktemp("gops") / "s.mkv"
        tone = ("-f", "lavfi", "-i", f"sine=d={seconds}", "-c:a", "aac") if sound else ()
        ffmpeg("-f", "lavfi", "-i", f"testsrc2=s=192x108:r=25:d={seconds}", *tone, "-c:v", "libx264", "-g", "25",
               "-preset", "ultrafast", path)  # fmt: skip
        return path

    return make
