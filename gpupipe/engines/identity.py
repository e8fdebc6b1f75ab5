"""What an engine was built for, as far as it matters: the network's weights and graph, the device, the driver."""

from __future__ import annotations

import hashlib
import platform
from typing import TYPE_CHECKING

import torch

from gpupipe.device.driver import driver
from gpupipe.engines.cache import Key
from gpupipe.errors import EngineError, first_line

if TYPE_CHECKING:
    from torch import nn

    from gpupipe.engines.base import Profile


def digest_of(network: nn.Module) -> str:
    """sha256 of a network: what it is made of, in which order it computes, every weight. It takes milliseconds.

    Raises EngineError where the order depends on values, so that torch cannot follow it.
    """
    try:
        graph = torch.fx.symbolic_trace(network)
    except Exception as error:  # whatever the network's own code raises when it is followed
        raise EngineError(f"torch cannot follow the network: {first_line(error)}") from error
    found = hashlib.sha256(f"{network!r}\n{graph.code}".encode())
    for name, value in (*network.named_parameters(), *network.named_buffers()):
        found.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
        found.update(value.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return found.hexdigest()


def key_of(network: str, profile: Profile, engine: str, recipe: int, versions: dict[str, str]) -> Key:
    """The key of what `engine` builds of a network, by its digest, on this machine."""
    device, capability, version = _device(profile.device)
    return Key(
        network=network, shape=profile.shape, least=profile.least, precision=profile.precision, engine=engine,
        recipe=recipe, versions=tuple(sorted(versions.items())), device=device, capability=capability, driver=version,
    )  # fmt: skip


def _device(name: str) -> tuple[str, str, str]:
    """Name, compute capability and driver; of a CPU its kind and the vector instructions that torch uses."""
    if name == "cpu":
        return platform.machine(), torch.backends.cpu.get_cpu_capability(), ""
    found = driver()
    gpu = found.gpus[torch.device(name).index or 0]
    return gpu.name, gpu.compute_capability, found.version or ""
