"""From the words of a command line to a plan."""

from __future__ import annotations

import re
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from gpupipe.config import Config, load_config
from gpupipe.errors import ConfigError, PlanError
from gpupipe.media.probe import probe
from gpupipe.plan import Plan, make_plan, refuse_warnings
from gpupipe.render.facts import inputs
from gpupipe.render.learnt import learnt

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def prepare(
    config: Path, source: Path | None, output: Path | None, *, device: str | None, strict: bool, keep: bool = False,
    say: Callable[[str], None] = lambda _: None,
) -> Plan:  # fmt: skip
    """Reads the config, looks at the source and plans. What the command line says overrides the config.

    With `keep` the plan is one of segments that are kept, whatever the config says. Relative paths, those in the
    config too, start from the current directory. Raises GpupipeError.
    """
    settings = load_config(config)
    if keep:
        settings = settings.model_copy(update={"resume": "keep"})
    source = source or (Path(settings.input) if settings.input else None)
    output = output or (Path(settings.output.path) if settings.output.path else None)
    if source is None:
        raise ConfigError(
            "no input", where=str(config), hint="give INPUT on the command line or `input:` in the config"
        )
    if output is None:
        raise ConfigError(
            "no output", where=str(config), hint="give OUTPUT on the command line or `output.path:` in the config"
        )
    return plan_of(config, settings, source, output, device=device, strict=strict, say=say)


def plan_of(
    path: Path, config: Config, source: Path, output: Path, *, device: str | None, strict: bool,
    say: Callable[[str], None] = lambda _: None,
) -> Plan:  # fmt: skip
    """The plan of a config that was read from `path`; `say` is told what takes long. Raises GpupipeError."""
    info = probe(source)
    with whose_keys(path):
        plan = make_plan(config, info, output, device=device or config.device, strict=strict)
        if plan.quality is not None:
            from gpupipe.render.quality import check  # noqa: PLC0415  only where it is asked

            check(plan)
        plan = learnt(plan, say)
        if strict:
            refuse_warnings(plan)
        return plan


def apart(plan: Plan, config: Path) -> tuple[Path, ...]:
    """What a run reads and writes, its config too: nothing else that is written may replace it."""
    return (*inputs(plan), config, plan.output)


@contextmanager
def whose_keys(config: Path) -> Iterator[None]:
    """Errors that name a key path name the config too."""
    try:
        yield
    except (ConfigError, PlanError) as error:
        if re.split(r"[.\[]", error.where or "")[0] in Config.model_fields:
            raise type(error)(error.message, where=f"{config}: {error.where}", hint=error.hint) from None
        raise
