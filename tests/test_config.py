"""The config: strict, and every error names the file, the key path and the nearest key."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gpupipe import stages
from gpupipe.config import MemoryLimits, load_config, parse_config
from gpupipe.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path


def test_whole_config(tmp_path: Path) -> None:
    path = tmp_path / "full.yaml"
    path.write_text(
        """
input: rushes/A001.mov
range: {start: 00:00:10, end: "00:01:00.5"}
device: cuda:1
memory: device_only
size_change: error
stages:
  - crop: {width: 1920, height: 800, x: 0, y: 140}
  - resize: {width: 1280, height: -2, filter: lanczos}
output:
  path: out/A001.mp4
  video: {codec: hevc, encoder: libx265, quality: 18, preset: medium, options: {x265-params: "log-level=1", bf: 2}}
  audio: {codec: aac, bitrate: 192k}
  subtitles: none
  metadata: copy
"""
    )
    config = load_config(path)
    assert (config.input, config.device, config.memory, config.size_change) == (
        "rushes/A001.mov",
        "cuda:1",
        MemoryLimits(device_only=True),
        "error",
    )
    assert (config.range.start, config.range.end) == ("00:00:10", "00:01:00.5")
    assert [entry.name for entry in config.stages] == ["crop", "resize"]
    assert config.stages[0].settings.model_dump()["y"] == 140
    assert config.output.video.quality == 18
    assert config.output.video.options == {"x265-params": "log-level=1", "bf": 2}
    assert config.output.audio.bitrate == 192_000
    with pytest.raises(ValueError, match="frozen"):
        config.device = "cpu"


@pytest.mark.parametrize(("text", "size"), [("800M", 800 << 20), ("1.5G", 3 << 29), (1 << 30, 1 << 30)])
def test_memory_in_units_of_1024(text: str | int, size: int) -> None:
    config = parse_config({"memory": {"host": text, "device": text}})
    assert (config.memory.host, config.memory.device, config.memory.device_only) == (size, size, False)


def test_empty_config_has_the_defaults(tmp_path: Path) -> None:
    path = tmp_path / "empty.yaml"
    path.write_text("")
    config = load_config(path)
    assert config == parse_config({})
    assert (config.device, config.output.audio, config.output.video.codec, config.stages) == (
        "auto",
        "copy",
        "h264",
        (),
    )


@pytest.mark.parametrize(
    ("text", "key", "says"),
    [
        ("devise: cpu", "devise", "did you mean 'device'?"),
        ("device: gpu", "device", "auto, cpu, cuda or cuda:N, not 'gpu'"),
        ("device: cuda:x", "device", "not 'cuda:x'"),
        ("output: {video: {codex: hevc}}", "output.video.codex", "did you mean 'codec'?"),
        ("output: {video: {quality: high}}", "output.video.quality", "not 'high'"),
        ("output: {video: {quality: -1}}", "output.video.quality", "greater than or equal to 0"),
        ("output: {video: {quality: 18, bitrate: 8M}}", "output.video", "exclude each other"),
        ("output: {video: {bitrate: fast}}", "output.video.bitrate", "192k or 8M"),
        ("output: {video: {bitrate: 0}}", "output.video.bitrate", "192k or 8M"),
        ("output: {audio: opus}", "output.audio", "'opus'"),
        ("output: {audio: {kodec: aac}}", "output.audio", "codec"),
        ("output: {subtitles: burn}", "output.subtitles", "'burn'"),
        ("range: {begin: 1}", "range.begin", "known here: end, start"),
        ("range: {start: true}", "range.start", "seconds"),
        ("range: {start: [1]}", "range.start", "seconds"),
        ("memory: gpu", "memory", "'gpu'"),
        ("memory: {host: much}", "memory.host", "such as 800M or 12G, not 'much'"),
        ("memory: {host: 8}", "memory.host", "not 8"),
        ("memory: {hosts: 8G}", "memory.hosts", "did you mean 'host'?"),
        ("input: 5", "input", "must be a text, not 5"),
        ("stages: {resize: {}}", "stages", "a list"),
        ("stages: [{}]", "stages[0]", "one name with its settings"),
        ("stages: [{a: {}, b: {}}]", "stages[0]", "one name with its settings"),
        ("stages: [17]", "stages[0]", "one name with its settings"),
        ("stages: [{resise: {width: 2}}]", "stages[0].resise", "did you mean 'resize'?"),
        ("stages: [{resize: {widht: 1280}}]", "stages[0].resize.widht", "did you mean 'width'?"),
        ("stages: [resize: {width: wide, height: 2}]", "stages[0].resize.width", "not 'wide'"),
        ("- a\n- b", "c.yaml", "a config is a mapping"),
        ("just words", "c.yaml", "a config is a mapping"),
        ("device: cpu\ndevice: cuda", "c.yaml:2", "the key 'device' stands twice"),
        ("output:\n  video: {codec: a, codec: b}", "c.yaml:2", "'codec' stands twice"),
        ("output: [", "c.yaml:1", "not valid YAML"),
        ("a: b: c", "c.yaml:1", "not valid YAML"),
    ],
)
def test_errors_are_one_line_with_file_key_and_advice(tmp_path: Path, text: str, key: str, says: str) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    message = str(caught.value)
    assert "\n" not in message
    assert "c.yaml" in message
    assert key in message
    assert says in message


def test_unreadable_files(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.yaml: cannot read the config: No such file"):
        load_config(tmp_path / "nowhere.yaml")
    with pytest.raises(ConfigError, match="Is a directory"):
        load_config(tmp_path)
    binary = tmp_path / "b.yaml"
    binary.write_bytes(b"\xff\xfe\x00junk")
    with pytest.raises(ConfigError, match="not a text file in UTF-8"):
        load_config(binary)
    control = tmp_path / "d.yaml"
    control.write_bytes(b"a: \x00")
    with pytest.raises(ConfigError, match="not valid YAML: unacceptable character") as caught:
        load_config(control)
    assert "\n" not in str(caught.value)


def test_times_stay_text_and_numbers_stay_numbers(tmp_path: Path) -> None:
    """YAML 1.1 would read 00:10:00 as 600, a timecode as a number in base 60, and 010 as 8."""
    path = tmp_path / "t.yaml"
    path.write_text(
        "range: {start: 01:00:00:12, end: 3600.5}\noutput: {video: {quality: 2e1, options: {a: 1_000, b: .5}}}"
    )
    config = load_config(path)
    assert (config.range.start, config.range.end) == ("01:00:00:12", "3600.5")
    assert config.output.video.quality == 20
    assert config.output.video.options == {"a": "1_000", "b": 0.5}


@pytest.mark.parametrize("name", stages.names())
def test_every_stage_refuses_unknown_keys(name: str) -> None:
    with pytest.raises(ConfigError, match=rf"stages\[0\]\.{name}\.no_such_key: unknown key"):
        parse_config({"stages": [{name: {"no_such_key": 1}}]})


@pytest.mark.parametrize(
    ("output", "said"),
    [
        ({"audio": {"codec": "aac", "bitrate": 192}}, "192k"),
        ({"video": {"bitrate": "800"}}, "800k"),
        ({"audio": "aac"}, "codec: aac"),
    ],
)
def test_what_is_surely_a_slip_is_an_error_that_says_what_was_meant(output: dict, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        parse_config({"output": output})


def test_off_is_a_word(tmp_path: Path) -> None:
    """As the README and the errors write it; YAML 1.1 would read it as false."""
    path = tmp_path / "c.yaml"
    path.write_text(
        "segments: off\ngraphs: off\nstages: [orient: off, model: {card: x, tile: off}]\n"
        "output: {metadata: none, video: {options: {a: no, b: on, c: yes}}}\n"
    )
    config = load_config(path)
    assert (config.segments, config.graphs) == ("off", "off")
    assert config.stages[0].settings.model_dump()["mode"] == "carry"
    assert config.stages[1].settings.model_dump()["tile"] == "off"
    assert config.output.video.options == {"a": "no", "b": "on", "c": "yes"}
