"""`gpupipe models` on the command line."""

from __future__ import annotations

import os
import subprocess
import sys


def _models(cache, *arguments):
    return subprocess.run(
        [sys.executable, "-m", "gpupipe", "models", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"XDG_CACHE_HOME": str(cache)},
    )


def test_fetched_weights_lie_in_the_cache_and_are_verified(tmp_path):
    name = "realesr-animevideov3-x2"
    missing = _models(tmp_path, "verify", name)
    assert (missing.returncode, missing.stdout) == (1, "")
    assert f"gpupipe models fetch {name}" in missing.stderr
    fetched = _models(tmp_path, "fetch", name)
    assert fetched.returncode == 0, fetched.stderr
    assert "weights BSD-3-Clause" in fetched.stdout
    assert _models(tmp_path, "verify", name).stdout.count("is as the card says") == 2
    assert {p.name for p in tmp_path.rglob("*") if p.is_file()} == {"param", "bin"}


def test_a_card_without_a_licence_is_shown_and_refused(tmp_path):
    shown = _models(tmp_path, "info", "ffdnet-color").stdout
    assert "no licence for commercial use" in shown
    assert "input      sigma: scalar N x 1 x 1 x 1, 0.0196 where it is not given" in shown
    refused = _models(tmp_path, "fetch", "ffdnet-color")
    assert refused.returncode == 1
    assert "no licence allows commercial use" in refused.stderr
    assert not list(tmp_path.iterdir())


def test_several_are_fetched_or_none_where_one_is_unknown(tmp_path):
    told = _models(tmp_path, "fetch", "span-ch48-x2", "nothing")
    assert (told.returncode, list(tmp_path.iterdir())) == (1, [])
    made = _models(tmp_path, "fetch", "multistyle26", "blazeface-short")
    assert made.returncode == 0, made.stderr
    assert {path.name.rpartition("-")[0] for path in (tmp_path / "gpupipe" / "models").iterdir()} == {
        "multistyle26", "blazeface-short",
    }  # fmt: skip


def test_an_unknown_name_lists_those_there_are(tmp_path):
    told = _models(tmp_path, "info", "nothing")
    assert told.returncode == 1
    assert "there is no card 'nothing' (there are animesr-v2, " in told.stderr
