"""Where the time of a model goes: its kernels timed inside one native run.

    p = exe.profile(x)
    print(p)                                        # a row a kernel, the slowest first
    p.kernels[0].seconds, p.kernels[0].gflops       # of one run

The model runs as always, in one native call; an entry made for the purpose reads the machine's
counter around every kernel. Each figure is a median over runs. Reads a Program and its machine
code. Treated in course chapter 05_backend_opt.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from minidlc.codegen.control import kernel_calls
from minidlc.codegen.entry import Clock, compile_entry
from minidlc.expr.types import Array
from minidlc.loop.count import compulsory_bytes, flops
from minidlc.lower import LoweredKernel, Program
from minidlc.peaks import measure_peaks
from minidlc.runtime.module import LoadedModule
from minidlc.runtime.profile import KernelTime, Profile
from minidlc.runtime.ticks import counter, ticks_per_second
from minidlc.target import Target

_MOST_RUNS = 1000
_LEAST_RUNS = 5
_ENTRY = "minidlc_profile"


def profile(
    program: Program,
    target: Target,
    symbols: Sequence[str],
    loaded: LoadedModule,
    inputs: Sequence[Array],
    seconds: float,
) -> Profile:
    """Run the model for about `seconds`, at least five times, and time its kernels.

    `symbols` are those of the program's kernels, in order; `loaded` holds their machine code.
    """
    calls = program.calls(dict(zip(program.kernel_names, symbols, strict=True)))
    counters = np.zeros((len(tuple(kernel_calls(calls))), 2), np.int64)
    clock = Clock(counters.ctypes.data, counter())
    entry = compile_entry(_ENTRY, calls, target, clock, program.stop)
    module = replace(loaded, objects=(*loaded.objects, entry), entry=_ENTRY)
    module.run(inputs)
    runs: list[Array] = []
    outside: list[float] = []
    rate = ticks_per_second()
    end = time.perf_counter() + seconds
    while len(runs) < _LEAST_RUNS or (time.perf_counter() < end and len(runs) < _MOST_RUNS):
        counters[:] = 0
        start = time.perf_counter()
        module.run(inputs)
        outside.append(time.perf_counter() - start - counters[:, 0].sum() / rate)
        runs.append(counters.copy())
    per_site = np.median(np.stack(runs), axis=0)
    kernels = tuple(
        _kernel_time(kernel, int(count), float(spent) / rate)
        for kernel, (spent, count) in zip(program.kernels, per_site, strict=True)
    )
    rest = max(0.0, statistics.median(outside))
    roofs = partial(measure_peaks, target, module.threads)
    return Profile(program.graph.name, module.threads, len(runs), rest, kernels, roofs)


def _kernel_time(kernel: LoweredKernel, calls: int, seconds: float) -> KernelTime:
    work, traffic = flops(kernel.loops), compulsory_bytes(kernel.loops)
    return KernelTime(kernel.name, calls, seconds, calls * work, calls * traffic)
