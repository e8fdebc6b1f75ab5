"""The table of encoders against what libav says of them."""

from __future__ import annotations

import av
import pytest

from gpupipe.codecs.encoders import DEVICE_ENCODERS, ENCODERS, encoder_facts, usual_encoder


@pytest.mark.parametrize("row", [row for row in ENCODERS if not row.on_device], ids=lambda row: row.name)
def test_libav_knows_the_encoder_by_that_name_and_codec(row) -> None:
    assert row.codecs == (av.Codec(row.name, "w").canonical_name,)
    if row.scale is not None:
        known = av.CodecContext.create(row.name, "w").supported_options
        assert ("crf" in {option.name for option in known.private}) == (row.scale.kind == "crf")
        assert row.scale.default is None or row.scale.least <= row.scale.default <= row.scale.most


def test_names_are_unique_and_what_has_no_row_is_plain_libav() -> None:
    assert len({row.name for row in ENCODERS}) == len(ENCODERS)
    assert {row.name for row in DEVICE_ENCODERS}.isdisjoint(av.codec.codecs_available)
    assert encoder_facts("libtheora").codecs == ()
    assert not encoder_facts("libtheora").on_device


def test_the_usual_encoder_makes_its_codec() -> None:
    for codec in ("h264", "hevc", "av1", "vp9", "vp8", "prores", "mjpeg", "ffv1"):
        assert av.Codec(usual_encoder(codec), "w").canonical_name == codec
