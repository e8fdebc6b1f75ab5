"""Where a run happens, and how much of it there is memory for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpupipe.device import pick_device, pick_devices
from gpupipe.device.driver import free_memory
from gpupipe.device.host import rooms
from gpupipe.errors import PlanError
from gpupipe.plan.host import HostBudget, HostNeed, fit_host, waiting_bytes
from gpupipe.plan.memory import Budget, fit, need_of
from gpupipe.plan.model import Notice
from gpupipe.plan.segments import batch_size

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpupipe.config import Config
    from gpupipe.format import FrameFormat
    from gpupipe.plan.model import Step


def places_of(config: Config, device: str | None) -> tuple[str, ...]:
    """Where the run happens, the first place being the one that is planned for."""
    if device is None and config.devices is not None:
        return pick_devices(config.devices)
    return (pick_device(device or config.device),)


def kept(config: Config) -> Config:
    """Several GPUs meet in the ledger: what each renders is kept until it is joined."""
    if config.resume == "off":
        raise PlanError("several devices need finished segments to be kept", where="resume", hint="leave the key out")
    return config.model_copy(update={"resume": "keep"})


def device_budget(
    config: Config, picture: FrameFormat, steps: Sequence[Step], encoder: str, sessions: int,
    *, places: tuple[str, ...],
) -> Budget:  # fmt: skip
    """How many of `sessions` and how large batches each GPU has memory for; none is needed on the CPU.

    `picture` is what the decoder gives.
    """
    device = places[0]
    batch = batch_size(picture)
    if device == "cpu" or not (steps or picture.device != "cpu"):
        return Budget(sessions, batch, 0, "")
    known = [free for one in places if (free := free_memory(int(one.removeprefix("cuda:")))) is not None]
    free = min(known, default=None)
    if config.memory.device is not None:
        free = min(config.memory.device, free if free is not None else config.memory.device)
    need = need_of(picture, steps, encoder, free)
    return fit(need, sessions, batch, free, device=device, asked=isinstance(config.sessions, int) and sessions > 1)


def host_budget(
    config: Config, picture: FrameFormat, steps: Sequence[Step], sessions: int, *, decodes: bool, encodes: bool,
    waiting: int = 0,
) -> tuple[HostBudget, list[Notice]]:  # fmt: skip
    """How many of `sessions` the host has memory for, and the warning where that is not all that were asked for.

    `picture` is the source's; `decodes` and `encodes` say what is done on the CPU, `waiting` how many pictures, coded
    by themselves, may wait for those before them.
    """
    room = next(iter(rooms(config.memory.host)), None)
    free = None if room is None else room.left
    result = next((step.source for step in reversed(steps) if step.kind == "download"),
                  steps[-1].target if steps else picture)  # fmt: skip
    held = waiting_bytes(result, waiting, room) if sessions > 1 else 0
    cpu = HostNeed.of(picture, steps, decodes=decodes, encodes=encodes, free=free, waiting=held)
    budget = fit_host(cpu, sessions, room)
    if budget.enough and (budget.sessions == sessions or config.sessions == "auto"):
        return budget, []
    return budget, [Notice("memory-short", budget.reason)]
