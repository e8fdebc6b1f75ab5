"""`gpupipe run` with a network: what comes out, and what is said."""

from __future__ import annotations

import json

import av
import numpy as np
import pytest
import torch

from gpupipe.engines.eager import Eager

SR = "realesr-animevideov3-x2"
SMALL = "{crop: {width: 128, height: 72, x: 40, y: 30}}"


@pytest.fixture(autouse=True)
def _weights(weights, monkeypatch):
    cache = weights(SR)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    return cache


def config(job, codec, more="", end=""):
    stages = f"[{SMALL}, {{model: {{card: {SR}{more}}}}}]"
    return job(f"range: {{end: '{end}'}}\nstages: {stages}\noutput: {{video: {codec}, audio: none}}\n")


def pictures(path):
    with av.open(str(path)) as container:
        return [(f.pts, f.to_ndarray(format="gbrp10le" if f.format.components[0].bits > 8 else "gbrp"))
                for f in container.decode(video=0)]  # fmt: skip


def test_an_hdr_clip_stays_10_bit_and_keeps_its_tags(cli, job, corpus, tmp_path, ffprobe):
    source, out = corpus / "files" / "hdr10plus_hevc_sei_mastering.mkv", tmp_path / "out.mkv"
    shown = cli("run", config(job, "{codec: hevc, encoder: libx265, preset: ultrafast, quality: 4}", end="pts:120"),
                source, out, "--device", "cpu")  # fmt: skip
    assert shown.code == 0, shown.err
    assert f"{SR}: super-resolution x2, weights BSD-3-Clause; fp32 on cpu, engine eager" in shown.err
    before, after = (
        ffprobe(path, "-show_streams", "-show_frames", "-read_intervals", "%+#1") for path in (source, out)
    )
    video = after["streams"][0]
    assert (video["width"], video["height"], video["pix_fmt"]) == (256, 144, "yuv420p10le")
    for tag in ("color_space", "color_transfer", "color_primaries", "color_range"):
        assert video[tag] == before["streams"][0][tag]
    assert video["color_transfer"] == "smpte2084"
    kinds = {data["side_data_type"] for data in after["frames"][0]["side_data_list"]}
    assert "Mastering display metadata" in kinds
    made = pictures(out)
    levels = np.unique(made[0][1])
    assert np.count_nonzero(levels % 4) > len(levels) / 2, "8 bit in a 10-bit file"
    with av.open(str(source)) as container:
        first = next(container.decode(video=0)).to_ndarray(format="gbrp10le")[30:102, 40:168]
    shrunk = made[0][1].reshape(72, 2, 128, 2, 3).mean((1, 3))
    assert np.abs(shrunk - first).mean() < 8, "not the same picture"


def test_memory_that_runs_out_in_mid_run_costs_no_frame(cli, job, clip, tmp_path, monkeypatch):
    codec = "{codec: ffv1}"
    whole, narrow = tmp_path / "whole.mkv", tmp_path / "narrow.mkv"
    assert cli("run", config(job, codec, end="0.2"), clip, whole, "--device", "cpu").code == 0
    calls, real = [], Eager.load

    def load(engine, module, profile, where):
        run = real(engine, module, profile, where)

        def limited(x):
            calls.append(x.shape)
            if len(calls) > 3 and x.shape[2] * x.shape[3] > 8000:
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
            return run(x)

        return limited

    monkeypatch.setattr(Eager, "load", load)
    shown = cli("run", config(job, codec, end="0.2"), clip, narrow, "--device", "cpu", "--json")
    assert shown.code == 0, shown.err
    assert [(model["name"], model["engine"]) for model in json.loads(shown.out)["models"]] == [(SR, "eager in fp32")]
    said = f"warning: {SR}: out of memory with whole pictures, 1 at once; it goes on with tiles of 64, 1 at once"
    assert said in shown.err
    ours, wanted = pictures(narrow), pictures(whole)
    assert [pts for pts, _ in ours] == [pts for pts, _ in wanted]
    assert len(ours) == 5
    assert max(np.abs(a.astype(int) - b).max() for (_, a), (_, b) in zip(ours, wanted, strict=True)) <= 1
    assert {s[2:] for s in calls[:3]} != {s[2:] for s in calls[-3:]}


def test_without_weights_it_says_how_to_get_them(refused, job, clip, tmp_path, monkeypatch):
    cache = tmp_path / "empty"
    cache.mkdir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    said = refused(config(job, "{codec: ffv1}", end="0.1"), clip, tmp_path / "out.mkv")
    assert said.endswith(f"the weights of {SR} are not there (gpupipe models fetch {SR})")
    assert "stages[1].model: " in said


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        (", precison: fp16", "stages[1].model.precison: unknown key (did you mean 'precision'?)"),
        (", engine: trt", "stages[1].model.engine: "),
        (", tile: 0", "stages[1].model.tile: "),
        (", batch: no", "stages[1].model.batch: "),
    ],
)
def test_wrong_keys_are_named(keys, says, refused, job, clip, tmp_path):
    assert says in refused(config(job, "{codec: ffv1}", keys, end="0.1"), clip, tmp_path / "out.mkv")
