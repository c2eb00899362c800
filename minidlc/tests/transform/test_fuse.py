"""Fusion: groups, what stays outside and why, and the same numbers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

import minidlc.ops  # noqa: F401
from minidlc.graph import Fused, Graph, interpret, parse, verify, weights_of
from minidlc.support.errors import PassError
from minidlc.tests.graph.graphs import feeds, graphs
from minidlc.transform import Fuse, Pair, collecting

pytestmark = pytest.mark.ch02

X = "x: f32[2, 4], w: f32[4, 4], b: f32[4]"


def fused(*lines: str, params: str = X, **options: int) -> tuple[Graph, list[str]]:
    g = parse("\n    ".join([f"def f({params}):", *lines]))
    with collecting() as events:
        after = Fuse(**options)(g)
    verify(after)
    assert parse(str(after), weights_of(after)) == after
    check_same_numbers(g, after)
    if not any(isinstance(n.op, Fused) for n in after.nodes):
        assert after is g
    return after, [str(e).rpartition(" (")[0] for e in events if isinstance(e, Pair)]


def kernels(g: Graph) -> list[str]:
    return [n.op.body.name if isinstance(n.op, Fused) else n.op.name for n in g.nodes]


def check_same_numbers(before: Graph, after: Graph) -> None:
    inputs = feeds(before)
    for a, b in zip(interpret(before, inputs), interpret(after, inputs), strict=True):
        assert np.array_equal(a, b, equal_nan=True)


def test_matmul_bias_relu() -> None:
    after, pairs = fused("m = matmul(x, w)", "a = add(m, b)", "r = relu(a)", "return r")
    assert (
        str(after)
        == """\
def f(x: f32[2, 4], w: f32[4, 4], b: f32[4]):
    def matmul_add_relu(x: f32[2, 4], w: f32[4, 4], b: f32[4]):
        m: f32[2, 4] = matmul(x, w)
        a: f32[2, 4] = add(m, b)
        r: f32[2, 4] = relu(a)
        return r
    r: f32[2, 4] = fused(x, w, b, body=matmul_add_relu, anchor="matmul")
    return r"""
    )
    assert pairs == ["m -> a: fused: add follows matmul", "a -> r: fused: relu follows add"]
    assert str(after.nodes[0].loc) == "fuse of <text>:2:9"


def test_conv_bias_relu_pool() -> None:
    after, pairs = fused(
        "c = conv(x, w)", "a = add(c, b)", "r = relu(a)",
        "p = max_pool(r, kernel_shape=(2, 2))", "return p",
        params="x: f32[1, 2, 6, 6], w: f32[3, 2, 3, 3], b: f32[1, 3, 1, 1]",
    )  # fmt: skip
    assert kernels(after) == ["conv_add_relu", "max_pool"]
    assert after.nodes[0].op.attributes()["anchor"] == "conv"
    assert "r -> p: not fused: max_pool reads its inputs more than once" in pairs[-1]


def test_numbers_go_inside_and_arrays_are_inputs() -> None:
    after, _ = fused(
        "c: f32[()] = const(2.0)", "v: f32[4] = const([1.0, 2.0, 3.0, 4.0])",
        "m = mul(x, c)", "a = add(m, v)", "return a",
    )  # fmt: skip
    [node] = after.nodes
    assert len(node.inputs) == 2
    assert [c.name for c in node.op.attributes()["body"].constants] == ["c"]


def test_an_output_inside_a_group_stays_an_output() -> None:
    """FAULTS 90: fusion swallowed a value that is a graph output."""
    after, pairs = fused("m = matmul(x, w)", "a = add(m, b)", "r = relu(a)", "return m, r")
    assert kernels(after) == ["matmul", "add_relu"]
    assert pairs[0] == "m -> a: not fused: m is an output of the graph"


def test_other_readers() -> None:
    after, pairs = fused("m = matmul(x, w)", "r = relu(m)", "n = matmul(m, w)", "return r, n")
    assert kernels(after) == ["matmul", "relu", "matmul"]
    assert "m has readers that lead to different outputs" in pairs[0]


def test_a_diamond_is_one_group() -> None:
    """silu written out: both paths from the matmul meet in the mul."""
    after, _ = fused("m = matmul(x, w)", "s = sigmoid(m)", "y = mul(m, s)", "return y")
    assert kernels(after) == ["matmul_sigmoid_mul"]


def test_a_diamond_with_another_kernel_on_one_side_is_not() -> None:
    after, pairs = fused(
        "r = relu(x)", "s = cumsum(r, axis=0)", "y = mul(r, s)", "z = exp(y)", "return z"
    )
    assert kernels(after) == ["relu", "cumsum", "mul_exp"]
    assert pairs[0] == "r -> s: not fused: cumsum is opaque"


def test_a_residual_belongs_to_the_second_anchor() -> None:
    after, _ = fused(
        "m = matmul(x, w)", "r = relu(m)", "n = matmul(r, w)", "a = add(n, r)", "z = relu(a)",
        "return z",
    )  # fmt: skip
    assert kernels(after) == ["matmul_relu", "matmul_add_relu"]


def test_one_anchor_to_a_group() -> None:
    after, pairs = fused("m = matmul(x, w)", "n = matmul(x, w)", "a = add(m, n)", "return a")
    assert kernels(after) == ["matmul", "matmul_add"] or kernels(after) == ["matmul_add", "matmul"]
    assert any("both need a loop nest of their own" in p for p in pairs)


def test_views_stay_outside() -> None:
    after, pairs = fused(
        "m = matmul(x, w)", "v = reshape(m, shape=(8,))", "r = relu(v)", "e = exp(r)", "return e"
    )
    assert kernels(after) == ["matmul", "reshape", "relu_exp"]
    assert pairs[0] == "m -> v: not fused: reshape is a view: it has no kernel"


def test_another_shape_ends_an_anchor() -> None:
    after, pairs = fused(
        "m = matmul(x, w)", "a = add(m, y)", "r = relu(a)", "return r",
        params="x: f32[1, 4], w: f32[4, 4], y: f32[5, 4]",
    )  # fmt: skip
    assert kernels(after) == ["matmul", "add_relu"]
    assert "the loops of m have another shape than f32[5, 4]" in pairs[0]


def test_nothing_is_computed_twice() -> None:
    after, pairs = fused("e = exp(b)", "a = add(x, e)", "t = transpose(a)", "return t")
    assert kernels(after) == ["exp", "add_transpose"]
    assert pairs[0] == "e -> a: not fused: e would be computed 2 times"


def test_injective_chains_and_concat() -> None:
    after, _ = fused("r = relu(x)", "e = exp(x)", "c = concat(r, e, axis=0)", "return c")
    assert kernels(after) == ["relu_exp_concat"]
    after, pairs = fused("m = matmul(x, w)", "t = transpose(m)", "r = relu(t)", "return r")
    assert kernels(after) == ["matmul", "transpose_relu"]
    assert "transpose is injective: it moves the results of an anchor" in pairs[0]


def test_reductions_take_what_follows() -> None:
    after, pairs = fused("r = relu(x)", "s = sum(r)", "e = exp(s)", "return e")
    assert kernels(after)[0] == "relu"
    assert "sum reads its inputs more than once" in pairs[0]


def test_max_ops() -> None:
    lines = ("a = relu(x)", "c = exp(a)", "d = neg(c)", "e = abs(d)", "return e")
    assert kernels(fused(*lines)[0]) == ["relu_exp_neg_abs"]
    after, pairs = fused(*lines, max_ops=2)
    assert kernels(after) == ["relu_exp", "neg_abs"]
    assert pairs[1] == "c -> d: not fused: the group would have 3 ops, max_ops is 2"
    assert len(fused(*lines, max_ops=1)[0].nodes) == 4


def test_fusing_again_changes_nothing() -> None:
    after, _ = fused("m = matmul(x, w)", "a = add(m, b)", "r = softmax(a)", "return r")
    assert Fuse()(after) is after


def test_symbolic_sizes() -> None:
    g = parse("""\
def f(x: f32["N", 4], w: f32[4, 4]):
    m = matmul(x, w)
    r = relu(m)
    e = exp(r)
    return e
""")
    assert kernels(Fuse()(g)) == ["matmul_relu_exp"]


def test_the_worth_of_a_pair() -> None:
    """Bytes of a value that stays in the kernel: written once, read by each of its readers."""
    g = parse("""\
def f(x: f32[2, 4], w: f32[4, 4], b: f32[4]):
    m = matmul(x, w)
    s = sigmoid(m)
    y = mul(m, s)
    e = exp(b)
    z = add(y, e)
    return z
""")
    with collecting() as events:
        Fuse()(g)
    pairs = {(e.producer, e.consumer): e for e in events if isinstance(e, Pair)}
    assert (pairs["m", "s"].bytes_saved, pairs["m", "y"].bytes_saved) == (2 * 32, 32)
    assert pairs["m", "s"].flops_repeated == 0
    refused = pairs["e", "z"]
    assert not refused.fused
    assert (refused.bytes_saved, refused.flops_repeated) == (2 * 16, 4)  # each exp once more
    assert str(refused).endswith("computed 2 times (32 bytes saved, 4 FLOPs repeated)")


def test_the_worth_of_a_pair_of_unknown_sizes() -> None:
    g = parse("""\
def f(x: f32["N", 4], b: f32[4]):
    e = exp(b)
    y = add(x, e)
    r = relu(y)
    return r
""")
    with collecting() as events:
        Fuse()(g)
    first, second = (str(e) for e in events if isinstance(e, Pair))
    assert first.endswith("(32 bytes saved, ? FLOPs repeated)")
    assert second == "y -> r: fused: relu follows add (? bytes saved, 0 FLOPs repeated)"


def test_an_unknown_style() -> None:
    with pytest.raises(PassError, match="fuse: no style 'tmv'") as e:
        Fuse(style="tmv")
    assert e.value.code == "MDLC0550"
    assert e.value.hint == "did you mean 'tvm'?"
    assert e.value.notes == ("styles: tvm, xla, stitch",)


@pytest.mark.long
@given(graphs(max_nodes=12))
def test_random_graphs_keep_their_numbers(g: Graph) -> None:
    with collecting() as events:
        after = Fuse()(g)
    verify(after)
    check_same_numbers(g, after)
    inside = sum(len(n.op.body.nodes) if isinstance(n.op, Fused) else 1 for n in after.nodes)
    assert inside == len(g.nodes)
    edges = {(n, v) for n in g.nodes for v in n.inputs if v in g.nodes}
    assert len([e for e in events if "->" in str(e)]) <= len(edges)
