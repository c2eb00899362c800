"""Fusion in XLA's style: producers go into all consumers, where that pays; what it repeats."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

import minidlc.ops  # noqa: F401
from minidlc.graph import Fused, Graph, interpret, parse, verify, weights_of
from minidlc.tests.graph.graphs import feeds, graphs
from minidlc.transform import Fuse, Pair, Pipeline, collecting
from minidlc.transform.fusion.fuse_xla import FLOPS_PER_BYTE
from minidlc.transform.fusion.fusion_costs import graph_bytes, graph_flops

pytestmark = pytest.mark.ch02

X = "x: f32[2, 64], w: f32[64, 64], b: f32[64]"


def fused(*lines: str, params: str = X, max_ops: int = 32) -> tuple[Graph, dict[str, Pair]]:
    g = parse("\n    ".join([f"def f({params}):", *lines]))
    with collecting() as events:
        after = Fuse(style="xla", max_ops=max_ops)(g)
    verify(after)
    assert parse(str(after), weights_of(after)) == after
    check_same_numbers(g, after)
    pairs = [e for e in events if isinstance(e, Pair)]
    assert len(pairs) == sum(len(set(n.inputs) & set(g.nodes)) for n in g.nodes)
    return after, {f"{p.producer} -> {p.consumer}": p for p in pairs}


def check_same_numbers(before: Graph, after: Graph) -> None:
    inputs = feeds(before)
    for a, b in zip(interpret(before, inputs), interpret(after, inputs), strict=True):
        assert np.array_equal(a, b, equal_nan=True)


def kernels(g: Graph) -> list[str]:
    return [n.op.body.name if isinstance(n.op, Fused) else n.op.name for n in g.nodes]


def test_a_producer_goes_into_each_consumer() -> None:
    """e has readers that lead to different outputs: groups by post-dominance keep it apart."""
    lines = ("e = exp(x)", "y = add(x, e)", "z = neg(e)", "return y, z")
    after, pairs = fused(*lines)
    assert kernels(after) == ["exp_add", "exp_neg"]
    assert [n.name for n in after.nodes] == ["y", "z"]
    size = 2 * 64 * 4
    # e was written once and read twice; x is read by e no more, but by z
    assert pairs["e -> y"].bytes_saved == 3 * size
    assert pairs["e -> y"].flops_repeated == 2 * 64
    assert pairs["e -> z"].bytes_saved == 0  # the decision is one; its worth stands at the first
    tvm = Fuse()(parse("\n    ".join([f"def f({X}):", *lines])))
    assert kernels(tvm) == ["exp", "add", "neg"]


def test_what_costs_more_than_it_saves_stays() -> None:
    """A function of a row of 64, wanted in 100 rows: 100 times the work for 256 bytes."""
    params = "x: f32[100, 64], b: f32[64]"
    after, pairs = fused("e = exp(b)", "y = add(x, e)", "return y", params=params)
    assert kernels(after) == ["exp", "add"]
    pair = pairs["e -> y"]
    assert pair.reason == "it costs more than it saves"
    assert (pair.bytes_saved, pair.flops_repeated) == (2 * 64 * 4, 99 * 64)
    assert pair.bytes_saved < pair.flops_repeated / FLOPS_PER_BYTE
    few, _ = fused("e = exp(b)", "y = add(x, e)", "return y")  # twice the work saves its way
    assert kernels(few) == ["exp_add"]


def test_a_product_is_never_repeated() -> None:
    after, pairs = fused("m = matmul(x, w)", "r = relu(m)", "n = neg(m)", "return r, n")
    assert kernels(after) == ["matmul", "relu", "neg"]
    assert pairs["m -> r"].flops_repeated == 2 * 2 * 64 * 64
    one, _ = fused("m = matmul(x, w)", "a = add(m, b)", "r = relu(a)", "return r")
    assert kernels(one) == ["matmul_add_relu"]


def test_into_the_loops_of_a_reduction() -> None:
    after, _ = fused("d = sub(x, b)", "q = mul(d, d)", "s = sum(q, axes=(1,))", "return s")
    assert kernels(after) == ["sub_mul_sum"]
    assert after.nodes[0].op.attributes()["anchor"] == "reduction"


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (("r = relu(x)", "m = matmul(r, w)", "return m"), "matmul reads its inputs more than once"),
        (("r = relu(x)", "m = softmax(r)", "return m"), "softmax reads its inputs more than once"),
        (("r = relu(x)", "e = exp(r)", "return r, e"), "it is an output of the graph"),
        (("r = sum(x, axes=(1,))", "e = sum(r)", "return e"), "both need a loop nest of their own"),
        (("m = matmul(x, w)", "t = transpose(m)", "return t"), "it moves the results of an anchor"),
        (("m = sum(x, axes=(1,))", "t = add(m, x)", "return t"), "another shape than f32[2, 64]"),
        (("r = relu(x)", "v = reshape(r, shape=(128,))", "return v"), "reshape is a view"),
    ],
)
def test_refusals(lines: tuple[str, ...], reason: str) -> None:
    after, pairs = fused(*lines)
    assert not any(isinstance(n.op, Fused) for n in after.nodes)
    (pair,) = pairs.values()
    assert not pair.fused
    assert reason in pair.reason


def test_an_output_inside_stays_an_output() -> None:
    """FAULTS 90: fusion swallowed a value that is a graph output."""
    after, _ = fused("r = relu(x)", "e = exp(r)", "n = neg(e)", "return e, n")
    assert kernels(after) == ["relu_exp", "neg"]


def test_a_slice_in_one_piece_is_free_already() -> None:
    """Two halves of a transposed matrix: one kernel moves it, and no other."""
    lines = ("t = transpose(x)", "a = slice(t, starts=(0,), ends=(32,))")
    after, pairs = fused(*lines, "c = slice(t, starts=(32,), ends=(64,))", "return a, c")
    assert kernels(after) == ["transpose", "slice", "slice"]
    assert pairs["t -> a"].reason == "it costs more than it saves"
    after, _ = fused("r = relu(x)", "a = slice(r, starts=(0,), ends=(1,))", "return a")
    assert kernels(after) == ["relu_slice"]  # half of it is not computed


def test_max_ops() -> None:
    lines = ("a = relu(x)", "c = exp(a)", "d = neg(c)", "e = abs(d)", "return e")
    after, pairs = fused(*lines, max_ops=2)
    assert sorted(kernels(after)) == ["neg_abs", "relu_exp"]
    assert "the kernel of e would have more than 2 ops" in pairs["c -> d"].reason or (
        "the kernel of d would have more than 2 ops" in pairs["c -> d"].reason
    )


def test_limit_leaves_what_is_refused_whole() -> None:
    """With one of two fusions permitted, e is still there for the other."""
    g = parse(f"""\
def f({X}):
    e = exp(x)
    y = add(x, e)
    z = neg(e)
    return y, z
""")
    after, _ = Pipeline((Fuse(style="xla", limit=1),)).run(g)
    verify(after)
    check_same_numbers(g, after)
    assert kernels(after) == ["exp_add", "exp", "neg"]


def test_symbolic_sizes() -> None:
    """One to one is one to one for every N; what N decides is left."""
    after, pairs = fused_symbolic("a = relu(x)", "c = exp(a)", "return c")
    assert kernels(after) == ["relu_exp"]
    assert pairs[0].bytes_saved is None
    after, pairs = fused_symbolic("a = relu(b)", "c = add(x, a)", "return c")
    assert kernels(after) == ["relu", "add"]
    assert "sizes are not known" in pairs[0].reason


def fused_symbolic(*lines: str) -> tuple[Graph, list[Pair]]:
    head = 'def f(x: f32["N", 4], b: f32[4]):'
    with collecting() as events:
        after = Fuse(style="xla")(parse("\n    ".join([head, *lines])))
    return after, [e for e in events if isinstance(e, Pair)]


@pytest.mark.long
@given(graphs(max_nodes=12))
def test_random_graphs_keep_their_numbers(g: Graph) -> None:
    after = Fuse(style="xla")(g)
    verify(after)
    check_same_numbers(g, after)
    before, now = graph_bytes(g), graph_bytes(after)
    repeated = graph_flops(after), graph_flops(g)
    assert None not in (before, now, *repeated)
    assert now <= before  # type: ignore[operator]
