"""Bad input: each its exit code, one line that says where, what and what to do, and nothing left behind."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

X264 = "output: {video: {encoder: libx264, preset: ultrafast}}\n"
BOMB = "a: &a [x,x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{chr(98 + n)}: &{chr(98 + n)} [{','.join(['*' + chr(97 + n)] * 10)}]\n" for n in range(9)
)


@pytest.mark.parametrize(
    ("text", "key", "says"),
    [
        ("Device: cpu", "Device", "unknown key (did you mean 'device'?)"),
        ("output: {Video: {}}", "output.Video", "did you mean 'video'?"),
        ("1: 2", "1", "unknown key"),
        ("~: 1", "~", "unknown key"),
        ("yes: 1", "yes", "unknown key"),
        ("? [a, b]\n: c", "c.yaml:1", "a key is a word"),
        ("? {a: b}\n: c", "c.yaml:1", "a key is a word"),
        ("stages: [{? [a] : 1}]", "c.yaml:1", "a key is a word"),
        ("output: ~", "output", "must be a mapping of keys, not None"),
        ("output: 5", "output", "must be a mapping of keys, not 5"),
        ("range: [0, 1]", "range", "must be a mapping of keys"),
        ("output: {audio: no}", "output.audio", "audio is copy, none, or {codec: aac, bitrate: 192k}, not 'no'"),
        ("output: {audio: [aac]}", "output.audio", "'copy' or 'none'"),
        ("output: {audio: {codec: 5}}", "output.audio.codec", "must be a text, not 5"),
        ("output: {path: 5}", "output.path", "must be a text, not 5"),
        ("output: {video: {preset: 8}}", "output.video.preset", "must be a text, not 8"),
        ("output: {video: {preset: ''}}", "output.video.preset", "at least 1 character"),
        ("output: {video: {options: [1]}}", "output.video.options", "must be a mapping of keys"),
        ("output: {video: {options: {crf: ~}}}", "output.video.options.crf", "not None"),
        ("output: {video: {quality: .nan}}", "output.video.quality", "a valid number, not '.nan'"),
        ("output: {video: {quality: 1e309}}", "output.video.quality", "finite"),
        ("output: {video: {bitrate: 99999999999999999999}}", "output.video.bitrate", "192k or 8M"),
        ("output: {video: {bitrate: 9e99}}", "output.video.bitrate", "192k or 8M"),
        ("output: {video: {bitrate: -5M}}", "output.video.bitrate", "192k or 8M"),
        ("output: {video: {bitrate: '²'}}", "output.video.bitrate", "192k or 8M"),
        ("output: {video: {bitrate: [1]}}", "output.video.bitrate", "192k or 8M"),
        ("device: 'cuda:²'", "device", "cuda:N"),
        ("device: cuda:99999999999999999999", "device", "cuda:N"),
        ('device: "\\x1b[31m"', "device", "not '\\x1b[31m'"),
        ("input: !!python/object/apply:os.system [exit]", "c.yaml:1", "not valid YAML"),
        ("input: !!binary aGVsbG8=", "input", "must be a text"),
        ('input: "a\\0b"', "c.yaml:1", "NUL character"),
        ("output:\n\tvideo: {}", "c.yaml:2", "indent with spaces"),
        ("device: cpu\n---\ndevice: cpu", "c.yaml:2", "another document"),
        (BOMB, "c.yaml", "grows to more than 100000 values"),
        ("input: &a [*a]", "c.yaml:1", "refers to itself"),
        ("stages: &a [*a]", "c.yaml:1", "refers to itself"),
        ("output: &a {video: *a}", "c.yaml:1", "refers to itself"),
        ("a: " + "[" * 2000, "c.yaml", "nested too deeply"),
        (b"\xff\xfed\0", "c.yaml", "not a text file in UTF-8"),
        (bytes(64), "c.yaml", "not valid YAML"),
        ("stages: [resize: {width: 1.5, height: 2}]", "stages[0].resize.width", "valid integer, not 1.5"),
        ("stages: [resize: {width: '64', height: 2}]", "stages[0].resize.width", "valid integer, not '64'"),
        ("stages: [fps: {}]", "stages[0].fps.rate", "is missing"),
        ("stages: [fps: {rate: 1/0}]", "stages[0].fps.rate", "up to 1000"),
        ("stages: [fps: {rate: -5}]", "stages[0].fps.rate", "up to 1000"),
        ("stages: [fps: {rate: 1e99}]", "stages[0].fps.rate", "frames a second"),
        ("stages: [fps: {rate: '1e99999999'}]", "stages[0].fps.rate", "frames a second"),
        ("stages: [fps: {rate: '1e-99999999'}]", "stages[0].fps.rate", "frames a second"),
        ("stages: [fps: {rate: 4294967295/4294967294}]", "stages[0].fps.rate", "go up to 2147483647"),
        ("stages: [warp: {matrix: [1, 2, 3]}]", "stages[0].warp.matrix[0]", "must be a list, not 1"),
        ("stages: [overlay: {image: a.png, opacity: 2}]", "stages[0].overlay.opacity", "less than or equal to 1"),
        ("stages: [pad: {width: 9, color: nocolor}]", "stages[0].pad.color", "a color is"),
    ],
)
def test_a_wrong_config(refused, job, clip, tmp_path, text, key, says):
    line = refused(job(text), clip, tmp_path / "out.mp4")
    assert line.startswith(str(tmp_path / "c.yaml"))
    assert key in line
    assert says in line


def test_what_looks_like_a_date_is_a_text(refused, job):
    assert refused(job("input: 2024-05-01\noutput: {path: x.mp4}")) == "2024-05-01: no such file (check the path)"


def test_a_config_that_is_no_file(refused, tmp_path, clip):
    assert "No such file" in refused(tmp_path / "no.yaml", clip, tmp_path / "out.mp4")
    assert "Is a directory" in refused(tmp_path, clip, tmp_path / "out.mp4")


def test_no_input_and_no_output(refused, job, clip):
    assert "give INPUT on the command line or `input:` in the config" in refused(job(""))
    assert "give OUTPUT on the command line or `output.path:` in the config" in refused(job(""), clip)


@pytest.fixture(scope="module")
def sources(tmp_path_factory, clip, ffmpeg):
    """Files that are no video, or a part of one."""
    folder = tmp_path_factory.mktemp("sources")
    data = clip.read_bytes()
    (folder / "empty.mp4").touch()
    (folder / "text.mp4").write_text("only some words\n" * 20)
    (folder / "zeros.mp4").write_bytes(bytes(100_000))
    (folder / "no-index.mov").write_bytes(data[: len(data) // 2])
    (folder / "head.mov").write_bytes(data[:20])
    (folder / "folder.mp4").mkdir()
    os.mkfifo(folder / "pipe.mp4")
    (folder / "loop.mp4").symlink_to("loop.mp4")
    (folder / "dangling.mp4").symlink_to("nowhere.mp4")
    ffmpeg("-i", clip, "-vn", "-c", "copy", folder / "sound.m4a")
    return folder


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("missing.mp4", "no such file (check the path)"),
        ("dangling.mp4", "no such file"),
        ("text.mp4/below.mp4", "no such file"),
        ("empty.mp4", "is empty (0 bytes)"),
        ("folder.mp4", "is a directory, not a media file"),
        ("text.mp4", "cannot be read as a media file: Invalid data"),
        ("zeros.mp4", "cannot be read as a media file"),
        ("no-index.mov", "moov atom not found"),
        ("head.mov", "moov atom not found"),
        ("sound.m4a", "has no video stream (mov,mp4,m4a,3gp,3g2,mj2: audio)"),
        ("pipe.mp4", "is not a regular file"),
        ("loop.mp4", "Too many levels of symbolic links"),
        ("n" * 256 + ".mp4", "File name too long"),
        ("d/" * 2500 + "x.mp4", "File name too long"),
    ],
)
@pytest.mark.parametrize("verb", ["run", "plan"])
def test_a_source_that_is_none(refused, job, sources, tmp_path, name, says, verb):
    line = refused(job(X264), sources / name, tmp_path / "out.mp4", verb=verb)
    assert line.startswith(f"{sources / name}: ")
    assert says in line


def test_devices_are_no_sources(refused, job, tmp_path):
    for name in ("/dev/null", "/dev/zero"):
        assert "is not a regular file" in refused(job(X264), name, tmp_path / "out.mp4")


@pytest.mark.parametrize(
    ("stages", "where", "says"),
    [
        ("resize: {width: 0, height: 0}", "stages[0].resize", "0x0 is no picture size"),
        ("resize: {width: -2, height: -2}", "stages[0].resize", "needs a width, a height or both"),
        ("resize", "stages[0].resize", "needs a width, a height or both"),
        ("resize: {width: 65537, height: 2}", "stages[0].resize", "65537x2 is no picture size"),
        ("resize: {width: 60000, height: 60000}", "stages[0].resize", "60000x60000 is no size a picture can have"),
        ("resize: {width: 99999999999, height: 2}", "stages[0].resize", "no picture size"),
        ("pad: {width: 99999999999, height: 200}", "stages[0].pad", "no size a picture can have"),
        ("pad: {width: 10, height: 10}", "stages[0].pad", "does not fit"),
        ("crop: {width: 0, height: 0}", "stages[0].crop", "leaves no picture"),
        ("crop: {width: -5, height: 5}", "stages[0].crop", "leaves no picture"),
        ("crop: {x: 320, y: 0}", "stages[0].crop", "leaves no picture"),
        ("crop: {x: -1, width: 5, height: 5}", "stages[0].crop", "beyond the edge"),
        ("crop: {width: 2, height: 2}\n  - crop: {x: 2}", "stages[1].crop", "leaves no picture"),
        ("warp: {scale: 1e-300}", "stages[0].warp", "folds the picture"),
        ("warp: {matrix: [[0, 0, 0], [0, 0, 0]]}", "stages[0].warp", "folds the picture"),
        ("warp: {corners: [[0, 0], [0, 0], [0, 0], [0, 0]]}", "stages[0].warp", "lie on a line"),
        ("fps: {rate: 25}\n  - fps: {rate: 30}", "stages[1].fps", "keep one fps stage"),
        ("lut3d: {file: no.cube}", "stages[0].lut3d", "no.cube: cannot read the LUT: No such file"),
        ("lut3d: {file: /dev/zero}", "stages[0].lut3d", "/dev/zero: cannot read the LUT: it is not a file"),
        ("lut3d: {file: bad.cube}", "stages[0].lut3d", "bad.cube:2: 3 finite numbers are wanted"),
        ("overlay: {image: no.png}", "stages[0].overlay", "no.png: cannot read the image: No such file"),
        ("overlay: {image: bad.cube}", "stages[0].overlay", "bad.cube: cannot read the image: Invalid data"),
        ("overlay: {image: .}", "stages[0].overlay", ".: cannot read the image: it is not a file"),
        ("overlay: {image: 'http://127.0.0.1:9/x.png'}", "stages[0].overlay", "No such file"),
        ("overlay: {image: 'concat:c.yaml'}", "stages[0].overlay", "No such file"),
        ("overlay: {image: sound.m4a}", "stages[0].overlay", "sound.m4a: holds no picture"),
    ],
)
def test_a_stage_that_cannot_be(refused, job, clip, sources, tmp_path, monkeypatch, stages, where, says):
    monkeypatch.chdir(tmp_path)
    Path("bad.cube").write_text("LUT_3D_SIZE 2\nnan nan nan\n")
    Path("sound.m4a").write_bytes((sources / "sound.m4a").read_bytes())
    line = refused(job(f"stages:\n  - {stages}\n{X264}"), clip, "out.mkv")
    assert line.startswith(f"{tmp_path / 'c.yaml'}: {where}: ")
    assert says in line


@pytest.mark.parametrize(
    ("wanted", "says"),
    [
        ("{start: 100}", "range.start: 100 lies beyond the end, the file lasts 2.000 s"),
        ("{end: 0}", "range.end: range.end 0 lies before the first picture"),
        ("{start: 0.5, end: 0.5}", "range.end 0.5 is not after range.start 0.5"),
        ("{start: 1.5, end: 0.5}", "range.end 0.5 is not after range.start 1.5"),
        ("{start: -1}", "range.start: '-1' is not a time"),
        ("{start: .inf}", "range.start: '.inf' is not a time"),
        ("{end: 1e99999999}", "range.end: 'inf' is not a time"),
        ("{start: '1e99999999'}", "range.start: '1e99999999' is not a time"),
        ("{start: '1e-99999999'}", "is not a time"),
        ("{start: 'pts:99999999999999999999999'}", "is not a time"),
        ("{start: '" + "9" * 5000 + "'}", "is not a time"),
        ("{start: '٣'}", "is not a time"),
        ("{start: '00:61:00'}", "minutes and seconds end at 59"),
        ("{start: 2024-05-01}", "'2024-05-01' is not a time"),
    ],
)
def test_a_range_outside_the_file(refused, job, clip, tmp_path, wanted, says):
    line = refused(job(f"range: {wanted}\n{X264}"), clip, tmp_path / "out.mp4")
    assert line.startswith(f"{tmp_path / 'c.yaml'}: range")
    assert says in line


def test_a_range_between_two_frames(refused, job, clip, tmp_path):
    line = refused(job(f"range: {{start: 0.001, end: 0.002}}\n{X264}"), clip, tmp_path / "out.mp4")
    assert line == f"{clip}: no frame lies in the range (see `gpupipe probe`)"


def test_a_timecode_asked_of_a_source_without(refused, job, corpus, tmp_path):
    source = corpus / "files" / "sar_2_1_640x360.mp4"
    line = refused(job(f"range: {{start: '01:00:00:00'}}\n{X264}"), source, tmp_path / "out.mp4")
    assert "timecode 01:00:00:00 asked of a source that has none" in line


@pytest.mark.parametrize(
    ("video", "output", "says"),
    [
        ("encoder: libx264, preset: turbo", "o.mp4", "Error setting preset/tune turbo"),
        ("encoder: libx265, preset: turbo", "o.mp4", "Error setting preset/tune turbo"),
        ("encoder: libsvtav1, preset: '99'", "o.mp4", "out of range"),
        ("encoder: libvpx-vp9, preset: fast", "o.mkv", "output.video.preset: libvpx-vp9 has no presets"),
        ("encoder: libx264, options: {foo: 1}", "o.mp4", "output.video.options.foo: libx264 has no option 'foo'"),
        ("encoder: libx264, options: {tun: film}", "o.mp4", "did you mean 'tune'?"),
        ("encoder: libx264, options: {crf: high}", "o.mp4", 'Unable to parse "crf" option value "high"'),
        ("encoder: libx264, options: {x264-params: foo=bar}", "o.mp4", "Error parsing option 'foo = bar'"),
        ("encoder: libx265, options: {x265-params: foo=bar}", "o.mp4", "Unknown option: foo"),
        ("encoder: libsvtav1, options: {svtav1-params: foo=bar}", "o.mp4", "Error parsing option foo"),
        ("encoder: libx264, options: {profile: foo}", "o.mp4", "Error setting profile foo"),
        ("encoder: libx264, options: {time_base: 1/25}", "o.mp4", "'time_base' is set by gpupipe (an fps stage"),
        ("encoder: libx264, options: {flags: cgop}", "o.mp4", "flags begin with + or -"),
        ("encoder: libx264, quality: 52", "o.mp4", "output.video.quality: quality of libx264 is from 0 to 51, not 52"),
        ("encoder: libsvtav1, quality: 25.5", "o.mp4", "a whole number from 0 to 63, not 25.5"),
        ("encoder: mpeg2video, quality: 0", "o.mkv", "from 1 to 31, not 0"),
        ("encoder: mjpeg, quality: 1e300", "o.mov", "not 1e+300"),
        ("encoder: ffv1, quality: 3", "o.mkv", "ffv1 has no quality setting"),
        ("encoder: libx264, quality: 20, bitrate: 1M", "o.mp4", "quality and bitrate exclude each other"),
        ("encoder: libx264, pixel_format: rgb24", "o.mp4", "libx264 does not take rgb24 (it takes gray, "),
        ("encoder: foo", "o.mp4", "output.video.encoder: no encoder called 'foo'"),
        ("codec: foo", "o.mp4", "output.video.codec: no encoder called 'foo'"),
        ("encoder: aac", "o.mp4", "aac encodes audio, not video"),
        ("codec: hevc, encoder: libx264", "o.mp4", "libx264 encodes h264, not hevc"),
        ("encoder: png", "o.mov", "png takes no colour format that gpupipe makes"),
        ("encoder: dnxhd", "o.mov", "DNxHD"),
        ("encoder: nvenc", "o.mp4", "nvenc cannot encode h264 here: this run has no GPU"),
        ("encoder: nvjpeg", "o.mov", "nvjpeg cannot encode mjpeg here: this run has no GPU"),
        ("encoder: h264_nvenc", "o.mp4", "h264_nvenc cannot be opened"),
        ("codec: prores", "o.mp4", "mp4 cannot hold prores video (prores goes into .mov"),
        ("codec: h264", "o.webm", "webm cannot hold h264 video"),
        ("encoder: rawvideo", "o.mov", "mov cannot hold rawvideo video"),
        ("encoder: libx264", "o", "the output has no extension"),
        ("encoder: libx264", "o.xyz", "unknown output extension '.xyz'"),
    ],
)
@pytest.mark.parametrize("verb", ["run", "plan"])
def test_an_encoder_that_cannot_be(refused, job, clip, tmp_path, video, output, says, verb):
    line = refused(job(f"output: {{video: {{{video}}}}}"), clip, tmp_path / output, verb=verb)
    assert says in line
    assert "output" in line
    assert str(tmp_path) in line


@pytest.mark.parametrize(
    ("codec", "output", "says"),
    [
        ("foo", "o.mkv", "output.audio.codec: no audio encoder called 'foo'"),
        ("h264", "o.mkv", "h264 encodes video, not audio"),
        ("libopus", "o.mov", "mov cannot hold opus audio (opus goes into .mp4"),
        ("pcm_s16le", "o.ts", "mpegts cannot hold pcm_s16le audio"),
        ("libmp3lame", "o.mxf", "mxf cannot hold mp3 audio"),
    ],
)
def test_audio_that_cannot_be(refused, job, clip, tmp_path, codec, output, says):
    wanted = f"output: {{video: {{encoder: mpeg2video}}, audio: {{codec: {codec}}}}}"
    assert says in refused(job(wanted), clip, tmp_path / output)


def test_a_gpu_that_is_not_there(cli, job, clip, tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    out = tmp_path / "o.mp4"
    config = job(X264)
    shown = cli("run", "--device", "cuda:99", "--quiet", config, clip, out)
    assert (shown.code, shown.err.count("\n")) == (6, 1)
    assert "cuda:99" in shown.err
    shown = cli("run", "--device", "cpu", "--quiet", job("memory: device_only\n" + X264), clip, out)
    assert (shown.code, shown.err.count("\n")) == (6, 1)
    assert "memory: device_only needs a GPU (see `gpupipe doctor`" in shown.err
    assert not out.exists()


def test_an_output_that_must_not_be_written(refused, job, clip, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("s.mov").write_bytes(clip.read_bytes())
    os.link("s.mov", "hard.mov")
    Path("soft.mov").symlink_to("s.mov")
    Path("loop.mov").symlink_to("loop.mov")
    Path("old.mov").write_text("older")
    Path("dir.mov").mkdir()
    os.mkfifo("pipe.mov")
    config = job(X264)
    assert "the output exists (give --overwrite or another name)" in refused(config, "s.mov", "old.mov")
    for name in ("s.mov", "./s.mov", "hard.mov", "soft.mov"):
        assert "the output is the input" in refused("--overwrite", "--", config, "s.mov", name)
    assert "the output is a folder" in refused("--overwrite", "--", config, "s.mov", "dir.mov")
    assert "the output is a device or pipe" in refused("--overwrite", "--", config, "s.mov", "pipe.mov")
    assert "Too many levels" in refused(config, "s.mov", "loop.mov")
    assert "Not a directory" in refused(config, "s.mov", "old.mov/o.mov")
    assert "does not exist (create it first)" in refused(config, "s.mov", "no/o.mov")
    assert "File name too long" in refused(config, "s.mov", "n" * 252 + ".mov")


def test_images_and_luts_are_inputs_too(refused, job, clip, ffmpeg, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ffmpeg("-f", "lavfi", "-i", "color=red:s=16x16", "-frames:v", 1, "-f", "image2", "-c:v", "png", "logo.mkv")
    config = job(f"stages: [overlay: {{image: logo.mkv}}]\n{X264}")
    assert "the output is the input" in refused("--overwrite", "--", config, clip, "logo.mkv")


def test_a_failed_run_leaves_an_older_output_alone(refused, job, clip, sources, tmp_path):
    out = tmp_path / "out.mp4"
    out.write_text("older")
    refused("--overwrite", "--", job(X264), sources / "text.mp4", out)
    refused("--overwrite", "--", job("output: {video: {encoder: libx264, preset: turbo}}"), clip, out)
    refused("--overwrite", "--", job(f"range: {{start: 0.001, end: 0.002}}\n{X264}"), clip, out)
    assert out.read_text() == "older"


def test_reports_and_plans_replace_nothing_that_the_run_reads(refused, job, clip, tmp_path):
    shutil.copy(Path(__file__).parents[2] / "configs/assets/logo.png", tmp_path / "logo.json")
    config = job(f"stages: [overlay: {{image: '{tmp_path}/logo.json'}}]\n")
    shutil.copy(config, tmp_path / "c.json")
    for name in ("c.json", "logo.json"):
        words = ("--overwrite", "--report", tmp_path / name, "--", tmp_path / "c.json", clip, tmp_path / "o.mkv")
        assert "the output is the input" in refused(*words)
        words = ("--overwrite", "--save", tmp_path / name, "--", tmp_path / "c.json", clip, tmp_path / "o.mkv")
        assert "the output is the input" in refused(*words, verb="plan")
