"""Contract of the NVENC encoder, driven by a named double: real packets through the real timestamps, tags and muxer."""

from __future__ import annotations

import itertools
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING

import av
import nvenc_double
import nvenc_on_cpu
import pytest
import torch

from gpupipe.codecs import nvenc
from gpupipe.codecs.base import EncoderSettings
from gpupipe.codecs.capability import ask_encoder
from gpupipe.color import ChromaLocation, ColorSpec, Matrix, Range
from gpupipe.config import VideoOutput, parse_config
from gpupipe.device.cpu import CpuLane
from gpupipe.errors import DeviceError, PlanError
from gpupipe.format import PIXEL_FORMATS, FrameFormat
from gpupipe.frame import FrameBatch
from gpupipe.media.probe import probe
from gpupipe.plan import make_plan
from gpupipe.plan.encoder import choose_encoder

if TYPE_CHECKING:
    from pathlib import Path

    from gpupipe.plan import Plan

PQ = ColorSpec(Matrix.BT2020_NCL, 16, 9, Range.LIMITED, ChromaLocation.TOP_LEFT)
VFR = [-80, -40, 0, 33, 100, 140, 141, 500, 540, 580, 620, 660, 700, 1000, 1040, 1080, 1120, 1200, 1240, 1280, 1320]
MASTERING = "G(13250,34500)B(7500,3000)R(34000,16000)WP(15635,16450)L(10000000,1)"


def settings(codec: str = "h264", pixels: str = "nv12", **changes: object) -> EncoderSettings:
    source = FrameFormat(PIXEL_FORMATS[pixels], 128, 96, PQ, sample_aspect=Fraction(4, 3))
    base = {
        "codec": codec, "encoder": "nvenc", "input_format": source, "time_base": Fraction(1, 1000), "rate": Fraction(25),
        "quality": None, "bitrate": None, "preset": None,
    }  # fmt: skip
    return EncoderSettings(**{**base, **changes})


def picture(source: FrameFormat, number: int) -> tuple[torch.Tensor, ...]:
    """A gradient that moves, in code values of the format."""
    planes = []
    for shape in source.pixels.plane_shapes(source.width, source.height):
        ramp = torch.arange(shape[0]).view(-1, *[1] * (len(shape) - 1)) + torch.arange(shape[1]).view(
            1, -1, *[1] * (len(shape) - 2)
        )
        value = (ramp + number * 23).expand(shape) % 200 + 20
        value = value << (source.pixels.depth - 8 + source.pixels.msb_shift)
        planes.append(value.to(torch.uint8 if source.pixels.depth == 8 else torch.uint16)[None])
    return tuple(planes)


def encode(asked: EncoderSettings, times: list[int]) -> tuple[nvenc.NvencEncoder, list[av.Packet]]:
    encoder = nvenc.NvencEncoder(asked, CpuLane(), library=nvenc_double)
    packets = []
    for number, pts in enumerate(times):
        planes = picture(asked.input_format, number)
        packets += encoder.encode(FrameBatch(asked.input_format, (pts,), asked.time_base, planes, durations=(7,)))
    return encoder, packets + encoder.finish()


def mux(encoder: nvenc.NvencEncoder, packets: list[av.Packet], path: object) -> None:
    with av.open(str(path), "w") as out:
        stream = out.add_stream_from_template(encoder.template(packets[:3]), opaque=True)
        stream.time_base = encoder.settings.time_base
        for packet in packets:
            packet.stream = stream
            out.mux(packet)


@pytest.mark.parametrize(
    ("codec", "pixels"),
    [("h264", "nv12"), ("h264", "yuv444p"), ("hevc", "nv12"), ("hevc", "p010le"), ("hevc", "yuv444p10msble")],
)
def test_every_picture_comes_out_once_with_its_time(codec: str, pixels: str) -> None:
    _, packets = encode(settings(codec, pixels), VFR)
    assert sorted(p.pts for p in packets) == VFR
    assert [p.pts for p in packets] != VFR, "the double made no B-frames, so reordering was not tested"
    dts = [p.dts for p in packets]
    assert all(a < b for a, b in itertools.pairwise(dts))
    assert all(p.dts <= p.pts for p in packets)
    assert packets[0].is_keyframe
    assert {p.duration for p in packets} == {7}
    assert {p.time_base for p in packets} == {Fraction(1, 1000)}


def test_av1_packets_come_in_display_order_with_dts_equal_to_pts() -> None:
    _, packets = encode(settings("av1", "p010le"), VFR[:8])
    assert [(p.pts, p.dts) for p in packets] == [(t, t) for t in VFR[:8]]


@pytest.mark.parametrize(
    ("codec", "pixels", "suffix"),
    [("h264", "nv12", "mp4"), ("hevc", "p010le", "mp4"), ("hevc", "p010le", "mkv"), ("av1", "nv12", "mp4")],
)
def test_muxed_file_has_times_tags_and_pixels(codec, pixels, suffix, tmp_path, ffprobe) -> None:
    times = [t + 80 for t in VFR]
    encoder, packets = encode(settings(codec, pixels), times)
    path = tmp_path / f"out.{suffix}"
    mux(encoder, packets, path)
    probed = ffprobe(path, "-show_streams", "-show_frames", "-show_entries", "frame=pts_time,key_frame")
    stream = probed["streams"][0]
    assert [round(float(f["pts_time"]) * 1000) for f in probed["frames"]] == times
    assert (stream["codec_name"], stream["width"], stream["height"]) == (codec, 128, 96)
    tags = [stream.get(k) for k in ("color_space", "color_transfer", "color_primaries", "color_range")]
    assert tags == ["bt2020nc", "smpte2084", "bt2020", "tv"]
    assert stream["pix_fmt"] == ("yuv420p" if pixels == "nv12" else "yuv420p10le")
    if codec != "av1":
        assert stream["chroma_location"] == "topleft"
        assert stream["sample_aspect_ratio"] == "4:3"
    with av.open(str(path)) as back:
        for number, frame in enumerate(back.decode(video=0)):
            luma = torch.from_numpy(frame.to_ndarray()[:96].astype("int32"))
            source = encoder.settings.input_format
            want = picture(source, number)[0][0].to(torch.int32) >> source.pixels.msb_shift
            peak = (1 << source.pixels.depth) - 1
            psnr = 10 * torch.log10(peak**2 / (luma - want).float().pow(2).mean())
            assert psnr > 35, f"picture {number} is not the one encoded"  # its neighbours are 21 dB away


BARE = {"h264": "h264", "hevc": "hevc", "av1": "obu"}


def bare(codec: str, packets: list[av.Packet], folder: Path) -> Path:
    """A file of nothing but the bitstream: no box of a container can say what it does not."""
    path = folder / f"out.{BARE[codec]}"
    path.write_bytes(b"".join(bytes(p) for p in packets))
    return path


@pytest.mark.parametrize("codec", ["h264", "hevc", "av1"])
def test_hdr10_metadata_is_in_the_bitstream(codec: str, tmp_path: Path, ffprobe) -> None:
    pixels = "nv12" if codec == "h264" else "p010le"
    _, packets = encode(settings(codec, pixels, mastering_display=MASTERING, content_light=(1000, 400)), VFR[:4])
    path = bare(codec, packets, tmp_path)
    if codec == "h264":  # ffprobe 5.1 does not read these in H.264; libav 8 does
        with av.open(str(path)) as back:
            for frame in [f for f in back.decode(video=0) if f.key_frame]:
                assert {"MASTERING_DISPLAY_METADATA", "CONTENT_LIGHT_LEVEL"} <= {s.type.name for s in frame.side_data}
        return
    frames = ffprobe(path, "-show_frames", "-show_entries", "frame=side_data_list")["frames"]
    sides = {s["side_data_type"]: s for s in frames[0]["side_data_list"]}
    mastering = sides["Mastering display metadata"]
    places = {
        "green_x": 13250, "green_y": 34500, "blue_x": 7500, "blue_y": 3000, "red_x": 34000, "red_y": 16000,
        "white_point_x": 15635, "white_point_y": 16450,
    }  # fmt: skip
    for name, value in places.items():
        assert Fraction(mastering[name]) == pytest.approx(Fraction(value, 50_000), abs=1 / (1 << 16)), name
    assert Fraction(mastering["max_luminance"]) == 1000
    assert Fraction(mastering["min_luminance"]) == pytest.approx(1 / 10_000, abs=1 / (1 << 15))
    light = sides["Content light level metadata"]
    assert (light["max_content"], light["max_average"]) == (1000, 400)


HLG = ColorSpec(Matrix.BT2020_NCL, 18, 9, Range.LIMITED, ChromaLocation.LEFT)
PAL = ColorSpec(Matrix.BT470BG, 6, 5, Range.FULL, ChromaLocation.LEFT)
HD = ColorSpec(Matrix.BT709, 1, 1, Range.LIMITED, None)


@pytest.mark.parametrize("codec", ["h264", "hevc", "av1"])
@pytest.mark.parametrize(
    ("color", "tags"),
    [
        (PQ, ("bt2020", "smpte2084", "bt2020nc", "tv")), (HLG, ("bt2020", "arib-std-b67", "bt2020nc", "tv")),
        (PAL, ("bt470bg", "smpte170m", "bt470bg", "pc")), (HD, ("bt709", "bt709", "bt709", "tv")),
    ],
)  # fmt: skip
def test_colour_is_in_the_bitstream(
    codec: str, color: ColorSpec, tags: tuple[str, ...], tmp_path: Path, ffprobe
) -> None:
    asked = settings(codec, "nv12" if codec == "h264" else "p010le")
    asked = replace(asked, input_format=asked.input_format.with_(color=color))
    _, packets = encode(asked, VFR[:3])
    stream = ffprobe(bare(codec, packets, tmp_path), "-show_streams")["streams"][0]
    names = ("color_primaries", "color_transfer", "color_space", "color_range")
    assert tuple(stream.get(name) for name in names) == tags
    if color.chroma_location is not None and codec != "av1":
        assert stream["chroma_location"] == color.chroma_location.value


def test_unknown_colour_stays_unsaid(tmp_path: Path, ffprobe) -> None:
    asked = settings("hevc", "nv12")
    asked = replace(asked, input_format=asked.input_format.with_(color=ColorSpec(), sample_aspect=Fraction(1)))
    assert nvenc.metadata_filter(asked) is None
    _, packets = encode(asked, VFR[:3])
    stream = ffprobe(bare("hevc", packets, tmp_path), "-show_streams")["streams"][0]
    assert stream.get("color_primaries", "unknown") == stream.get("color_transfer", "unknown") == "unknown"


def test_a_plan_refuses_what_the_library_would_ignore(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before a run begins, though NVENC opens with the first picture of a segment."""
    nvenc_on_cpu.use(monkeypatch)
    source = probe(corpus / "files" / "start_at_10s_2b_sar1137_800.mp4")

    def planned(**video: object) -> Plan:
        config = parse_config({"output": {"video": {"codec": "h264", "encoder": "nvenc", **video}}})
        return make_plan(config, source, tmp_path / "out.mp4", device="cpu")

    assert planned(options={"lookahead": 8, "aq": 4}).encoder.options == {"lookahead": "8", "aq": "4"}
    for video, text in (
        ({"options": {"lookahaed": 8}}, r"^output\.video\.options\.lookahaed: nvenc has no such option \(did you mean"),
        (
            {"options": {"multipass": "full"}},
            r"^output\.video\.options\.multipass: 'full' is not one of disabled, qres",
        ),
        ({"options": {"bf": 5}}, r"^output\.video\.options\.bf: this GPU's NVENC makes at most 4 B-frames for h264"),
        ({"preset": "turbo"}, r"^output\.video\.preset: nvenc has no preset 'turbo'"),
        ({"options": {"tuning_info": "lossless"}, "quality": 20}, r"^output\.video\.quality: lossless has neither"),
    ):
        with pytest.raises(PlanError, match=text):
            planned(**video)


def test_auto_takes_the_encoder_that_knows_the_options(monkeypatch: pytest.MonkeyPatch) -> None:
    nvenc_on_cpu.use(monkeypatch)
    monkeypatch.setattr(nvenc_double, "supportedNvEncVersion", 13 << 4, raising=False)
    picture = settings().input_format.with_(device="cuda:0")
    for options, name in (({"lookahead": 8}, "nvenc"), ({"crf": 20}, "libx264")):
        choice = choose_encoder(VideoOutput(codec="h264", options=options), picture, "cuda:0")
        assert choice.encoder == name
    assert "not nvenc: output.video.options.crf: nvenc has no such option" in choice.reason


class Told(CpuLane):
    """A lane that writes down what it is told."""

    def __init__(self, log: list[object]) -> None:
        self._log = log

    def wait(self, event: object) -> None:
        self._log.append(("wait", event))

    def active(self) -> object:
        self._log.append("draw")
        return super().active()

    def synchronize(self) -> None:
        self._log.append("synchronize")


def test_a_picture_is_awaited_then_packed_then_finished_then_handed_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """What that is good for, a GPU shows: tests/gpu/test_nvenc_order_gpu.py."""
    log: list[object] = []
    encode = nvenc_double.PyNvEncoder.Encode

    def logged(self: object, frame: object, picture: object) -> list[dict]:
        log.append("encode")
        return encode(self, frame, picture)

    monkeypatch.setattr(nvenc_double.PyNvEncoder, "Encode", logged)
    asked = settings()
    encoder = nvenc.NvencEncoder(asked, Told(log), library=nvenc_double)
    planes = tuple(torch.cat([p, p]) for p in picture(asked.input_format, 0))
    encoder.encode(FrameBatch(asked.input_format, (0, 40), asked.time_base, planes, ready="event"))
    assert log == [("wait", "event"), *["draw", "synchronize", "encode"] * 2]


def test_lossless_is_lossless() -> None:
    nvenc.NvencEncoder(settings(options={"tuning_info": "lossless"}), CpuLane(), library=nvenc_double)
    assert (nvenc_double.CALLS[-1]["rc"], nvenc_double.CALLS[-1]["constqp"]) == ("constqp", "0")


def test_uhq_is_taken_only_where_the_driver_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = settings(options={"tuning_info": "uhq"})
    monkeypatch.setattr(nvenc_double, "supportedNvEncVersion", 12 << 4 | 2, raising=False)
    with pytest.raises(PlanError, match=r"tuning_info: uhq needs NVENC API 13\.0, and this driver has 12\.1"):
        nvenc.NvencEncoder(asked, CpuLane(), library=nvenc_double)
    monkeypatch.setattr(nvenc_double, "supportedNvEncVersion", 13 << 4, raising=False)
    nvenc.NvencEncoder(asked, CpuLane(), library=nvenc_double)
    assert nvenc_double.CALLS[-1]["tuning_info"] == "uhq"


def test_settings_become_the_librarys_arguments() -> None:
    def made(**changes: object) -> dict:
        nvenc.NvencEncoder(settings(**changes), CpuLane(), library=nvenc_double)
        return nvenc_double.CALLS[-1]

    plain = made(rate=Fraction(30000, 1001))
    assert (plain["rc"], plain["constqp"], plain["preset"], plain["bf"]) == ("constqp", "18,20,15", "P4", "2")
    assert (plain["gop"], plain["idrperiod"], plain["fps"], plain["repeatspspps"]) == ("60", "60", "30000/1001", "1")
    assert made(quality=0)["constqp"] == "0,2,0"
    assert made(codec="av1", quality=51)["constqp"] == "255,255,240"
    rated = made(bitrate=8_000_000, preset="slow")
    assert (rated["rc"], rated["bitrate"], rated["preset"]) == ("vbr", "8000000", "P5")
    assert "constqp" not in rated
    own = made(options={"cq": "21", "bf": "0", "gop": "12"}, preset="p7")
    assert (own["rc"], own["cq"], own["bf"], own["gop"], own["idrperiod"], own["preset"]) == (
        "vbr",
        "21",
        "0",
        "12",
        "12",
        "P7",
    )
    assert "constqp" not in own


@pytest.mark.parametrize(("changes", "text"), [
    ({"options": {"lookahaed": "8"}}, r"options\.lookahaed: nvenc has no such option \(did you mean 'lookahead'\?\)"),
    ({"options": {"qmin": "8"}}, "no such option"),
    ({"options": {"temporalaq": "0"}}, "'0' is not one of 1"),
    ({"options": {"multipass": "full"}}, "disabled, qres, fullres"),
    ({"options": {"gop": "two"}}, "not a whole number"),
    ({"options": {"gop": "0"}}, "'0' is not from 1 to"),
    ({"options": {"qmin": "20"}}, r"options\.qmin: nvenc has no such option \(PyNvVideoCodec reads initqp in its place"),
    ({"options": {"split_encode_mode": "2"}}, "PyNvVideoCodec has no word for it, and leaves it to the driver"),
    ({"options": {"rc-lookahead": "20"}}, "it is called lookahead here"),
    ({"options": {"zebra": "20"}}, "nvenc has aq, bf, constqp"),
    ({"options": {"aq": "16"}}, "'16' is not from 0 to 15"), ({"options": {"lookahead": "33"}}, "from 0 to 32"),
    ({"options": {"constqp": "20,22"}}, "not one number, or three"), ({"options": {"constqp": "52"}}, "from 0 to 51"),
    ({"options": {"cq": "20.5"}}, "not a whole number"), ({"options": {"level": "41"}}, "is not one of 1, 1b, 1.1"),
    ({"options": {"tier": "1"}}, "h264 has none"),
    ({"options": {"tuning_info": "lossless"}, "quality": 20.0}, "lossless has neither quality nor bitrate"),
    ({"options": {"colorspace": "bt709"}}, "set from the source's tags"),
    ({"options": {"bf": "5"}}, "at most 4 B-frames"),
    ({"preset": "turbo"}, "no preset 'turbo'"),
])  # fmt: skip
def test_what_the_library_would_ignore_is_an_error(changes: dict, text: str) -> None:
    with pytest.raises(PlanError, match=text):
        nvenc.NvencEncoder(settings(**changes), CpuLane(), library=nvenc_double)


@pytest.mark.parametrize(("codec", "pixels", "changes", "text"), [
    ("prores", "nv12", {}, "does not encode prores"), ("h264", "p010le", {}, "h264 in 10 bit"),
    ("av1", "yuv444p", {}, "av1 4:4:4"), ("h264", "nv12", {"width": 127}, "odd side"),
    ("h264", "nv12", {"width": 16}, "not within"), ("hevc", "nv12", {"field_order": "tt"}, "fields"),
    ("hevc", "p010le", {}, None), ("hevc", "gbrp", {}, None),
])  # fmt: skip
def test_supports_names_the_reason(codec: str, pixels: str, changes: dict, text: str | None) -> None:
    source = settings(codec, pixels).input_format.with_(**changes)
    reason = nvenc.supports(codec, source, ask_encoder(nvenc_double, codec, 0))
    assert (reason is None) if text is None else (reason is not None and text in reason)


def test_a_gpu_without_nvenc_is_one_clear_line() -> None:
    with pytest.raises(PlanError) as caught:
        nvenc.NvencEncoder(settings(), CpuLane(), library=nvenc_double.without_nvenc())
    assert (
        str(caught.value)
        == "output.video.encoder: nvenc cannot encode h264: this GPU has no NVENC (use `encoder: auto`)"
    )


def test_lost_pictures_are_an_error() -> None:
    encoder = nvenc.NvencEncoder(settings(), CpuLane(), library=nvenc_double)
    source = settings().input_format
    for number, pts in enumerate(VFR[:5]):
        encoder.encode(FrameBatch(source, (pts,), Fraction(1, 1000), picture(source, number)))
    encoder._session.EndEncode = list
    with pytest.raises(DeviceError, match=r"NVENC lost \d pictures"):
        encoder.finish()
