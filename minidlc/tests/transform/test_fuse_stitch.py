"""Stitched kernels: several results, siblings, rows of several reductions; what keeps apart."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import minidlc.ops  # noqa: F401
from minidlc.graph import Fused, Graph, Node, interpret, parse, verify, weights_of
from minidlc.tests.graph.graphs import feeds, graphs
from minidlc.tests.transform.row_graphs import arrays_for, row_graph
from minidlc.transform import Fuse, Pair, collecting
from minidlc.transform.fusion.fusion_costs import graph_flops

pytestmark = pytest.mark.ch02

X = "x: f32[6, 96], v: f32[96], w: f32[96, 96]"


def fused(*lines: str, params: str = X, max_ops: int = 32) -> tuple[Graph, dict[str, Pair]]:
    g = parse("\n    ".join([f"def f({params}):", *lines]))
    with collecting() as events:
        after = Fuse(style="stitch", max_ops=max_ops)(g)
    verify(after)
    assert parse(str(after), weights_of(after)) == after
    assert graph_flops(after) == graph_flops(g)
    inputs = feeds(g)
    for a, b in zip(interpret(g, inputs), interpret(after, inputs), strict=True):
        assert np.array_equal(a, b, equal_nan=True)
    return after, {f"{e.producer} -> {e.consumer}": e for e in events if isinstance(e, Pair)}


def kernels(g: Graph) -> list[str]:
    made = (n for n in g.nodes if not n.op.is_view)
    return [n.op.body.name if isinstance(n.op, Fused) else n.op.name for n in made]


def results(node: Node) -> list[str]:
    assert isinstance(node.op, Fused)
    return [o.name for o in node.op.body.outputs]


def test_a_value_that_others_read_is_a_second_result() -> None:
    """FAULTS 90: e is an output of the graph, and inside a kernel: it comes out of it."""
    after, pairs = fused("e = exp(x)", "y = add(e, v)", "z = relu(y)", "return e, z")
    assert kernels(after) == ["exp_add_relu"]
    assert [o.name for o in after.outputs] == ["e", "z"]
    assert pairs["e -> y"].fused
    assert "stores what others read" in pairs["e -> y"].reason
    assert pairs["e -> y"].bytes_saved == 6 * 96 * 4  # it is still written, but not read again


def test_siblings_of_one_input() -> None:
    after, pairs = fused("a = exp(x)", "b = relu(x)", "c = tanh(x)", "return a, b, c")
    assert kernels(after) == ["exp_relu_tanh"]
    assert pairs["a -> b"].reason == "both read the same value"
    assert pairs["a -> b"].bytes_saved == 6 * 96 * 4


def test_rows_of_several_reductions() -> None:
    """A softmax written out: five ops over the same rows."""
    after, _ = fused(
        "m = max(x, axes=(1,))", "d = sub(x, m)", "e = exp(d)", "s = sum(e, axes=(1,))",
        "y = div(e, s)", "return y",
    )  # fmt: skip
    assert kernels(after) == ["max_sub_exp_sum_div"]
    assert after.nodes[0].op.attributes()["anchor"] == "reduction"


def test_a_residual_and_its_norm() -> None:
    """The sum goes on to the next block: a second result."""
    after, _ = fused("a = add(x, x)", "n = layer_norm(a, v)", "r = relu(a)", "return n, r")
    assert kernels(after) == ["add_layer_norm_relu"]


def test_statistics_come_out_beside_the_rows() -> None:
    after, _ = fused("m = mean(x, axes=(1,))", "d = sub(x, m)", "return d, m")
    assert kernels(after) == ["mean_sub"]
    assert sorted(str(o.type) for o in after.outputs) == ["f32[6, 1]", "f32[6, 96]"]


def test_a_product_and_what_follows_it() -> None:
    """What training keeps: the value before the activation."""
    after, pairs = fused("m = matmul(x, w)", "a = add(m, v)", "r = relu(a)", "return a, r")
    assert kernels(after) == ["matmul_add_relu"]
    assert after.nodes[0].op.attributes()["anchor"] == "matmul"
    assert pairs["a -> r"].bytes_saved == 6 * 96 * 4


def test_no_cycle_through_what_lies_between() -> None:
    """a and c may not be one kernel: t, which is none of theirs, needs a and is needed by c."""
    after, pairs = fused("a = exp(x)", "t = matmul(a, w)", "c = add(a, t)", "return c")
    assert kernels(after) == ["exp", "matmul_add"]
    assert "t lies between" in pairs["a -> c"].reason or not pairs["a -> c"].fused


def test_no_cycle_through_two_kernels() -> None:
    """Siblings that reach each other through a kernel between stay apart."""
    after, pairs = fused(
        "a = exp(x)", "t = cumsum(a, axis=1)", "b = mul(x, t)", "return a, b"
    )  # fmt: skip
    assert kernels(after) == ["exp", "cumsum", "mul"]
    assert not pairs["a -> b"].fused
    assert pairs["a -> b"].reason.startswith("siblings: t lies between")


@pytest.mark.parametrize(
    ("lines", "pair", "reason"),
    [
        (
            (
                "i = reshape(x, shape=(1, 6, 12, 8))",
                "m = max_pool(i, kernel_shape=(2, 2))",
                "e = exp(m)",
                "return e, m",
            ),
            "m -> e",
            "the schedules of max_pool store one result",
        ),
        (
            ("m = matmul(x, w)", "n = matmul(m, w)", "return n"),
            "m -> n",
            "both need a loop nest of their own",
        ),
        (("a = sum(x, axes=(0,))", "y = sub(x, a)", "return y"), "a -> y", "loops of its own"),
        (("e = exp(v)", "y = add(x, e)", "return y, e"), "e -> y", "has another shape"),
        (("e = exp(x)", "t = transpose(e)", "return t, e"), "e -> t", "it moves elements"),
        (("e = exp(x)", "c = cumsum(e, axis=1)", "return c, e"), "e -> c", "cumsum is opaque"),
    ],
)
def test_refusals(lines: tuple[str, ...], pair: str, reason: str) -> None:
    after, pairs = fused(*lines)
    assert not any(isinstance(n.op, Fused) and len(n.op.body.outputs) > 1 for n in after.nodes)
    assert reason in pairs[pair].reason


def test_short_rows() -> None:
    params = "x: f32[6, 9]"
    after, pairs = fused("e = exp(x)", "y = neg(e)", "return y, e", params=params)
    assert kernels(after) == ["exp", "neg"]
    assert "rows of 9 are too short" in pairs["e -> y"].reason


def test_one_row_is_for_all_threads() -> None:
    after, pairs = fused("s = sum(x)", "y = sub(x, s)", "return s, y")
    assert kernels(after) == ["sum", "sub"]
    assert "one row: threads share it" in pairs["s -> y"].reason


def test_at_most_four_results() -> None:
    ops = ("exp", "neg", "abs", "relu", "tanh", "ceil")
    after, _ = fused(*(f"{op}_x = {op}(x)" for op in ops), f"return {'_x, '.join(ops)}_x")
    assert max(len(results(n)) for n in after.nodes if isinstance(n.op, Fused)) == 4


def test_max_ops() -> None:
    after, _ = fused("a = exp(x)", "b = neg(a)", "c = abs(b)", "return a, b, c", max_ops=2)
    assert len(kernels(after)) == 2


def test_symbolic_sizes_stay_apart() -> None:
    g = parse("""\
def f(x: f32["N", 96]):
    a = exp(x)
    b = neg(a)
    return a, b
""")
    assert Fuse(style="stitch")(g) is g


def test_fusing_again_changes_nothing() -> None:
    after, _ = fused("a = exp(x)", "b = neg(a)", "return a, b")
    assert Fuse(style="stitch")(after) is after


@pytest.mark.long
@given(graphs(max_nodes=12))
def test_random_graphs_keep_their_numbers(g: Graph) -> None:
    after = Fuse(style="stitch")(g)
    verify(after)
    inputs = feeds(g)
    for a, b in zip(interpret(g, inputs), interpret(after, inputs), strict=True):
        assert np.array_equal(a, b, equal_nan=True)
    assert graph_flops(after) == graph_flops(g)


@given(st.integers(0, 2**32))
def test_random_rows_keep_their_numbers(seed: int) -> None:
    g = row_graph(random.Random(seed))
    after = Fuse(style="stitch")(g)
    verify(after)
    inputs = arrays_for(g, seed)
    for a, b in zip(interpret(g, inputs), interpret(after, inputs), strict=True):
        assert np.array_equal(a, b, equal_nan=True)
