"""A point of a task as machine code: what the build workers do.

    built = build(task, config)                     # Built: objects, parameter types, figures
    build(task, bad).reason                         # a failed Trial: 'MDLC0611: …'
    build_plain(task)                               # the loops as the tensor expressions state them
    row(task, config)                               # f64[len(FEATURES)], without compiling

Runs in a process of its own (worker.py): lowering and LLVM may be slow, run out of memory or die.
Nothing is written to the kernel cache, which thousands of candidates would fill.
Treated in course chapter 06_autotune.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TypeAlias

import numpy as np

from minidlc.codegen.compile import Kernel, build_kernel
from minidlc.expr.types import Array, TensorType
from minidlc.loop.nodes import LoopFunction
from minidlc.schedules.group import work
from minidlc.support.errors import CompileError
from minidlc.target import Target
from minidlc.te import create_schedule, lower
from minidlc.tuning.model.features import FEATURES, loop_features
from minidlc.tuning.objectives import figures
from minidlc.tuning.space import Config
from minidlc.tuning.task import Task
from minidlc.tuning.trial import Fate, Trial

PLAIN = Config("plain loops")  # what results are checked against; it is no point of a space
_SYMBOL = "candidate"
_MANY = 1e8  # terms that plain loops take a tenth of a second for, or much longer


@dataclass(frozen=True)
class Code:
    """One function: its object file, its parameters; bytes of workspace for up to `threads`."""

    symbol: str
    object: bytes
    params: tuple[tuple[str, TensorType], ...]
    workspace: int
    threads: int


@dataclass(frozen=True)
class Built:
    """A point, ready to run: `init` packs constants, each into its last parameter."""

    config: Config
    main: Code
    init: tuple[Code, ...] = ()
    figures: dict[str, float] = field(default_factory=dict[str, float])


Made: TypeAlias = Built | Trial


def build(task: Task, config: Config) -> Made:
    """The machine code of a point, or the trial that it already is: refused, or not compiled."""
    return _made(task, config, lambda: _loops(task, config))


def row(task: Task, config: Config) -> Array:
    """The features of a point, f64[len(FEATURES)]; NaN where it has no loops: `build` says why.

    Hundreds are looked at for one that is built: the loops are checked then, not here.
    """
    try:
        return loop_features(task.unchecked(config).loops, task.target, task.threads)
    except Exception:  # whatever it is, the search goes on
        return np.full(len(FEATURES), np.nan)


def build_plain(task: Task) -> Made:
    """The machine code of the loops as they are stated, against which results are checked.

    Where they would take long, the innermost axis of a reduction becomes vectors: every element is
    still the sum of its terms in their order, a tenth of the time later.
    """
    if sum(map(work, task.group.stages())) > _MANY:
        made = _made(task, PLAIN, lambda: (_plain_loops(task, task.target.lanes(32)), (), {}))
        if isinstance(made, Built):
            return made
    return _made(task, PLAIN, lambda: (_plain_loops(task, lanes=0), (), {}))


def reason(error: BaseException) -> str:
    """An error on one line: its code and message; its class where it is a fault of ours."""
    if isinstance(error, CompileError):
        return f"{error.code}: {' '.join(error.message.split())}"
    if isinstance(error, MemoryError):
        return "out of memory"
    if isinstance(error, OSError):
        return f"the operating system: {' '.join(str(error).split())}"
    text = " ".join(str(error).split())
    return f"a fault inside the compiler: {type(error).__name__}{': ' if text else ''}{text}"


_Loops: TypeAlias = tuple[LoopFunction, tuple[LoopFunction, ...], dict[str, float]]


def _made(task: Task, config: Config, loops: Callable[[], _Loops]) -> Made:
    start, fate = time.perf_counter(), Fate.REFUSED
    try:
        main, init, counted = loops()
        fate = Fate.NOT_COMPILED
        code = _code(main, task.target, task.threads)
        packing = tuple(_packing(fn, task.target) for fn in init)
    except Exception as error:  # whatever it is, the search goes on
        return Trial(config, fate, reason=reason(error))
    found = counted | {
        "build_seconds": time.perf_counter() - start,
        "code_bytes": float(len(code.object)),
        "workspace_bytes": float(code.workspace),
    }
    return Built(config, code, packing, found)


def _loops(task: Task, config: Config) -> _Loops:
    candidate = task.lower(config)
    return candidate.loops, candidate.init, figures(candidate, task.target, task.threads)


def _plain_loops(task: Task, lanes: int) -> LoopFunction:
    outputs = task.group.outputs
    sch = create_schedule(outputs, checked=False)
    for t in task.group.stages() if lanes else ():
        if t.reduce_axes and t.shape and t.shape[-1] >= lanes:
            name = t.axes[-1]
            lane = f"{name}_lane"
            sch[t].split(name, lanes, (f"{name}_outer", lane))
            sch[t].reorder(*(axis for axis, _ in t.reduce_axes), lane)
            sch[t].vectorize(lane)
    return lower(sch, name="kernel", params=(*task.placeholders, *(t.name for t in outputs)))


def _code(fn: LoopFunction, target: Target, threads: int) -> Code:
    text, code = build_kernel(fn, target, _SYMBOL)
    workspace = Kernel(_SYMBOL, fn, target, text, code).workspace_bytes(threads)
    return Code(_SYMBOL, code, tuple((p.name, p.type) for p in fn.params), workspace, threads)


@lru_cache(maxsize=32)
def _packing(fn: LoopFunction, target: Target) -> Code:
    """Many candidates pack a weight in the same way."""
    return _code(fn, target, 1)
