"""Ctrl-C in a call that takes long: it ends after a kernel or a run of a loop; nothing breaks."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.llvm

INTERRUPTED = """
import os, signal, threading, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # jobs in the background ignore it
import numpy as np
import minidlc as mc
from minidlc import Constant, Graph, Input, bool_, f32, i64
from minidlc.graph import apply

i, c, s = Input("i", i64[()]), Input("c", bool_[()]), Input("s", f32[3])
body = Graph.of("body", [i, c, s], [Constant("t", np.array(True)), s * 0.5])
n, x = Input("n", i64[()]), Input("x", f32[3])
twice = Graph.of("twice", [i, c, s], [c, apply("loop", None, c, s, body=body, carried=1)])
for endless in (body, twice):
    loop = apply("loop", n, None, x, body=endless, carried=1)
    exe = mc.compile(Graph.of("g", [n, x], [loop]), threads=2)
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
    try:
        exe(np.array(2**62), np.ones(3, np.float32))
    except KeyboardInterrupt:
        (y,) = exe(np.array(0), np.ones(3, np.float32))
        print("stopped", y.tolist())

x = Input("x", f32[2000, 2000])  # a run of the body takes long: it ends before the call does
body = Graph.of("body", [i, c, x], [c, apply("tanh", x @ x)])
exe = mc.compile(Graph.of("g", [n, x], [apply("loop", n, None, x, body=body, carried=1)]))
threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    exe(np.array(2**62), np.ones((2000, 2000), np.float32))
except KeyboardInterrupt:
    before = time.process_time()
    time.sleep(0.3)
    print("native code has ended", time.process_time() - before < 0.1)
"""


def test_a_loop_of_any_length_can_be_interrupted():
    """Ctrl-C ends it, and loops in it; the executable goes on to work."""
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, timeout=60
    )
    stopped = ["stopped [1.0, 1.0, 1.0]"] * 2
    assert done.stdout.splitlines() == [*stopped, "native code has ended True"], done.stderr


BETWEEN_KERNELS = """
import os, signal, threading, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # jobs in the background ignore it
import numpy as np
import minidlc as mc
from minidlc import Graph, Input, f32
from minidlc.graph import apply

x = Input("x", f32[640, 640])
values = [x]
for _ in range(40):
    values.append(apply("tanh", values[-1] @ x))
exe = mc.compile(Graph.of("deep", [x], values[1:]))
a = np.random.default_rng(0).standard_normal((640, 640), np.float32) / 640
start = time.perf_counter()
whole = exe(a)
seconds = time.perf_counter() - start
out = [np.full((640, 640), np.nan, np.float32) for _ in whole]
threading.Timer(seconds / 4, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    exe(a, out=out)
except KeyboardInterrupt:
    print("first", np.array_equal(out[0], whole[0]), "last", np.isnan(out[-1]).all())
print("again", all(map(np.array_equal, exe(a), whole)))
"""


def test_a_long_model_ends_after_the_kernel_that_runs():
    """Kernels behind it are not called; the next call is whole again."""
    done = subprocess.run(
        [sys.executable, "-c", BETWEEN_KERNELS], capture_output=True, text=True, timeout=120
    )
    assert done.stdout.splitlines() == ["first True last True", "again True"], done.stderr
