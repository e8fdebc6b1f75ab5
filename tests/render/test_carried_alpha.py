"""Alpha from file to file, decoded by ffmpeg: exact where nothing computes it, moved by stages as ffmpeg moves planes."""

from __future__ import annotations

import subprocess
import threading
from typing import TYPE_CHECKING

import av
import numpy as np
import pytest

from gpupipe.config import parse_config
from gpupipe.errors import PlanError
from gpupipe.journal import Journal
from gpupipe.media.probe import probe
from gpupipe.plan import make_plan
from gpupipe.plan.stored import dump, load
from gpupipe.render import render

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from gpupipe.plan import Plan

WIDTH, HEIGHT, FRAMES = 35, 23, 3
PACKED = {"rgba": (4, 3), "argb": (4, 0), "bgra": (4, 3), "rgba64le": (4, 3), "ya8": (2, 1), "ya16le": (2, 1)}
"""Samples a pixel, and which of them is alpha."""


def bits_of(pixels: str) -> int:
    return next((n for n in (16, 12, 10) if str(n) in pixels or (n == 16 and "64" in pixels)), 8)


def mattes(bits: int, height: int = HEIGHT, frames: int = FRAMES) -> np.ndarray:
    """(frames, H, W): nothing, then noise, a ramp, and all of it, moving."""
    top, random = (1 << bits) - 1, np.random.default_rng(bits)
    made = np.empty((frames, height, WIDTH), np.int64)
    made[:, :, :8], made[:, :, 8:16] = 0, random.integers(0, top + 1, (frames, height, 8))
    made[:, :, 16:28], made[:, :, 28:] = np.linspace(0, top, 12).astype(int), top
    return np.stack([np.roll(one, n, axis=1) for n, one in enumerate(made)])


def raw(pixels: str, alpha: np.ndarray) -> bytes:
    """Frames of that format, smooth pictures under `alpha`."""
    bits = bits_of(pixels)
    kind = np.uint8 if bits == 8 else np.dtype("<u2")
    _, height, width = alpha.shape
    y, x = np.mgrid[:height, :width]
    smooth = np.stack([((x + 2 * y + 9 * n) % 100 + 60) << (bits - 8) for n in range(3)]).astype(np.int64)
    if pixels in PACKED:
        count, place = PACKED[pixels]
        colors = np.moveaxis(np.broadcast_to(smooth[: count - 1, None], (count - 1, *alpha.shape)), 0, -1)
        return np.insert(colors, place, alpha, axis=-1).astype(kind).tobytes()
    step_x, step_y = 2 if "42" in pixels else 1, 2 if "420" in pixels else 1
    planes = [smooth[0], smooth[1, ::step_y, ::step_x], smooth[2, ::step_y, ::step_x]]
    return b"".join(b"".join(p.astype(kind).tobytes() for p in (*planes, one)) for one in alpha)


@pytest.fixture
def source(tmp_path: Path, ffmpeg) -> Callable[..., Path]:
    """Exactly these samples, in a file."""

    def make(pixels: str, alpha: np.ndarray, *options: object) -> Path:
        path, samples = tmp_path / f"{pixels}.nut", tmp_path / "samples"
        samples.write_bytes(raw(pixels, alpha))
        size = f"{alpha.shape[2]}x{alpha.shape[1]}"
        ffmpeg("-f", "rawvideo", "-pix_fmt", pixels, "-s", size, "-i", samples, *(options or ("-c", "copy")), path)
        return path

    return make


def planned(source: Path, output: Path, config: dict, **more: object) -> Plan:
    return make_plan(parse_config(config), probe(source), output, device="cpu", **more)


def run(source: Path, output: Path, config: dict) -> Plan:
    plan = planned(source, output, config)
    render(plan, overwrite=True, journal=Journal(), stop=threading.Event())
    return plan


def decoded(path: Path, *filters: str) -> tuple[np.ndarray, int]:
    """Alpha of every frame, and its depth, as ffmpeg extracts it."""
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        name, width, height = stream.codec_context.pix_fmt, stream.width, stream.height
    bits = 12 if stream.codec_context.name == "prores" else bits_of(str(name))
    gray = "gray" if bits == 8 else f"gray{bits}le"
    command = ["ffmpeg", "-v", "error", "-i", path, "-vf", ",".join(("alphaextract", *filters)), "-pix_fmt", gray,
               "-f", "rawvideo", "-"]  # fmt: skip
    done = subprocess.run(command, capture_output=True, check=True, timeout=240)
    flat = np.frombuffer(done.stdout, np.uint8 if bits == 8 else "<u2").astype(np.int64)
    return (flat if filters else flat.reshape(-1, height, width)), bits


def widened(values: np.ndarray, bits: int) -> np.ndarray:
    """16 bits by repeating what there is, as ProRes is written."""
    return values << 16 - bits | values >> 2 * bits - 16


def scaled(values: np.ndarray, have: int, want: int) -> np.ndarray:
    return np.rint(values * ((1 << want) - 1) / ((1 << have) - 1)).astype(np.int64)


def encoder(name: str, **more: object) -> dict:
    return {"output": {"video": {"encoder": name, "alpha": "keep", **more}}}


CARRIED = [
    ("yuva420p", "ffv1"), ("yuva422p10le", "prores_torch"), ("yuva444p10le", "prores_ks"), ("rgba", "prores_ks"),
    ("yuva444p12le", "prores_torch"), ("gbrap", "utvideo"), ("gbrap12le", "ffv1"), ("rgba64le", "prores_torch"),
    ("ya8", "prores_ks"), ("ya16le", "prores_torch"), ("argb", "magicyuv"), ("yuva444p16le", "prores_torch"),
    ("yuva444p10le", "ffv1"),
]  # fmt: skip


@pytest.mark.parametrize(("pixels", "name"), CARRIED)
def test_alpha_arrives_bit_for_bit(source, tmp_path: Path, pixels: str, name: str) -> None:
    have, alpha = bits_of(pixels), mattes(bits_of(pixels))
    output = tmp_path / f"o.{'mov' if 'prores' in name else 'mkv' if name == 'ffv1' else 'avi'}"
    file = source(pixels, alpha, *(["-c:v", "png"] if pixels == "ya16le" else []))  # NUT has no tag for it
    plan = run(file, output, encoder(name))
    given = plan.encoder.input_format.alpha
    assert plan.source.video.format.alpha == plan.source.video.alpha == have
    assert given == (have if name == "prores_torch" else plan.encoder.input_format.pixels.depth)
    got, bits = decoded(output)
    wanted = scaled(alpha, have, given)
    # ProRes holds 16 bits, of which libav's decoder gives the upper 12.
    assert np.array_equal(got, widened(wanted, given) >> 4 if "prores" in name else wanted)
    assert bits == (12 if "prores" in name else given)
    assert f"alpha: {have} bit, straight, is carried to {name}" in plan.notes
    assert not [w for w in plan.warnings if w.code == "source-reduced" and "alpha" in w.message]
    assert load(dump(plan), "here").digest() == plan.digest()


def test_colours_under_alpha_are_not_touched(source, tmp_path: Path) -> None:
    alpha = mattes(10)
    file = source("yuva444p10le", alpha)
    plan = run(file, tmp_path / "o.mkv", encoder("ffv1"))
    assert not plan.steps
    command = ["ffmpeg", "-v", "error", "-i", tmp_path / "o.mkv", "-f", "rawvideo", "-"]
    assert subprocess.run(command, capture_output=True, check=True).stdout == raw("yuva444p10le", alpha)


@pytest.mark.parametrize("order", ["tff", "bff"])
@pytest.mark.parametrize("name", ["prores_ks", "prores_torch"])
def test_interlaced_alpha(source, tmp_path: Path, ffmpeg, order: str, name: str) -> None:
    alpha = mattes(10, height=36)
    progressive = source("yuva444p10le", alpha)
    file = tmp_path / "fields.mov"
    filters = f"setfield={order}"
    ffmpeg("-i", progressive, "-vf", filters, "-c:v", "prores_ks", "-flags", "+ildct", file)
    plan = run(file, tmp_path / "o.mov", encoder(name))
    assert plan.encoder.input_format.interlaced
    assert np.array_equal(decoded(tmp_path / "o.mov")[0], widened(alpha, 10) >> 4)


def test_geometry_moves_alpha_as_ffmpeg_does(source, tmp_path: Path) -> None:
    """Centred crop on chroma samples, a canvas, and a lookup that must leave alpha alone."""
    cube = tmp_path / "half.cube"
    cube.write_text("LUT_1D_SIZE 2\n0 0 0\n0.5 0.5 0.5\n")
    file = source("yuva420p", mattes(8))
    stages = [
        {"crop": {"width": 22, "height": 14}}, {"pad": {"width": 30, "height": 21, "x": 3, "y": 5}},
        {"lut3d": {"file": str(cube)}}, {"resize": {"width": 60, "height": 42, "filter": "nearest"}},
    ]  # fmt: skip
    plan = run(file, tmp_path / "o.mkv", {"stages": stages, **encoder("ffv1", pixel_format="yuva444p")})
    got, _ = decoded(tmp_path / "o.mkv")
    cut, _ = decoded(file, "crop=22:14:6:4:exact=1")
    canvas = np.zeros((FRAMES, 21, 30), np.int64)
    canvas[:, 5:19, 3:25] = cut.reshape(FRAMES, 14, 22)
    assert np.array_equal(got, canvas.repeat(2, axis=1).repeat(2, axis=2))
    assert "pad: alpha beyond the picture is 0 (`opacity`)" in plan.steps[1].reason


def test_scaled_alpha_agrees_with_zimg(source, tmp_path: Path) -> None:
    file = source("yuva444p10le", mattes(10))
    run(file, tmp_path / "o.mkv", {"stages": [{"resize": {"width": 50, "height": 30}}], **encoder("ffv1")})
    got, _ = decoded(tmp_path / "o.mkv")
    theirs, _ = decoded(file, "setparams=range=pc", "zscale=w=50:h=30:filter=lanczos")
    inside = np.abs(got - theirs.reshape(got.shape))
    assert np.quantile(inside, 0.95) <= 1  # zimg clamps between its passes


def test_quarter_turn_and_rate(source, tmp_path: Path, ffmpeg) -> None:
    alpha = mattes(8)
    progressive = source("yuva444p", alpha)
    file = tmp_path / "turned.mov"
    ffmpeg("-r", 25, "-i", progressive, "-c:v", "png", "-pix_fmt", "rgba", file)
    turned = tmp_path / "tagged.mov"
    ffmpeg("-i", file, "-c", "copy", "-metadata:s:v", "rotate=90", turned)
    plan = run(turned, tmp_path / "o.mov", {"stages": [{"fps": {"rate": 50}}], **encoder("prores_torch")})
    got, _ = decoded(tmp_path / "o.mov")
    assert plan.steps[0].name == "orient"
    theirs, _ = decoded(turned)  # ffmpeg turns it too
    upright = widened(theirs.reshape(FRAMES, WIDTH, HEIGHT), 8) >> 4
    assert np.array_equal(theirs.ravel(), np.rot90(alpha, 1, axes=(1, 2)).ravel())
    assert np.array_equal(got, upright.repeat(2, axis=0))


def test_cut_equals_whole(source, tmp_path: Path) -> None:
    file = source("yuva444p10le", mattes(10, frames=10), "-c:v", "ffv1", "-g", "1")
    config = {"stages": [{"warp": {"rotate": 7, "border": "constant"}}], **encoder("prores_torch")}
    run(file, tmp_path / "whole.mov", {**config, "segments": "off"})
    plan = run(file, tmp_path / "cut.mov", {**config, "segments": {"seconds": 0.12}, "sessions": 2})
    assert len(plan.segments) > 2
    whole, cut = (decoded(tmp_path / name)[0] for name in ("whole.mov", "cut.mov"))
    assert len(whole) == 10
    assert np.array_equal(whole, cut)


def test_kept_segments_and_measured_colours(source, tmp_path: Path) -> None:
    """A ledger joins pictures with alpha; quality looks at their colours alone, which FFV1 keeps."""
    file = source("yuva444p10le", mattes(10, frames=6), "-c:v", "ffv1", "-g", "1")
    config = {"segments": {"seconds": 0.12}, "resume": "keep", **encoder("ffv1")}
    plan = planned(file, tmp_path / "o.mkv", {**config, "quality": {"metrics": ["psnr"], "frames": "all"}})
    assert plan.ledger
    assert len(plan.segments) == 2
    summary = render(plan, overwrite=False, journal=Journal(), stop=threading.Event())
    assert np.array_equal(decoded(tmp_path / "o.mkv")[0], mattes(10, frames=6))
    assert [(score.mean, score.frames) for score in summary.quality] == [(float("inf"), 6)]


@pytest.mark.parametrize("name", ["libvpx", "libvpx-vp9"])
def test_a_second_bitstream_for_alpha_is_decoded_whole_and_in_pieces(source, tmp_path: Path, ffmpeg, name: str) -> None:
    file, frames = tmp_path / "v.webm", 12
    ffmpeg("-i", source("yuva420p", mattes(8, frames=frames)), "-c:v", name, "-auto-alt-ref", 0, "-g", 4, file)
    command = ["ffmpeg", "-v", "error", "-c:v", name, "-i", file, "-f", "rawvideo", "-"]
    theirs = subprocess.run(command, capture_output=True, check=True, timeout=60).stdout
    assert len(theirs) > frames * WIDTH * HEIGHT * 2
    for kind, segments in (("whole", "off"), ("cut", {"seconds": 0.16})):
        output = tmp_path / f"{kind}.mkv"
        plan = run(file, output, {"segments": segments, "sessions": 2, **encoder("ffv1")})
        assert len(plan.segments) == (3 if kind == "cut" else 1)
        command = ["ffmpeg", "-v", "error", "-i", output, "-f", "rawvideo", "-"]
        assert subprocess.run(command, capture_output=True, check=True, timeout=60).stdout == theirs


def test_alpha_in_a_plane_of_its_own_is_no_second_bitstream(source, tmp_path: Path, ffmpeg) -> None:
    """Matroska writes AlphaMode for every stream with alpha that it knows of, FFV1 among them."""
    file = tmp_path / "plane.mkv"
    ffmpeg("-i", source("yuva420p", mattes(8, frames=1)), "-c:v", "ffv1", file)
    info = probe(file)
    assert info.streams[0].tags["alpha_mode"] == "1"
    assert info.video.alpha == 8
    assert not [note for note in info.notes if "second bitstream" in note]


def test_a_real_file_with_alpha(corpus: Path, tmp_path: Path) -> None:
    file = corpus / "files" / "alpha_vp9_vorbis.webm"
    config = {"range": {"end": 2.5}, **encoder("ffv1")}
    plan = run(file, tmp_path / "o.mkv", config)
    command = ["ffmpeg", "-v", "error", "-c:v", "libvpx-vp9", "-i", file, "-t", "2.5", "-f", "rawvideo", "-"]
    theirs = subprocess.run(command, capture_output=True, check=True, timeout=240).stdout
    command = ["ffmpeg", "-v", "error", "-i", tmp_path / "o.mkv", "-f", "rawvideo", "-"]
    assert subprocess.run(command, capture_output=True, check=True, timeout=240).stdout == theirs
    assert plan.encoder.input_format.alpha == 8


def test_a_stream_that_loses_its_alpha_is_opaque_from_there(source, tmp_path: Path, ffmpeg) -> None:
    with_it = source("yuva444p10le", mattes(10))
    parts = [tmp_path / "a.mov", tmp_path / "b.mov"]
    ffmpeg("-i", with_it, "-c:v", "prores_ks", "-profile:v", "4444", parts[0])
    ffmpeg("-i", with_it, "-vf", "format=yuv444p10le", "-c:v", "prores_ks", "-profile:v", "4444", parts[1])
    listed = tmp_path / "list.txt"
    listed.write_text("".join(f"file '{p}'\n" for p in parts))
    ffmpeg("-f", "concat", "-safe", 0, "-i", listed, "-c", "copy", tmp_path / "both.mov")
    journal, plan = Journal(), planned(tmp_path / "both.mov", tmp_path / "o.mov", encoder("prores_torch"))
    render(plan, overwrite=True, journal=journal, stop=threading.Event())
    assert [one.message.partition("; ")[2] for one in journal.entries.values()] == [
        "it is brought to the first format, opaque"
    ]
    got, _ = decoded(tmp_path / "o.mov")
    assert np.array_equal(got[:FRAMES], widened(mattes(10), 10) >> 4)
    assert np.array_equal(got[FRAMES:], np.full_like(got[FRAMES:], 4095))


@pytest.mark.parametrize(
    ("video", "words"),
    [
        ({"codec": "h264"}, "libx264 does not carry it"),
        ({"codec": "prores", "options": {"profile": "hq"}}, "ProRes hq has none"),
        ({"codec": "prores", "options": {"alpha_bits": 0}}, "alpha_bits is 0"),
        ({"codec": "ffv1", "pixel_format": "yuv444p10le"}, "yuv444p10le has none"),
    ],
)
def test_what_cannot_have_it_says_so(source, tmp_path: Path, video: dict, words: str) -> None:
    file = source("yuva444p10le", mattes(10))
    plan = planned(file, tmp_path / "o.mkv", {"output": {"video": video}})
    (message,) = [w.message for w in plan.warnings if w.code == "source-reduced"]
    assert message.startswith(f"alpha dropped: {words}")
    assert plan.encoder.input_format.alpha == plan.source.video.format.alpha == 0
    with pytest.raises(PlanError, match=words):
        planned(file, tmp_path / "o.mkv", {"output": {"video": {**video, "alpha": "keep"}}})
    with pytest.raises(PlanError, match=words):
        planned(file, tmp_path / "o.mkv", {"output": {"video": video}}, strict=True)
    quiet = planned(file, tmp_path / "o.mkv", {"output": {"video": {**video, "alpha": "drop"}}})
    assert not [w for w in quiet.warnings if "alpha" in w.message]
    assert "alpha is dropped, as the config says" in quiet.notes


def test_keys_that_contradict_each_other(source, tmp_path: Path, ffmpeg) -> None:
    file = source("yuva444p10le", mattes(10))
    opaque = tmp_path / "opaque.mkv"
    ffmpeg("-i", file, "-vf", "format=yuv444p10le", "-c:v", "ffv1", opaque)
    with pytest.raises(PlanError, match="yuva444p10le has alpha"):
        planned(file, tmp_path / "o.mkv", encoder("ffv1", alpha="drop", pixel_format="yuva444p10le"))
    with pytest.raises(PlanError, match="the source has no alpha for yuva444p"):
        planned(opaque, tmp_path / "o.mkv", encoder("ffv1", alpha="auto", pixel_format="yuva444p"))
    assert planned(opaque, tmp_path / "o.mkv", encoder("ffv1")).encoder.input_format.alpha == 0
