"""Random branches and loops, nested, whose results are any values in reach: aliases above all."""

from __future__ import annotations

import numpy as np
import pytest

import minidlc as mc
from minidlc.expr.types import bool_, f32, i64
from minidlc.graph import Constant, Graph, Input, TupleType, apply, getitem, interpret, parse

pytestmark = pytest.mark.llvm

TYPE = f32[2, 3]


class Maker:
    """Graphs of values of one type, drawn from a seed."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.count = 0

    def input(self, type=TYPE):
        self.count += 1
        return Input(f"x{self.count}", type)

    def pick(self, pool):
        return pool[self.rng.integers(len(pool))]

    def graph(self):
        condition, values = self.input(bool_[()]), [self.input() for _ in range(3)]
        results = self.values(list(values), condition, depth=2)
        return Graph.of("g", [condition, *values], [self.pick(results) for _ in range(3)])

    def values(self, pool, condition, depth):
        """The pool grown by some steps."""
        for _ in range(self.rng.integers(1, 5)):
            kind = self.rng.choice(["binary", "unary", "view", "constant", "if", "loop", "loop"])
            pool = pool + list(self.step(kind, pool, condition, depth))
        return pool

    def step(self, kind, pool, condition, depth):
        a, b = self.pick(pool), self.pick(pool)
        match kind:
            case "binary":
                return [apply(self.pick(["add", "sub", "minimum"]), a, b)]
            case "unary":
                return [apply(self.pick(["tanh", "neg", "relu"]), a)]
            case "view":
                return [apply("reshape", apply("reshape", a, shape=(6,)), shape=(2, 3))]
            case "constant":
                return [Constant("c", self.rng.integers(-2, 3, (2, 3)).astype(np.float32))]
            case "if" if depth:
                return self.parts(self.branch(pool, condition, depth))
            case "loop" if depth:
                return self.loop(pool, condition, depth)
            case _:
                return []

    def parts(self, node):
        if not isinstance(node.type, TupleType):
            return [node]
        return [getitem(node, n) for n in range(len(node.type.items))]

    def branch(self, pool, condition, depth):
        captures = [self.pick(pool) for _ in range(self.rng.integers(0, 3))]
        count = self.rng.integers(1, 4)

        def side(name):
            own, c = [self.input() for _ in captures], self.input(bool_[()])
            zero = [Constant("zero", np.zeros((2, 3), np.float32))]
            found = self.values(own + zero, c, depth - 1)
            return Graph.of(name, [*own, c], [self.pick(found) for _ in range(count)])

        sides = {"then_branch": side("yes"), "else_branch": side("no")}
        return apply("if_", condition, *captures, condition, **sides)

    def loop(self, pool, condition, depth):
        """A counted loop with rows and stacks, or one that a condition or a number ends."""
        carried, captured = self.rng.integers(1, 4), self.rng.integers(0, 3)
        stacked = int(self.rng.integers(0, 3))
        state, captures = ([self.pick(pool) for _ in range(n)] for n in (carried, captured))
        run, go = self.input(i64[()]), self.input(bool_[()])
        own = [self.input() for _ in range(carried + captured)]
        found = self.values(list(own), go, depth - 1)
        results = [self.pick(found) for _ in range(carried + stacked)]
        if self.rng.integers(2):
            body = Graph.of("body", [run, go, *own], [go, *results])
            trips = int(self.rng.integers(0, 4))
            given = {"carried": int(carried), "trips": trips}
            node = apply("loop", None, None, *state, *captures, body=body, **given)
            values = self.parts(node)
            stacks = values[carried:] if trips else []
            return values[:carried] + [apply("sum", y, axes=(0,), keepdims=False) for y in stacks]
        less = apply("less", run, int(self.rng.integers(0, 3)))
        body = Graph.of("body", [run, go, *own], [less, *results[:carried]])
        limit = self.pick([None, Constant("n", np.array(self.rng.integers(0, 4)))])
        given = {"body": body, "carried": int(carried)}
        return self.parts(apply("loop", limit, condition, *state, *captures, **given))


def check(seed):
    graph = Maker(seed).graph()
    assert parse(str(graph)) == graph
    rng = np.random.default_rng(seed)
    executables = [mc.compile(graph, opt_level=n, threads=n % 2 + 1) for n in (0, 3)]
    for go in (True, False):
        arrays = [np.array(go), *(rng.standard_normal((2, 3)).astype(np.float32) for _ in "abc")]
        wanted = interpret(graph, arrays)
        for exe in executables:
            for a, b in zip(exe(*arrays), wanted, strict=True):
                np.testing.assert_allclose(a, b, 1e-5, 1e-5, err_msg=f"seed {seed}\n{graph}")


@pytest.mark.parametrize("seed", range(8))
def test_random_control_flow(seed):
    check(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 400))
def test_more_random_control_flow(seed):
    check(seed)
