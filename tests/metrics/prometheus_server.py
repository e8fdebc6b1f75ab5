"""A Prometheus server of its own for a test: started, asked, and ended whatever happens."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from patience import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CONFIG = """global: {{scrape_interval: 250ms, evaluation_interval: 250ms}}
rule_files: [{rules}]
scrape_configs:
  - job_name: gpupipe
    static_configs: [{{targets: [{targets}]}}]
"""


def program(name: str) -> str:
    """Its path; a test without it fails, since a skip would go unseen."""
    path = shutil.which(name)
    if path is None:
        pytest.fail(
            f"{name} is missing: it checks the metrics ('make prometheus', or Debian: apt-get install prometheus)"
        )
    return path


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Server:
    """A running Prometheus."""

    def __init__(self, port: int) -> None:
        self.address = f"http://127.0.0.1:{port}"

    def get(self, path: str, **parameters: str) -> object:
        """`data` of its API's answer."""
        url = f"{self.address}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(url, timeout=60) as answer:
            return json.load(answer)["data"]

    def query(self, expression: str) -> list[dict]:
        """Series of an instant query."""
        return self.get("query", query=expression)["result"]

    def ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.address}/-/ready", timeout=60) as answer:
                return answer.status == 200
        except (urllib.error.URLError, ConnectionError):
            return False


@contextmanager
def prometheus(folder: Path, targets: list[str], rules: Path) -> Iterator[Server]:
    """Scrapes `targets` (host:port) four times a second."""
    (folder / "prometheus.yml").write_text(CONFIG.format(rules=rules, targets=", ".join(targets)))
    port = free_port()
    words = [program("prometheus"), f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'tsdb'}",
             f"--web.listen-address=127.0.0.1:{port}", "--storage.tsdb.retention.time=1h", "--log.level=warn"]  # fmt: skip
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(words, stdout=log, stderr=log)
    try:
        server = Server(port)
        until(lambda: server.ready() or process.poll() is not None)
        assert process.poll() is None, (folder / "prometheus.log").read_text()
        yield server
    finally:
        process.kill()
        process.wait(timeout=240)
