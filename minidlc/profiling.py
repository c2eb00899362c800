"""Where the time of a model goes: its kernels timed inside one native run.

    p = exe.profile(x)
    print(p)                                        # a row a kernel, the slowest first
    p.kernels[0].seconds, p.kernels[0].gflops       # of one run

The model runs as always, in one native call; an entry made for the purpose reads the machine's
counter around every kernel. Each figure is a median over runs; whoever has two models take turns
calls their `Profiler`s (`exe.profiler`), a run at a time. Reads a Program and its machine
code. Treated in course chapter 05_backend_opt.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
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


@dataclass(frozen=True)
class Run:
    """One run: of each kernel, in the program's order, seconds f64[n] and calls i64[n].

    `outside` are the seconds between kernels.
    """

    seconds: Array
    calls: Array
    outside: float


class Profiler:
    """A model with a clock around every kernel; each call is one run of it.

    `symbols` are those of the program's kernels, in order; `loaded` holds their machine code.
    """

    def __init__(
        self,
        program: Program,
        target: Target,
        symbols: Sequence[str],
        loaded: LoadedModule,
        inputs: Sequence[Array],
    ) -> None:
        self.program, self.target, self.inputs = program, target, inputs
        calls = program.calls(dict(zip(program.kernel_names, symbols, strict=True)))
        self._counters = np.zeros((len(tuple(kernel_calls(calls))), 2), np.int64)
        clock = Clock(self._counters.ctypes.data, counter())
        entry = compile_entry(_ENTRY, calls, target, clock, program.stop)
        self.module = replace(loaded, objects=(*loaded.objects, entry), entry=_ENTRY)
        self._rate = ticks_per_second()

    def __call__(self) -> Run:
        """Run the model once."""
        self._counters[:] = 0
        start = time.perf_counter()
        self.module.run(self.inputs)
        whole = time.perf_counter() - start
        spent = self._counters[:, 0] / self._rate
        return Run(spent, self._counters[:, 1].copy(), whole - float(spent.sum()))

    def profile(self, seconds: float) -> Profile:
        """Run the model for about `seconds`, at least five times; medians over the runs."""
        self()
        runs: list[Run] = []
        end = time.perf_counter() + seconds
        while len(runs) < _LEAST_RUNS or (time.perf_counter() < end and len(runs) < _MOST_RUNS):
            runs.append(self())
        spent = np.median(np.stack([r.seconds for r in runs]), axis=0)
        calls = np.median(np.stack([r.calls for r in runs]), axis=0)
        kernels = tuple(
            _kernel_time(kernel, int(count), float(s))
            for kernel, count, s in zip(self.program.kernels, calls, spent, strict=True)
        )
        rest = max(0.0, statistics.median(r.outside for r in runs))
        threads = self.module.threads
        roofs = partial(measure_peaks, self.target, threads)
        return Profile(self.program.graph.name, threads, len(runs), rest, kernels, roofs)


def _kernel_time(kernel: LoweredKernel, calls: int, seconds: float) -> KernelTime:
    work, traffic = flops(kernel.loops), compulsory_bytes(kernel.loops)
    return KernelTime(kernel.name, calls, seconds, calls * work, calls * traffic)
