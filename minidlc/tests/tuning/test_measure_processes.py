"""However tuning ends, no worker is left: after `with`, Ctrl-C, and the death of the parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from minidlc.tests.tuning.hostile import hostile, point
from minidlc.tuning.measure import LocalMeasurer

pytestmark = [
    pytest.mark.ch06,
    pytest.mark.llvm,
    pytest.mark.skipif(sys.platform == "win32", reason="signals, and processes looked up by id"),
]

SCRIPT = """
import sys, threading, time
sys.path[:] = {path!r}
from minidlc.tests.tuning.hostile import hostile, point
from minidlc.tuning.measure import LocalMeasurer

with LocalMeasurer(2, deadline=1000.0) as m:
    m.measure(hostile(), [point("right"), point("slow")])
    workers = [w.child.process.pid for w in (*m._builders, m._runner)]
    print(*workers, flush=True)
    m.measure(hostile(), [point("{way}")])
"""


def is_gone(pid: int) -> bool:
    """True once a process has ended, whether or not its new parent has taken note."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    state = subprocess.run(
        ["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    return state.stdout.strip().startswith(("Z", "X")) or not state.stdout.strip()


def all_gone(pids: list[int]) -> bool:
    """Wait for it, but not for ever."""
    end = time.monotonic() + 20
    while not all(map(is_gone, pids)) and time.monotonic() < end:
        time.sleep(0.05)
    return all(map(is_gone, pids))


def test_workers_end_with_the_block() -> None:
    with LocalMeasurer(2) as m:
        m.measure(hostile(), [point("right"), point("slow"), point("wrong"), point("right")])
        workers = [w.child for w in (*m._builders, m._runner) if w.child is not None]
    assert len(workers) == 3
    assert all(w.process.poll() is not None for w in workers)  # and waited for: no zombies


@pytest.mark.parametrize("way", ["endless", "sleeps"])  # in the run worker, in a build worker
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_workers_end_with_the_parent(way: str, how: signal.Signals, tmp_path: Path) -> None:
    script = SCRIPT.replace("{path!r}", repr(sys.path)).replace("{way}", way)
    parent = subprocess.Popen(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert parent.stdout is not None
    workers = [int(word) for word in parent.stdout.readline().split()]
    assert len(workers) == 3
    assert not any(map(is_gone, workers))
    time.sleep(0.5)  # until the point is with a worker
    parent.send_signal(how)
    _, errors = parent.communicate(timeout=20)
    assert all_gone(workers)
    if how is signal.SIGINT:
        assert errors.rstrip().endswith("KeyboardInterrupt")
        assert not list(tmp_path.iterdir())
