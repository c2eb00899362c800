"""Passes reach the bodies of branches and loops, and change nothing else."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import minidlc.ops  # noqa: F401  fills the registry
from minidlc.expr.types import bool_, f32, i64
from minidlc.graph import Constant, Graph, Input, apply, interpret, verify
from minidlc.support.errors import PassError
from minidlc.support.extension import use
from minidlc.transform import Pipeline
from minidlc.transform.rebuild import bodies_of, map_bodies

pytestmark = pytest.mark.ch02


FOUR = Constant("c", np.float32([1, 2, 3, 4]))


def bodies(graph):
    """Every graph inside, innermost last."""
    found = []
    for node in graph.nodes:
        for body in bodies_of(node.op).values():
            found += [body, *bodies(body)]
    return found


def names(graph):
    return [node.op.name for node in graph.nodes]


def looped(make, trips=3):
    """`make(i, x)` of a loop in a branch: two levels of bodies."""
    i, c, x = Input("i", i64[()]), Input("c", bool_[()]), Input("x", f32[4])
    body = Graph.of("body", [i, c, x], [c, make(i, x)])
    x = Input("x", f32[4])
    yes = Graph.of("yes", [x], [apply("loop", None, None, x, body=body, carried=1, trips=trips)])
    no = Graph.of("no", [x], [apply("relu", x)])
    go, x = Input("go", bool_[()]), Input("x", f32[4])
    return Graph.of("g", [go, x], [apply("if_", go, x, then_branch=yes, else_branch=no)])


def through(pipeline, graph):
    after, _ = pipeline.run(graph)
    verify(after)
    for go in (True, False):
        given = [np.array(go), np.linspace(-1, 1, 4, dtype=np.float32)]
        a, b = (interpret(g, given)[0] for g in (graph, after))
        np.testing.assert_allclose(a, b, rtol=1e-6)
    return after


@pytest.mark.parametrize(
    ("make", "passes", "wanted"),
    [
        (lambda i, x: apply("hard_swish", x), (), None),
        (lambda i, x: x + apply("neg", FOUR), ("fold_constants",), ["add"]),
        (lambda i, x: apply("relu", apply("relu", x)) * 1.0, ("canonicalize",), ["relu"]),
        (lambda i, x: apply("exp", x) + apply("exp", x), ("cse",), ["exp", "add"]),
        (lambda i, x: apply("tanh", x * 2.0) + 1.0, ("fuse",), ["fused"]),
    ],
)  # fmt: skip
def test_each_pass_works_on_bodies(make, passes, wanted):
    graph = looped(make)
    after = through(Pipeline.default(3).only(*passes), graph)
    assert names(after) == ["if_"]
    (inner,) = (b for b in bodies(after) if b.name == "body")
    if wanted is not None:
        assert names(inner) == wanted


def test_composite_ops_of_bodies_and_loops_that_appear_are_decomposed():
    i, c, s, x = Input("i", i64[()]), Input("c", bool_[()]), Input("s", f32[4]), Input("x", f32[4])
    step = Graph.of("step", [s, x], [apply("softmax", s + apply("mean", x))])
    rows, s = Input("rows", f32[5, 4]), Input("s", f32[4])
    scanned = apply("scan", s, rows, body=step, states=1)
    body = Graph.of("body", [i, c, s, rows], [c, scanned])
    s, rows = Input("s", f32[4]), Input("rows", f32[5, 4])
    node = apply("loop", None, None, s, rows, body=body, carried=1, trips=2)
    graph = Graph.of("g", [s, rows], [node])
    after, _ = Pipeline.default(0).run(graph)
    assert [b.name for b in bodies(after)] == ["body", "step"]
    given = [np.zeros(4, np.float32), np.ones((5, 4), np.float32)]
    np.testing.assert_allclose(interpret(after, given)[0], interpret(graph, given)[0], rtol=1e-6)


def test_dead_code_of_a_body_goes_and_is_noticed():
    graph = looped(lambda i, x: x + 1.0)

    def with_dead_node(body):
        return replace(body, nodes=(*body.nodes, apply("exp", body.inputs[-1])))

    dead = map_bodies(graph, lambda branch: map_bodies(branch, with_dead_node))
    assert [len(b.nodes) for b in bodies(dead)] == [1, 2, 1]
    after = through(Pipeline.default(1).only("dce"), dead)
    assert [len(b.nodes) for b in bodies(after)] == [1, 1, 1]
    with (
        use(**{"pass.dce": lambda g: dead if g.name == "g" else g}),
        pytest.raises(PassError, match="no_dead_code"),
    ):
        Pipeline.default(1).only("dce").run(graph)


def test_a_pass_that_changes_nothing_returns_the_same_graph():
    graph = looped(lambda i, x: x + 1.0)
    assert map_bodies(graph, lambda body: body) is graph
    _, records = Pipeline.default(1).run(graph)
    assert not any(r.changed for r in records)


def test_a_broken_body_is_reported_with_the_pass():
    graph = looped(lambda i, x: x + 1.0)

    def breaks(g):
        return replace(g, outputs=g.outputs[:-1]) if g.name == "body" else g

    broken = Pipeline.default(1).replace("cse", breaks)
    with pytest.raises(PassError, match="pass 'cse'"):
        broken.run(graph)


def test_a_known_condition_leaves_the_branch_and_no_if():
    x, y = Input("x", f32[4]), Input("x", f32[4])
    yes, no = Graph.of("yes", [y], [y * 2.0]), Graph.of("no", [y], [y * 3.0])
    is_three = apply("equal", Constant("n", np.array(3)), Constant("m", np.array(3)))
    graph = Graph.of("g", [x], [apply("if_", is_three, x, then_branch=yes, else_branch=no)])
    after, records = Pipeline.default(1).run(graph)
    assert names(after) == ["mul"]
    assert any("always yes" in str(e) for r in records for e in r.rewrites)


def test_equal_loops_are_merged_and_loops_are_never_folded():
    graph = looped(lambda i, x: x + 1.0)
    (node,) = graph.nodes
    go, x = graph.inputs
    twice = Graph.of("g", [go, x], [node + apply("if_", go, x, **node.op.attributes())])
    after, _ = Pipeline.default(1).run(twice)
    assert names(after) == ["if_", "add"]
    known = Constant("x", np.zeros(4, np.float32))
    loop = bodies(graph)[0].nodes[0]
    constant = Graph.of("g", [], [apply("loop", None, None, known, **loop.op.attributes())])
    after, records = Pipeline.default(1).run(constant)
    assert names(after) == ["loop"]
    assert any("without end" in str(e) for r in records for e in r.refusals)
