"""`gpupipe run` to NVENC by the real PyNvVideoCodec: over the double in tests/nvenc_shim, or over a card that has NVENC.

With GPUPIPE_NVENC_HOST=1 the same runs take place without a GPU (see conftest.py).
"""

from __future__ import annotations

import io
import json
from contextlib import redirect_stderr
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING

import nvenc_clips
import pytest
from nvenc_clips import COUNT, LIGHT, MASTERING, Clip, ffprobe, frames, packets, psnr, same_times, seek
from nvenc_place import HOST, shim
from patience import until

from gpupipe.cli import execute
from gpupipe.cli.console import Console
from gpupipe.codecs.capability import encoder_row
from gpupipe.codecs.nvenc import NvencEncoder
from gpupipe.config import parse_config
from gpupipe.errors import NoSessionError
from gpupipe.media.probe import probe
from gpupipe.plan import make_plan

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import numpy as np

pytestmark = [pytest.mark.gpu, pytest.mark.nvenc]

STAGES = [
    {"warp": {"rotate": 1.5, "scale": 1.02, "filter": "bicubic", "border": "edge"}},
    {"overlay": {"image": "configs/assets/logo.png", "anchor": "bottom-right", "margin": 8, "opacity": 0.6}},
]
GRAIN = {"mp4": Fraction(1, 24000), "mkv": Fraction(1, 1000)}
KINDS = {"h264": ("h264", "nv12"), "hevc": ("hevc", "nv12"), "hevc10": ("hevc", "p010le")}


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Clip]:
    folder, made = tmp_path_factory.mktemp("clips"), {}

    def of(kind: str) -> Clip:
        if kind not in made:
            made[kind] = nvenc_clips.make(kind, folder)
        return made[kind]

    return of


@pytest.fixture(scope="module")
def handed_in(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., list[np.ndarray]]:
    """The pictures that the encoder is given, by the same run with a lossless encoder in its place."""
    folder, made = tmp_path_factory.mktemp("lossless"), {}

    def of(source: Clip, depth: int, device: str) -> list[np.ndarray]:
        key = (source.path.stem, depth)
        if key not in made:
            output = folder / f"{source.path.stem}{depth}.mkv"
            pixels = "yuv420p" if depth == 8 else "yuv420p10le"
            video = {"codec": "ffv1", "pixel_format": pixels, "options": {"level": 3}}
            done, said = run(source, output, video, device, segments="off")
            assert done == 0, said
            made[key] = frames(output)
            assert len(made[key]) == COUNT
        return made[key]

    return of


def run(source: Clip, output: Path, video: dict, device: str, **more: object) -> tuple[int, list[str]]:
    """The exit code, and the warnings and errors on stderr."""
    config = {"stages": STAGES, "segments": "off", **more, "output": {"video": video}}
    path = output.with_suffix(".json.yaml")
    path.write_text(json.dumps(config))
    words = ["run", str(path), str(source.path), str(output), "--device", device]
    with redirect_stderr(io.StringIO()) as told:
        code = execute(words, Console())
    return code, [line for line in told.getvalue().splitlines() if line.startswith(("error:", "warning:"))]


def nvenc(kind: str, bf: int = 2, **options: str) -> dict:
    codec, pixels = KINDS[kind]
    # The double needs a lookahead of B-frames + 1 for all the B-frames in HEVC (tests/nvenc_shim/README.md).
    ahead = {"lookahead": str(bf + 1)} if codec == "hevc" and bf else {}
    return {
        "codec": codec, "encoder": "nvenc", "pixel_format": pixels, "quality": 12,
        "options": {"bf": str(bf), "gop": "24", **ahead, **options},
    }  # fmt: skip


def check(output: Path, source: Clip, wanted: list[np.ndarray], *, reordered: bool, least: float = 40) -> None:
    """Count, times, order and pictures of a whole file."""
    pts, dts, keys = packets(output)
    same_times(pts, source.times, GRAIN[output.suffix[1:]])
    known = [(d, p) for d, p in zip(dts, pts, strict=True) if d is not None]
    assert len(known) >= COUNT - (4 if output.suffix == ".mkv" else 0)
    assert all(a[0] < b[0] for a, b in pairwise(known))
    assert all(d <= p for d, p in known)
    assert keys[0]
    assert (pts != sorted(pts)) == reordered
    shown = ffprobe(output, "-select_streams", "v:0", "-count_frames", "-show_entries", "stream=nb_read_frames")
    assert int(shown["streams"][0]["nb_read_frames"]) == COUNT
    ours = frames(output)
    assert len(ours) == len(wanted)
    scores = [psnr(a, b) for a, b in zip(ours, wanted, strict=True)]
    assert min(scores) >= least, f"picture {scores.index(min(scores))}: {min(scores):.1f} dB"
    assert psnr(ours[0], wanted[1]) < least - 8, "neighbours are too alike for this test"


@pytest.mark.parametrize("container", ["mp4", "mkv"])
@pytest.mark.parametrize("bf", [0, 2, 4])
@pytest.mark.parametrize("kind", list(KINDS))
def test_every_frame_arrives_in_its_place(
    clip, handed_in, device: str, tmp_path: Path, kind: str, bf: int, container: str
) -> None:
    row = encoder_row(KINDS[kind][0], 0)
    if row.max_b_frames < bf or (kind == "hevc10" and not row.ten_bit):
        pytest.skip(f"this NVENC makes {row.max_b_frames} B-frames in {kind}")
    source, output = clip("film"), tmp_path / f"out.{container}"
    done, said = run(source, output, nvenc(kind, bf), device)
    assert (done, said) == (0, [])
    check(output, source, handed_in(source, 10 if kind == "hevc10" else 8, device), reordered=bf > 0)
    stream = ffprobe(output, "-select_streams", "v:0", "-show_streams")["streams"][0]
    assert (stream["codec_name"], stream["pix_fmt"]) == (
        KINDS[kind][0],
        "yuv420p10le" if kind == "hevc10" else "yuv420p",
    )
    assert Fraction(stream["avg_frame_rate"]) == pytest.approx(Fraction(24000, 1001), rel=1e-3)


@pytest.mark.parametrize("container", ["mp4", "mkv"])
@pytest.mark.parametrize("kind", ["h264", "hevc10"])
def test_variable_rate_stays_variable(clip, handed_in, device: str, tmp_path: Path, kind: str, container: str) -> None:
    source, output = clip("vfr"), tmp_path / f"out.{container}"
    assert run(source, output, nvenc(kind), device) == (0, [])
    check(output, source, handed_in(source, 10 if kind == "hevc10" else 8, device), reordered=True)


@pytest.mark.parametrize("container", ["mp4", "mkv"])
@pytest.mark.parametrize("kind", list(KINDS))
def test_segments_join_without_a_seam_and_can_be_sought(
    clip, handed_in, device: str, tmp_path: Path, kind: str, container: str
) -> None:
    source, output = clip("vfr"), tmp_path / f"out.{container}"
    assert run(source, output, nvenc(kind), device, segments={"seconds": 0.3}, sessions=3) == (0, [])
    wanted = handed_in(source, 10 if kind == "hevc10" else 8, device)
    check(output, source, wanted, reordered=True)
    keys = packets(output)[2]
    assert sum(keys) >= 5
    for number in (0, 13, 40, COUNT - 1):
        at, frame = seek(output, source.times[number] + Fraction(1, 900))
        found = min(range(COUNT), key=lambda n: abs(source.times[n] - at))
        assert found <= number
        assert number - found < 24
        assert psnr(frame, wanted[found]) >= 40


def test_hdr10_comes_out_as_it_went_in(clip, handed_in, device: str, tmp_path: Path) -> None:
    for container in ("mp4", "mkv"):
        source, output = clip("hdr"), tmp_path / f"out.{container}"
        assert run(source, output, nvenc("hevc10"), device, segments={"seconds": 1}, sessions=2) == (0, [])
        check(output, source, handed_in(source, 10, device), reordered=True)
        stream = ffprobe(output, "-select_streams", "v:0", "-show_streams")["streams"][0]
        names = ("color_primaries", "color_transfer", "color_space", "color_range")
        assert [stream.get(n) for n in names] == ["bt2020", "smpte2084", "bt2020nc", "tv"]
        first = ffprobe(output, "-select_streams", "v:0", "-read_intervals", "%+#1", "-show_frames")["frames"][0]
        for place in (stream["side_data_list"], first["side_data_list"]):  # the container's, and the bitstream's
            sides = {s["side_data_type"]: s for s in place}
            light, mastering = sides["Content light level metadata"], sides["Mastering display metadata"]
            assert (light["max_content"], light["max_average"]) == LIGHT
            assert Fraction(mastering["red_x"]) == Fraction(34000, 50000), MASTERING
            assert (Fraction(mastering["max_luminance"]), Fraction(mastering["min_luminance"])) == (
                1000,
                Fraction(1, 10000),
            )


OPTIONS = ({"aq": "8"}, {"temporalaq": "1"}, {"lookahead": "8"}, {"preset": "p1"}, {"tuning_info": "low_latency"},
           {"rc": "vbr", "multipass": "qres"}, {"cq": "12"})  # fmt: skip


@pytest.mark.parametrize("options", OPTIONS, ids=["".join((*o.keys(), *o.values())) for o in OPTIONS])
def test_options_run(clip, handed_in, device: str, tmp_path: Path, options: dict[str, str]) -> None:
    source, output = clip("film"), tmp_path / "out.mp4"
    video = nvenc("h264", 0 if "tuning_info" in options else 2, **{k: v for k, v in options.items() if k != "preset"})
    video |= {"preset": options["preset"]} if "preset" in options else {}
    if "rc" in options or "cq" in options:
        del video["quality"]
        video |= {"bitrate": "20M"}
    assert run(source, output, video, device) == (0, [])
    check(output, source, handed_in(source, 8, device), reordered="tuning_info" not in options, least=38)


FAULTS = [
    ("device", "h264", 6, "output.video.encoder: nvenc cannot encode h264 here: this GPU has no NVENC"),
    ("memory", "h264", 6, "nvenc cannot encode h264 here: no NVENC session is left on this GPU, or no memory for one"),
    ("preset", "h264", 5, "Failed to get preset configuration (error 12: this NVENC does not do that)"),
    ("depth", "hevc10", 6, "this NVENC does not encode hevc in 10 bit"),
    (
        "frame=8",
        "h264",
        5,
        "NVENC failed: nvEncEncodePicture API failed (error 20: a failure without a name)",
    ),
]


@pytest.mark.parametrize(("asked", "kind", "code", "text"), FAULTS, ids=[f[0] for f in FAULTS])
@pytest.mark.parametrize("segments", ["off", {"seconds": 0.5}], ids=["whole", "cut"])
def test_a_fault_is_one_line_leaves_nothing_and_the_next_run_is_whole(
    clip, handed_in, device: str, faults, tmp_path: Path, asked: str, kind: str, code: int, text: str, segments: object
) -> None:
    source, output = clip("film"), tmp_path / "out.mp4"
    more = {"segments": segments, "sessions": 2} if segments != "off" else {}
    faults(asked)
    done, said = run(source, output, nvenc(kind), device, **more)
    assert done == code, said
    assert len(said) == 1, said
    assert text in said[0]
    assert "\n" not in said[0]
    assert not output.exists()
    assert list(tmp_path.glob("*.mp4")) == []
    faults("")
    assert run(source, output, nvenc(kind), device, **more)[0] == 0
    check(output, source, handed_in(source, 10 if kind == "hevc10" else 8, device), reordered=True)


def test_a_kept_run_goes_on_where_it_failed(clip, handed_in, device: str, faults, tmp_path: Path) -> None:
    source, output = clip("film"), tmp_path / "out.mp4"
    more = {"segments": {"seconds": 0.5}, "sessions": 1, "resume": "keep"}
    faults("after=40")
    done, said = run(source, output, nvenc("h264"), device, **more)
    assert done == 5
    assert "NVENC failed: nvEncEncodePicture API failed" in said[-1]
    assert "segments are kept, the same command goes on" in said[-1]
    assert not output.exists()
    faults("")
    assert run(source, output, nvenc("h264"), device, **more)[0] == 0
    check(output, source, handed_in(source, 8, device), reordered=True)
    assert not (tmp_path / "out.mp4.gpupipe").exists()


@pytest.mark.parametrize("asked", ["delay=2", "slow=4", "delay=3,slow=2"])
def test_a_late_or_slow_encoder_loses_nothing(clip, handed_in, device: str, faults, tmp_path: Path, asked: str) -> None:
    source, output = clip("film"), tmp_path / "out.mp4"
    faults(asked)
    assert run(source, output, nvenc("h264", 0), device) == (0, [])
    check(output, source, handed_in(source, 8, device), reordered=False)


@pytest.mark.parametrize("most", [1, 2])
def test_fewer_sessions_than_runners(
    clip, handed_in, device: str, faults, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, most: int
) -> None:
    """Whoever has a session encodes nothing before another one was refused: opening may take longer than a segment."""
    source, output = clip("film"), tmp_path / "out.mp4"
    wanted, refused = handed_in(source, 8, device), []
    make, encode = NvencEncoder.__init__, NvencEncoder.encode

    def made(*arguments: object, **more: object) -> None:
        try:
            make(*arguments, **more)
        except NoSessionError:
            refused.append(True)
            raise

    def held(*arguments: object) -> object:
        until(lambda: refused)
        return encode(*arguments)

    monkeypatch.setattr(NvencEncoder, "__init__", made)
    monkeypatch.setattr(NvencEncoder, "encode", held)
    faults(f"sessions={most}")
    done, said = run(source, output, nvenc("h264"), device, segments={"seconds": 0.5}, sessions=4)
    assert done == 0
    assert len(said) == 1
    assert f"the encoder opens {most} session" in said[0]
    assert len(refused) == 1, "one refusal tells the limit"
    check(output, source, wanted, reordered=True)


@pytest.mark.parametrize("kind", ["film", "vfr", "hdr"])
def test_what_lies_on_both_sides(clip, device: str, tmp_path: Path, kind: str) -> None:
    print("libnvidia-encode is", "the test double" if shim() else "the driver's own")  # noqa: T201  for the log
    codec = "hevc10" if kind == "hdr" else "h264"
    config = {"stages": STAGES, "output": {"video": nvenc(codec)}}
    plan = make_plan(parse_config(config), probe(clip(kind).path), tmp_path / "out.mp4", device=device)
    assert (plan.decoder, plan.encoder.encoder) == ("libav" if HOST else "nvdec", "nvenc")
    assert [step.name for step in plan.steps if step.kind in ("upload", "download")] == []
