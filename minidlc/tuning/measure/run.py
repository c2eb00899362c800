"""A built candidate on this machine: checked first, then timed. What the run worker does.

    bench = Bench(inputs, expected, tolerances, threads=1)
    loaded = bench.load(built)                      # Wrong if its results are
    bench.time(loaded, repeats=5)                   # seconds of one run, in each repeat

The check is one run on guarded copies of the inputs (guard.py), outputs and workspace filled with
NaN; where NaN is expected, one more with outputs filled with a number. Times are taken on ordinary
memory, which all candidates share. With one thread the clock is the processor time of that thread:
on two cores with ten busy processes the medians of a product of 512 (of 64) spread over 2 % (1 %)
by it, and over 35 % (94 %) by the clock on the wall, as each moment without a core counts there.
Several threads wait for each other: only the wall knows.
Treated in course chapter 06_autotune.
"""

from __future__ import annotations

import ctypes
import math
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from minidlc.expr.types import Array
from minidlc.runtime import pool
from minidlc.runtime.memory import aligned
from minidlc.runtime.native import NativeLibrary, link_text
from minidlc.tuning.measure.build import Built, Code
from minidlc.tuning.measure.check import differs
from minidlc.tuning.measure.guard import Guarded

_COARSE = sys.platform == "win32"  # its clock of a thread goes in steps of 16 ms
_REPEAT = 5e-3  # seconds that a repeat takes at least: at 2 ms the medians spread twice as far
_EVICTED = 32 << 20  # bytes written between runs, where caches are to be cold
_COLD_RUNS = 5  # in a repeat, then


class Wrong(Exception):
    """A candidate with another result, or one that writes beside its arrays."""


@dataclass(frozen=True)
class Loaded:
    """Linked code on the memory that is timed: `run(n)` runs it n times."""

    run: Callable[[int], None]


class Bench:
    """The inputs of a task and their results, by name; what candidates are checked and timed on."""

    def __init__(
        self,
        inputs: Mapping[str, Array],
        expected: Mapping[str, Array],
        tolerances: Mapping[str, float],
        threads: int,
        flush: bool = False,
    ) -> None:
        self.inputs = {name: _copy(x) for name, x in inputs.items()}
        self.outputs = {name: _copy(x) for name, x in expected.items()}
        self.expected, self.tolerances, self.threads = dict(expected), tolerances, threads
        found = [x.astype(np.float64) for x in self.expected.values()]
        self.expects_nan = any(bool(np.isnan(x).any()) for x in found)
        self.evicted = np.zeros(_EVICTED if flush else 0, np.uint8)

    def load(self, built: Built) -> Loaded:
        """Link, pack constants, run once and compare; raises Wrong, or MemoryError."""
        guarded = {name: Guarded.like(x) for name, x in self.inputs.items()}
        for code in built.init:
            *_, (name, type) = code.params
            guarded[name] = Guarded.empty(type)
            guarded[name].array[...] = 0  # where a block is not full
            self._call(code, guarded, threads=1)
        given = {name: block.array.copy() for name, block in guarded.items()}
        types = dict(built.main.params)
        function = self._checked(built.main, guarded, given, nan=True)
        if self.expects_nan:  # an element that was not written had the right value, by chance
            function = self._checked(built.main, guarded, given, nan=False)
        arrays = {name: _copy(x) for name, x in given.items() if name in types}
        arrays |= {name: x for name, x in self.inputs.items() if name in types} | self.outputs
        workspace = aligned(built.main.workspace)
        return Loaded(self._bound(function, [arrays[name] for name in types], workspace))

    def _checked(
        self, code: Code, guarded: Mapping[str, Guarded], given: Mapping[str, Array], *, nan: bool
    ) -> _Linked:
        """Run once and compare; `nan` is what the results are filled with before."""
        types = dict(code.params)
        results = {name: Guarded.empty(types[name], nan=nan) for name in self.expected}
        function = self._call(code, {**guarded, **results}, self.threads)
        self._compare(guarded, given, results)
        return function

    def _call(self, code: Code, blocks: Mapping[str, Guarded], threads: int) -> _Linked:
        """Run once, on guarded memory."""
        pool.ensure(threads)
        linked, workspace = _Linked(code), Guarded(np.dtype(np.uint8), (code.workspace,))
        linked.run(1, [blocks[name].array for name, _ in code.params], workspace.array, threads)
        for name, block in {**blocks, "the workspace": workspace}.items():
            if not block.is_intact():
                raise Wrong(f"writes beside {name}")
        return linked

    def _compare(
        self,
        guarded: Mapping[str, Guarded],
        given: Mapping[str, Array],
        results: Mapping[str, Guarded],
    ) -> None:
        for name, x in given.items():
            if guarded[name].array.tobytes() != x.tobytes():
                raise Wrong(f"changes its input {name}")
        self._compare_results({name: block.array for name, block in results.items()})

    def _compare_results(self, results: Mapping[str, Array]) -> None:
        for name, wanted in self.expected.items():
            if text := differs(name, results[name], wanted, self.tolerances[name]):
                raise Wrong(text)

    def confirm(self) -> None:
        """Raises Wrong if the last run that was timed gave something else than the first.

        Threads that race, and what depends on an earlier run, may be right once.
        """
        try:
            self._compare_results(self.outputs)
        except Wrong as wrong:
            raise Wrong(f"right at first, but after some runs {wrong}") from None

    def _bound(
        self, linked: _Linked, arrays: list[Array], workspace: Array
    ) -> Callable[[int], None]:
        return lambda n: linked.run(n, arrays, workspace, self.threads)

    def time(self, loaded: Loaded, repeats: int, limit: float = math.inf) -> tuple[float, ...]:
        """Seconds of one run, in each repeat; one repeat only, if they are above `limit`.

        The first runs warm up: caches, clock rate, threads. Without `flush` caches stay warm, as
        then many runs are one reading of the clock, and small kernels can be told apart; what is
        best warm is seldom not best cold.
        """
        clock = time.perf_counter if self.threads > 1 or _COARSE else time.thread_time
        loaded.run(1)
        once = max(self._seconds(loaded, 1, clock), 1e-9)
        count = math.ceil(_REPEAT / once)
        if count > 1 and not self.evicted.size:
            once = self._seconds(loaded, count, clock)
            count = math.ceil(_REPEAT / max(once, 1e-9))
        return tuple(
            self._seconds(loaded, count, clock) for _ in range(1 if once > limit else repeats)
        )

    def _seconds(self, loaded: Loaded, count: int, clock: Callable[[], float]) -> float:
        if not self.evicted.size:
            start = clock()
            loaded.run(count)
            return (clock() - start) / count
        total, count = 0.0, min(count, _COLD_RUNS)
        for _ in range(count):
            self.evicted += 1
            start = clock()
            loaded.run(1)
            total += clock() - start
        return total / count


def reference(plain: Built, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """What the plain loops make of the inputs; they run on one thread."""
    blocks = {name: Guarded.like(x) for name, x in inputs.items()}
    types = dict(plain.main.params)
    outputs = {name: Guarded.empty(t) for name, t in types.items() if name not in inputs}
    arrays = [(blocks | outputs)[name].array for name in types]
    _Linked(plain.main).run(1, arrays, aligned(plain.main.workspace), 1)
    return {name: block.array.copy() for name, block in outputs.items()}


class _Linked:
    """The function of a `Code`, in this process."""

    def __init__(self, code: Code) -> None:
        imports = {"minidlc_parallel_for": pool.parallel_for_address()}
        self.library = NativeLibrary((code.object,), (code.symbol,), imports)
        self.address = self.library.address(code.symbol)
        self.threads = code.threads

    def run(self, count: int, arrays: list[Array], workspace: Array, threads: int) -> None:
        """Call it `count` times, from machine code: Python would take a microsecond a call.

        ValueError for more threads than its workspace has room for.
        """
        if threads > self.threads:
            text = f"code with workspace for {self.threads} threads is run by {threads}"
            raise ValueError(text)
        pointers = [a.ctypes.data for a in (*arrays, workspace)]
        _caller(len(pointers)).call(self.address, count, *pointers, threads)


class _Caller:
    """A loop in machine code around a function of so many pointers."""

    def __init__(self, pointers: int) -> None:
        self.library = link_text(_loop_text(pointers), ("call_often",))
        types: list[Any] = [ctypes.c_void_p, ctypes.c_int64, *[ctypes.c_void_p] * pointers]
        prototype = ctypes.CFUNCTYPE(None, *types, ctypes.c_int32)
        self.call = prototype(self.library.address("call_often"))


@cache
def _caller(pointers: int) -> _Caller:
    return _Caller(pointers)


def _loop_text(pointers: int) -> str:
    given = "".join(f"ptr %p{i}, " for i in range(pointers))
    return f"""
define void @call_often(ptr %f, i64 %n, {given}i32 %threads) {{
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  call void %f({given}i32 %threads)
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %n
  br i1 %more, label %loop, label %done
done:
  ret void
}}
"""


def _copy(x: Array) -> Array:
    """In memory that begins on a cache line."""
    block = aligned(x.nbytes)[: x.nbytes].view(x.dtype).reshape(x.shape)
    block[...] = x
    return block
