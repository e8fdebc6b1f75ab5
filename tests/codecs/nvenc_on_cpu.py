"""Runs whose encoder is NVENC on a machine without a GPU: plan and lanes think that it takes pictures of the CPU.

For the named double (`nvenc_double`) by `use`, and for the real library over `tests/nvenc_shim` by `allow`.
"""

from __future__ import annotations

import weakref
from types import SimpleNamespace
from typing import TYPE_CHECKING

import nvenc_double
from torch.utils.dlpack import DLDeviceType

from gpupipe.codecs import capability, nvenc, pynv
from gpupipe.plan import encoder

if TYPE_CHECKING:
    import pytest

REFUSED = (
    "PyNvEncoderCaps : \nError code : {0}\nError Type : m_nvenc.nvEncOpenEncodeSessionEx(&encodeSessionExParams, "
    "&hEncoder) returned error {0}\nat /project/src/PyNvVideoCodec/src/PyNvEncoder.cpp:1103\n"
)
"""What PyNvVideoCodec 2.2.4 says where a session does not open."""


def allow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets plans on the CPU name NVENC. Its library takes only what DLPack calls memory of CUDA."""
    real = encoder._device_refusal

    def refusal(name, codec, picture, device, video) -> str | None:
        return real(name, codec, picture, "cuda:0" if name == "nvenc" else device, video)

    monkeypatch.setattr(encoder, "_device_refusal", refusal)
    monkeypatch.setattr(nvenc._Surface, "__dlpack_device__", lambda _: (DLDeviceType.kDLCUDA, 0))


def use(monkeypatch: pytest.MonkeyPatch, library: object = nvenc_double) -> None:
    """Puts a double in place of PyNvVideoCodec."""
    allow(monkeypatch)
    monkeypatch.setattr(pynv, "load", lambda: library)
    monkeypatch.setattr(capability, "unusable", lambda _: None)
    capability._encoder_row.cache_clear()
    monkeypatch.setattr(nvenc, "primary_context", lambda _: 0)


class Limited(SimpleNamespace):
    """The double as a card with room for so many sessions at once; `most_open` says how many there were."""

    def __init__(self, most: int, status: int = 10) -> None:
        super().__init__(
            GetEncoderCaps=nvenc_double.GetEncoderCaps, NV_ENC_PIC_PARAMS=nvenc_double.NV_ENC_PIC_PARAMS, most=most,
            status=status, open=0, most_open=0, refused=0,
        )  # fmt: skip

    def CreateEncoder(self, *args: object, **options: object) -> object:  # noqa: N802  the library's name
        if self.open >= self.most:
            self.refused += 1
            raise nvenc_double.PyNvVCException(REFUSED.format(self.status))
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        made = nvenc_double.CreateEncoder(*args, **options)
        weakref.finalize(made, self._closed)
        return made

    def _closed(self) -> None:
        self.open -= 1
