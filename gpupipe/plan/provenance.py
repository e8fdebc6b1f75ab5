"""What an output says of generated pictures."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from gpupipe.errors import PlanError
from gpupipe.media.containers import container
from gpupipe.media.provenance import Provenance, carries, signs
from gpupipe.plan.model import Notice
from gpupipe.plan.segments import stage_of
from gpupipe.stages.base import SourceType

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpupipe.config import Output
    from gpupipe.plan.model import Step

_WHERE = "output.provenance"


def choose_provenance(output: Output, steps: Sequence[Step], name: str) -> tuple[Provenance | None, list[Notice]]:
    """The strongest that a stage asks for, and a warning where it will not be said.

    Args:
        output: of the config.
        steps: of the plan.
        name: the container's.

    Raises PlanError where it cannot be signed as asked.
    """
    types = {stage_of(step).source_type() for step in steps if step.kind == "stage"}
    source_type = next((kind for kind in get_args(SourceType) if kind in types), None)
    if source_type is None:
        return None, []
    if output.provenance == "none":
        return None, [Notice("provenance-off", f"the output does not say that it is {source_type}")]
    place = container(name)
    lost = []
    if not carries(place):
        lost.append(Notice("provenance-not-carried", f"{name} has no place to say that it is {source_type}"))
    if isinstance(output.provenance, str):
        return Provenance(source_type), lost
    signer = output.provenance
    for key, path in (("certificate", signer.certificate), ("key", signer.key)):
        if not Path(path).is_file():
            raise PlanError(f"there is no file {path}", where=f"{_WHERE}.{key}")
    if not signs(place):
        raise PlanError(f"C2PA does not know {name}", where=_WHERE, hint="use mp4, mov or avi")
    if importlib.util.find_spec("c2pa") is None:
        raise PlanError("signing needs c2pa-python", where=_WHERE, hint="pip install 'gpupipe[provenance]'")
    return Provenance(source_type, signer.certificate, signer.key, signer.algorithm, signer.timestamps), lost
