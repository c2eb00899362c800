"""Each invariant of a graph, broken once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given

import minidlc.ops  # noqa: F401
from minidlc.expr.types import f32, i64
from minidlc.graph import (
    Constant,
    Fused,
    Graph,
    Input,
    Node,
    Op,
    apply,
    build,
    getitem,
    register_op,
    unregister_op,
    verify,
)
from minidlc.support import extension
from minidlc.support.errors import VerifyError
from minidlc.tests.graph.graphs import graphs

pytestmark = pytest.mark.ch02

x = Input("x", f32[4])
y = Input("y", f32[4])


@pytest.fixture
def scaled() -> Iterator[type[Op]]:
    @register_op
    @dataclass(frozen=True)
    class Scaled(Op):
        name = "scaled"
        finite = ("by",)
        by: Any = 1.0

        def type_rule(self, x: Any) -> Any:
            return x

        def reference(self, x: Any) -> Any:
            return x * self.by

        def compute(self, x: Any) -> Any:
            return x

        @classmethod
        def examples(cls) -> Any:
            return ()

    yield Scaled
    unregister_op("scaled")


def refused(graph: Graph, code: str, *parts: str) -> VerifyError:
    with pytest.raises(VerifyError) as caught:
        verify(graph)
    assert caught.value.code == f"MDLC{code}", str(caught.value)
    for part in parts:
        assert part in str(caught.value)
    return caught.value


def chain() -> tuple[Node, Node]:
    a = apply("relu", x)
    return a, apply("exp", a)


def test_a_cycle() -> None:
    a, b = chain()
    object.__setattr__(a, "inputs", (b,))
    refused(Graph("f", (x,), (a, b), (b,)), "0402", "cycle through")


def test_a_node_before_what_it_reads() -> None:
    a, b = chain()
    refused(Graph("f", (x,), (b, a), (b,)), "0403", "'exp' stands before 'relu'")


def test_a_value_that_is_not_there() -> None:
    a, b = chain()
    refused(Graph("f", (x,), (b,), (b,)), "0404", "'exp' reads 'relu', which is not in the graph")
    refused(Graph("f", (y,), (a, b), (b,)), "0404", "the input 'x', which the graph does not list")


def test_a_node_twice() -> None:
    a, b = chain()
    refused(Graph("f", (x,), (a, a, b), (b,)), "0405", "'relu' stands twice")


def test_a_type_that_the_rule_does_not_give() -> None:
    a = replace(apply("relu", x), type=f32[5])
    e = refused(Graph("f", (x,), (a,), (a,)), "0406", "has type f32[5], its type rule gives f32[4]")
    assert e.loc is not None
    b = replace(apply("add", x, y), inputs=(x, Constant("c", np.zeros(3, np.float32))))
    refused(Graph("f", (x,), (b,), (b,)), "0406", "do not broadcast")


def test_an_output_that_is_not_defined() -> None:
    a, b = chain()
    refused(Graph("f", (x,), (a,), (b,)), "0407", "output 'exp'")
    refused(Graph("f", (x,), (), (y,)), "0407", "output 'y'")


def test_input_names() -> None:
    refused(Graph("f", (x, Input("x", f32[4])), (), ()), "0408", "two inputs are named 'x'")
    refused(Graph("f", (x, x), (), ()), "0408")


def two_results() -> Node:
    return build(Fused(Graph.of("b", [x], [apply("relu", x), apply("exp", x)])), [x], name="t")


def test_a_tuple_that_is_read_as_a_tensor() -> None:
    t = two_results()
    bad = replace(apply("relu", x), inputs=(t,))
    refused(Graph("f", (x,), (t, bad), (bad,)), "0409", "'relu' reads the tuple 't': use getitem")
    refused(Graph("f", (x,), (t,), (t,)), "0409", "output 't' is the tuple (f32[4], f32[4])")
    verify(Graph.of("f", [x], [getitem(t, 1)]))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_an_attribute_that_must_be_finite(scaled: type[Op], value: float) -> None:
    node = build(scaled(value), [x])  # pyright: ignore
    refused(Graph("f", (x,), (node,), (node,)), "0410", "'by' must be finite")


@pytest.mark.parametrize("value", [[1], np.zeros(2), {1: 2}, (1, [2]), object])
def test_an_attribute_that_text_cannot_write(scaled: type[Op], value: object) -> None:
    node = build(scaled(value), [x])  # pyright: ignore
    refused(Graph("f", (x,), (node,), (node,)), "0412", "'by'", "text cannot write")


def test_a_body_that_is_not_closed() -> None:
    body = Graph("b", (x,), (apply("relu", y),), (x,))
    node = build(Fused(body), [x])
    e = refused(Graph("f", (x,), (node,), (node,)), "0411", "body of 'fused'", "the input 'y'")
    assert "rule MDLC0404" in str(e)


def test_a_body_whose_types_do_not_agree() -> None:
    node = build(Fused(Graph("b", (x,), (), (x,))), [x])
    z = Input("z", i64[4])
    bad = replace(node, inputs=(z,))
    refused(Graph("f", (z,), (bad,), (bad,)), "0406", "takes (f32[4]), got (i64[4])")


def test_bodies_nested_too_deeply() -> None:
    body = Graph("b", (x,), (), (x,))
    for _ in range(60):
        node = build(Fused(body), [x])
        body = Graph("b", (x,), (node,), (node,))
    refused(body, "0414", "nested deeper")


def test_a_constant_that_may_change() -> None:
    c = Constant("c", np.zeros(3, np.float32))
    c.array.flags.writeable = True
    node = apply("relu", c)
    refused(Graph("f", (), (node,), (node,)), "0413", "constant 'c' is writable")
    refused(Graph("f", (), (), (c,)), "0413")


@pytest.mark.long
@given(graphs())
def test_every_graph_that_is_built_is_valid(g: Graph) -> None:
    verify(g)


def test_verify_is_an_extension_point() -> None:
    seen: list[str] = []
    with extension.use(verify=lambda g: seen.append(g.name)):
        verify(Graph("broken", (), (), (x,)))
    assert seen == ["broken"]
