"""Equality of graphs: what they compute, not what things are called."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given

import minidlc.ops  # noqa: F401
from minidlc.expr.types import f32
from minidlc.graph import (
    Constant,
    Graph,
    Input,
    Op,
    apply,
    build,
    difference,
    op_key,
    parse,
)
from minidlc.tests.graph.graphs import graphs

pytestmark = pytest.mark.ch01

F = "def f(x: f32[4], y: f32[4]):\n    a: f32[4] = sub(x, y)\n    b: f32[4] = relu(a)\n    return b"


def test_names_do_not_count() -> None:
    other = F.replace("f(", "g(").replace("a", "z").replace("x", "q")
    other = other.replace("relu(z)", "relu(z)").replace("rezu", "relu")
    assert parse(F) == parse(other)
    assert hash(parse(F)) == hash(parse(other))
    assert difference(parse(F), parse(other)) is None
    assert parse(F) != "text"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("sub(x, y)", "sub(y, x)"),
        ("sub(x, y)", "sub(x, x)"),
        ("sub", "add"),
        ("relu(a)", "leaky_relu(a)"),
        ("f32", "f64"),
        ("return b", "return a"),
        ("return b", "return b, b"),
        ("[4]", "[5]"),
    ],
)
def test_everything_else_counts(old: str, new: str) -> None:
    other = parse(F.replace(old, new))
    assert parse(F) != other
    assert difference(parse(F), other) is not None


def test_an_unused_input_and_dead_code_count() -> None:
    x, y = Input("x", f32[4]), Input("y", f32[4])
    r = apply("relu", x)
    assert Graph.of("f", [x], [r]) != Graph.of("f", [x, y], [r])
    assert Graph("f", (x,), (r,), (r,)) != Graph("f", (x,), (r, apply("exp", x)), (r,))


def test_sharing_and_order_of_execution_count() -> None:
    x = Input("x", f32[4])
    a, b = apply("exp", x), apply("exp", x)
    assert Graph.of("f", [x], [a + b]) != Graph.of("f", [x], [a + a])
    c = apply("relu", x)
    s = a + c
    one, two = Graph("f", (x,), (a, c, s), (s,)), Graph("f", (x,), (c, a, s), (s,))
    assert one != two
    assert "node 0" in (difference(one, two) or "")


def test_constants_compare_by_bytes_and_type() -> None:
    def graph(*values: float, dtype: str = "float32") -> Graph:
        return Graph.of("f", [], [Constant("c", np.array(values, dtype))])

    nan = float("nan")
    assert graph(1, nan) == graph(1, nan)
    assert graph(0.0) != graph(-0.0)
    assert graph(1) != graph(1, dtype="int32")
    assert graph(0.0) != graph(0, dtype="int32")
    shaped = Graph.of("f", [], [Constant("c", np.zeros((1, 2), np.float32))])
    assert shaped != graph(0, 0)


@dataclass(frozen=True)
class Scaled(Op):
    name = "scaled"
    by: object = 1

    def type_rule(self, x: object) -> object:
        return x


def test_attributes_compare_to_the_bit() -> None:
    values = [1, 1.0, True, "1", (1,), 0.0, -0.0, float("nan"), None, f32, f32[1], (1.0,), ((1,),)]
    assert len({op_key(Scaled(v)) for v in values}) == len(values)
    assert op_key(Scaled(float("nan"))) == op_key(Scaled(float("nan")))


def test_two_classes_of_one_name_differ() -> None:
    other = type("Other", (Scaled,), {})
    x = Input("x", f32[4])
    a, b = (Graph.of("f", [x], [build(op, [x])]) for op in (Scaled(1), other(1)))
    assert a != b


@pytest.mark.long
@given(graphs())
def test_a_graph_equals_its_copy_and_not_a_longer_one(g: Graph) -> None:
    copy = Graph("copy", g.inputs, g.nodes, g.outputs)
    assert copy == g
    assert len({g, copy}) == 1
    longer = Graph(g.name, g.inputs, g.nodes, (*g.outputs, g.outputs[0]))
    assert longer != g


def test_deep_graphs_compare_without_recursion() -> None:
    x = Input("x", f32[4])
    y = x
    for _ in range(5000):
        y = apply("relu", y)
    assert Graph.of("f", [x], [y]) == Graph.of("g", [x], [y])


def test_a_constant_does_not_change_with_the_array_it_was_made_from() -> None:
    array = np.zeros(3, np.float32)
    view = array.view()
    view.flags.writeable = False
    constants = [Constant("c", array), Constant("c", view), Constant("c", array[::-1])]
    array[:] = 7
    assert all(float(c.array.sum()) == 0 for c in constants)
