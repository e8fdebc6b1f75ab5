"""How many sessions and how large batches a GPU's free memory allows; what a run really takes: tests/gpu/test_memory_gpu.py."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

from gpupipe.config import parse_config
from gpupipe.errors import PlanError
from gpupipe.format import PIXEL_FORMATS, FrameFormat
from gpupipe.media.probe import probe
from gpupipe.plan import make_plan
from gpupipe.plan.memory import Need, fit, need_of
from gpupipe.plan.model import Step

if TYPE_CHECKING:
    from pathlib import Path

GIB, MIB = 1 << 30, 1 << 20
CHAIN = Need(surface=3_110_400, result=3_110_400, work=48 * 1920 * 1080, tables=64 * 1920 * 1080, encoder="nvjpeg")


def test_all_that_are_of_use_where_there_is_room() -> None:
    budget = fit(CHAIN, 14, 16, 139 * GIB, device="cuda:0", asked=False)
    assert (budget.sessions, budget.batch) == (14, 16)
    assert 5 * GIB < budget.bytes < 14 * GIB
    assert budget.reason == f"about {budget.bytes / GIB:.1f} GiB of 139.0 GiB free on cuda:0"


@pytest.mark.parametrize("gib", [2, 3, 4, 6, 8, 12])
def test_what_is_planned_fits_with_a_margin(gib: int) -> None:
    budget = fit(CHAIN, 14, 16, gib * GIB, device="cuda:0", asked=False)
    assert CHAIN.bytes(budget.sessions, budget.batch) == budget.bytes <= 0.95 * gib * GIB
    assert CHAIN.bytes(budget.sessions + 1, budget.batch) > 0.95 * gib * GIB or budget.sessions == 14


def test_smaller_batches_before_fewer_sessions() -> None:
    tight = fit(CHAIN, 14, 16, 8 * GIB, device="cuda:0", asked=False)
    assert (tight.sessions, tight.batch) == (14, 8)
    assert tight.reason.endswith("free on cuda:0; batches of 8 instead of 16")
    small = fit(CHAIN, 14, 16, 2 * GIB, device="cuda:0", asked=False)
    assert small.batch == 4
    assert 1 <= small.sessions < 14
    assert small.reason.endswith(f"batches of 4 instead of 16; no room for more than {small.sessions} of 14 sessions")


def test_one_session_that_does_not_fit_is_an_error_of_one_line() -> None:
    with pytest.raises(PlanError) as caught:
        fit(CHAIN, 14, 16, 600 * MIB, device="cuda:1", asked=False)
    assert str(caught.value).startswith(
        "device: cuda:1 has 0.6 GiB of memory free, and one session of this run needs about 1."
    )
    assert "use `device: cpu`" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_number_that_was_asked_for_is_not_made_smaller() -> None:
    with pytest.raises(
        PlanError, match=r"cuda:0 has 2\.0 GiB of memory free, and 14 sessions of this run need about"
    ) as caught:
        fit(CHAIN, 14, 16, 2 * GIB, device="cuda:0", asked=True)
    assert caught.value.where == "sessions"
    most = int(str(caught.value).rpartition("there is room for ")[2].rstrip(")"))
    assert fit(CHAIN, most, 16, 2 * GIB, device="cuda:0", asked=True).sessions == most


def test_free_memory_that_nobody_knows_limits_nothing() -> None:
    budget = fit(CHAIN, 14, 16, None, device="cuda:0", asked=False)
    assert (budget.sessions, budget.batch) == (14, 16)
    assert "not known" in budget.reason


def test_the_most_expensive_step_counts_and_so_does_the_largest_picture() -> None:
    def picture(pixels: str, width: int, height: int, device: str = "cuda:0") -> FrameFormat:
        return FrameFormat(PIXEL_FORMATS[pixels], width, height, device=device)

    small, large = picture("nv12", 1920, 1080), picture("nv12", 3840, 2160)
    wanted, there = picture("yuv420p", 3840, 2160), picture("yuv420p", 3840, 2160, "cpu")
    steps = [
        Step("stage", "resize", small, large),
        Step("convert", "c", large, wanted),
        Step("download", "d", wanted, there),
    ]
    need = need_of(small, steps, "libx264")
    assert (need.surface, need.result) == (1920 * 1080 * 3 // 2, 3840 * 2160 * 3 // 2)
    assert need.work == 48 * 3840 * 2160
    decoded_here = need_of(picture("yuv420p", 1920, 1080, "cpu"), steps, "libx264")
    assert (decoded_here.surface, decoded_here.result) == (0, need.result)


@pytest.mark.parametrize(
    ("engines", "free", "sessions"), [(7, 100 * GIB, 14), (2, 100 * GIB, 4), (1, 100 * GIB, 2), (7, 2 * GIB, None)]
)
def test_sessions_come_from_the_engines_and_the_memory(
    gpu, corpus: Path, tmp_path: Path, engines, free, sessions
) -> None:
    gpu(engines, free)
    info = probe(corpus / "files" / "long_6min_1080p30_aac.mp4")
    plan = make_plan(
        parse_config({"output": {"video": {"codec": "mjpeg", "encoder": "nvjpeg"}}}), info, tmp_path / "o.mov"
    )
    assert (plan.device, plan.decoder) == ("cuda:0", "nvdec")
    if sessions is None:
        assert 1 <= plan.sessions < 14
    else:
        assert plan.sessions == sessions
    told = "\n".join(plan.lines())
    assert f"{len(plan.segments)} at key frames, {plan.sessions} side by side" in told
    assert f"memory   about {plan.device_bytes / GIB:.1f} GiB of {free / GIB:.1f} GiB free on cuda:0" in told


def test_free_memory_changes_neither_the_segments_nor_the_digest(gpu, corpus: Path, tmp_path: Path) -> None:
    info = probe(corpus / "files" / "long_6min_1080p30_aac.mp4")
    made = []
    for free in (100 * GIB, 2 * GIB):
        gpu(7, free)
        config = parse_config({"output": {"video": {"codec": "mjpeg", "encoder": "nvjpeg"}}})
        made.append(make_plan(config, info, tmp_path / "o.mov"))
    assert made[0].sessions != made[1].sessions
    assert made[0].segments == made[1].segments
    assert made[0].digest() == made[1].digest()


def test_where_pictures_stand_alone_segments_are_short(gpu, tmp_path: Path, sample_clip) -> None:
    """Little waits for the writer then; who keeps segments as files has fewer of them."""
    gpu(7, 100 * GIB)
    info, video = probe(sample_clip(70)), {"codec": "mjpeg", "encoder": "nvjpeg"}
    made = {
        resume: make_plan(
            parse_config({"resume": resume, "sessions": 2, "output": {"video": video}}), info, tmp_path / "o.mov"
        )
        for resume in ("auto", "keep")
    }
    assert [made[resume].ledger for resume in made] == [False, True]
    most = {resume: max(segment.frames for segment in plan.segments) / info.video.rate for resume, plan in made.items()}
    assert most["auto"] <= 3 < 8 <= most["keep"]
    waiting, longest = made["auto"].waiting_bytes, max(segment.frames for segment in made["auto"].segments)
    assert 0 < waiting <= 4 * longest * made["auto"].encoder.input_format.frame_bytes // 16


@pytest.mark.parametrize(
    ("changes", "longest", "shortest"),
    [({}, 50, 4), ({"resume": "keep"}, 225, 0), ({"segments": {"seconds": 2}}, 50, 0)],
)
def test_sessions_end_close_together(
    gpu, tmp_path: Path, gop_clip, changes: dict[str, object], longest: int, shortest: int
) -> None:
    """Where a cut costs nothing the last segments are of a second, one for each session at least; nothing is lost."""
    gpu(7, 100 * GIB)
    config = {"sessions": 2, "output": {"video": {"codec": "mjpeg", "encoder": "nvjpeg"}}, **changes}
    plan = make_plan(parse_config(config), probe(gop_clip(70)), tmp_path / "o.mov")
    frames = [segment.frames for segment in plan.segments]
    assert sum(frames) == 70 * 25
    assert set(frames[: len(frames) - shortest - 1]) == {longest}
    assert frames[len(frames) - shortest :] == [25] * shortest
    assert all(a.end == b.start for a, b in itertools.pairwise(plan.segments))


def test_on_the_cpu_none_of_a_gpu_is_planned(corpus: Path, tmp_path: Path) -> None:
    plan = make_plan(
        parse_config({}), probe(corpus / "files" / "rot180_3_frames.mov"), tmp_path / "o.mov", device="cpu"
    )
    assert (plan.device_bytes, plan.memory_reason) == (0, "")
    assert [line for line in plan.lines() if line.startswith("memory")] == [f"memory   {plan.host_reason}"]


def test_a_network_gets_a_share_of_what_is_free(gpu, corpus: Path, tmp_path: Path, weights) -> None:
    weights("realesr-animevideov3-x2")
    info = probe(corpus / "files" / "long_6min_1080p30_aac.mp4")
    video = {"codec": "mjpeg", "encoder": "nvjpeg"}
    model = {"model": {"card": "realesr-animevideov3-x2"}}
    made = {}
    for free in (100 * GIB, 16 * GIB):
        gpu(7, free)
        for name, stages in (("none", [{"resize": {"width": 3840, "height": 2160}}]), ("model", [model])):
            config = parse_config({"stages": stages, "sessions": 1, "output": {"video": video}})
            made[free, name] = make_plan(config, info, tmp_path / "o.mov")
    rich, poor = (made[free, "model"] for free in (100 * GIB, 16 * GIB))
    step = next(step for step in rich.steps if step.name == "model")
    assert (step.target.width, step.target.height) == (3840, 2160)
    wanted = 1024 * 1920 * 1088  # as is guessed of a network in half floats, whose sizes are measured later
    assert rich.device_bytes - made[100 * GIB, "none"].device_bytes == pytest.approx(2 * wanted, rel=0.2)
    assert poor.device_bytes <= 0.95 * 16 * GIB
    assert "fp16 on cuda:0, engine" in step.reason
