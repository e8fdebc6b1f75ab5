"""Runs `gpupipe farm run` on a cluster of two nodes on this machine: as it should, with a node killed, with all killed.

    cluster.py CONFIG INPUT FOLDER

prints a JSON line for each run: its name, exit code, seconds, nodes that rendered. Ray ends the processes of whoever
uses it in ways of its own, so it gets this one.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import ray
from ray.cluster_utils import Cluster

from gpupipe.cli import execute
from gpupipe.cli.console import Console
from gpupipe.farm import nodes as places
from gpupipe.farm import on_ray
from gpupipe.farm.nodes import Nodes
from gpupipe.farm.seats import RaySeat
from gpupipe.render.ledger import Ledger

if TYPE_CHECKING:
    from collections.abc import Callable

STORE = 80 << 20


class Script:
    """Kills nodes after so many segments of a run, and counts who rendered."""

    def __init__(self) -> None:
        self.after: dict[int, object] = {}
        self.done = 0
        self.last: object = None
        """The node with whose death there is none any more: then nobody waits long for another."""
        self.nodes: list[Nodes] = []
        self.head: int | None = None
        """Its process, which is killed as soon as a run has heard of it which nodes there are."""
        self.seats: Counter[str] = Counter()
        self.sent = 0
        self.ready: list[object] = []
        self.together = 0
        """Seats that are given to a run at once: else the first one may do all of it before the next is ready."""
        self.begun: Callable[[], None] | None = None
        """Called once, when a run has found its cluster."""

    def install(self, cluster: Cluster) -> None:
        finished, rendered, fetched = Ledger.finished, RaySeat._render, RaySeat._fetch

        def counted(ledger: Ledger, index: int, piece: object) -> None:
            finished(ledger, index, piece)
            self.done += 1
            if (node := self.after.pop(self.done, None)) is not None:
                end(cluster, node)
                if node is self.last:
                    self.nodes[-1].patience = 2

        def named(seat: RaySeat, index: int) -> object:
            piece = rendered(seat, index)
            self.seats[seat.name] += 1
            return piece

        def sent(seat: RaySeat, index: int, piece: object) -> object:
            self.sent += 1
            return fetched(seat, index, piece)

        def noted(*args: object, **named: object) -> Nodes:
            self.nodes.append(Nodes(*args, **named))
            if (begun := self.begun) is not None:
                self.begun = None
                begun()
            return self.nodes[-1]

        note = Nodes._note

        def heard(nodes: Nodes, found: list[dict]) -> None:
            note(nodes, found)
            if self.head is not None:
                os.kill(self.head, signal.SIGKILL)
                self.head = None

        on_ray.Nodes, Nodes._note = noted, heard
        Ledger.finished, RaySeat._render, RaySeat._fetch = counted, named, sent
        fresh = Nodes.fresh
        Nodes.fresh = lambda nodes: self.held(fresh(nodes))

    def held(self, fresh: list[object]) -> list[object]:
        """Seats that are ready, when there are enough."""
        self.ready += fresh
        if len(self.ready) < self.together:
            return []
        ready, self.ready, self.together = self.ready, [], 0
        return ready

    def run(self, name: str, *words: object, after: dict[int, object] | None = None) -> None:
        self.after, self.done, self.sent = after or {}, 0, 0
        self.seats.clear()
        began = time.monotonic()
        code = execute([*map(str, words)], Console())
        told = {"run": name, "code": code, "seconds": round(time.monotonic() - began, 1)}
        told |= {"seats": len(self.seats), "segments": self.done, "sent": self.sent}
        sys.stdout.write(json.dumps(told) + "\n")
        sys.stdout.flush()


def end(cluster: Cluster, node: object) -> None:
    """All processes of a node at once, as when its power is cut: workers alone would go on for a while."""
    raylet = node.all_processes["raylet"][0].process.pid
    for child in subprocess.run(
        ["pgrep", "-P", str(raylet)], capture_output=True, text=True, check=False
    ).stdout.split():
        os.kill(int(child), signal.SIGKILL)
    cluster.remove_node(node, allow_graceful=False)


def main(config: str, source: str, folder: Path) -> None:
    cluster = Cluster(
        initialize_head=True,
        head_node_args={"num_cpus": 0, "include_dashboard": False, "object_store_memory": STORE},
    )
    nodes = [cluster.add_node(num_cpus=1, object_store_memory=STORE) for _ in range(2)]
    script = Script()
    script.last = nodes[1]
    script.install(cluster)
    words = ["farm", "run", "--wait", 90, "--address", cluster.address, config, source]
    try:
        job_of = on_ray.job_of
        on_ray.job_of = lambda *args, **named: replace(job_of(*args, **named), token="nowhere")
        script.together = 2
        script.run("sent", *words, folder / "sent.mp4")
        on_ray.job_of = job_of
        script.run("killed", *words, folder / "killed.mp4", after={3: nodes[0]})
        script.run("lost", *words, folder / "lost.mp4", after={3: nodes[1]})
        places.ANSWER = 4
        script.head = cluster.head_node.all_processes["gcs_server"][0].process.pid
        script.run("headless", *words, folder / "headless.mp4")
        sys.stdout.flush()
        cluster.head_node.kill_all_processes(check_alive=False, allow_graceful=False)
        os._exit(0)  # the ends of Ray itself wait for the head
    finally:
        if ray.is_initialized():
            ray.shutdown()
        cluster.shutdown()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
