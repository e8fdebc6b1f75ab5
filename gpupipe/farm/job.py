"""What a node is told of a run, as plain data, and whether it can do it with the same bytes."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from gpupipe import __version__
from gpupipe.errors import CapabilityError
from gpupipe.farm.fetch import local_copy
from gpupipe.farm.threads import encoder_threads
from gpupipe.media.output import LEDGER
from gpupipe.plan.placed import placed, with_places
from gpupipe.plan.stored import dump, load
from gpupipe.render import facts
from gpupipe.render.folder import SEGMENTS

if TYPE_CHECKING:
    from typing import Any

    from gpupipe.plan import Plan
    from gpupipe.render.ledger import Ledger


@dataclass(frozen=True, slots=True)
class Job:
    """One run, for all nodes alike."""

    version: str
    """Of gpupipe."""
    plan: dict[str, Any]
    """See `gpupipe.plan.stored`."""
    facts: dict[str, Any]
    """See `gpupipe.render.facts`."""
    digest: str
    """Of both, which every segment carries."""
    url: str | None
    """Where nodes fetch the source from; None where they see it under the plan's path."""
    cache: str | None
    """Folder on each node for what is fetched; None is the system's for temporary files."""
    cores: int
    """Of the machine that joins: x264 and x265 write into the stream how many threads they take."""
    folder: str
    """The ledger's folder of segments, on the machine that joins."""
    token: str
    """Name of a file in it: who sees that writes segments there, all others send them."""
    metrics: tuple[int, str] | None = None
    """(port, address) from which on workers let Prometheus scrape them."""


def job_of(
    ledger: Ledger, *, url: str | None, cache: str | None, token: str, metrics: tuple[int, str] | None = None
) -> Job:
    """What nodes are told of a ledger's run."""
    folder = str(ledger.folder / SEGMENTS)
    found = facts.facts(ledger.plan)
    cores = len(os.sched_getaffinity(0))
    return Job(__version__, dump(ledger.plan), found, ledger.digest, url, cache, cores, folder, token, metrics)


def plan_here(job: Job, device: str) -> Plan:
    """The job's plan for this machine and one of its devices.

    Raises CapabilityError where this machine would make other bytes: another version, library or source; what
    `local_copy` and `facts` raise.
    """
    if job.version != __version__:
        raise CapabilityError(f"it has gpupipe {__version__}, not {job.version}", hint="install the same version")
    plan = load(job.plan, "the plan")
    known, path = dict(job.facts), plan.source.path
    if job.url is not None:
        plan = replace(plan, source=replace(plan.source, path=local_copy(job.url, cache_folder(job.cache))))
        files = {str(plan.source.path) if name == str(path) else name: one for name, one in job.facts["files"].items()}
        known["files"] = files
    differences = facts.changed(known, facts.facts(plan))
    if differences:
        raise CapabilityError(
            f"it would make other bytes: {'; '.join(differences[:3])}", hint="same files, same versions everywhere"
        )
    settings = encoder_threads(plan.encoder, job.cores, len(os.sched_getaffinity(0)))
    return with_places(placed(replace(plan, encoder=settings), device))


def cache_folder(name: str | None) -> Path:
    """Where a machine keeps what it fetches."""
    import tempfile  # noqa: PLC0415

    return Path(name) if name else Path(tempfile.gettempdir()) / f"gpupipe-{os.getuid()}" / "inputs"


def sees_ledger(job: Job) -> bool:
    """Whether the ledger's folder is the same here."""
    folder = Path(job.folder)
    return folder.parent.name.endswith(LEDGER) and (folder / job.token).is_file() and os.access(folder, os.W_OK)
