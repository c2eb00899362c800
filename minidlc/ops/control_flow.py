"""Ops that hold graphs and decide at run time which of them run, and how often: if_, loop.

    h = apply("if_", c, x, then_branch=double, else_branch=zero)     # x is captured by both
    y = apply("loop", n, None, x, body=step, carried=1)              # at most n times
    y = apply("loop", None, None, x, body=step, carried=1, trips=5)  # exactly 5 times: may stack

A body is a closed graph: what it reads of the outside are inputs of the node (captures), so every
pass and every kernel treats it like any other graph. lower/program.py makes branches and loops of
them in the one native function. Treated in course chapter 01_graph_ir.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from minidlc.expr.types import Array, DType, TensorType, bool_, f32, i64
from minidlc.graph.graph import Constant, Graph, Input, Value, apply
from minidlc.graph.interpret import interpret
from minidlc.graph.op import Example, Op, OpKind, register_op
from minidlc.graph.types import TupleType, Type
from minidlc.ops import rules
from minidlc.ops.rules import Values

T = TypeVar("T")
BODY, COUNT = "MDLC0218", "MDLC0219"


def several(types: Sequence[Type]) -> Type:
    """The type of a node with these results."""
    items = tuple(t for t in types if isinstance(t, TensorType))
    return items[0] if len(items) == 1 else TupleType(items)


def results(arrays: Sequence[Array]) -> Array | tuple[Array, ...]:
    """What a reference returns for these results."""
    return arrays[0] if len(arrays) == 1 else tuple(arrays)


def listed(types: Sequence[Type]) -> str:
    """Types as a message shows them."""
    return f"({', '.join(map(str, types))})"


def _pure(*bodies: Graph) -> bool:
    """True if no op in the bodies has effects."""
    return all(node.op.pure for body in bodies for node in body.nodes)


def _scalar(op: Op, name: str, type: TensorType, element: DType) -> None:
    """Require one element of this type: what decides about a branch or a loop is one number."""
    if type.dtype != element or not type.is_static or type.size != 1:
        rules.fail(op, f"{name} must be one element of {element}, got {type}", BODY)


@register_op
@dataclass(frozen=True)
class If(Op):
    """if_(c, x, …) = then_branch(x, …) where c is true, else_branch(x, …) where it is false.

    Both branches take all captures and have results of the same types.
    """

    name = "if_"
    kind = OpKind.CONTROL

    then_branch: Graph
    else_branch: Graph

    @property
    def pure(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """False if a branch has an op with effects."""
        return _pure(self.then_branch, self.else_branch)

    def type_rule(self, condition: TensorType, *captures: TensorType) -> Type:
        _scalar(self, "the condition", condition, bool_)
        for branch in (self.then_branch, self.else_branch):
            if branch.input_types() != captures:
                text = f"{branch.name} takes {listed(branch.input_types())}"
                rules.fail(self, f"{text}, the captures are {listed(captures)}", BODY)
        yes, no = self.then_branch.output_types(), self.else_branch.output_types()
        if yes != no or not yes:
            text = f"the branches give {listed(yes)} and {listed(no)}"
            rules.fail(self, f"{text}, expected at least one result, of equal types", BODY)
        return several(yes)

    def reference(self, condition: Values, *captures: Values) -> Array | tuple[Array, ...]:
        branch = self.then_branch if condition.item() else self.else_branch
        return results(interpret(branch, captures))

    @classmethod
    def examples(cls) -> Iterable[Example]:
        """Both ways; several results, an unused capture, a capture as result, no captures."""
        x, y = Input("x", f32[2, 3]), Input("y", f32[3])
        both = cls(
            Graph.of("yes", [x, y], [apply("add", x, y), y]),
            Graph.of("no", [x, y], [apply("mul", x, 2.0), apply("neg", y)]),
        )
        data = np.arange(6, dtype=np.float32).reshape(2, 3), np.array([1, -2, np.nan], np.float32)
        yield Example(both, (np.array(True), *data))
        yield Example(both, (np.array(False), *data))
        one = cls(Graph.of("yes", [x], [x]), Graph.of("no", [x], [apply("relu", x)]))
        yield Example(one, (np.array([False]), -data[0]))
        yield Example(one, (np.array([True]), -data[0]))
        five, six = (Constant("c", np.array(n)) for n in (5, 6))
        numbers = cls(Graph.of("yes", [], [five]), Graph.of("no", [], [six]))
        yield Example(numbers, (np.array(False),))
        empty = Input("x", f32[0, 3])
        nothing = cls(Graph.of("yes", [empty], [empty]), Graph.of("no", [empty], [-empty]))
        yield Example(nothing, (np.array(False), np.empty((0, 3), np.float32)))


@register_op
@dataclass(frozen=True)
class Loop(Op):
    """loop(n, c, s…, x…) = s… after at most n runs of body(i, c, s…, x…) → c, s…, y….

    Of the node's inputs behind n and c the first `carried` go from run to run; of the next
    `scanned` run i gets row i; the rest are captures. Without n only c ends the loop, without c
    only n does (what the body says of it is then ignored).

    `trips` says how often the body runs, in place of n and c. Only then the body may have results
    besides c and s: those of all runs are stacked (y[i] is that of run i).
    """

    kind = OpKind.CONTROL
    optional = (0, 1)

    body: Graph
    carried: int = 0
    scanned: int = 0
    trips: int | None = None

    @property
    def pure(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """False if the body has an op with effects."""
        return _pure(self.body)

    def type_rule(
        self, n: TensorType | None, condition: TensorType | None, *rest: TensorType
    ) -> Type:
        self._check_count(n, condition)
        if self.carried < 0 or self.scanned < 0 or self.carried + self.scanned > len(rest):
            text = f"{self.carried} carried and {self.scanned} scanned values of {len(rest)} inputs"
            rules.fail(self, text, BODY)
        state, scanned, captures = self.parts(rest)
        rows = tuple(self._row(t) for t in scanned)
        wanted = (i64[()], bool_[()], *state, *rows, *captures)
        if self.body.input_types() != wanted:
            text = f"{self.body.name} takes {listed(self.body.input_types())}"
            rules.fail(self, f"{text}, it is given {listed(wanted)}", BODY)
        given = self.body.output_types()
        expected = (bool_[()], *state)
        if given[: len(expected)] != expected:
            text = f"{self.body.name} gives {listed(given)}"
            rules.fail(self, f"{text}, expected {listed(expected)} first", BODY)
        stacks = [t for t in given[len(expected) :] if isinstance(t, TensorType)]
        if stacks and self.trips is None:
            text = f"{self.body.name} has {len(stacks)} results to stack: how many rows?"
            rules.fail(self, text, COUNT, "trips says how often the body runs")
        if len(given) == 1:
            rules.fail(self, "carries nothing and stacks nothing: it has no result", BODY)
        return several([*state, *(t.with_shape((self.trips or 0, *t.shape)) for t in stacks)])

    def _check_count(self, n: TensorType | None, condition: TensorType | None) -> None:
        """Something ends the loop, and nothing contradicts `trips`."""
        if n is not None:
            _scalar(self, "the number of runs", n, i64)
        if condition is not None:
            _scalar(self, "the condition", condition, bool_)
        if self.trips is None:
            if n is None and condition is None:
                rules.fail(self, "nothing ends it", COUNT, "give n, c or trips")
            return
        if self.trips < 0:
            rules.fail(self, f"trips must be at least 0, got {self.trips}", COUNT)
        if n is not None or condition is not None:
            text = "trips stands in place of n and c, got them too"
            rules.fail(self, text, COUNT, "loop(None, None, …)")
        if not self.goes_on:
            text = f"the body decides when to stop, but trips says {self.trips}"
            hint = "its first result must be its condition or the constant True"
            rules.fail(self, text, COUNT, hint)

    @property
    def goes_on(self) -> bool:
        """True if the body cannot stop the loop: it returns its condition, or the constant True."""
        if not self.body.outputs or len(self.body.inputs) < 2:
            return True  # another rule says what is wrong
        said: Value = self.body.outputs[0]
        if isinstance(said, Constant):
            return bool(said.array.all())
        return said is self.body.inputs[1]

    def _row(self, type: TensorType) -> TensorType:
        if self.trips is None or type.rank == 0 or type.shape[0] != self.trips:
            text = f"a scanned input needs one row for each run, got {type} for {self.trips} runs"
            rules.fail(self, text, COUNT)
        return type.with_shape(type.shape[1:])

    def parts(self, rest: Sequence[T]) -> tuple[Sequence[T], Sequence[T], Sequence[T]]:
        """What follows n and c: carried values, scanned values, captures."""
        a, b = self.carried, self.carried + self.scanned
        return rest[:a], rest[a:b], rest[b:]

    def reference(
        self, n: Values | None, condition: Values | None, *rest: Values
    ) -> Array | tuple[Array, ...]:
        limit = self.trips if n is None else int(n.item())
        proceed = condition is None or bool(condition.item())
        state, scanned, captures = self.parts(rest)
        stacks: list[list[Array]] = [[] for _ in self.body.outputs[1 + self.carried :]]
        run = 0
        while proceed and (limit is None or run < limit):
            rows = [x[run] for x in scanned]
            inputs = [np.int64(run), np.bool_(proceed), *state, *rows, *captures]
            said, *found = interpret(self.body, list(map(np.asarray, inputs)))
            state = found[: self.carried]
            for stack, y in zip(stacks, found[self.carried :], strict=True):
                stack.append(y)
            proceed = condition is None or bool(said.item())
            run += 1
        return results([*map(np.asarray, state), *map(self._stack, range(len(stacks)), stacks)])

    def _stack(self, number: int, rows: list[Array]) -> Array:
        type = self.body.outputs[1 + self.carried + number].type
        assert isinstance(type, TensorType)
        shape = rows[0].shape if rows else tuple(d if isinstance(d, int) else 0 for d in type.shape)
        return np.array(rows, type.dtype.numpy).reshape(len(rows), *shape)

    @classmethod
    def examples(cls) -> Iterable[Example]:
        """No runs, early ends, values that change places, stacked results, rows of an input."""
        yield from _counted(cls)
        yield from _conditional(cls)
        yield from _stacking(cls)


def _counted(loop: type[Loop]) -> Iterable[Example]:
    """x + 0 + 1 + …, and two values that change places."""
    i, c, x = Input("i", i64[()]), Input("c", bool_[()]), Input("x", i64[()])
    add = Graph.of("body", [i, c, x], [c, apply("add", x, i)])
    one = np.array(1)
    for n, start in ((5, None), (0, None), (-3, None), (5, True), (5, False)):
        condition = None if start is None else np.array(start)
        yield Example(loop(add, 1), (np.array(n), condition, one))
    yield Example(loop(add, 1, trips=4), (None, None, one))
    a, b, w = Input("a", f32[2, 3]), Input("b", f32[2, 3]), Input("w", f32[3])
    swap = Graph.of("swap", [i, c, a, b, w], [c, b, apply("add", a, w)])
    data = np.array([[1, 2, np.nan], [4, 5, 6]], np.float32), np.full((2, 3), 9, np.float32)
    yield Example(
        loop(swap, 2), (np.array([3]), None, *data, np.array([1, 10, np.inf], np.float32))
    )


def _conditional(loop: type[Loop]) -> Iterable[Example]:
    """Doubled until it is large enough; the condition alone, or with a limit."""
    i, c, x = Input("i", i64[()]), Input("c", bool_[()]), Input("x", f32[7])
    top = Input("top", f32[()])
    twice = apply("mul", x, 2.0)
    most = apply("max", twice, axes=(0,), keepdims=False)
    body = Graph.of("double", [i, c, x, top], [apply("less", most, top), twice])
    data = np.arange(7, dtype=np.float32)
    for n, start, bound in ((None, True, 100), (2, True, 100), (9, False, 100), (9, True, -1)):
        limit = None if n is None else np.array(n)
        yield Example(loop(body, 1), (limit, np.array(start), data, np.array(bound, np.float32)))


def _stacking(loop: type[Loop]) -> Iterable[Example]:
    """Running sums over the rows of an input, every one kept; no rows at all."""
    i, c, s, x = (Input("i", i64[()]), Input("c", bool_[()]), *map(Input, "sx", (f32[3], f32[3])))
    total = apply("add", s, x)
    body = Graph.of("total", [i, c, s, x], [c, total, total, i, x])
    for n in (5, 1, 0):
        rows = np.arange(3 * n, dtype=np.float32).reshape(n, 3)
        op = loop(body, 1, scanned=1, trips=n)
        yield Example(op, (None, None, np.array([0, 1, 2], np.float32), rows))
    only = Graph.of("only", [i, c], [Constant("t", np.array(True)), apply("mul", i, 3)])
    yield Example(loop(only, trips=3), (None, None))
