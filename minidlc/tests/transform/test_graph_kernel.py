"""Composites opened where they share a step with another op, merged, and grouped anew."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

import minidlc as mc
from minidlc.graph import Fused, Graph, interpret, parse, verify
from minidlc.tests.graph.graphs import feeds, graphs
from minidlc.transform import Fuse, GraphKernel, Pipeline, collecting

pytestmark = pytest.mark.ch02

X = "x: f32[6, 96], s: f32[96], t: f32[96], b: f32[96]"


def opened(*lines: str, params: str = X) -> tuple[Graph, list[str]]:
    g = parse("\n    ".join([f"def f({params}):", *lines]))
    with collecting() as events:
        after = GraphKernel()(g)
    verify(after)
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(i.type.dims).astype(i.type.dtype.numpy) for i in g.inputs]
    for a, b in zip(interpret(g, arrays), interpret(after, arrays), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    return after, [str(e) for e in events if "->" not in str(e)]


def kernels(g: Graph) -> int:
    return sum(not n.op.is_view for n in g.nodes)


def inside(g: Graph) -> list[str]:
    (body,) = (n.op.body for n in g.nodes if isinstance(n.op, Fused))
    return [n.op.name for n in body.nodes]


def test_softmax_and_its_logarithm_share_four_steps() -> None:
    """Two kernels with a maximum, exponentials and a sum each become one with one of each."""
    lines = ("p = softmax(x)", "q = log_softmax(x)", "return p, q")
    after, events = opened(*lines)
    assert kernels(after) == 1
    assert sorted(inside(after)) == ["div", "exp", "log", "max", "sub", "sub", "sum"]
    assert events[:2] == ["open softmax at p: done", "open log_softmax at q: done"]
    assert "same as exp at exp: done" in events
    assert kernels(Fuse()(parse(f"def f({X}):\n    " + "\n    ".join(lines)))) == 2


def test_two_norms_share_their_statistics() -> None:
    after, _ = opened("p = layer_norm(x, s, b)", "q = layer_norm(x, t, b)", "return p, q")
    assert kernels(after) == 1
    assert inside(after).count("mean") == 2  # of the elements, and of the squares; not four


def test_other_numbers_share_less() -> None:
    """Another epsilon: the variance is shared, the root is not."""
    after, _ = opened("p = layer_norm(x, s)", "q = layer_norm(x, s, epsilon=0.5)", "return p, q")
    assert (inside(after).count("mean"), inside(after).count("sqrt")) == (2, 2)


def test_an_op_that_is_such_a_step() -> None:
    after, _ = opened("m = max(x, axes=(1,))", "p = softmax(x)", "return m, p")
    assert inside(after).count("max") == 1
    assert kernels(after) == 1


def test_what_shares_nothing_stays_closed() -> None:
    after, events = opened("p = softmax(x)", "q = softmax(x, axis=0)", "return p, q")
    assert [n.op.name for n in after.nodes] == ["softmax", "softmax"]
    assert events == [f"open at {n}: no other op computes one of its steps" for n in "pq"]


def test_narrow_floats_stay_closed() -> None:
    lines = ("p = softmax(x)", "q = log_softmax(x)", "return p, q")
    g = parse("\n    ".join(["def f(x: f16[6, 96]):", *lines]))
    with collecting() as events:
        GraphKernel()(g)
    refusals = [str(e) for e in events if str(e).startswith("open")]
    assert refusals == [f"open at {n}: its steps in f16 would be rounded" for n in "pq"]


def test_symbolic_sizes_stay_closed() -> None:
    g = parse("""\
def f(x: f32["N", 96]):
    p = softmax(x)
    q = log_softmax(x)
    return p, q
""")
    assert GraphKernel()(g) is g


def test_strict_precision_goes_without() -> None:
    assert not GraphKernel.exact


@pytest.mark.long
@given(graphs(max_nodes=12))
def test_random_graphs_keep_their_numbers(g: Graph) -> None:
    after = GraphKernel()(g)
    verify(after)
    inputs = feeds(g)
    for a, b in zip(interpret(g, inputs), interpret(after, inputs), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.llvm
def test_compiled() -> None:
    lines = ("p = softmax(x)", "q = log_softmax(x)", "r = layer_norm(x, s)", "return p, q, r")
    g = parse("\n    ".join([f"def f({X}):", *lines]))
    exe = mc.compile(g, pipeline=Pipeline.default().replace("fuse", GraphKernel()))
    assert len(exe.kernels) == 1 < len(mc.compile(g).kernels)
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(i.type.dims).astype(np.float32) for i in g.inputs]
    for a, b in zip(exe(*arrays), interpret(g, arrays), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
