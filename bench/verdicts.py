"""What an issue's `Must show` lines ask of a GPU, and whether a phase of bench/device.py has shown it."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Found = dict[str, Any]
"""A phase's JSON."""
LABELS = {
    "decode only": "decode", "decode only, 1 session": "decode-1", "all steps, 1 session": "steps-1",
    "nvjpeg from memory": "encoder-alone", "libx264 from memory": "encoder-alone", "+ nvjpeg": "encode",
    "through numpy": "host-pipe", "through numpy, 3 threads": "host-pipe-threads",
}  # fmt: skip
"""Rows of `gpupipe bench` by their words, for figures of a bench that did not end."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """One line: `3.1` is the first of issue 3."""

    line: str
    what: str
    value: float | None
    """None where it was not measured."""
    target: float | None
    most: bool = False
    """The target is the most, not the least."""

    @property
    def met(self) -> bool | None:
        """None: there is nothing to compare."""
        if self.value is None or self.target is None:
            return None
        return self.value <= self.target if self.most else self.value >= self.target

    def __str__(self) -> str:
        word = {True: "MET", False: "MISSED", None: "unknown" if self.target is not None else "-"}[self.met]
        value = "-" if self.value is None else f"{self.value:.4g}"
        target = "" if self.target is None else f"{'at most' if self.most else 'at least'} {self.target:g}"
        return f"{self.line:5} {self.what:62.62} {value:>8}  {target:14} {word}"


def _rates(found: Found) -> dict[str, float]:
    """Median frames a second by the name of the row, of a whole report or of one that was ended."""
    if "partial" not in found:
        return {row["name"]: row["rate"]["median"] for row in found.get("rows", ()) if row.get("rate")}
    rates = {}
    for label, values in found["partial"].items():
        name = LABELS.get(label) or ("whole" if label.startswith("whole") else label)
        rates["convert-2" if " to yuv" in label else name] = median(values)
    return rates


def _over(above: float | None, below: float | None) -> float | None:
    return None if above is None or not below else above / below


def _nvdec(found: Found, name: str) -> float | None:
    """Percent of the decoders in a row."""
    rows = {row["name"]: row.get("utilisation") or {} for row in found.get("rows", ())}
    value: float | None = rows.get(name, {}).get("nvdec")
    return value


def matrix(name: str) -> Callable[[Found], Iterator[Verdict]]:
    """Of an entry of bench/matrix.py."""

    def judged(found: Found) -> Iterator[Verdict]:
        rate = _rates(found).get
        if name == "x264":
            yield Verdict("3.4", "x264 veryfast: whole over encoder alone", _over(rate("whole"), rate("encoder-alone")),
                          0.95)  # fmt: skip
            return
        steps, decode = rate("convert-2"), rate("decode")
        if name == "hevc10-4k":
            yield Verdict("3.3", "HEVC 10-bit 4K: warp, overlay over decode only", _over(steps, decode), 0.90)
            yield Verdict("3.3", "HEVC 10-bit 4K: decode only, frames a second (1,760 seen)", decode, None)
            return
        yield Verdict("3.1", f"{name}: warp, overlay, dropped over decode only", _over(steps, decode), 0.98)
        yield Verdict("3.1", f"{name}: NVDEC busy meanwhile, percent", _nvdec(found, "convert-2"), 95)
        yield Verdict("3.1", f"{name}: one session over one session's decode only",
                      _over(rate("steps-1"), rate("decode-1")), 0.98)  # fmt: skip
        yield Verdict("3.1", f"{name}: decode only, frames a second (3,790, HEVC 6,650 seen)", decode, None)
        alone, whole = rate("encoder-alone"), rate("whole")
        slower = None if alone is None or decode is None else min(alone, decode)
        yield Verdict("3.2", f"{name}: nvJPEG to MOV over the slower of decode, nvJPEG", _over(whole, slower), 0.95)
        yield Verdict(
            "3.2", f"{name}: nvJPEG, nothing written, over the slower of these", _over(rate("encode"), slower), None
        )
        yield Verdict("3.2", f"{name}: nvJPEG alone, frames a second", alone, 2700)
        if name == "h264":
            best = max(filter(None, (rate("host-pipe"), rate("host-pipe-threads"))), default=None)
            yield Verdict("3.2", "h264: nvJPEG to MOV over host-pipe", _over(whole, rate("host-pipe")), 20)
            yield Verdict("3.2", "h264: over host-pipe in three threads", _over(whole, best), None)
            yield Verdict("3.2", "h264: host-pipe, frames a second (112 to 137 seen)", rate("host-pipe"), 100)

    return judged


def writing(found: Found) -> Iterator[Verdict]:
    """Of bench/writing.py."""
    for name, row in found.get("rows", {}).items():
        yield Verdict("3.2", f"{found['sessions']} sessions, {name}: over decode only", row["times"], None)


def prores(found: Found) -> Iterator[Verdict]:
    """Of bench/prores.py, which knows its own lines."""
    for what, line in found.get("lines", {}).items():
        yield Verdict("9.4", what, line["reached"], line["at_least"])


def models(found: Found) -> Iterator[Verdict]:
    """Of bench/models.py with super-resolution and its pipeline."""
    rows = found.get("rows", [])
    srs = [row for row in rows if row["card"] == "realesr-animevideov3-x2" and row["times_eager"]]
    auto = max((row["times_eager"] for row in srs), default=None)
    yield Verdict("4.4", "SR x2 1080p: the best engine over eager", auto, 2.2)
    fastest = [t for row in srs for t in (row["milliseconds"], row["graph_milliseconds"]) if t]
    alone = 1000 / min(fastest) if fastest else None
    yield Verdict("4.4", "SR x2 1080p: the best engine, frames a second", alone, 160)
    piped = found.get("pipeline") or {}
    warm = piped.get("warm") if isinstance(piped.get("warm"), dict) else None
    lasting = found.get("sustained", {}).get("rate")
    yield Verdict("4.4", "SR x2: the network alone for seconds on end, frames a second", lasting, None)
    yield Verdict(
        "4.4", "SR x2: gpupipe run, nvJPEG, over the network alone", _over(warm and warm["rate"], lasting), 0.95
    )
    apart = piped.get("cpu encoder") or {}
    yield Verdict("4.4", "SR x2: gpupipe run, x264, over the network alone", _over(apart.get("rate"), lasting), 0.95)
    yield Verdict("4.4", "SR x2: gpupipe run over a burst of the network", _over(warm and warm["rate"], alone), None)
    yield Verdict("4.5", "SR x2: first frame from a warm cache, seconds", warm and warm["startup"], 5, most=True)
    yield from engines(found)


def engines(found: Found) -> Iterator[Verdict]:
    """Of bench/models.py with whatever cards."""
    for row in found.get("rows", []):
        if row["engine"] != "eager" or row["failed"]:
            what = f"{row['card']} by {row['engine']}: dB of fp32" + (f", {row['failed']}" if row["failed"] else "")
            yield Verdict("4.6", what, row["decibels"], 50)


def faces(found: Found) -> Iterator[Verdict]:
    """Of bench/faces.py with one face."""
    runs = found.get("pipeline", [])
    best = max((run["rate"] for run in runs if run["faces"] == 1 and "rate" in run), default=None)
    yield Verdict("6.6", "one face, generated, NVDEC to nvJPEG, frames a second", best, 550)
    yield from faces_more(found)


def faces_more(found: Found) -> Iterator[Verdict]:
    """Of bench/faces.py with any number of faces."""
    for run in found.get("pipeline", []):
        what = f"{run['faces']} faces by {run['engine']}, NVDEC to nvJPEG"
        yield Verdict("6.6", what + (f": {run['failed'][-60:]}" if "failed" in run else ""), run.get("rate"), None)
    for row in found.get("rows", []):
        what = f"{row['faces']} faces, every {row['every']}, {row['engine']}: the stage"
        yield Verdict("6.6", what + (f": {row['failed'][:40]}" if row["failed"] else ""), row["rate"], None)


def observers(found: Found) -> Iterator[Verdict]:
    """Of bench/observers.py."""
    for name, case in found.get("cases", {}).items():
        share = case.get("accounted", {}).get("all")
        yield Verdict("7.5", f"{name}: share of processor time, accounted", share, 0.01, most=True)
        for what in ("flow", "wall"):
            cost = case[f"{what}_ratio"]["median"] - 1
            yield Verdict("7.5", f"{name}: {what} time, watched over plain, less 1", cost, 0.01, most=True)


def two_gpus(found: Found) -> Iterator[Verdict]:
    """Of bench/two_gpus.py."""
    yield Verdict("5.5", "two GPUs over one, decode, warp, overlay", found.get("times"), 1.9)


FILES = {
    "test_audit_gpu.py": "3.5", "test_graphs_gpu.py": "3.6", "test_size_change_gpu.py": "3.6",
    "test_segmented_gpu.py": "3.7", "test_memory_gpu.py": "3.8", "test_networks_gpu.py": "4.1",
    "test_model_gpu.py": "4.6",
    "test_devices_gpu.py": "5.5", "test_face_gpu.py": "6.5", "test_guard_gpu.py": "7.7", "test_nvenc_gpu.py": "8.1",
    "test_nvenc_order_gpu.py": "8.3", "test_prores_gpu.py": "9.3",
}  # fmt: skip
"""Which line a file of tests stands for."""


def tests(found: Found) -> Iterator[Verdict]:
    """Of bench/told.py: tests that failed, by file."""
    for name, outcomes in found.get("by_file", {}).items():
        failed, ran = outcomes.get("failed", 0), sum(outcomes.values()) - outcomes.get("skipped", 0)
        skipped = f", {outcomes['skipped']} skipped" if outcomes.get("skipped") else ""
        yield Verdict(
            FILES.get(name, "gpu"), f"{name}: failures of {ran}{skipped}", failed if ran else None, 0, most=True
        )
    if not found.get("whole", True):
        yield Verdict("gpu", "tests did not come to their end", None, 0, most=True)


def warp(found: Found) -> Iterator[Verdict]:
    """Of bench/warp.py."""
    for name, row in found.get("rows", {}).items():
        yield Verdict("3", f"warp by one kernel over grid_sample, {name}", row["times"], None)
