"""What an engine was built for, as far as it matters: the network's weights and graph, the device, the driver."""

from __future__ import annotations

import hashlib
import platform
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from gpupipe import models
from gpupipe.device.driver import driver
from gpupipe.engines.cache import Key
from gpupipe.models.fetch import fingerprint

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import nn

    from gpupipe.engines.base import Profile
    from gpupipe.models.card import Card


def digest_of(network: nn.Module, origin: str) -> str:
    """sha256 of a network: every weight, the layers and their settings, and whatever its graph was made from.

    A graph is made by code of `gpupipe.models` from files that a card pins by sha256, so code and card stand for it; to
    trace it would take longer than to load an engine.

    Args:
        network: with its values set.
        origin: of its graph, see `origin_of`.
    """
    found = hashlib.sha256(f"{origin}\n{network!r}\n{_code()}".encode())
    for name, value in (*network.named_parameters(), *network.named_buffers()):
        found.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
        found.update(value.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return found.hexdigest()


def origin_of(card: Card, files: Mapping[str, Path]) -> str:
    """All that a card's network is made from: functions of a graph show in no `repr`, and in no weight."""
    return f"{card.model_dump_json()} {fingerprint(card, files)}"


@lru_cache(maxsize=1)
def _code() -> str:
    """sha256 of all that reads networks."""
    folder, found = Path(models.__file__).parent, hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        found.update(str(path.relative_to(folder)).encode() + b"\0" + path.read_bytes())
    return found.hexdigest()


def key_of(network: str, profile: Profile, engine: str, recipe: int, versions: dict[str, str]) -> Key:
    """The key of what `engine` builds of a network, by its digest, on this machine."""
    device, capability, version = _device(profile.device)
    return Key(
        network=network, shape=profile.shape, least=profile.least, precision=profile.precision + profile.numbers,
        engine=engine,
        recipe=recipe, versions=tuple(sorted(versions.items())), device=device, capability=capability, driver=version,
    )  # fmt: skip


def _device(name: str) -> tuple[str, str, str]:
    """Name, compute capability and driver; of a CPU its kind and the vector instructions that torch uses."""
    if name == "cpu":
        return platform.machine(), torch.backends.cpu.get_cpu_capability(), ""
    found = driver()
    gpu = found.gpus[torch.device(name).index or 0]
    return gpu.name, gpu.compute_capability, found.version or ""
