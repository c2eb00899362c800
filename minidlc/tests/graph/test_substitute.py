"""Symbols replaced by sizes: types are inferred again, bodies included."""

from __future__ import annotations

import numpy as np
import pytest

import minidlc as mc
from minidlc.expr.index import Index, Var
from minidlc.graph import Fused, Graph, Input, build, interpret, verify
from minidlc.graph.substitute import size_of, substitute, symbols
from minidlc.support.errors import TypeRuleError

N, M = Var("N"), Var("M")


def product() -> Graph:
    x, w = Input("x", mc.f32["N", 3]), Input("w", mc.f32[3, "M"])
    return Graph.of("f", [x, w], [mc.relu(x @ w)])


def test_every_type_is_inferred_again() -> None:
    graph = substitute(product(), {N: 2, M: 5})
    verify(graph)
    assert [str(n.type) for n in graph.nodes] == ["f32[2, 5]", "f32[2, 5]"]
    assert [n.name for n in graph.nodes] == [n.name for n in product().nodes]
    assert all(a.loc is not None for a in graph.nodes)


def test_a_symbol_that_is_not_given_stays() -> None:
    graph = substitute(product(), {M: 5})
    assert str(graph.outputs[0].type) == 'f32["N", 5]'
    assert symbols(product()) == (N, M)
    assert symbols(graph) == (N,)


def test_sizes_inside_expressions() -> None:
    dim = 2 * N + 1
    assert size_of(dim, {N: 3}) == 7
    assert size_of(4, {N: 3}) == 4
    assert size_of(Index.of(N) + M, {N: 3}) == 3 + M
    x = Input("x", mc.TensorType(mc.f32[()].dtype, (Index.of(N), 2 * N)))
    graph = substitute(Graph.of("g", [x], [mc.sum(x, axes=(1,))]), {N: 3})
    assert str(graph.inputs[0].type) == "f32[3, 6]"
    assert str(graph.outputs[0].type) == "f32[3, 1]"


def test_bodies_of_nodes() -> None:
    inner = Input("a", mc.f32["N"])
    body = Graph.of("body", [inner], [mc.exp(mc.relu(inner))])
    x = Input("x", mc.f32["N"])
    graph = substitute(Graph.of("g", [x], [build(Fused(body), (x,))]), {N: 4})
    verify(graph)
    values = np.linspace(-1, 1, 4, dtype=np.float32)
    np.testing.assert_array_equal(interpret(graph, [values])[0], np.exp(np.maximum(values, 0)))


def test_sizes_that_an_op_cannot_take() -> None:
    x = Input("x", mc.f32[1, 1, "N"])
    graph = Graph.of("g", [x], [mc.max_pool(x, kernel_shape=(4,))])
    assert substitute(graph, {N: 6}).outputs[0].type == mc.f32[1, 1, 3]
    with pytest.raises(TypeRuleError, match="max_pool"):
        substitute(graph, {N: 2})


def test_outputs_that_are_inputs_or_constants() -> None:
    x, c = Input("x", mc.f32["N"]), mc.Constant("c", np.ones(2, np.float32))
    graph = substitute(Graph.of("g", [x], [x, c]), {N: 2})
    assert graph.outputs == (graph.inputs[0], c)
