"""`while` and `for` that a tensor decides about, as op loop.

    looped(frame, statement, test)                  # loop(None, test, carried…, captures…)
    counted(frame, statement, (0, n, 1))            # loop(n, None, …)

The body runs on a frame of stand-ins; what it changes from run to run is carried, what it only
reads is captured. A Python number that changes (`s = 0.0`) becomes a tensor before the loop, and
the body is run again, until nothing else changes. Treated in course chapter 01_graph_ir.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np

from minidlc.expr.types import bool_, i64
from minidlc.frontend.pytree import leaves, shown, structure, walk
from minidlc.frontend.script.control import (
    Flow,
    Outcome,
    changed,
    held,
    is_value,
    jumps,
    truth,
)
from minidlc.frontend.script.refusals import refuse
from minidlc.frontend.script.region import (
    Missing,
    as_tensor,
    float_type,
    is_tensor,
    mutables,
    one_to_one,
    same,
    used,
    written,
)
from minidlc.graph import Graph, Input, TupleType, Value, apply, located
from minidlc.graph.graph import results_of
from minidlc.support.locations import Loc

if TYPE_CHECKING:
    from minidlc.frontend.script.frame import Frame

Bounds: TypeAlias = tuple[object, object, object]  # start, stop, step


def range_of(frame: Frame, statement: ast.For) -> Bounds | None:
    """Start, stop and step of `for i in range(…)`; None for anything else."""
    match statement.iter:
        case ast.Call(func=ast.Name("range"), args=args, keywords=[]) if 1 <= len(args) <= 3:
            pass
        case _:
            return None
    if frame.scope.get("range", builtins.range) is not builtins.range:
        return None
    if any(isinstance(a, ast.Starred) for a in args):
        return None
    bounds = [frame.eval(a) for a in args]
    start, stop = (0, bounds[0]) if len(bounds) == 1 else bounds[:2]
    return start, stop, bounds[2] if len(bounds) == 3 else 1


def counted(frame: Frame, statement: ast.For, bounds: Bounds) -> Outcome:
    """`for i in range(start, stop, step)` with a tensor as start or stop."""
    place = frame.program.place(statement.iter)
    if not isinstance(statement.target, ast.Name):
        refuse(frame.program.place(statement.target), "for-target", "the loop assigns several")
    start, stop = (_whole(place, bound) for bound in bounds[:2])
    step = bounds[2]
    if not isinstance(step, (int, np.integer)) or step == 0:
        refuse(place, "range", f"the step is {step!r}")
    by = int(cast(int, step))
    with located(place):
        length = stop - start if by > 0 else start - stop
        count = length if abs(by) == 1 else (length + (abs(by) - 1)) / abs(by)
    return looped(frame, statement, None, count=count, start=start, step=by)


def _whole(place: Loc, bound: Any) -> Any:
    """A bound as one element of i64, or a Python number."""
    if not is_value(bound):
        return int(bound)
    type = bound.type
    if isinstance(type, TupleType) or not type.is_static or type.size != 1:
        refuse(place, "range", f"a bound of the range is {type}")
    if type.dtype.numpy.kind not in "iu":
        refuse(place, "range", f"a bound of the range is {type}")
    with located(place):
        value = bound if type.dtype == i64 else apply("cast", bound, to=i64)
        return value if type.rank == 0 else apply("reshape", value, shape=())


def looped(
    frame: Frame,
    statement: ast.While | ast.For,
    test: Value | None,
    *,
    count: Value | None = None,
    start: Any = 0,
    step: int = 1,
) -> Outcome:
    """The statement as op loop, run while `test` or `count` times."""
    place = frame.program.place(statement)
    for jump in jumps(statement.body, around=True):
        word = type(jump).__name__.lower()
        rule = "return" if isinstance(jump, ast.Return) else "break"
        refuse(frame.program.place(jump), rule, f"`{word}` in a loop that a tensor decides about")
    loop = _run_body(frame, statement, place, start, step)
    while _lift(frame, loop.inner, place):  # each time there are fewer Python numbers left
        loop = _run_body(frame, statement, place, start, step)
    loop.finish(count, test)
    return Flow.NEXT


def _run_body(
    frame: Frame, statement: ast.While | ast.For, place: Loc, start: Any, step: int
) -> _Loop:
    """One run of the body on stand-ins."""
    i, c = Input("i", i64[()]), Input("c", bool_[()])
    inner = frame.inside(shared=False, __start=start)
    goes_on: object = c
    if isinstance(statement, ast.For):
        with located(place):
            at = i if step == 1 else i * step
            first: object = inner.scope["__start"]
            at = at if isinstance(first, int) and first == 0 else at + cast(Value, first)
        inner.scope[cast(ast.Name, statement.target).id] = at
    inner.block(statement.body)
    if isinstance(statement, ast.While):
        goes_on = truth(place, inner.eval(statement.test))
    return _Loop(frame, inner, place, i, c, cast(Value, as_tensor(goes_on)))


def _lift(frame: Frame, inner: Frame, place: Loc) -> bool:
    """Numbers that the body changed become tensors before the loop; True if there were any."""
    memo: dict[int, object] = {}
    floats = float_type(frame.variables().values())
    lifted = False
    for name in _carried_names(frame, inner):
        old, new = frame.scope[name], inner.scope[name]
        if structure(old) != structure(new):
            text = f"{name} is {structure(old)} before the loop and {structure(new)} after a run"
            refuse(place, "loop-structure", text)
        tensors: list[object] = []
        for (path, before), after in zip(walk(old, (name,)), leaves(new), strict=True):
            if is_tensor(before) or same(before, after):
                tensors.append(before)
                continue
            tensor = as_tensor(before, after, floats)
            if tensor is None:
                text = f"{shown(path)} is a {type(before).__name__} and changes in the loop"
                refuse(place, "branch-value", text)
            tensors.append(tensor)
            lifted = True
        frame.scope[name] = written(old, iter(tensors), {id(m): m for m in mutables(old)}, memo)
    return lifted


def _carried_names(frame: Frame, inner: Frame) -> list[str]:
    """Variables from before the loop that its body changes."""

    def exists(name: str) -> bool:
        return name in frame.scope and not isinstance(frame.scope[name], Missing)

    return [name for name in frame.program.names if exists(name) and changed(inner, name)]


@dataclass
class _Loop:
    """A body that has run on stand-ins, on the way to a node."""

    frame: Frame
    inner: Frame
    place: Loc
    i: Input
    c: Input
    goes_on: Value

    def finish(self, count: Value | None, test: Value | None) -> None:
        """Build the node; variables become its results."""
        region = cast(Any, self.inner.region)
        names = _carried_names(self.frame, self.inner)
        carried: dict[Input, Value] = {}  # stand-in → what it is after a run
        for name in names:
            before, now = region.before[name][1], walk(self.inner.scope[name], (name,))
            for old, (path, new) in zip(before, now, strict=True):
                if old is not new and is_tensor(old):
                    carried[cast(Input, old)] = self._after(shown(path), old, new)
        local = Missing("loop-local", "is assigned in a loop that may run zero times only")
        for name in self.frame.program.names:
            if name not in names and changed(self.inner, name):
                self.frame.scope[name] = local
        if not carried:
            return
        results = [self.goes_on, *carried.values()]
        own = [self.i, self.c, *carried]
        captures = [v for v in used(self.place, region, results, own) if v not in carried]
        body = Graph.of("body", [*own, *captures], results)
        outer = [region.outer[v] for v in (*carried, *captures)]
        with located(self.place):
            node = apply("loop", count, test, *outer, body=body, carried=len(carried))
            values = results_of(node)
        self._assign(names, dict(zip(carried, values, strict=True)))

    def _after(self, what: str, old: object, new: object) -> Value:
        """The new value of a carried tensor, which keeps its type."""
        value = as_tensor(new, old)
        if value is None:
            text = f"{what} is {cast(Value, old).type} and becomes a {type(new).__name__}"
            refuse(self.place, "branch-value", text)
        if value.type != cast(Value, old).type:
            text = f"{what} is {cast(Value, old).type} before the loop and {value.type} after a run"
            refuse(self.place, "loop-type", text)
        return value

    def _assign(self, names: Sequence[str], results: Mapping[Input, Value]) -> None:
        region, memo = cast(Any, self.inner.region), dict[int, object]()
        alike = held(self.inner, self.frame)  # lists and dicts: after a run, before the loop
        both = [pair for now, old in alike for pair in zip(now, old, strict=True)]
        new: dict[str, list[object]] = {}
        for name in names:
            pairs = zip(region.before[name][1], leaves(self.frame.scope[name]), strict=True)
            new[name] = [results.get(b, o) if is_tensor(b) else o for b, o in pairs]
        one_to_one(self.place, both)
        originals = region.originals()
        into = {id(now): old for now, old in both if originals.get(id(now)) is old}
        for name, parts in new.items():
            self.frame.scope[name] = written(self.inner.scope[name], iter(parts), into, memo)
        region.check_written(self.place, into, self.frame.seen)
