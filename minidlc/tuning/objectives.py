"""What a schedule costs beside time: memory, bytes moved, energy; and the trials none of which is
beaten in everything.

    figures(task.lower(config), target, threads=1)  # {'peak_bytes': …, 'moved_bytes': …, …}
    front = pareto(trials, ("seconds", "energy"))   # trials that no other one dominates
    explore(Weighted(problem, {"seconds": 1, "energy": 1}), search)     # the least product

The figures are estimates from the loops. Energy is a proxy: what is executed and what is moved,
each times what it took in 45 nm at 0.9 V (M. Horowitz, Computing's Energy Problem, ISSCC 2014,
figure 1.1.9); newer chips need less, in about the same proportions. Treated in course chapter
06_autotune.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from minidlc.codegen.workspace import spilled, where, workspace_bytes
from minidlc.expr.types import Array, TensorType
from minidlc.loop.footprint import LINE
from minidlc.loop.nodes import Alloc, Block, For, If, Scope, Stmt, Store
from minidlc.support.errors import TuneError, nearest
from minidlc.target import Target
from minidlc.tuning.model.features import Loops
from minidlc.tuning.problem import Problem
from minidlc.tuning.space import Config, Space
from minidlc.tuning.task import Candidate
from minidlc.tuning.trial import Fate, Trial

# Picojoules. An operation: the mean of an f32 sum (0.9) and product (3.7). An instruction: fetch,
# decoding and registers, 70 for one that adds. A 64-bit access to 32 KiB: 20, to 1 MiB: 100, to
# memory: 1300 to 2600.
PJ_FLOP = 2.3
PJ_INSTRUCTION = 70.0
PJ_L1_BYTE = 20 / 8
PJ_L2_BYTE = 100 / 8
PJ_MEMORY_BYTE = 1950 / 8

OBJECTIVES: Mapping[str, str] = {
    "seconds": "time of a run",
    "peak_bytes": "workspace, stack and packed constants",
    "moved_bytes": "bytes that come from beyond the second cache, and results that go there",
    "energy": "joules, estimated from what is executed and moved",
}

COUNTED = {*OBJECTIVES} - {"seconds"}  # on the loops, without running them


def figures(candidate: Candidate, target: Target, threads: int) -> dict[str, float]:
    """The objectives beside time of a lowered point, by name."""
    loops = Loops(candidate.loops, target, threads)
    packed = sum(p.type.nbytes for fn in candidate.init for p in fn.params if p.name in fn.outputs)
    fn, moved = candidate.loops, spilled(candidate.loops, target.lanes(32))
    local = _stack_bytes(fn.body, moved) + workspace_bytes(fn, target, threads)
    return {
        "peak_bytes": float(packed + local),
        "moved_bytes": moved_bytes(loops),
        "energy": energy(loops),
    }


def _stack_bytes(s: Stmt, moved: frozenset[tuple[str, TensorType]]) -> int:
    """The most stack that is in use at once; buffers `moved` to the workspace need none."""
    match s:
        case Alloc(type=type, body=body):
            own = type.nbytes if where(s, moved) is Scope.STACK else 0
            return own + _stack_bytes(body, moved)
        case For(body=body) | If(body=body):
            return _stack_bytes(body, moved)
        case Block(stmts):
            return max((_stack_bytes(child, moved) for child in stmts), default=0)
        case Store():
            return 0


def moved_bytes(loops: Loops) -> float:
    """Bytes between the second cache and what lies behind it: what comes, and results that go."""
    fn = loops.fn
    results = sum(p.type.nbytes for p in fn.params if p.name in fn.outputs)
    return LINE * sum(loops.into_l2.values()) + results


def energy(loops: Loops) -> float:
    """Joules of a call: operations, instructions, and bytes at each level of the memory."""
    accessed = sum(loops.count(name) * size for name, size in _accesses(loops.target).items())
    picojoules = (
        PJ_FLOP * loops.count("flops")
        + PJ_INSTRUCTION * sum(b.iterations * b.instructions for b in loops.bodies)
        + PJ_L1_BYTE * accessed
        + PJ_L2_BYTE * LINE * sum(loops.into_l1.values())
        + PJ_MEMORY_BYTE * moved_bytes(loops)
    )
    return 1e-12 * picojoules


def _accesses(target: Target) -> dict[str, int]:
    """Bytes of the first cache that an instruction of a class reads or writes; elements of f32."""
    vector = target.vector_bits // 8
    elements = ("broadcast", "gather", "scalar_load", "scatter", "scalar_store")
    return {"vector_load": vector, "vector_store": vector} | dict.fromkeys(elements, 4)


def objective(trial: Trial, name: str) -> float:
    """The value of an objective, infinite for a failed trial; TuneError (MDLC1335) if unknown."""
    if trial.fate is not Fate.OK:
        return math.inf
    if name == "seconds" and name not in trial.figures:
        return trial.cost
    if name not in trial.figures:
        known = ["seconds", *(n for n in trial.figures if n != "seconds")]
        text = f"{trial.config} has no figure {name!r}"
        hint = nearest(name, known) or f"it has {', '.join(known)}"
        raise TuneError(text, hint=hint, code="MDLC1335")
    return trial.figures[name]


def pareto(
    trials: Iterable[Trial], objectives: Sequence[str] = ("seconds", "energy")
) -> list[Trial]:
    """The trials that no other one beats, by growing values of the first objective.

    One beats another if it is no worse in any objective and better in one; of trials that are equal
    in all, the first stays. Failed trials have no part. TuneError (MDLC1335) for an objective that
    a trial has no figure of, or without a single objective.
    """
    if not objectives:
        hint = f"such as {', '.join(OBJECTIVES)}"
        raise TuneError("a front of no objectives", hint=hint, code="MDLC1335")
    sound = [t for t in trials if t.fate is Fate.OK]
    rows = [tuple(objective(t, name) for name in objectives) for t in sound]
    front = list[Trial]()
    kept = list[tuple[float, ...]]()
    for place in sorted(range(len(rows)), key=lambda n: (rows[n], n)):
        # whoever beats this one comes before it in this order, or is beaten by one that does
        if not any(_no_worse(other, rows[place]) for other in kept):
            front.append(sound[place])
            kept.append(rows[place])
    return front


def _no_worse(a: tuple[float, ...], b: tuple[float, ...]) -> bool:
    return all(x <= y for x, y in zip(a, b, strict=True))


@dataclass(frozen=True)
class Weighted:
    """A problem whose cost is the product of objectives, each to the power of its weight.

    A product has no unit to choose: with weights of 1, time and energy give the energy-delay
    product. Trials have this product in place of `seconds`; the time is `figures["seconds"]`.
    TuneError (MDLC1336) for weights that are negative or all 0.
    """

    problem: Problem
    weights: Mapping[str, float]

    def __post_init__(self) -> None:
        values = list(self.weights.values())
        if not all(0 <= w < math.inf for w in values) or not any(values):
            hint = 'numbers from 0 up, one of them more: {"seconds": 1, "energy": 0.5}'
            text = f"weights of objectives: {dict(self.weights)}"
            raise TuneError(text, hint=hint, code="MDLC1336")

    @property
    def space(self) -> Space:
        """Of the problem."""
        return self.problem.space

    def features(self, configs: Sequence[Config]) -> Array:
        """Of the problem."""
        return self.problem.features(configs)

    def measure(self, configs: Sequence[Config]) -> list[Trial]:
        """Trials whose `cost` is the product; TuneError (MDLC1335) for an unknown objective."""
        return [self._weighed(trial) for trial in self.problem.measure(configs)]

    def _weighed(self, trial: Trial) -> Trial:
        if trial.fate is not Fate.OK:
            return trial
        rest = [objective(trial, n) ** w for n, w in self.weights.items() if n != "seconds"]
        power, factor = self.weights.get("seconds", 0.0), math.prod(rest)
        product = tuple(s**power * factor for s in trial.seconds)
        known = {**trial.figures, "seconds": trial.cost}
        return replace(trial, seconds=product, figures=known)
