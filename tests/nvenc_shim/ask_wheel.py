"""Asks the real PyNvVideoCodec over the shim (NVENC_SHIM=tell) what of its arguments reaches the driver.

Reads {"base": {arguments}, "ask": [{arguments}, ...]} from stdin. For each one writes a line of JSON: the structures that
`nvEncInitializeEncoder` got, in hexadecimal, and what was said besides; or the error.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import tempfile

import PyNvVideoCodec

POINTER = slice(88 * 2, 96 * 2)  # NV_ENC_INITIALIZE_PARAMS.encodeConfig, which differs each time


def ask(context: int, arguments: dict[str, str]) -> dict[str, object]:
    with tempfile.TemporaryFile() as told:
        kept = os.dup(2)
        os.dup2(told.fileno(), 2)
        error = None
        try:
            PyNvVideoCodec.CreateEncoder(320, 192, "NV12", False, gpu_id=0, cudacontext=context, **arguments)
        except Exception as caught:  # noqa: BLE001  the library's share no base
            error = str(caught)
        os.dup2(kept, 2)
        os.close(kept)
        told.seek(0)
        text = told.read().decode(errors="replace")
    initialize = text.partition("initialize ")[2].partition("\n")[0]
    config = text.partition("config ")[2].partition("\n")[0]
    said = text.partition("initialize ")[0].strip()
    return {"got": initialize[: POINTER.start] + initialize[POINTER.stop :] + config, "said": said, "error": error}


def main() -> None:
    cuda, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
    cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
    asked = json.load(sys.stdin)
    sys.stdout.write(PyNvVideoCodec._PyNvVideoCodec.__file__ + "\n")
    for one in asked["ask"]:
        sys.stdout.write(json.dumps(ask(context.value or 0, {**asked["base"], **one})) + "\n")


main()
