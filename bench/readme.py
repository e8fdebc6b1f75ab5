"""Puts the tables of committed reports into README: between `<!-- bench: FILE -->` and `<!-- end -->`.

python bench/readme.py
"""

from __future__ import annotations

import re
from pathlib import Path

from gpupipe.bench.record import Report
from gpupipe.bench.text import markdown

ROOT = Path(__file__).resolve().parents[1]
SHOWN = re.compile(r"(<!-- bench: (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)


def table(found: re.Match[str]) -> str:
    """The marks, with the table of the file that they name."""
    report = Report.from_json((ROOT / found[2]).read_text(encoding="utf-8"), found[2])
    return found[1] + markdown(report) + found[3]


if __name__ == "__main__":
    readme = ROOT / "README.md"
    readme.write_text(SHOWN.sub(table, readme.read_text(encoding="utf-8")), encoding="utf-8")
