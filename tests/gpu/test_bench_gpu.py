"""A bench on a GPU: rows of all kinds are measured, and what comes out is right before it is."""

from __future__ import annotations

import threading

import pytest

from gpupipe.bench import RECIPES, Request, bench
from gpupipe.bench.clip import Recipe

pytestmark = pytest.mark.gpu


def test_rows_are_measured(monkeypatch):
    recipe = Recipe("libx264", 320, 180, 400_000, options={"preset": "ultrafast", "sc_threshold": "0"})
    monkeypatch.setitem(RECIPES, "h264", recipe)
    only = ("decode", "warp", "whole", "encoder-alone", "cpu", "host-pipe")
    request = Request("", device="cuda", frames=120, runs=1, sessions=(1, 2), only=only)
    report = bench(request, say=lambda _: None, stop=threading.Event())
    assert {row.name: row.reason for row in report.rows if row.rate is None} == {}
    assert [row.name for row in report.rows] == list(only)
    assert report.check.worst > 33
    assert report.machine.gpu
    assert len(report.tried) == 2
