"""Runners of a GPU share one chain and one lane: they give it batches one at a time."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace

from patience import LIMIT

from gpupipe.render.device_runner import Compute, DeviceRunner, Filled


def test_one_batch_is_given_at_a_time() -> None:
    inside, most = 0, 0

    def run() -> SimpleNamespace:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        time.sleep(0.01)
        inside -= 1
        return SimpleNamespace(synchronize=lambda: None)

    compute = Compute(None, None, None)  # type: ignore[arg-type]  # not looked at here
    filled = Filled(SimpleNamespace(run=run, rows=1))  # type: ignore[arg-type]
    filled.pts.append(0)
    runner = SimpleNamespace(
        _turn=compute.turn,
        _call=compute.call,
        _board=SimpleNamespace(wait_for_room=lambda _: None),
        _give_back=lambda _: None,
    )
    threads = [
        threading.Thread(target=DeviceRunner.submit, args=(runner, 0, 0, filled, 1), daemon=True) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT)
    assert not [thread for thread in threads if thread.is_alive()]
    assert most == 1
