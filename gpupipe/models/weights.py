"""Weights by name out of safetensors files and torch's pickles, read as tensors and nothing else."""

from __future__ import annotations

import pickle
import struct
import warnings
import zipfile
from typing import TYPE_CHECKING

import torch

from gpupipe.errors import MediaError, first_line

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from torch import nn

_INNER = ("params_ema", "params", "state_dict", "model", "generator")
"""Where training scripts put the weights among other things; the first that is there counts."""
_PICKLES = (pickle.UnpicklingError, RuntimeError, TypeError, ValueError, KeyError, AttributeError, EOFError, IndexError,
            AssertionError, OverflowError, ImportError, MemoryError, struct.error)  # fmt: skip


def state(path: Path, of: str) -> dict[str, torch.Tensor]:
    """The tensors of a file by name, on the CPU.

    Args:
        path: safetensors, or a .pth, .pt or .pkl; what in it is not a tensor or a plain container is never run.
        of: the network that they should belong to, for errors.

    Raises:
        MediaError: the file is not there or holds something else.
    """
    try:
        with path.open("rb") as file:
            head = file.read(9)
        found = _safe(path) if path.suffix == ".safetensors" or _safetensors(head, path) else _pickled(path)
    except OSError as error:
        raise MediaError(f"cannot be read: {error.strerror or first_line(error)}", where=str(path)) from error
    except (zipfile.BadZipFile, *_PICKLES) as error:
        raise MediaError(f"holds no weights of {of}: {first_line(error)}", where=str(path)) from error
    for name in _INNER:
        if isinstance(found, dict) and isinstance(found.get(name), dict):
            found = found[name]
            break
    if not isinstance(found, dict) or not all(isinstance(value, torch.Tensor) for value in found.values()):
        raise MediaError(f"holds no weights of {of}: not tensors by name", where=str(path))
    return {str(name): value for name, value in found.items()}


def _safetensors(head: bytes, path: Path) -> bool:
    """Whether a file begins with the length of a header and the header's brace."""
    return len(head) == 9 and head[8:] == b"{" and struct.unpack("<Q", head[:8])[0] < path.stat().st_size


def _safe(path: Path) -> object:
    try:
        import safetensors.torch  # noqa: PLC0415  (an extra)
    except ModuleNotFoundError as error:
        hint = "pip install 'gpupipe[models]'"
        raise MediaError(f"needs the package {error.name}", where=str(path), hint=hint) from error
    try:
        return safetensors.torch.load(path.read_bytes())
    except safetensors.SafetensorError as error:
        raise ValueError(first_line(error)) from error


def _pickled(path: Path) -> object:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of unusual pickles, before it refuses them
        found: object = torch.load(path, map_location="cpu", weights_only=True)
    return found


def fill(model: nn.Module, tensors: Mapping[str, torch.Tensor], where: Path, of: str) -> None:
    """Puts tensors into a network, each by its name and shape, and makes it ready.

    Raises MediaError that names the first one that is missing, left over or of another shape.
    """
    own = model.state_dict()
    for name, tensor in own.items():
        if name not in tensors:
            raise MediaError(f"holds no weights of {of}: {name} is missing", where=str(where))
        if tensors[name].shape != tensor.shape:
            wrong = f"{name} is {list(tensors[name].shape)}, not {list(tensor.shape)}"
            raise MediaError(f"holds no weights of {of}: {wrong}", where=str(where))
    left = sorted(set(tensors) - set(own))
    if left:
        raise MediaError(f"holds no weights of {of}: {left[0]} has no place in it", where=str(where))
    model.load_state_dict({name: value.float() for name, value in tensors.items()})
    model.eval().requires_grad_(requires_grad=False)
