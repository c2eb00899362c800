"""The gradient of branches and loops: an if_ of gradients, and a loop that runs back in time.

    if_(c, x)      →  if_(c, x, dy)                 # each branch becomes its gradient
    loop(s0, w)    →  loop(ds, dw, rows kept, w)    # from the last run to the first

A run of a loop backwards needs values that the run forward had: the loop forward stacks them, one
row for each run (backpropagation through time). That loop has all results of the one that was
differentiated, and takes its place (`shared_loops.py`). What both make is a loop like any other: it
is compiled, printed, and differentiated again. A branch computes again what its gradient reads.
Reads nodes, makes nodes. Treated in course chapter 03_autodiff.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

from minidlc.autodiff.chain import RULES, Dy, backward
from minidlc.expr.types import TensorType, bool_
from minidlc.graph.graph import (
    Constant,
    Graph,
    Input,
    Node,
    Value,
    apply,
    build,
    results_of,
    tensor_type,
)
from minidlc.graph.inline import inlined
from minidlc.graph.op import Pattern
from minidlc.ops.composing import reversed_rows, scalar
from minidlc.ops.control_flow import If, Loop
from minidlc.ops.gradients import Grads, zeros_like
from minidlc.support.errors import GradientError
from minidlc.support.names import Names

MOST_RUNS = 1 << 16  # of a loop that may end early: each keeps its state


def if_gradient(op: If, y: Node, dy: Dy, *, wanted: Sequence[bool]) -> Grads:
    """An if_ on the same condition, of the gradients of both branches.

    What only one branch uses gets zeros from the other. As the branch that did not run has no
    values, neither has its gradient: nothing of it can be NaN. It takes what its branches read.
    """
    dys = dy if isinstance(dy, tuple) else (dy,)
    condition, *captures = y.inputs
    branches = (op.then_branch, op.else_branch)
    results = op.then_branch.outputs
    seeds = [None if d is None else _input("d", o) for o, d in zip(results, dys, strict=True)]
    asked = [k for k, v in enumerate(captures) if wanted[k + 1] and _is_smooth(v)]
    found: list[list[Value | None]] = []
    for branch in branches:
        wrt = [branch.inputs[k] for k in asked]
        found.append(backward(branch.nodes, branch.outputs, seeds, wrt))
    moved = [k for n, k in enumerate(asked) if any(grads[n] is not None for grads in found)]
    if not moved:
        return (None,) * len(y.inputs)
    outputs: list[list[Value]] = []
    for branch, grads in zip(branches, found, strict=True):
        by_capture = dict(zip(asked, grads, strict=True))
        outputs.append([_or_zeros(by_capture[k], branch.inputs[k]) for k in moved])
    inputs = [(*branch.inputs, *(s for s in seeds if s is not None)) for branch in branches]
    given = (*captures, *(d for d in dys if d is not None))
    read = {*_read(outputs[0]), *_read(outputs[1])}
    used = [k for k, pair in enumerate(zip(*inputs, strict=True)) if not read.isdisjoint(pair)]
    then, other = (
        _closed(f"{branch.name}_gradient", [inputs[n][k] for k in used], outputs[n])
        for n, branch in enumerate(branches)
    )
    read_values = (given[k] for k in used)
    node = apply("if_", condition, *read_values, then_branch=then, else_branch=other)
    dxs = dict(zip(moved, results_of(node), strict=True))
    return None, *(dxs.get(k) for k in range(len(captures)))


def _is_smooth(v: Value | None) -> bool:
    """True for a value of real numbers."""
    return v is not None and tensor_type(v).dtype.is_float


def _or_zeros(dx: Value | None, x: Value) -> Value:
    return zeros_like(x) if dx is None else dx


def _input(prefix: str, like: Value) -> Input:
    return Input(f"{prefix}{like.name}", tensor_type(like))


def _closed(name: str, inputs: Sequence[Input], outputs: Sequence[Value]) -> Graph:
    """A graph whose inputs have names of their own."""
    names = Names()
    new = [Input(names.fresh(x.name), x.type, x.loc) for x in inputs]
    given = cast("dict[Value, Value]", dict(zip(inputs, new, strict=True)))
    return Graph.of(name, new, inlined(Graph.of(name, inputs, outputs), given))


def loop_gradient(op: Loop, y: Node, dy: Dy, *, wanted: Sequence[bool]) -> Grads:
    """A loop over the runs from the last to the first; see `Backwards`.

    Of a loop that may end early and has at most n runs, n a constant, the runs after the end keep
    the state. Raises GradientError MDLC1206 if only the data say how often the body runs.
    """
    dys = dy if isinstance(dy, tuple) else (dy,)
    if op.trips is not None:
        return None, None, *Backwards.of(y, op, dys, wanted[2:]).gradients()
    counted, alive = _counted(op, y)
    assert isinstance(counted.op, Loop)
    dys, wanted = (*[None] * alive, *dys), [*[False] * alive, *wanted[2:]]
    return None, None, *Backwards.of(counted, counted.op, dys, wanted).gradients()[alive:]


RULES.update({"if_": if_gradient, "loop": loop_gradient})


def _counted(op: Loop, y: Node) -> tuple[Node, int]:
    """The same loop with a known number of runs; and how many states it has in front of these.

    That is 1 for a loop with a condition: whether it still goes on.
    """
    limit, condition, *rest = y.inputs
    if not isinstance(limit, Constant) or (condition is not None and _runs(limit) > MOST_RUNS):
        what = "its condition" if condition is not None else "an input"
        text = f"{y.name}: how often the loop runs is decided by {what}"
        hint = f"say it: trips=5, range(5); at most a constant n up to {MOST_RUNS} may end early"
        raise GradientError(text, loc=y.loc, hint=hint, code="MDLC1206")
    body = op.body
    if condition is None:  # what the body says about going on is ignored
        forever = Graph.of(body.name, body.inputs, (body.inputs[1], *body.outputs[1:]))
        counted = replace(op, body=forever, trips=_runs(limit))
        return build(counted, (None, None, *rest), name=y.name), 0
    i, c, *others = body.inputs
    alive = Input("alive", bool_[()])
    given = dict(zip(body.inputs, (i, scalar(True, bool_), *others), strict=True))
    run = Graph.of(body.name, [i, *others], inlined(body, cast("dict[Value, Value]", given)))
    rest_of_it = Graph.of("ended", [i, *others], [scalar(False, bool_), *others[: op.carried]])
    step = apply("if_", alive, i, *others, then_branch=run, else_branch=rest_of_it)
    masked = Graph.of(body.name, [i, c, alive, *others], [c, *results_of(step)])
    start = apply("reshape", condition, shape=())
    counted = replace(op, body=masked, carried=op.carried + 1, trips=_runs(limit))
    return build(counted, (None, None, start, *rest), name=y.name), 1


def _runs(limit: Constant) -> int:
    return max(int(limit.array.item()), 0)


@dataclass(frozen=True)
class Backwards:
    """One loop of a known number of runs, to be run backwards.

    The loop that does it carries how the loss changes with the states, and the sums for the
    captures. Its rows are those of the loop forward, in reverse: values of the run that the
    gradient reads, scanned inputs, dy of stacked results. It stacks the gradients of scanned
    inputs.
    """

    op: Loop
    y: Node
    dys: tuple[Value | None, ...]
    state_seeds: dict[int, Input]  # by number of the state: those that the loss depends on
    stack_seeds: dict[int, Input]
    grads: dict[Input, Value]  # of inputs of the body, in values of the body and seeds

    @staticmethod
    def of(y: Node, op: Loop, dys: tuple[Value | None, ...], wanted: Sequence[bool]) -> Backwards:
        """Find which states matter: those with a dy, and all that these depend on."""
        body, carried = op.body, op.carried
        outputs = body.outputs[1:]
        seeds = [None if d is None else _input("d", o) for o, d in zip(outputs, dys, strict=True)]
        wrt = _wrt(op, wanted)
        while True:
            found = backward(body.nodes, outputs, seeds, wrt)
            grads = {x: dx for x, dx in zip(wrt, found, strict=True) if dx is not None}
            more = [
                k for k, s in enumerate(body.inputs[2 : 2 + carried])
                if s in grads and seeds[k] is None
            ]  # fmt: skip
            if not more:
                break
            for k in more:
                seeds[k] = _input("d", outputs[k])
        numbered = {k: s for k, s in enumerate(seeds) if s is not None}
        states = {k: s for k, s in numbered.items() if k < carried}
        stacks = {k - carried: s for k, s in numbered.items() if k >= carried}
        return Backwards(op, y, dys, states, stacks, grads)

    def gradients(self) -> list[Value | None]:
        """How the loss changes with each input behind n and c."""
        state, scanned, captures = self.op.parts(self.op.body.inputs[2:])
        summed = [w for w in captures if w in self.grads]
        stacked = [x for x in scanned if x in self.grads]
        if not self.state_seeds and not summed and not stacked:
            return [None] * (len(self.y.inputs) - 2)
        start = [_or_zeros(self.dys[k], seed) for k, seed in self.state_seeds.items()]
        start += [zeros_like(w) for w in summed]
        body, rows, read = self._body(summed, stacked)
        how = {"carried": len(start), "scanned": len(rows), "trips": self.op.trips}
        loop = apply("loop", None, None, *start, *rows, *read, body=body, **how)
        order = [state[k] for k in self.state_seeds] + summed + stacked
        found = dict(zip(order, results_of(loop), strict=True))
        found |= {x: reversed_rows(found[x]) for x in stacked}
        return [found.get(x) for x in self.op.body.inputs[2:]]

    def _body(
        self, summed: Sequence[Input], stacked: Sequence[Input]
    ) -> tuple[Graph, list[Value], list[Value]]:
        """The body of the loop backwards, the rows that it scans, and what it captures."""
        i, c, *inputs = self.op.body.inputs
        state, scanned, captures = self.op.parts(inputs)
        sums = [_input("d", w) for w in summed]
        ds = [_or_zeros(self.grads.get(state[k]), state[k]) for k in self.state_seeds]
        totals = [apply("add", s, self.grads[w]) for s, w in zip(sums, summed, strict=True)]
        outputs = [*ds, *totals, *(self.grads[x] for x in stacked)]
        kept = kept_values(self.op, outputs)
        stand_ins = {v: _input("", v) for v in kept}
        back = Input(i.name, i.type)
        now = apply("sub", cast(int, self.op.trips) - 1, back)  # the run it is the gradient of
        outputs = inlined(Graph.of("run", [], outputs), {i: now, **stand_ins})
        read = _read(outputs)
        seen, used = [x for x in scanned if x in read], [w for w in captures if w in read]
        given = cast("dict[Input, Value]", dict(zip(inputs, self.y.inputs[2:], strict=True)))
        rows = [*self._stacks(kept), *(given[x] for x in seen)]
        rows += [cast(Value, self.dys[self.op.carried + n]) for n in self.stack_seeds]
        parameters = [back, c, *self.state_seeds.values(), *sums, *stand_ins.values(), *seen]
        parameters += [*self.stack_seeds.values(), *used]
        body = _closed(f"{self.op.body.name}_gradient", parameters, (c, *outputs))
        return body, list(map(reversed_rows, rows)), [given[w] for w in used]

    def _stacks(self, kept: Sequence[Value]) -> list[Value]:
        """The kept values of all runs as rows: results of the loop, which stacks them too."""
        body = self.op.body
        numbers = {v: n for n, v in enumerate(body.outputs[1:]) if n >= self.op.carried}
        new = [v for v in kept if v not in numbers]
        if not kept:
            return []
        outputs = (*body.outputs, *new)
        numbers |= {v: len(body.outputs) - 1 + n for n, v in enumerate(new)}
        more = replace(self.op, body=Graph.of(body.name, body.inputs, outputs))
        node = build(more, self.y.inputs, name=self.y.name) if new else self.y
        results = results_of(node)
        return [results[numbers[v]] for v in kept]


def _wrt(op: Loop, wanted: Sequence[bool]) -> list[Input]:
    """Inputs of the body by which it is differentiated: all states, and what is asked for."""
    inputs = enumerate(op.body.inputs[2:])
    return [x for n, x in inputs if _is_smooth(x) and (n < op.carried or wanted[n])]


def kept_values(op: Loop, outputs: Sequence[Value]) -> list[Value]:
    """Values of the body that gradients read and that differ from run to run: the rows to keep.

    What is the same in all runs, and what only repeats elements, is computed again.
    """
    state, rows, _ = op.parts(op.body.inputs[2:])
    changing: set[Value | None] = {op.body.inputs[0], *state, *rows}
    keep: set[Value | None] = {*state}
    for node in op.body.nodes:
        if any(v in changing for v in node.inputs):
            changing.add(node)
            if isinstance(node.type, TensorType) and node.op.pattern is not Pattern.BROADCAST:
                keep.add(node)
    found: dict[Value, None] = {}
    seen: set[Value] = set()
    stack = list(reversed(outputs))
    while stack:
        v = stack.pop()
        if v in seen:
            continue
        seen.add(v)
        if v in keep or (
            isinstance(v, Node) and v.op.name == "getitem" and v.inputs[0] in changing
        ):
            found[v] = None
        elif isinstance(v, Node):
            stack += [x for x in reversed(v.inputs) if x is not None]
    return list(found)


def _read(outputs: Sequence[Value]) -> set[Value | None]:
    """All values that are needed for these."""
    graph = Graph.of("read", [], outputs)
    return {v for node in graph.nodes for v in node.inputs} | set(outputs)
