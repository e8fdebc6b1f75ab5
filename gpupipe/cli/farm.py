"""`gpupipe farm`: one render on many machines."""

from __future__ import annotations

import io
import os
from contextlib import nullcontext, redirect_stdout
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

import click

from gpupipe.cli import DONE, WARNED, options
from gpupipe.cli.farm_template import template_
from gpupipe.cli.job import prepare
from gpupipe.cli.observe import exporting, listening_at, observing, reports
from gpupipe.cli.options import PATH, as_json, device, talk
from gpupipe.cli.progress import reporting
from gpupipe.cli.run import announce, conclude
from gpupipe.cli.stop import stopping
from gpupipe.config import load_config
from gpupipe.farm.fetch import is_url, local_copy
from gpupipe.farm.job import cache_folder
from gpupipe.farm.on_ray import Farm, import_ray
from gpupipe.journal import Journal
from gpupipe.render import Watch, render

if TYPE_CHECKING:
    from gpupipe.cli.console import Console

CORES, PATIENCE = 8, 60


@click.group(name="farm", short_help="One render on many machines.")
def command() -> None:
    """Render the segments of one job on many machines, and join them here."""


command.add_command(template_)


@command.command(name="run", short_help="Carry out a config on a Ray cluster.")
@click.argument("config", type=PATH)
@click.argument("source", metavar="[INPUT]", required=False)
@click.argument("output", type=PATH, required=False)
@click.option("--address", metavar="auto|HOST:PORT|ray://HOST:PORT",
              help="Of a Ray cluster; without it one is started on this machine.")  # fmt: skip
@click.option("--cores", type=click.IntRange(1), default=CORES, show_default=True, metavar="N",
              help="CPU cores of a node for each segment at once, where no GPU is used.")  # fmt: skip
@click.option("--wait", "patience", type=click.FloatRange(1), default=PATIENCE, show_default=True, metavar="SECONDS",
              help="How long to wait for a node while there is none.")  # fmt: skip
@click.option("--cache", metavar="DIR", help="Where each node keeps an INPUT that is a URL; else its folder for "
              "temporary files.")  # fmt: skip
@click.option("--metrics-port", callback=listening_at, metavar="[ADDRESS:]PORT",
              help="Let Prometheus scrape this process there, and workers from that port on.")  # fmt: skip
@device
@options.overwrite
@options.restart
@options.strict
@talk
@options.log_file
@reports
@as_json
@click.pass_obj
def run(
    console: Console,
    *,
    config: Path,
    source: str | None,
    output: Path | None,
    address: str | None,
    cores: int,
    patience: float,
    cache: str | None,
    device: str | None,
    overwrite: bool,
    restart: bool,
    strict: bool,
    quiet: bool,
    log: str,
    log_file: Path | None,
    report: tuple[Path, ...],
    metrics_port: tuple[int, str] | None,
    as_json: bool,
) -> int:
    """Do what CONFIG says to INPUT on the nodes of a Ray cluster, and write OUTPUT here, as `gpupipe run` would.

    INPUT is a path that all nodes see, or a URL (s3://, https://, anything that fsspec knows) that each fetches once.
    Segments are kept in OUTPUT.gpupipe beside the output: whatever ends the run, the same command, or `gpupipe run`
    with `resume: keep`, goes on. Nodes need gpupipe and the same libraries, and may come and go.
    """
    console.quiet, console.json_log = quiet, log == "json"
    if log_file is not None:
        console.log_to(log_file, config)
    stop, watch, journal = Event(), Watch(), Journal(console.first)
    _set_ray_up(address)
    with stopping(stop, console) as stops:
        source = source or load_config(config).input
        url = source if source is not None and is_url(source) else None
        path = Path(source) if source is not None and url is None else None
        if url is not None:
            path = local_copy(url, cache_folder(cache))
        plan = prepare(config, path, output, device=device, strict=strict, keep=True, say=console.say)
        stops.kept = True
        announce(console, plan)
        farm = Farm(address, cores, patience, url, cache, lambda text: _tell(console, text), metrics_port)
        with (
            observing(plan, watch, journal, report, config, overwrite=overwrite) as observer,
            exporting(console, metrics_port, plan, watch, journal),
        ):
            with (
                reporting(console, watch, plan.device) as progress,
                observer.recorder or nullcontext(),
                redirect_stdout(Nowhere()),
            ):
                result = render(
                    plan, overwrite=overwrite, journal=journal, stop=stop, progress=progress, watch=watch,
                    restart=restart, fill=farm,
                )  # fmt: skip
            observer.conclude(result, None, None)
    conclude(console, result, journal, None)
    if as_json:
        console.json({"result": result, "notices": plan.warnings, "warnings": list(journal.entries.values())})
    return WARNED if strict and len(journal) else DONE


def _set_ray_up(address: str | None) -> None:
    """Before it is imported: what it takes from the environment, as far as nobody has chosen."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # a cluster that is started here calls nobody
    os.environ.setdefault("RAY_raylet_start_wait_time_s", "120")  # 30 are too few where the machine is busy
    if (address or "").startswith("ray://") and (Path.home() / ".ray" / "auth_token").is_file():
        # Where Ray keeps it. By this road it does not look there by itself; by the others it would be wrong to tell it.
        os.environ.setdefault("RAY_AUTH_MODE", "token")
    import_ray()


class Nowhere(io.TextIOBase):
    """A stream that keeps nothing: Ray says in many lines on stdout what of nodes is told in one on stderr."""

    def write(self, text: str) -> int:
        """See `TextIOBase`."""
        return len(text)


def _tell(console: Console, text: str) -> None:
    console.event("farm", message=text)
    console.say(f"farm     {text}")
