"""What prores_torch makes, decoded by two independent builds of libav: every profile, size, field order and alpha."""

from __future__ import annotations

import numpy as np
import prores_pictures
import pytest
from prores_pictures import coded, coded_by_ks, complaints, decoded, depth_of, movie, picture, planes_of, psnr, settings

from gpupipe.codecs.prores.profile import PROFILES

NAMES = [p.name for p in PROFILES]
PIXELS = {False: "yuv422p10le", True: "yuv444p12le"}


def frame_for(profile: str, kind: str, width: int, height: int, depth: int | None = None) -> prores_pictures.Planes:
    full = profile.startswith("4444")
    return picture(kind, width, height, full=full, depth=depth or (12 if full else 10))


def assert_as_good_as_ks(planes: prores_pictures.Planes, profile: str, depth: int) -> None:
    """At the same quantiser at least as near the picture as prores_ks: nothing is shifted, swapped or scaled."""
    high, wide = planes[0].shape
    packets = coded(settings(wide, high, profile, quality=4), [planes])
    (frame,) = decoded(packets, wide, high, fourcc(profile))
    assert (frame.width, frame.height) == (wide, high)
    ten_bit = tuple(p >> depth - 10 for p in planes)
    (rival,) = decoded(coded_by_ks([ten_bit], profile, 4), wide, high, fourcc(profile))
    assert psnr(frame, planes, depth) > psnr(rival, ten_bit) - 0.1


def fourcc(profile: str) -> str:
    return next(p.fourcc for p in PROFILES if p.name == profile)


@pytest.mark.parametrize("size", [(66, 50), (17, 15)], ids=str)
@pytest.mark.parametrize("profile", NAMES)
def test_every_profile_at_odd_sizes(profile, size, tmp_path) -> None:
    asked = settings(*size, profile)
    frames = [frame_for(profile, kind, *size) for kind in ("grain", "gradient", "noise")]
    packets = coded(asked, frames, batch=2)
    assert complaints(movie(tmp_path / "out.mov", asked, packets)) == ""
    even = size[0] % 2 == 0 or profile.startswith("4444")  # prores_ks drops the last column of odd 4:2:2 chroma
    if even:
        assert_as_good_as_ks(frames[0], profile, asked.input_format.pixels.depth)


@pytest.mark.parametrize(
    ("size", "profile"),
    [((1920, 1080), "hq"), ((1998, 1080), "standard"), ((3840, 544), "proxy"), ((1280, 720), "4444")],
    ids=str,
)
def test_sizes_of_the_trade(size, profile, tmp_path) -> None:
    """UHD by its width alone: lines are coded sixteen at a time, each row of them like the one above."""
    asked = settings(*size, profile, quality=4)
    frame = frame_for(profile, "grain", *size)
    packets = coded(asked, [frame])
    assert complaints(movie(tmp_path / "out.mov", asked, packets)) == ""
    (found,) = decoded(packets, *size)
    # Grain of sigma 10 and 5; the coarsest step, of proxy's high frequencies, is 63 codes.
    assert psnr(found, frame, asked.input_format.pixels.depth) > (40 if profile == "proxy" else 50)


@pytest.mark.parametrize("order", ["tt", "bb"])
@pytest.mark.parametrize("size", [(720, 486), (720, 576)], ids=str)
def test_fields(size, order, tmp_path) -> None:
    """Two fields that differ come back each in its own lines, and the decoder learns which came first."""
    asked = settings(*size, "standard", field_order=order)
    even, odd = (picture("grain", *size, seed=s) for s in (3, 4))
    woven = []
    for a, b in zip(even, odd, strict=True):
        plane = a.copy()
        plane[1::2] = 1023 - b[1::2]
        woven.append(plane)
    packets = coded(asked, [tuple(woven)])
    assert complaints(movie(tmp_path / "out.mov", asked, packets)) == ""
    (frame,) = decoded(packets, *size)
    assert frame.interlaced_frame
    top_first = [line for line in _shown(tmp_path / "out.mov") if "top_field_first" in line]
    assert top_first == [f"top_field_first={int(order == 'tt')}"]
    assert psnr(frame, tuple(woven)) > 45


def _shown(path) -> list[str]:
    import subprocess  # noqa: PLC0415

    command = ["ffprobe", "-v", "error", "-show_frames", "-of", "default=nw=1", str(path)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


@pytest.mark.parametrize("kind", ["matte", "noise", "ramp"])
@pytest.mark.parametrize(("profile", "depth", "order"), [("4444", 12, "progressive"), ("4444xq", 10, "tt")])
def test_alpha_survives(kind, profile, depth, order, tmp_path) -> None:
    """Bit for bit, in the depth that the decoder gives."""
    width, height = 150, 52
    pixels = f"yuv444p{depth}le"
    asked = settings(width, height, profile, pixels=pixels, field_order=order)
    y, x = np.indices((height, width))
    top = (1 << depth) - 1
    alpha = {
        "matte": np.where((x - 70) ** 2 + (y - 25) ** 2 < 400, top, 0),
        "noise": np.random.default_rng(1).integers(0, top + 1, x.shape),
        "ramp": (x * 31 + y * 5) % (top + 1),
    }[kind].astype(np.uint16)
    frame = (*picture("grain", width, height, full=True, depth=depth), alpha)
    packets = coded(asked, [frame, frame])
    assert packets[0] == packets[1]
    assert complaints(movie(tmp_path / "out.mov", asked, packets)) == ""
    found = decoded(packets, width, height, fourcc(profile))[0]
    assert found.format.name.startswith("yuva444p")
    wide = alpha.astype(int) << 16 - depth | alpha.astype(int) >> 2 * depth - 16
    assert np.array_equal(planes_of(found)[3], wide >> 16 - depth_of(found))
    opaque = decoded(coded(asked, [frame[:3]]), width, height, fourcc(profile))[0]
    assert all(map(np.array_equal, planes_of(found)[:3], planes_of(opaque)))


def test_bytes_do_not_depend_on_the_batch() -> None:
    frames = [frame_for("hq", kind, 200, 70) for kind in ("grain", "noise", "text", "gradient", "grain")]
    asked = settings(200, 70)
    one = coded(asked, frames, batch=1)
    assert coded(asked, frames, batch=2) == one
    assert coded(asked, frames, batch=5) == one
    assert len(set(one)) == 4  # the two frames of grain are one picture


@pytest.mark.parametrize("profile", NAMES)
def test_noise_overflows_nothing(profile, tmp_path) -> None:
    """Codes from end to end at the finest quantiser: far beyond any rate, and still a stream that decodes."""
    rng = np.random.default_rng(9)
    full = profile.startswith("4444")
    depth = 12 if full else 10
    shapes = [(48, 136), *[(48, 136 if full else 68)] * 2]
    frames = [tuple((rng.integers(0, 2, s) * ((1 << depth) - 1)).astype(np.uint16) for s in shapes)]
    frames.append(tuple(rng.integers(0, 1 << depth, s).astype(np.uint16) for s in shapes))
    asked = settings(136, 48, profile, quality=1)
    packets = coded(asked, frames)
    assert complaints(movie(tmp_path / "out.mov", asked, packets)) == ""
    for data in packets:
        assert int.from_bytes(data[:4], "big") == len(data)
