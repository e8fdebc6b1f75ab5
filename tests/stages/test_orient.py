"""orient against ffmpeg's autorotation on real files, and against its transpose and flip filters."""

from __future__ import annotations

import shutil
import subprocess
from fractions import Fraction

import numpy as np
import pytest
import torch
from stills import SITES, Planes, ffmpeg_raw, filtered, from_bytes, picture, plan, ramp, run, test_picture, worst

from gpupipe import stages
from gpupipe.color import ChromaLocation, ColorSpec
from gpupipe.errors import PlanError

ONE = 1 << 16
MATRICES = {  # a, b, c, d of the display matrix, and the ffmpeg filters that do the same
    "null": (ONE, 0, 0, ONE),
    "hflip": (-ONE, 0, 0, ONE),
    "vflip": (ONE, 0, 0, -ONE),
    "hflip,vflip": (-ONE, 0, 0, -ONE),
    "transpose=cclock_flip": (0, ONE, ONE, 0),
    "transpose=clock": (0, ONE, -ONE, 0),
    "transpose=cclock": (0, -ONE, ONE, 0),
    "transpose=clock_flip": (0, -ONE, -ONE, 0),
}


def settings(a: int, b: int, c: int, d: int) -> dict:
    return {"matrix": (a, b, 0, c, d, 0, 0, 0, 1 << 30)}


@pytest.mark.parametrize("pixels", ["yuv420p", "nv12", "p010le", "yuv444p12le", "gray", "gbrp10le"])
@pytest.mark.parametrize("graph", MATRICES)
def test_all_eight_turns(graph: str, pixels: str) -> None:
    source = picture(pixels, 62, 38, color=ColorSpec(chroma_location=ChromaLocation.CENTER))
    planes = test_picture(source)
    ours, target = run("orient", settings(*MATRICES[graph]), source, planes)
    assert worst(ours, filtered(planes, source, graph, target)) == 0
    assert target.color == source.color
    assert plan("orient", settings(*MATRICES[graph]), source)[1] == ()


@pytest.mark.parametrize("graph", ["transpose=clock", "transpose=cclock_flip", "hflip,vflip"])
def test_alpha_turns_along(graph: str) -> None:
    """Also where 4:2:2 has its chroma resampled."""
    source, gray = picture("yuv422p10le", 62, 38, alpha=8), picture("gray", 62, 38)
    (alpha,) = test_picture(gray)
    made, target = run(
        "orient", settings(*MATRICES[graph]), source, (*test_picture(picture("yuv422p10le", 62, 38)), alpha)
    )
    assert worst(made[3:], filtered((alpha,), gray, graph, picture("gray", target.width, target.height))) == 0


def display_matrix(path: object) -> tuple[int, ...]:
    """Nine numbers as ffprobe prints them."""
    tool = shutil.which("ffprobe")
    assert tool is not None
    command = [
        tool,
        "-v",
        "error",
        "-select_streams",
        "v:0",
        "-show_entries",
        "stream_side_data=displaymatrix",
        "-of",
        "csv=p=0",
        path,
    ]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    rows = [line.split(":", 1)[1] for line in text.splitlines() if ":" in line]
    return tuple(int(n) for row in rows[:3] for n in row.replace('"', " ").replace(",", " ").split())


@pytest.mark.parametrize(
    "name", ["rot_plus90_h264_aac.mp4", "rot180_3_frames.mov", "matrix_transpose_flip_not_just_rotate.mp4"]
)
def test_real_files_come_out_as_ffmpeg_turns_them(corpus, name: str) -> None:
    path = corpus / "files" / name
    matrix = display_matrix(path)
    assert len(matrix) == 9
    size = (
        subprocess.run(
            [
                "ffprobe",
                "-v",
                "error",
                "-select_streams",
                "v:0",
                "-show_entries",
                "stream=width,height",
                "-of",
                "csv=p=0",
                path,
            ],
            capture_output=True,
            text=True,
            check=True,
        )
        .stdout.strip()
        .strip(",")
    )
    width, height = map(int, size.split(",")[:2])
    source = picture("yuv420p", width, height)
    one = ["-map", "0:v:0", "-frames:v", "1", "-pix_fmt", "yuv420p"]
    stored = from_bytes(ffmpeg_raw(["-noautorotate", "-i", str(path), *one]), source)
    ours, target = run("orient", {"matrix": matrix}, source, stored)
    assert worst(ours, from_bytes(ffmpeg_raw(["-i", str(path), *one]), target)) == 0


@pytest.mark.parametrize(
    ("graph", "before", "after", "exact"),
    [
        ("transpose=clock", "left", "top", True),
        ("transpose=cclock", "left", "bottom", True),
        ("vflip", "topleft", "bottomleft", True),
        ("hflip", "top", "top", True),
        ("hflip", "left", "center", False),
        ("hflip,vflip", "left", "center", False),
        ("transpose=cclock_flip", "top", "left", True),
    ],
)
def test_chroma_location_follows(graph: str, before: str, after: str, exact: bool) -> None:
    """Told by a ramp: the turned plane must be the ramp at the new location's places."""
    source = picture("yuv420p12le", 64, 48, color=ColorSpec(chroma_location=ChromaLocation(before)))
    target, notes = plan("orient", settings(*MATRICES[graph]), source)
    assert target.color.chroma_location == after
    assert bool(notes) is not exact
    slope = (12.0, 20.0)
    chroma = np.rint(ramp((24, 32), SITES[before], (2, 2), slope)).astype(np.uint16)[None]
    luma = np.rint(ramp((48, 64), (0.5, 0.5), (1, 1), slope)).astype(np.uint16)[None]
    planes: Planes = tuple(torch.from_numpy(p) for p in (luma, chroma, chroma))
    ours, _ = run("orient", settings(*MATRICES[graph]), source, planes)
    y, u = (p[0].numpy().astype(float) for p in ours[:2])
    step = (y[0, 1] - y[0, 0], y[1, 0] - y[0, 0])
    corner = y[0, 0] - (step[0] + step[1]) / 2  # the turned ramp at the picture's corner
    expected = corner + ramp(u.shape, SITES[after], (2, 2), step)
    error = np.abs(u - expected).max()
    assert error <= 1 if exact else error == pytest.approx(abs(step[0]) / 2, abs=1)


def test_unknown_location_is_taken_as_left_and_then_said() -> None:
    target, _ = plan("orient", settings(*MATRICES["transpose=clock"]), picture("yuv420p", 64, 48))
    assert target.color.chroma_location == ChromaLocation.TOP
    same, _ = plan("orient", settings(*MATRICES["vflip"]), picture("yuv420p", 64, 48))
    assert same.color.chroma_location is None


@pytest.mark.parametrize("graph", ["transpose=clock", "transpose=cclock", "transpose=cclock_flip"])
def test_422_stays_422(graph: str) -> None:
    source = picture("yuv422p12le", 64, 48)
    slope = (12.0, 20.0)
    luma = np.rint(ramp((48, 64), (0.5, 0.5), (1, 1), slope)).astype(np.uint16)[None]
    chroma = np.rint(ramp((48, 32), (0.5, 0.5), (2, 1), slope)).astype(np.uint16)[None]
    planes: Planes = tuple(torch.from_numpy(p) for p in (luma, chroma, chroma))
    (y, u, _), target = run("orient", settings(*MATRICES[graph]), source, planes)
    assert (target.width, target.height) == (48, 64)
    at_left = y[0, :, ::2].double()  # the luma places where 4:2:2 chroma sits
    assert float((u[0].double() - at_left)[4:-4, 4:-4].abs().max()) <= 1.5
    assert "4:4:0" in plan("orient", settings(*MATRICES[graph]), source)[1][0]


def test_sample_aspect_turns_too() -> None:
    source = picture("yuv420p", 720, 480, sample_aspect=Fraction(32, 27))
    assert plan("orient", settings(*MATRICES["transpose=clock"]), source)[0].sample_aspect == Fraction(27, 32)
    assert plan("orient", settings(*MATRICES["vflip"]), source)[0].sample_aspect == Fraction(32, 27)
    unknown = source.with_(sample_aspect=Fraction(0))
    assert plan("orient", settings(*MATRICES["transpose=clock"]), unknown)[0].sample_aspect == 0


def test_interlaced() -> None:
    source = picture("yuv420p", 64, 48, field_order="tt")
    for graph in ("transpose=clock", "transpose=cclock_flip"):
        with pytest.raises(PlanError, match="quarter turn would ruin"):
            plan("orient", settings(*MATRICES[graph]), source)
    assert plan("orient", settings(*MATRICES["hflip,vflip"]), source)[0].field_order == "bb"
    assert plan("orient", settings(*MATRICES["hflip"]), source)[0].field_order == "tt"
    with pytest.raises(PlanError, match="field by field"):
        plan("orient", settings(*MATRICES["vflip"]), source.with_(height=46))


def test_other_matrices_are_left_to_the_plan() -> None:
    orient = stages.load("orient")
    stage = orient(orient.Settings.model_validate(settings(46341, 46341, -46341, 46341)))
    assert stage.geometry is None
    with pytest.raises(PlanError, match="quarter turn"):
        stage.output_format(picture("yuv420p", 64, 48))


@pytest.mark.parametrize(
    ("written", "automatic"),
    [(False, False), (True, True), ("off", False), ("auto", True), ("carry", False), ({}, True)],
)
def test_ways_to_write_it(written: object, automatic: bool) -> None:
    orient = stages.load("orient")
    assert orient(orient.Settings.model_validate(written)).automatic is automatic


def test_wrong_ways_to_write_it() -> None:
    orient = stages.load("orient")
    with pytest.raises(ValueError, match="auto, off or carry"):
        orient.Settings.model_validate("left")
    with pytest.raises(ValueError, match="nine numbers"):
        orient.Settings.model_validate({"matrix": (1, 2, 3)})
