"""A plan in a file is the same plan: whatever the source, and from whatever folder it is read."""

from __future__ import annotations

import csv
import dataclasses
import json
import typing
from pathlib import Path

import pytest

from gpupipe.config import parse_config
from gpupipe.errors import MediaError, PlanError
from gpupipe.media.probe import probe
from gpupipe.plan import Plan, make_plan, stored
from gpupipe.plan.placed import with_places
from gpupipe.plan.stored import absolute, dump, load, read_plan

CONFIGS = [
    {
        "stages": [{"resize": {"width": 320, "height": -2}}, {"warp": {"rotate": 3}}],
        "output": {"video": {"codec": "ffv1"}, "audio": {"codec": "aac", "bitrate": "96k"}},
        "quality": {"minimum": {"psnr": 30}},
    },
    {"segments": {"seconds": 1}, "resume": "keep", "output": {"video": {"codec": "hevc", "quality": 22.5}}},
    {"range": {"start": 0.1}, "stages": [{"fps": {"rate": "24000/1001"}}]},
]


def test_every_type_in_a_plan_is_known() -> None:
    """What no plan of a test holds too: a name that only type checkers import fails when such a plan is read."""
    seen: set[object] = set()

    def walk(kind: object) -> None:
        if kind in seen:
            return
        seen.add(kind)
        if dataclasses.is_dataclass(kind):
            for hint in typing.get_type_hints(kind, stored._names(kind.__module__)).values():
                walk(hint)
        for inner in typing.get_args(kind):
            walk(inner)

    walk(Plan)
    assert len(seen) > 40


def test_every_corpus_file(corpus: Path) -> None:
    made = 0
    for number, row in enumerate(csv.DictReader((corpus / "manifest.csv").read_text().splitlines())):
        config = CONFIGS[number % len(CONFIGS)]
        try:
            plan = make_plan(parse_config(config), probe(corpus / row["file"]), Path("o.mkv"), device="cpu")
        except (MediaError, PlanError):
            continue
        again = load(json.loads(json.dumps(dump(plan))), "test")
        assert again == absolute(plan), row["file"]
        assert again.digest() == absolute(plan).digest()
        made += 1
    assert made > 20


def test_from_another_folder(corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = corpus / "files" / "bt601_full_range.mp4"
    (tmp_path / "s.mp4").symlink_to(source)
    monkeypatch.chdir(tmp_path)
    plan = make_plan(parse_config({}), probe(Path("s.mp4")), Path("o.mp4"), device="cpu")
    text = json.dumps(dump(plan))
    monkeypatch.chdir("/")
    again = load(json.loads(text), "test")
    assert (again.source.path, again.output) == (tmp_path / "s.mp4", tmp_path / "o.mp4")
    assert again.digest() == absolute(again).digest()


def test_what_is_no_plan(corpus: Path, tmp_path: Path) -> None:
    plan = make_plan(
        parse_config({}), probe(corpus / "files" / "bt601_full_range.mp4"), tmp_path / "o.mp4", device="cpu"
    )
    data = json.loads(json.dumps(dump(plan)))
    path = tmp_path / "plan.json"
    for content, says in (
        ("{", "it is not JSON"),
        ("[]", "is no plan of this version"),
        (json.dumps({**data, "format": 99}), "is no plan of this version"),
        (json.dumps({**data, "colour": 1}), "Plan has no colour"),
        (json.dumps({**data, "timecode": "01:00:00:00"}), "was changed after it was made"),
    ):
        path.write_text(content)
        with pytest.raises(PlanError, match=says):
            read_plan(path)
    with pytest.raises(PlanError, match="cannot be read"):
        read_plan(tmp_path / "none.json")


@pytest.mark.parametrize(
    ("config", "frames", "on_device", "kept"),
    [
        ({}, 100_000, False, False),  # one segment: there is nothing to keep
        ({"segments": {"seconds": 1}}, 1000, False, False),  # over in no time
        ({"segments": {"seconds": 1}}, 100_000, False, True),
        ({"segments": {"seconds": 1}}, 100_000, True, False),  # from decoder to encoder on the GPU
        ({"segments": {"seconds": 1}, "resume": "keep"}, 100_000, True, True),
        ({"segments": {"seconds": 1}, "resume": "off"}, 100_000, False, False),
    ],
)
def test_when_a_run_keeps_its_segments(corpus: Path, config, frames, on_device, kept) -> None:
    from gpupipe.media.segments import Segment  # noqa: PLC0415
    from gpupipe.plan.segments import keeps  # noqa: PLC0415

    info = probe(corpus / "files" / "bt601_full_range.mp4")
    cuts = 1 if not config else 10
    segments = [Segment(None, None, frames // cuts, closed=True)] * cuts
    assert keeps(parse_config(config), info, segments, on_device=on_device) is kept


def test_what_cannot_be_kept_is_refused(corpus: Path, tmp_path: Path) -> None:
    info = probe(corpus / "files" / "bt601_full_range.mp4")
    for config in (
        {"segments": "off"},
        {"stages": [{"fps": {"rate": "25"}}]},
        {"output": {"video": {"bitrate": "1M"}}},
    ):
        with pytest.raises(PlanError) as refused:
            make_plan(parse_config({"resume": "keep", **config}), info, tmp_path / "o.mp4", device="cpu")
        assert refused.value.where == "resume"
    assert make_plan(parse_config({"resume": "keep"}), info, tmp_path / "o.mp4", device="cpu").ledger


def test_where_packets_lie_is_found_again(corpus: Path, tmp_path: Path) -> None:
    """For a GPU's decoder, which reads a segment's packets at once; that decides no bytes."""
    source = probe(corpus / "files" / "vfr_63_frames_59_distinct_durations.mp4")
    config = parse_config({"segments": {"seconds": 0.1}, "resume": "keep"})
    here = dataclasses.replace(make_plan(config, source, tmp_path / "o.mp4", device="cpu"), decoder="nvdec")
    there = load(dump(here), "it")
    again = with_places(there)
    spans = [[one.span and (one.span.first, one.span.last) for one in plan.segments] for plan in (here, there, again)]
    assert spans[0] == spans[2]
    assert (len(spans[0]), spans[1]) == (4, [None] * 4)
    assert again.digest() == there.digest()
    on_cpu = dataclasses.replace(there, decoder="libav")
    assert with_places(on_cpu) is on_cpu
