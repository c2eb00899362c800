"""The thread pool: results, nesting, concurrent callers, fork, exit."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from minidlc import target
from minidlc.codegen.compile import compile_kernel, run_kernel
from minidlc.loop.text import parse_function
from minidlc.runtime import pool
from minidlc.tests.codegen.helpers import check

pytestmark = pytest.mark.llvm

BODY = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int32)


def parallel(body: object, n: int, threads: int) -> None:
    pool.ensure(threads)
    kinds = [BODY, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int32]
    ctypes.CFUNCTYPE(None, *kinds)(pool.parallel_for_address())(body, None, n, threads)


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("n", [1, 2, 7, 64, 1000])
def test_every_iteration_runs_once(n: int, threads: int) -> None:
    seen = np.zeros(n, np.int64)
    workers: set[int] = set()

    @BODY
    def body(_: int, low: int, high: int, worker: int) -> None:
        seen[low:high] += 1
        workers.add(worker)

    parallel(body, n, threads)
    assert (seen == 1).all()
    assert workers <= set(range(threads))


def test_two_threads_really_work_together() -> None:
    meeting = threading.Barrier(2, timeout=20)

    @BODY
    def body(_: int, low: int, high: int, worker: int) -> None:
        if low in (0, 1):
            meeting.wait()

    pool.ensure(2)
    deadline = time.monotonic() + 10
    while pool.workers() < 1 and time.monotonic() < deadline:
        time.sleep(0.001)
    parallel(body, 2, 2)
    assert not meeting.broken


def test_loop_inside_a_loop_runs_serially() -> None:
    seen = np.zeros((4, 8), np.int64)

    @BODY
    def outer(_: int, low: int, high: int, worker: int) -> None:
        for i in range(low, high):

            @BODY
            def inner(_: int, low: int, high: int, worker: int, i: int = i) -> None:
                seen[i, low:high] += 1

            parallel(inner, 8, 2)

    parallel(outer, 4, 2)
    assert (seen == 1).all()


SOURCE = """
def f(A: f32[40, 64], C: f32[40, 64]):
    for i in parallel(0, 40):
        t = alloc(f32[64], "arena")
        for j in vectorized(0, 64):
            t[j] = A[i, j] * 2.0
        for j in vectorized(0, 64):
            C[i, j] = t[j] + A[i, 63 - j]
"""


def test_workers_have_workspaces_of_their_own() -> None:
    kernel = compile_kernel(parse_function(SOURCE), target.host())
    assert kernel.workspace_bytes(2) == 2 * kernel.workspace_bytes(1) > 0
    for threads in (1, 2, 3):
        for _ in range(50):
            a, c = np.random.default_rng(0).random((2, 40, 64)).astype(np.float32)
            run_kernel(kernel, [a, c], threads)
            np.testing.assert_array_equal(c, a * 2 + a[:, ::-1])


def test_each_worker_is_given_a_part_of_the_workspace() -> None:
    """Two workers must meet in a run to show that they share; the text shows it always."""
    kernel = compile_kernel(parse_function(SOURCE), target.host(), cache=False)
    apart = kernel.workspace_bytes(2) - kernel.workspace_bytes(1)
    body = kernel.llvm.split("define internal void")[1]
    assert f"mul nuw nsw i64 %worker.wide, {apart}" in body


def test_long_iterations_do_not_meet_in_one_workspace() -> None:
    fn = parse_function("""
def f(A: f32[64, 8192], C: f32[64, 8192]):
    for i in parallel(0, 64):
        t = alloc(f32[8192], "arena")
        for n in serial(0, 4):
            for j in vectorized(0, 8192):
                t[j] = A[i, j] + f32(1.0)
        for j in vectorized(0, 8192):
            C[i, j] = t[8191 - j]
""")
    kernel = compile_kernel(fn, target.host())
    a, c = np.random.default_rng(0).random((2, 64, 8192)).astype(np.float32)
    for _ in range(10):
        run_kernel(kernel, [a, c], 2)
        np.testing.assert_array_equal(c, a[:, ::-1] + 1)


@pytest.mark.parametrize("threads", [1, 2])
def test_what_a_parallel_body_sees_from_outside(threads: int) -> None:
    check(
        """
def f(A: f32[3, 21], C: f32[3, 21]):
    for i in serial(0, 3):
        t = alloc(f32[21], "stack")
        u = alloc(f32[6], "arena")
        for j in vectorized(0, 21):
            t[j] = A[i, j]
        for o in parallel(0, 7):
            for j in vectorized(0, 3):
                t[3*o + j] = t[3*o + j] + 1.0
        for o in parallel(0, 3):
            for p in parallel(0, 2):
                u[2*o + p] = A[i, 2*o + p]
        for o in parallel(0, min(7, i + 5)):
            for j in vectorized(0, 3):
                C[i, 3*o + j] = t[3*o + j] + u[i]
""",
        target.host(),
        threads,
    )


def test_concurrent_callers() -> None:
    kernel = compile_kernel(parse_function(SOURCE), target.host())
    wrong: list[int] = []

    def work(seed: int) -> None:
        a, c = np.random.default_rng(seed).random((2, 40, 64)).astype(np.float32)
        for _ in range(20):
            c[:] = 0
            run_kernel(kernel, [a, c], 2)
            if not np.array_equal(c, a * 2 + a[:, ::-1]):
                wrong.append(seed)

    callers = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for t in callers:
        t.start()
    for t in callers:
        t.join()
    assert not wrong


CROWD = """
import ctypes, threading, time
import numpy as np
from minidlc.runtime import pool
from minidlc.tests.runtime.test_pool import BODY, parallel

seen = np.zeros(40, np.int64)

@BODY
def body(_, low, high, worker):
    seen[low:high] += 1

for _ in range(300):
    parallel(body, 40, 48)
print("rounds", set(seen.tolist()))
deadline = time.monotonic() + 20
while pool.workers() < 47 and time.monotonic() < deadline:
    time.sleep(0.01)
print("workers", pool.workers())
for _ in range(300):
    parallel(body, 40, 48)
print("rounds", set(seen.tolist()))
"""


def test_more_workers_than_cores() -> None:
    """The caller waits for nobody who comes late, and gives way where it has to wait."""
    done = subprocess.run([sys.executable, "-c", CROWD], capture_output=True, timeout=60, text=True)
    expected = ["rounds {300}", "workers 47", "rounds {600}"]
    assert done.stdout.splitlines() == expected, done.stderr


def test_a_busy_pool_grows_to_the_largest_number_asked_for() -> None:
    pool.ensure(3)
    there = len(pool._threads)
    pool.ensure(2)
    assert len(pool._threads) == there >= 2
    pool.ensure(there + 2)
    assert len(pool._threads) == there + 1


def test_workers_sleep_when_idle_and_wake_again() -> None:
    hits = []

    @BODY
    def body(_: int, low: int, high: int, worker: int) -> None:
        hits.append(high - low)

    parallel(body, 100, 2)
    before = time.process_time()
    time.sleep(0.3)
    assert time.process_time() - before < 0.15  # the workers do not spin for ever
    parallel(body, 100, 2)
    assert sum(hits) == 200


PROGRAM = """
import os, sys
import numpy as np
from minidlc import target
from minidlc.codegen.compile import compile_kernel, run_kernel
from minidlc.loop.text import parse_function
from minidlc.runtime import pool
from minidlc.tests.runtime.test_pool import SOURCE

kernel = compile_kernel(parse_function(SOURCE), target.host())

def run():
    a, c = np.random.default_rng(0).random((2, 40, 64)).astype(np.float32)
    for _ in range(20):
        run_kernel(kernel, [a, c], 2)
    assert np.array_equal(c, a * 2 + a[:, ::-1])

run()
"""

FORK = """
child = os.fork()
if child == 0:
    assert not pool._threads
    run()
    os._exit(7 if len(pool._threads) == 1 else 8)
_, status = os.waitpid(child, 0)
run()
sys.exit(os.waitstatus_to_exitcode(status))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_fork() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM + FORK], capture_output=True, timeout=60
    )
    assert done.returncode == 7, done.stderr.decode()


@pytest.mark.parametrize("end", ["", "sys.exit(0)", "raise KeyboardInterrupt"])
def test_exit_is_clean_and_quick(end: str) -> None:
    start = time.monotonic()
    done = subprocess.run([sys.executable, "-c", PROGRAM + end], capture_output=True, timeout=60)
    assert done.returncode == (0 if "raise" not in end else done.returncode)
    assert done.returncode not in (-11, -6, 139, 134)
    assert b"Fatal" not in done.stderr
    assert time.monotonic() - start < 30
