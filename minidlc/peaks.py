"""What this machine can do at most: arithmetic and memory, measured by kernels of our own.

    peaks = measure_peaks(target.host(), threads=1)
    peaks.gflops                                    # multiply-adds in registers, nothing loaded
    peaks.bandwidths                                # (("L2", 95.1), ("memory", 11.8)) in GB/s

A roof of a roofline is no data-sheet number: it is the best of several short runs of the kernel
that does nothing else. The model: S. Williams, A. Waterman, D. Patterson, "Roofline: an insightful
visual performance model for multicore architectures", 2009. Treated in course chapter
05_backend_opt.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from minidlc.codegen.compile import compile_kernel, kernel_caller
from minidlc.expr.types import Array
from minidlc.loop.text import parse_function
from minidlc.runtime.profile import Peaks
from minidlc.target import Target

_ROUNDS = 9
_STEPS = 100_000  # multiply-adds of each register in a round: about 0.3 ms
_MEMORY_BYTES = 64 << 20  # of each of two arrays: more than any cache of a laptop holds


def measure_peaks(target: Target, threads: int = 1) -> Peaks:
    """Measure the roofs for f32 on `threads` cores; takes about half a second."""
    inside = max(1 << 12, target.l2 // 4)  # two arrays of it fill half of the second cache
    levels = (("L2", inside), ("memory", _MEMORY_BYTES))
    bandwidths = tuple((name, _bandwidth(target, threads, size)) for name, size in levels)
    return Peaks(threads, _arithmetic(target, threads), bandwidths)


def _arithmetic(target: Target, threads: int) -> float:
    """Independent multiply-adds on all registers but the operands': none waits for another.

    The sums start from memory: LLVM would make one of those that start from equal values.
    """
    lanes, registers = target.lanes(32), target.registers - 4
    fn = parse_function(f"""
def arithmetic(x: f32[{lanes}], y: f32[{threads}, {registers}, {lanes}]):
    for t in parallel(0, {threads}):
        c = alloc(f32[{registers}, {lanes}], "register")
        for r in unrolled(0, {registers}):
            for l in vectorized(0, {lanes}):
                c[r, l] = y[t, r, l]
        for k in serial(0, {_STEPS}):
            for r in unrolled(0, {registers}):
                for l in vectorized(0, {lanes}):
                    c[r, l] = c[r, l] * x[l] + x[l]
        for r in unrolled(0, {registers}):
            for l in vectorized(0, {lanes}):
                y[t, r, l] = c[r, l]
""")
    arrays = [np.full(p.type.dims, 0.5, np.float32) for p in fn.params]
    run = kernel_caller(compile_kernel(fn, target), arrays, threads)
    return 2.0 * threads * registers * lanes * _STEPS / _best(run) / 1e9


def _bandwidth(target: Target, threads: int, nbytes: int) -> float:
    """Copy one array of `nbytes` to another, again and again where it is small."""
    lanes = target.lanes(32)
    rows = nbytes // 4 // lanes
    repeats = max(1, (8 << 20) // nbytes)
    fn = parse_function(f"""
def copy(x: f32[{threads}, {rows}, {lanes}], y: f32[{threads}, {rows}, {lanes}]):
    for t in parallel(0, {threads}):
        for n in serial(0, {repeats}):
            for i in serial(0, {rows}):
                for l in vectorized(0, {lanes}):
                    y[t, i, l] = x[t, i, l]
""")
    arrays: list[Array] = [np.ones(p.type.dims, np.float32) for p in fn.params]
    run = kernel_caller(compile_kernel(fn, target), arrays, threads)
    return 2.0 * threads * rows * lanes * 4 * repeats / _best(run) / 1e9


def _best(run: Callable[[], None]) -> float:
    """Seconds of the fastest round: other work on the machine only ever adds time."""
    times: list[float] = []
    for _ in range(_ROUNDS):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)
