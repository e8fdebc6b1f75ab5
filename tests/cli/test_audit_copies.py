"""`gpupipe run --audit-copies` and `--json` where there is no GPU; with one see tests/gpu/test_audit_gpu.py."""

from __future__ import annotations

import json
from fractions import Fraction
from types import SimpleNamespace

import pytest

from gpupipe.cli import WARNED
from gpupipe.cli import run as verb
from gpupipe.device.copies import Copies
from gpupipe.render.audit import AuditReport, CopyAudit, Direction


def event(name: str, size: int) -> SimpleNamespace:
    return SimpleNamespace(name=lambda: name, metadata_json=lambda: f'"bytes": {size}')


def test_on_the_cpu_one_line_says_that_there_is_nothing_to_audit(cli, clip, config, tmp_path):
    shown = cli("run", config, clip, tmp_path / "o.mp4", "--device", "cpu", "--audit-copies")
    assert (shown.code, shown.out) == (0, "")
    lines = [line for line in shown.err.splitlines() if line.startswith("copies")]
    assert lines == ["copies   nothing to audit: the run is on the CPU, so nothing is copied to or from a GPU"]


def test_json_has_the_result_and_the_audit_on_stdout(cli, clip, config, tmp_path):
    shown = cli("run", config, clip, tmp_path / "o.mp4", "--device", "cpu", "--audit-copies", "--json", "--quiet")
    assert (shown.code, shown.err) == (0, "")
    told = json.loads(shown.out)
    assert told["result"]["frames"] == 50
    assert told["result"]["output"] == str(tmp_path / "o.mp4")
    assert (told["warnings"], told["notices"]) == ([], [])
    assert (told["copies"]["device"], told["copies"]["to_device"], told["copies"]["to_host"]) == ("cpu", None, None)
    assert (
        json.loads(cli("run", config, clip, tmp_path / "p.mp4", "--device", "cpu", "--json", "--quiet").out)["copies"]
        is None
    )


@pytest.mark.parametrize(
    ("copied", "compressed", "fits"),
    [(1_000_000, 0, True), (1_000_001, 0, False), (103_000_000, 100_000_000, True), (103_000_001, 100_000_000, False)],
)
def test_the_limit(copied: int, compressed: int, fits: bool) -> None:
    assert Direction(copied, compressed).within_limit is fits


def test_copies_beyond_the_limit_count_as_a_warning_under_strict(cli, clip, config, tmp_path, monkeypatch):
    class Pixels(CopyAudit):
        def report(self, output):
            return AuditReport(
                "cuda:0", Direction(9, 5), Direction(10**9, 10**6), 7, 0, within_limits=False, message="pixels"
            )

    monkeypatch.setattr(verb, "CopyAudit", Pixels)
    options = ["--device", "cpu", "--audit-copies"]
    loose = cli("run", config, clip, tmp_path / "a.mp4", *options)
    assert loose.code == 0
    assert "GPU to host       1,000,000,000 bytes; the output's bitstream        1,000,000 (x 1000.000)\n" in loose.err
    assert cli("run", config, clip, tmp_path / "b.mp4", *options, "--strict").code == WARNED
    assert (tmp_path / "b.mp4").is_file()


def test_what_is_said_of_pixels_that_pass_through_the_host(clip) -> None:
    plan = SimpleNamespace(
        device="cuda:0", source=SimpleNamespace(path=clip), start_pts=None, end_pts=None, decoder="libav",
        decoder_reason="on the CPU, since NVDEC does not decode prores", encoder_reason="named in the config",
        encoder=SimpleNamespace(encoder="libx264"), time_base=Fraction(1),
    )  # fmt: skip
    audit = CopyAudit(plan)
    copies = Copies()
    for kind, size, count in (("HtoD", 3_110_400, 300), ("HtoD", 1_000, 9), ("DtoH", 3_000_000, 400), ("DtoD", 5, 1)):
        copies.add([event(f"Memcpy {kind} (a -> b)", size)] * count)
    audit._watch = SimpleNamespace(copies=copies, blind=2)
    report = audit.report(clip)
    assert (report.to_device.copied, report.to_host.copied) == (300 * 3_110_400 + 9_000, 400 * 3_000_000)
    assert report.within_device == 5
    wide = "933,120,000 bytes in 300 of 2,097,152 or more each and 9,000 bytes in 9 of 512 or more each"
    assert report.to_device.mostly == wide
    assert report.lines()[0].endswith(f"; {wide}")
    assert report.lines()[1].endswith("; 1,200,000,000 bytes in 400 of 2,097,152 or more each")
    assert not report.within_limits
    assert report.message == (
        "more than 1.02 times the bitstream and 1 MB: libav decodes on the CPU, since NVDEC does not decode prores; "
        "libx264 encodes: named in the config "
        "(at least: 2 times lanes went on while the counting was read out)"
    )
