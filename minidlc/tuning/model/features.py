"""What a cost model sees of a point: numbers that mean the same for every kernel and shape.

    x = loop_features(task.lower(config).loops, target, threads=1)      # f64[len(FEATURES)]
    dict(zip(FEATURES, x))["vector_loads"]          # 0.58: for each vector of work

Made from the lowered loops, without compiling: it is quick, and a point of another shape, or of
another way to compute, has a row in the same terms. So most are ratios to the work of the kernel,
which is the number of vector multiply-adds it would take if nothing else were to be done, and sizes
are logarithms. Features of loop nests: L. Zheng et al., Ansor, 2020, appendix B.
Treated in course chapter 06_autotune.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from minidlc.expr.types import Array
from minidlc.loop.footprint import LINE, Nest, nest, traffic
from minidlc.loop.instructions import Body, bodies, total
from minidlc.loop.nodes import Alloc, LoopFunction, Scope, walk
from minidlc.target import Target

MEANING: Mapping[str, str] = {
    "work": "log2 of the vectors of work: multiply-adds, or elements stored if there are more",
    "vector": "arithmetic instructions on vectors, for each vector of work",
    "scalar": "arithmetic instructions on single elements, for each vector of work",
    "slow": "quotients and functions, for each vector of work",
    "select": "choices and conversions, for each vector of work",
    "lanes": "share of the lanes of vector instructions that do something, 0 to 1",
    "vector_loads": "vectors loaded, for each vector of work",
    "broadcasts": "elements loaded into all lanes, for each vector of work",
    "gathers": "elements loaded into single lanes, for each vector of work",
    "scalar_loads": "single elements loaded, for each vector of work",
    "vector_stores": "vectors stored, for each vector of work",
    "scatters": "elements stored from single lanes, for each vector of work",
    "scalar_stores": "single elements stored, for each vector of work",
    "horizontal": "reductions of a vector to an element, for each vector of work",
    "iterations": "iterations of serial and parallel loops, for each vector of work",
    "branches": "tests, for each vector of work",
    "prefetches": "prefetches, for each vector of work",
    "chain": "steps in which a sum waits for itself, for each vector of work",
    "unhidden": "cycles of loads and stores beyond those of the arithmetic, body by body, for each "
    "vector of work",
    "waits": "cycles that sums wait for themselves beyond those of arithmetic, loads and stores",
    "spills": "vectors that do not fit into registers, over all bodies, for each vector of work",
    "registers": "most vectors live in a loop body over the registers there are",
    "trips": "log2 of the trip count of the innermost loops, by their share of the instructions",
    "unrolled": "log2 of the instructions of an innermost body, by its share of them",
    "code": "log2 of the instructions of all bodies: the size of the code",
    "bodies": "log2 of the number of loops: main parts, edges, packing",
    "depth": "loops around the innermost ones, by their share of the instructions",
    "l1_lines": "lines that come into the first cache, for each vector of work",
    "l2_lines": "lines that come into the second cache, for each vector of work",
    "least_lines": "lines of the parameters, for each vector of work",
    "l1_set": "log2 of the lines of a run of the innermost loop over those of the first cache",
    "l2_set": "log2 of all lines touched over those of the second cache",
    "arena": "log2 of 1 + KiB of workspace in the arena",
    "stack": "log2 of 1 + KiB of workspace on the stack",
    "threads": "log2 of the threads of a call",
    "grain": "log2 of the vectors of work in a parallel iteration",
    "balance": "share of the threads' time that is used: 1 if the iterations divide evenly",
    "forks": "log2 of 1 + the times that threads start together",
    "width": "log2 of the elements of f32 in a vector of the machine",
}
FEATURES: tuple[str, ...] = tuple(MEANING)

# What a core can do in a cycle, about: the machines of ten years differ by less than a factor of 2.
ARITHMETIC_A_CYCLE = 2.0
LOADS_A_CYCLE = 2.0
STORES_A_CYCLE = 1.0
LATENCY = 4.0  # cycles until the result of a sum can be used


def loop_features(loops: LoopFunction, target: Target, threads: int) -> Array:
    """f64[len(FEATURES)], finite, of a kernel with constant sizes; `MEANING` says of what.

    Where an extent is a minimum, its largest value counts.
    """
    values = Loops(loops, target, threads).features()
    return np.array([values[name] for name in FEATURES], np.float64)


@dataclass(frozen=True)
class Loops:
    """What is read off the loops of a kernel; features, analytic model and objectives share it."""

    fn: LoopFunction
    target: Target
    threads: int

    @cached_property
    def bodies(self) -> list[Body]:
        """Instructions, loop by loop."""
        return bodies(self.fn, self.target)

    @cached_property
    def nest(self) -> Nest:
        """Lines touched, loop by loop."""
        return nest(self.fn)

    @cached_property
    def into_l1(self) -> Mapping[str, float]:
        """Lines of each buffer that come into the first cache."""
        return traffic(self.nest, self.target.l1)

    @cached_property
    def into_l2(self) -> Mapping[str, float]:
        """Lines of each buffer that come into the second cache."""
        return traffic(self.nest, self.target.l2)

    def count(self, name: str) -> float:
        """How often a class of instructions is executed."""
        return total(self.bodies, name)

    @cached_property
    def work(self) -> float:
        """Vectors of work: at least the multiply-adds and the stores, each in full vectors of f32.

        At least 1.
        """
        elements = max(self.count("flops") / 2, self._stored_elements())
        return max(1.0, elements / self.target.lanes(32))

    def _stored_elements(self) -> float:
        out = set(self.fn.outputs)
        return float(sum(p.type.size for p in self.fn.params if p.name in out))

    def bytes_of(self, scope: Scope) -> int:
        """Bytes of the buffers in a scope, as if all were alive at once."""
        allocs = (s for s in walk(self.fn.body) if isinstance(s, Alloc) and s.scope is scope)
        return sum(s.type.nbytes for s in allocs)

    @cached_property
    def forks(self) -> list[tuple[Body, int]]:
        """The outermost parallel loops, and how often threads start for each."""
        outer = [b for b in self.bodies if b.is_parallel and b.parallel == b.trips]
        return [(body, body.iterations // body.trips) for body in outer]

    @property
    def balance(self) -> float:
        """Share of the threads' time that is used if every parallel iteration takes as long."""
        if self.threads == 1:
            return 1.0
        if not self.forks:
            return 1 / self.threads
        used = sum(body.iterations for body, _ in self.forks)
        steps = sum(math.ceil(b.trips / self.threads) * times for b, times in self.forks)
        return used / (steps * self.threads)

    def spilled(self, body: Body) -> float:
        """Vectors of a body that find no register."""
        return max(0.0, body.live - self.target.registers)

    def unhidden(self, body: Body) -> float:
        """Cycles by which the loads and stores of an iteration take longer than its arithmetic."""
        return max(0.0, moving_cycles(body) - arithmetic_cycles(body))

    def waits(self, body: Body) -> float:
        """Cycles by which its longest chain of sums takes longer than all of that."""
        busy = max(arithmetic_cycles(body), moving_cycles(body))
        return max(0.0, LATENCY * body.chain - busy)

    def features(self) -> dict[str, float]:
        """Every feature by name."""
        return self._instructions() | self._bodies() | self._memory() | self._parallel()

    def _instructions(self) -> dict[str, float]:
        classes = {
            "vector": "vector", "scalar": "scalar", "slow": "slow", "select": "select",
            "vector_loads": "vector_load", "broadcasts": "broadcast", "gathers": "gather",
            "scalar_loads": "scalar_load", "vector_stores": "vector_store",
            "scatters": "scatter", "scalar_stores": "scalar_store", "horizontal": "horizontal",
            "branches": "branch", "prefetches": "prefetch",
        }  # fmt: skip
        found = {name: self.count(of) / self.work for name, of in classes.items()}
        lanes = sum(b.iterations * b.lanes for b in self.bodies)
        width = sum(b.iterations * b.width for b in self.bodies)
        return found | {
            "work": math.log2(self.work),
            "lanes": lanes / width if width else 0.0,
            "width": math.log2(self.target.lanes(32)),
        }

    def _bodies(self) -> dict[str, float]:
        inner = [b for b in self.bodies if b.is_innermost]
        weights = [b.iterations * (b.instructions + 1) for b in inner]
        return {
            "iterations": sum(b.iterations for b in self.bodies) / self.work,
            "chain": sum(b.iterations * b.chain for b in self.bodies) / self.work,
            "unhidden": sum(b.iterations * self.unhidden(b) for b in self.bodies) / self.work,
            "waits": sum(b.iterations * self.waits(b) for b in self.bodies) / self.work,
            "spills": sum(b.iterations * self.spilled(b) for b in self.bodies) / self.work,
            "registers": max(b.live for b in self.bodies) / self.target.registers,
            "trips": _mean((math.log2(b.trips) for b in inner), weights),
            "unrolled": _mean((math.log2(1 + b.instructions) for b in inner), weights),
            "depth": _mean((float(b.depth) for b in inner), weights),
            "code": math.log2(1 + sum(b.instructions for b in self.bodies)),
            "bodies": math.log2(len(self.bodies)),
        }

    def _memory(self) -> dict[str, float]:
        least = sum(math.ceil(p.type.nbytes / LINE) for p in self.fn.params)
        return {
            "l1_lines": sum(self.into_l1.values()) / self.work,
            "l2_lines": sum(self.into_l2.values()) / self.work,
            "least_lines": least / self.work,
            "l1_set": math.log2((1 + _innermost_lines(self.nest)) * LINE / self.target.l1),
            "l2_set": math.log2((1 + sum(self.nest.lines.values())) * LINE / self.target.l2),
            "arena": math.log2(1 + self.bytes_of(Scope.ARENA) / 1024),
            "stack": math.log2(1 + self.bytes_of(Scope.STACK) / 1024),
        }

    def _parallel(self) -> dict[str, float]:
        iterations = sum(body.iterations for body, _ in self.forks)
        return {
            "threads": math.log2(self.threads),
            "grain": math.log2(max(1.0, self.work / max(1, iterations))),
            "balance": self.balance,
            "forks": math.log2(1 + sum(times for _, times in self.forks)),
        }


def arithmetic_cycles(body: Body) -> float:
    """Cycles of the arithmetic of one iteration."""
    counts = body.counts
    return (counts["vector"] + counts["scalar"] + counts["select"]) / ARITHMETIC_A_CYCLE


def moving_cycles(body: Body) -> float:
    """Cycles of its loads or of its stores, whichever take longer; lanes one by one are apart."""
    counts = body.counts
    loads = counts["vector_load"] + counts["broadcast"] + counts["scalar_load"]
    stores = counts["vector_store"] + counts["scalar_store"]
    return max(loads / LOADS_A_CYCLE, stores / STORES_A_CYCLE)


def _mean(values: Iterable[float], weights: list[float]) -> float:
    """The mean by weights."""
    return sum(v * w for v, w in zip(values, weights, strict=True)) / max(sum(weights), 1e-9)


def _innermost_lines(tree: Nest) -> float:
    """The most lines that a run of a loop without loops of more than one part inside touches."""
    inner = [part for part in tree.parts if part.trips]
    if all(not part.parts for part in inner):
        return sum(tree.lines.values())
    return max(_innermost_lines(part) for part in inner)
