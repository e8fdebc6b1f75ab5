"""What a check lets pass, and what it does not."""

from __future__ import annotations

import threading
from fractions import Fraction

import pytest

from gpupipe.bench.cases import Case, cases
from gpupipe.bench.check import check, compare
from gpupipe.errors import MediaError

TICK = Fraction(1, 90000)
PTS = [n * 3600 for n in range(20)]


@pytest.fixture(scope="module")
def reference(tmp_path_factory, ffmpeg):
    path = tmp_path_factory.mktemp("check") / "reference.mkv"
    ffmpeg("-f", "lavfi", "-i", "testsrc2=s=320x180:r=25:d=0.8", "-vf", "setparams=colorspace=bt709:range=tv",
           "-c:v", "ffv1", "-pix_fmt", "yuv420p", path)  # fmt: skip
    return path


@pytest.fixture
def made(reference, tmp_path, ffmpeg):
    def make(*options: object):
        path = tmp_path / "made.mov"
        ffmpeg("-i", reference, *options, path)
        return compare(path, reference, PTS, TICK)

    return make


def test_an_honest_encode_passes_and_is_measured(reference, made, ffmpeg):
    found = made("-c:v", "libx264", "-crf", "18", "-bf", "2")
    said = ffmpeg("-i", reference.parent / "reference.mkv", "-i", reference, "-lavfi", "psnr", "-f", "null", "-")
    assert "average:inf" in said  # the oracle works
    assert found.frames == 20
    assert 30 < found.worst <= found.psnr < 60


def test_the_figure_is_ffmpegs(reference, made, tmp_path, ffmpeg):
    """Of R'G'B' scaled by the mean of 2x2 samples."""
    found = made("-c:v", "libx264", "-crf", "20")
    same = "settb=1/25,format=rgb24,scale=iw/2:ih/2:flags=area"
    said = ffmpeg("-i", tmp_path / "made.mov", "-i", reference, "-lavfi", f"[0]{same}[a];[1]{same}[b];[a][b]psnr", "-f", "null", "-")  # fmt: skip
    assert found.psnr == pytest.approx(float(said.rpartition("average:")[2].split()[0]), abs=0.5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("-frames:v", "19"), "19 pictures came out, 20 on the CPU, not 20"),
        (("-vf", "setpts=PTS+gt(N\\,9)*2/TB/25", "-vsync", "vfr"), "picture 10: it is shown at"),
        (("-vf", "setpts=N/24/TB", "-r", "24"), "is shown at"),
        (("-vf", "crop=316:180:4:0,pad=320:180"), "dB from the CPU backend's picture"),
        (("-vf", "scale=in_color_matrix=bt709:out_color_matrix=bt601"), "dB from the CPU backend's picture"),
        (("-vf", "setparams=range=pc"), "dB from the CPU backend's picture"),
        (("-vf", "hue=h=20"), "dB from the CPU backend's picture"),
        (("-vf", "reverse"), "dB from the CPU backend's picture"),
    ],
)
def test_what_is_wrong_is_refused(made, options, message):
    with pytest.raises(MediaError, match=message):
        made("-c:v", "libx264", "-crf", "12", *options)


def test_a_wrong_matrix_shows_where_there_is_little_colour(tmp_path, ffmpeg):
    gray = tmp_path / "gray.mkv"
    ffmpeg("-f", "lavfi", "-i", "color=c=0x607890:s=320x180:r=25:d=0.2", "-vf", "noise=alls=4,scale=out_color_matrix=bt709,setparams=colorspace=bt709:range=tv",
           "-c:v", "ffv1", "-pix_fmt", "yuv420p", gray)  # fmt: skip
    for matrix, message in (("bt709", None), ("bt601", "off by")):
        out = tmp_path / f"{matrix}.mkv"
        ffmpeg("-i", gray, "-vf", f"scale=in_color_matrix=bt709:out_color_matrix={matrix},setparams=colorspace=bt709", "-c:v", "ffv1", out)  # fmt: skip
        if message is None:
            assert compare(out, gray, PTS[:5], TICK).bias == 0
        else:
            with pytest.raises(MediaError, match=message):
                compare(out, gray, PTS[:5], TICK)


def test_every_case_that_writes_a_file_is_looked_at(subject):
    one, stop = subject(), threading.Event()
    rows = cases(one, [], 1, stop)
    broken = Case("other", "", "baseline", 40, run=lambda _: (one.folder / "x.mov").write_bytes(b""), output=one.folder / "x.mov")  # fmt: skip
    assert check(one, rows, stop).frames == 30
    with pytest.raises(Exception, match=r"x\.mov"):
        check(one, [*rows, broken], stop)
