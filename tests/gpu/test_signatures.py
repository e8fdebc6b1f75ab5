"""The NVENC double has the signatures of the PyNvVideoCodec that is installed."""

from __future__ import annotations

import inspect
import re
import sys
from pathlib import Path

import pytest

from gpupipe.codecs import pynv
from gpupipe.codecs.nvenc_options import OPTIONS

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "codecs"))
import nvenc_double

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def library():
    return pynv.load()


def overloads(function: object) -> list[list[str]]:
    """Parameter names of each signature in a pybind11 docstring, without self."""
    found = re.findall(r"^(?:\d+\. )?\w+\((.*)\) -> ", function.__doc__ or "", re.MULTILINE)
    names = [[part.split(":")[0].split("=")[0].strip() for part in _split(text)] for text in found]
    return [[n for n in signature if n and n != "self" and not n.startswith("*")] for signature in names]


def _split(text: str) -> list[str]:
    """Splits at commas outside brackets."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in "[<(") - (letter in "]>)")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return parts


def own(function: object) -> list[str]:
    return [n for n in inspect.signature(function).parameters if n != "self"]


def test_create_encoder(library) -> None:
    assert own(library.CreateEncoder) == own(nvenc_double.CreateEncoder)


def test_encoder_caps(library) -> None:
    assert own(nvenc_double.GetEncoderCaps) in overloads(library.GetEncoderCaps)
    assert "codec: str = 'h264'" in library.GetEncoderCaps.__doc__


def test_encoder_methods(library) -> None:
    for name, method in vars(nvenc_double.PyNvEncoder).items():
        if name.startswith("_") and name != "__init__":
            continue
        assert own(method) in overloads(getattr(library.PyNvEncoder, name)), name
    text = library.PyNvEncoder.Encode.__doc__
    assert "'data' (bytes), 'timestamp' (uint64), 'picture_type' (int)" in text


@pytest.mark.parametrize("name", ["NV_ENC_PIC_PARAMS", "structEncodeReconfigureParams"])
def test_structs_have_the_same_fields(library, name: str) -> None:
    real = {n for n, v in vars(getattr(library, name)).items() if isinstance(v, property)}
    assert real == set(vars(getattr(nvenc_double, name)()))


def test_exception_is_there(library) -> None:
    assert issubclass(library.PyNvVCException, Exception)


def test_option_names_are_in_the_binary(library) -> None:
    """The library ignores unknown names, so a renamed one would go unseen; names of up to 8 letters are not stored whole."""
    binary = Path(library._PyNvVideoCodec.__file__).read_bytes()
    for name in OPTIONS:
        assert len(name) <= 8 or name.encode() in binary, name


def test_decoder_arguments(library) -> None:
    used = {"gpuid", "codec", "cudacontext", "cudastream", "usedevicememory"}
    assert any(used <= set(names) for names in overloads(library.CreateDecoder))
