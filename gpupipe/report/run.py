"""The report of a run: all that is known of it, as one page or as JSON."""

from __future__ import annotations

import importlib.metadata
import json
import platform
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from gpupipe import __version__
from gpupipe.errors import GpupipeError
from gpupipe.events import SMALLER
from gpupipe.media.probe import probe
from gpupipe.plain import plain
from gpupipe.render.stills import spread, stills
from gpupipe.report.charts import bottleneck, charts
from gpupipe.report.page import Comparison, comparison, data_url, render, resource

if TYPE_CHECKING:
    from gpupipe.journal import Entry
    from gpupipe.media.source import SourceInfo
    from gpupipe.plan import Plan
    from gpupipe.render.audit import AuditReport
    from gpupipe.render.progress import RenderResult
    from gpupipe.render.watch import Happening
    from gpupipe.report.recorder import Recorder
    from gpupipe.stages.base import ModelUse

__all__ = ["RunReport", "data_url"]

FORMAT = 1
"""Of the JSON; rises when a key changes its meaning."""
PICTURES, WIDTH = 5, 960
"""Before and after: how many, and how wide at most."""
_PACKAGES = ("av", "numpy", "torch", "triton", "PyNvVideoCodec", "nvidia-nvjpeg", "nvidia-ml-py")


@dataclass(frozen=True, slots=True)
class RunReport:
    """Everything that is known when a run has ended, well or not."""

    plan: Plan
    command: str
    """To run it again."""
    folder: str
    """Where it was run."""
    recorder: Recorder
    warnings: tuple[Entry, ...]
    result: RenderResult | None
    failure: str | None = None
    """Why there is no result."""
    copies: AuditReport | None = None
    written: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))

    @property
    def verdict(self) -> tuple[str, str]:
        """(`done`, `warned` or `failed`; the sentence to it)."""
        if self.result is None:
            return "failed", f"failed: {self.failure}"
        made = self.result
        rate = made.rate
        media = made.frames / float(self.plan.encoder.rate)
        speed = f", {media / made.seconds:.2f} times real time" if made.seconds else ""
        line = f"{made.frames} frames in {made.seconds:.1f} s: {rate:.1f} a second{speed}"
        known = len(self.warnings) + len(self.plan.warnings)
        back = sum(self._last().counts.get(kind, 0) for kind in SMALLER)
        if back:
            line += f"; {back} step{'s' * (back != 1)} back for lack of memory"
        return ("warned", f"{line}; {known} warning{'s' * (known != 1)}") if known else ("done", line)

    @property
    def happenings(self) -> list[Happening]:
        """What was counted and warned of nothing: steps back, retries, networks built."""
        return self.recorder.watch.happenings

    @property
    def models(self) -> list[ModelUse]:
        """Networks that ran."""
        return list(self.recorder.watch.models.values())

    def to_json(self) -> str:
        """The same as data; see README for the keys."""
        state, line = self.verdict
        samples = [
            {"elapsed": s.reading.elapsed, "frames": s.reading.frames, "computed": s.reading.computed,
             "written_bytes": s.reading.written,
             "lanes": {lane.name: lane.seconds for lane in s.reading.lanes}, "queues": s.reading.queues,
             "resident_bytes": s.resident, "available_bytes": s.available, "gpu": s.gpu}
            for s in self.recorder.samples
        ]  # fmt: skip
        data = {
            "format": FORMAT, "written": self.written, "verdict": state, "message": line, "command": self.command,
            "folder": self.folder, "versions": versions(), "plan": self.plan.to_json(), "result": self.result,
            "failure": self.failure, "bottleneck": self._pace(), "notices": self.plan.warnings,
            "warnings": self.warnings, "copies": self.copies,
            "quality": self.result.quality if self.result is not None else (),
            "counts": self._last().counts, "happenings": self.happenings, "models": self.models,
            "no_gpu": self.recorder.no_gpu, "samples": samples,
        }  # fmt: skip
        return json.dumps(plain(data), indent=1)

    def to_html(self) -> str:
        """One page that needs nothing else."""
        state, line = self.verdict
        return render(
            "report.html",
            report=self, state=state, line=line, last=self._last(), bottleneck=self._pace(),
            charts=[plain(chart) for chart in charts(self.recorder.samples)], pictures=self._pictures(),
            tables=self._streams(), plan_lines=self.plan.lines(), versions=versions(),
            facts=self._facts(), script=resource("vendor/uPlot.iife.min.js"), style=resource("vendor/uPlot.min.css"),
        )  # fmt: skip

    def _last(self) -> Any:
        return self.recorder.samples[-1].reading

    def _pace(self) -> str:
        return bottleneck(self._last())

    def _facts(self) -> list[tuple[str, str]]:
        """The figures at the head of the page."""
        made, most = self.result, max((s.resident or 0 for s in self.recorder.samples), default=0)
        facts = []
        if made is not None and made.seconds:
            facts = [
                ("frames/s", f"{made.rate:.1f}"),
                ("frames", f"{made.frames:,}"),
                ("time", f"{made.seconds:.1f} s"),
                ("start-up", f"{made.startup:.2f} s"),
                ("output", _bytes(made.bytes)),
            ]
        return [*facts, ("most memory", _bytes(most))] if most else facts

    def _pictures(self) -> list[Comparison]:
        """Five of the run, spread over it; none where it did not end well."""
        if self.result is None:
            return []
        try:
            return [comparison(still, WIDTH) for still in stills(self.plan, spread(PICTURES, self.plan))]
        except GpupipeError:  # the last moment of a damaged or very short file has no picture, and that is no failure
            return []

    def _streams(self) -> list[tuple[str, list[tuple[str, ...]]]]:
        actions = {
            track.index: f"{track.action}{': ' + track.reason if track.reason else ''}" for track in self.plan.tracks
        }
        tables = [("In", _rows(self.plan.source, actions))]
        if self.result is not None:
            tables.append(("Out", _rows(probe(self.result.output), {})))
        return tables


def versions() -> dict[str, str]:
    """Of gpupipe, Python and the libraries that decide pixels."""
    found = {"gpupipe": __version__, "python": platform.python_version(), "system": platform.platform()}
    for name in _PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _rows(info: SourceInfo, actions: dict[int, str]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for stream in info.streams:
        video, more = info.video, [f"{k} {v}" for k, v in stream.details.items()]
        if stream.index == video.index:
            color = video.format.color
            more = [
                f"{video.native_pixels} {video.format.width}x{video.format.height}", f"{float(video.rate):.3f} fps",
                *color.words(), f"{color.range or 'unspecified'} range",
            ]  # fmt: skip
        rows.append(
            (f"#{stream.index}", stream.kind, stream.codec or "unknown", ", ".join(more), actions.get(stream.index, ""))
        )
    return rows


def _bytes(count: int) -> str:
    return f"{count / 1e9:.2f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"
