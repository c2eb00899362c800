"""Each level of isolation against code that does not want to be graded."""

from __future__ import annotations

import resource
import time

import pytest

from grader.model import Status
from grader.sandbox import ForkServer, Isolation, Limits, best
from grader.sandbox.limits import waited
from grader.student import Died, StudentRaised
from grader.tests.sandboxes import (
    QUICK,
    call,
    died,
    each_server,  # noqa: F401
    processes,
    run,
    server_at,
    started,
)

pytestmark = pytest.mark.long


def test_a_call(server: ForkServer) -> None:
    worker = started(server, "def f(x):\n    print('seen')\n    return x + 1")
    assert call(worker, 41) == 42
    usage = worker.close()
    assert usage.output == "seen\n"
    assert usage.left_behind == 0
    assert usage.cpu_seconds > 0
    assert usage.peak_bytes > 1 << 20


def test_a_worker_is_fresh(server: ForkServer) -> None:
    run(server, "import math\nmath.pi = 3\ndef f(): pass")
    assert run(server, "import math\ndef f(): return math.pi") > 3.1


def test_chance_is_the_same_in_every_worker(server: ForkServer) -> None:
    source = "import random\nimport numpy as np\n"
    source += "def f(): return [random.random(), np.random.rand(2), str({'a', 'b', 'c'})]"
    one, two = (run(server, source) for _ in range(2))
    assert str(one) == str(two)


@pytest.mark.parametrize(
    "source",
    [
        "def f():\n    while True: pass",
        "while True: pass",
        "def f():\n    while True:\n        try:\n            while True: pass\n"
        "        except BaseException: pass",
        "import signal\nfor s in range(1, 65):\n    try: signal.signal(s, signal.SIG_IGN)\n"
        "    except Exception: pass\ndef f():\n    while True: pass",
        "import time\ndef f():\n    time.sleep(60)",
    ],
    ids=["loop", "at import", "catches all", "ignores signals", "sleeps"],
)
def test_endless(server: ForkServer, source: str) -> None:
    began = time.monotonic()
    error, _ = died(server, source, Limits(seconds=0.5))
    assert error.status == Status.TIMEOUT
    assert "0.5 seconds" in error.sentence
    assert time.monotonic() - began < 1.5


def test_a_second_try_with_more_time_is_told_as_the_first() -> None:
    assert Limits(6, stated=2).too_long == Limits(2).too_long


@pytest.mark.skipif(waited("self") is None, reason="this kernel does not count how long one waits")
def test_time_without_a_core_is_told(server: ForkServer) -> None:
    _, worker = died(server, "import time\ndef f():\n    time.sleep(60)", Limits(seconds=0.5))
    usage = worker.close()
    assert usage.waited_seconds is not None
    assert 0 <= usage.waited_seconds < 0.5


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ("import os\ndef f(): os._exit(0)", "ended by itself"),
        ("import os\nos._exit(0)", "ended by itself"),
        ("import ctypes\ndef f(): ctypes.string_at(0)", "SIGSEGV"),
        ("import os\ndef f(): os.abort()", "SIGABRT"),
        ("import os\ndef f(): os.close(3)\n", "ended by itself"),
    ],
    ids=["exit", "exit at import", "segfault", "abort", "closes the channel"],
)
def test_ends_itself(server: ForkServer, source: str, sentence: str) -> None:
    error, worker = died(server, source)
    assert error.status == Status.CRASHED
    assert sentence in error.sentence
    with pytest.raises(Died):
        call(worker)
    if sentence == "SIGSEGV":
        assert '"<cell 1.2>", line 2 in f' in worker.close().output


def test_exit_is_an_exception(server: ForkServer) -> None:
    with pytest.raises(StudentRaised) as caught:
        run(server, "import sys\ndef f(): sys.exit('all tests passed')")
    assert caught.value.kind == "SystemExit"


def test_output_is_bounded(server: ForkServer) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    source = "def f():\n    for _ in range(500): print('x' * (1 << 20))"
    error, worker = died(server, source)
    assert error.status == Status.OUTPUT_LIMIT
    usage = worker.close()
    assert len(usage.output) == QUICK.output
    assert QUICK.output_kill < usage.output_bytes < QUICK.output_kill + (2 << 20)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 20 << 10


def test_output_below_the_limit_is_counted(server: ForkServer) -> None:
    worker = started(server, "def f():\n    print('y' * 1_000_000)\n    return 1")
    assert call(worker) == 1
    assert worker.close().output_bytes == 1_000_001


@pytest.mark.parametrize(
    "source",
    [
        "def f():\n    return len(bytearray(3 << 30))",
        "import numpy as np\ndef f():\n    return float(np.ones(3 << 27).sum())",
        "def f():\n    x = []\n    while True: x.append(bytes(1 << 20))",
    ],
    ids=["bytes", "numpy", "piece by piece"],
)
def test_memory(server: ForkServer, source: str) -> None:
    error, worker = died(server, source)
    assert error.status == Status.OOM
    assert "1024 MiB" in error.sentence
    assert worker.close().peak_bytes < 1200 << 20


FORKS = """
import os, time
def f():
    made = 0
    try:
        for _ in range(150):
            if os.fork() == 0:
                time.sleep(60)
            made += 1
    except OSError as error:
        print(error)
    return made
"""


def test_no_process_beside_the_worker(server: ForkServer) -> None:
    if "seccomp" not in server.locks:
        pytest.skip("the kernel has no seccomp")
    worker = started(server, FORKS)
    assert call(worker) == 0
    usage = worker.close()
    assert usage.left_behind == 0
    assert "temporarily unavailable" in usage.output


def test_where_processes_are_allowed_all_are_gone_afterwards(server: ForkServer) -> None:
    limits = Limits(processes=8)
    before = processes(str(server.overlay))
    worker = started(server, FORKS, limits)
    made = call(worker)
    if server.isolation != Isolation.RLIMITS:  # there the kernel counts all of the user's
        assert 8 < made <= limits.processes + limits.threads
    assert worker.close().left_behind == made
    time.sleep(0.1)
    assert processes(str(server.overlay)) == before


DAEMON = """
import os, time
def f():
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.setsid()
            for fd in range(64):
                try: os.close(fd)
                except OSError: pass
            time.sleep(300)
        os._exit(0)
    os.wait()
    return 1
"""


def test_a_daemon_is_gone_afterwards(server: ForkServer) -> None:
    before = processes(str(server.overlay))
    worker = started(server, DAEMON, Limits(processes=8))
    assert call(worker) == 1
    assert worker.close().left_behind == 1
    time.sleep(0.1)
    assert processes(str(server.overlay)) == before


def test_a_daemon_of_a_worker_that_ended_itself(server: ForkServer) -> None:
    before = processes(str(server.overlay))
    source = DAEMON.replace("return 1", "os._exit(0)")
    error, worker = died(server, source, Limits(processes=8))
    assert error.status == Status.CRASHED
    assert worker.close().left_behind == 1
    time.sleep(0.1)
    assert processes(str(server.overlay)) == before


def test_best_is_a_level_that_works() -> None:
    with server_at(best()) as server:
        assert run(server, "import colorsys\ndef f(): return 5") == 5
        assert server.active.startswith(best().name.lower())
