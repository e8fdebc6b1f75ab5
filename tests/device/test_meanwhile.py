"""Packages are loaded beside other work, and one that is broken is nobody's trouble before it is needed."""

from __future__ import annotations

import sys

import pytest

from gpupipe.device.meanwhile import load_meanwhile


@pytest.fixture
def package(tmp_path, monkeypatch):
    def make(name, text):
        (tmp_path / f"{name}.py").write_text(text)
        monkeypatch.syspath_prepend(tmp_path)
        return name

    return make


def test_it_is_there_when_it_is_needed(package):
    name = package("loaded_beside", "import time\ntime.sleep(0.05)\nvalue = 7\n")
    thread = load_meanwhile(name)
    import loaded_beside  # noqa: PLC0415

    assert loaded_beside.value == 7
    thread.join(10)
    assert not thread.is_alive()


def test_whoever_needs_a_broken_one_gets_the_error(package):
    name = package("broken_beside", "raise OSError('no such library')\n")
    load_meanwhile(name).join(10)
    assert name not in sys.modules
    with pytest.raises(OSError, match="no such library"):
        import broken_beside  # noqa: F401, PLC0415
