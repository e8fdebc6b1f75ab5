"""A pytest plugin that writes what happens as it happens: a run that is ended from outside has told what it knew.

    python -m pytest -p bench.told --told FILE.json ...

FILE.json: how many passed, failed and were skipped (why), the slowest, and what passing tests printed. FILE.txt beside
it: every failure with its whole traceback and what the test printed.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest
    from _pytest.reports import CollectReport, TestReport

LONGEST, PRINTED, EVERY = 12_000, 600, 1.0
"""Characters of a failure and of what a test printed, and seconds between two writings of the JSON."""


class Teller:
    """Listens where all reports arrive: under xdist that is the process that hands out the tests."""

    def __init__(self, path: Path) -> None:
        self._path, self._began, self._written = path, time.monotonic(), 0.0
        self._text = path.with_suffix(".txt")
        self._text.unlink(missing_ok=True)
        self.outcomes: dict[str, str] = {}
        self._seconds: Counter[str] = Counter()
        self._skipped: Counter[str] = Counter()
        self._printed: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: TestReport) -> None:
        """A test was set up, called or torn down."""
        name = report.nodeid.removeprefix("tests/")
        self._seconds[name] += round(report.duration, 2)  # type: ignore[assignment]
        if report.failed:
            self.outcomes[name] = "failed"
            self._fails(f"{name} ({report.when})", report)
        elif report.skipped:
            self.outcomes[name] = "skipped"
            self._skipped[str(report.longrepr[-1] if isinstance(report.longrepr, tuple) else report.longrepr)] += 1
        elif report.when == "call":
            self.outcomes.setdefault(name, "passed")
            if report.capstdout.strip():
                self._printed[name] = report.capstdout.strip()[-PRINTED:]
        if time.monotonic() - self._written > EVERY:
            self.write()

    def pytest_collectreport(self, report: CollectReport) -> None:
        """A file was read."""
        if report.failed:
            self.outcomes[report.nodeid] = "failed"
            self._fails(f"{report.nodeid} (collection)", report)

    def _fails(self, title: str, report: CollectReport | TestReport) -> None:
        text = report.longreprtext
        if len(text) > LONGEST:
            text = f"{text[: LONGEST // 3]}\n...\n{text[-LONGEST * 2 // 3 :]}"
        said = "".join(f"\n--- {name}\n{what[-2000:]}" for name, what in report.sections if what.strip())
        with self._text.open("a", encoding="utf-8") as file:
            file.write(f"{'=' * 100}\n{title}\n{text}{said}\n")

    def pytest_sessionfinish(self) -> None:
        """All have run."""
        self.write(whole=True)

    def write(self, *, whole: bool = False) -> None:
        """All that is known now."""
        self._written = time.monotonic()
        found = Counter(self.outcomes.values())
        told = {
            "whole": whole, "seconds": round(self._written - self._began, 1), **dict(found),
            "failures": sorted(name for name, what in self.outcomes.items() if what == "failed"),
            "by_file": self._by_file(), "skipped_because": dict(self._skipped), "printed": self._printed,
            "slowest": dict(self._seconds.most_common(12)),
        }  # fmt: skip
        self._path.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")

    def _by_file(self) -> dict[str, dict[str, int]]:
        files: dict[str, Counter[str]] = {}
        for name, what in self.outcomes.items():
            files.setdefault(name.partition("::")[0].rpartition("/")[2], Counter())[what] += 1
        return {name: dict(found) for name, found in sorted(files.items())}


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--told FILE`."""
    parser.addoption("--told", type=Path, help="write what happens to FILE and, failures, to FILE.txt")


def pytest_configure(config: pytest.Config) -> None:
    """Registers the teller, in one process of a run."""
    path: Path | None = config.getoption("--told")
    if path is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Teller(path), "teller")
