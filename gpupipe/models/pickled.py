"""Weights out of torch's pickles, read as tensors and nothing else."""

from __future__ import annotations

import pickle
import warnings
import zipfile
from typing import TYPE_CHECKING

import torch

from gpupipe.errors import MediaError, first_line

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from torch import nn


def state(path: Path, of: str) -> dict[str, torch.Tensor]:
    """The tensors of a .pth, .pt or .pkl by name, on the CPU.

    Args:
        path: the file; what in it is not a tensor or a plain container is refused unopened, never run.
        of: the network that they should belong to, for errors.

    Raises:
        MediaError: the file holds something else.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of unusual pickles, before it refuses them
            found = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, TypeError, ValueError, KeyError, AttributeError, EOFError) as error:
        raise MediaError(f"holds no weights of {of}: {first_line(error)}", where=str(path)) from error
    except (OSError, zipfile.BadZipFile) as error:
        raise MediaError(f"holds no weights of {of}: {first_line(error)}", where=str(path)) from error
    if not isinstance(found, dict) or not all(isinstance(value, torch.Tensor) for value in found.values()):
        raise MediaError(f"holds no weights of {of}: not tensors by name", where=str(path))
    return {str(name): value for name, value in found.items()}


def fill(model: nn.Module, tensors: Mapping[str, torch.Tensor], where: Path, of: str) -> None:
    """Puts tensors into a network, each by its name and shape, and makes it ready. Raises MediaError.

    The error names the first one that is missing, left over or of another shape.
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
