"""Gradients of reading and writing at positions: what is read twice gets the sum of both."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minidlc as mc
from minidlc.expr.types import f16, f32, f64, i32, i64
from minidlc.graph import Graph, Input, Value, apply, evaluate, getitem, interpret
from minidlc.ops.index_add import IndexAdd
from minidlc.support.errors import CallError, TypeRuleError

pytestmark = pytest.mark.ch03


def ops(g: Graph) -> list[str]:
    return [n.op.name for n in g.nodes]


def pulled(y: Value, inputs: list[Input], dy: Any, *arrays: Any) -> list[Any]:
    """The gradients of y for this dy, by the inputs of real numbers."""
    return interpret(mc.grad(Graph.of("f", inputs, [y])), [*arrays, np.asarray(dy)])


# --- gather: what is read twice gets the sum ---


def embedding(rows: int, columns: int, shape: tuple[int, ...], element: mc.DType = f32) -> Graph:
    table, ids = Input("table", element[rows, columns]), Input("ids", i64[shape])
    return mc.grad(Graph.of("embedding", [table, ids], [apply("gather", table, ids)]))


def test_a_row_gets_the_sum_of_all_tokens_that_read_it() -> None:
    g = embedding(4, 2, (2, 3), f64)
    assert ops(g) == ["index_add"]  # one kernel, no zeros to copy
    dy = np.arange(12.0).reshape(2, 3, 2)
    (d,) = interpret(g, [np.zeros((4, 2)), np.array([[3, 1, 3], [-1, 1, 3]]), dy])
    np.testing.assert_array_equal(d, [[0, 0], [2 + 8, 3 + 9], [0, 0], [0 + 4 + 6 + 10, 24]])


def test_half_precision_is_summed_in_f32() -> None:
    g = embedding(1, 1, (4096,), f16)
    given = np.zeros((1, 1), np.float16), np.zeros(4096, np.int64), np.ones((4096, 1), np.float16)
    (d,) = interpret(g, given)
    assert d == 4096  # one after another in f16 the sum stays at 2048


@pytest.mark.llvm
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("columns", [1, 16, 24, 64, 100])
def test_the_compiled_gradient_of_a_table(columns: int, threads: int) -> None:
    g = embedding(7, columns, (30, 40))
    rng = np.random.default_rng(0)
    ids = rng.integers(-7, 7, (30, 40))
    dy = rng.standard_normal((30, 40, columns)).astype(np.float32)
    table = np.zeros((7, columns), np.float32)
    exe = mc.compile(g, threads=threads)
    (found,) = exe(table, ids, dy)
    wanted = np.zeros((7, columns))
    np.add.at(wanted, ids, dy)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-4)
    assert np.array_equal(found, exe(table, ids, dy)[0])  # the order of the sum is fixed


@pytest.mark.llvm
@pytest.mark.parametrize("runner", [interpret, lambda g, given: mc.compile(g)(*given)])
def test_a_position_outside_the_table_is_no_silent_row(runner: Any) -> None:
    given = np.zeros((4, 2), np.float32), np.array([0, 4]), np.ones((2, 2), np.float32)
    with pytest.raises(CallError, match="outside the range -4 to 3") as caught:
        runner(embedding(4, 2, (2,)), given)
    assert caught.value.code == "MDLC0909"


def test_index_add_refuses_what_does_not_fit() -> None:
    x, ids = Input("x", f32[3, 4]), Input("ids", i64[3])
    for inputs, attributes, text in (
        ((Input("h", f16[3, 4]), ids), {"size": 2}, "adds elements of f32, f64, i32, i64, got f16"),
        ((x, Input("ids", i64[2])), {"size": 2}, "has no row for each of indices"),
        ((x, Input("ids", i64[3, 4, 1])), {"size": 2}, "must have the axes of indices"),
        ((x, ids), {"size": -1}, "size must be at least 0, got -1"),
        ((x, ids), {"size": 2, "axis": 2}, "axis 2 is outside"),
        ((x, Input("ids", f32[3])), {"size": 2}, "indices must hold i32 or i64"),
    ):
        with pytest.raises(TypeRuleError, match=text):
            apply("index_add", *inputs, **attributes)


def test_index_add_reads_one_axis_of_many() -> None:
    x = np.arange(24.0).reshape(2, 3, 4)
    y = evaluate(IndexAdd(1, 2), [x, np.array([1, 0, 1])])
    np.testing.assert_array_equal(y, np.stack([x[:, 1], x[:, 0] + x[:, 2]], 1))


def test_elements_and_tuples_that_are_read_twice() -> None:
    x, at = Input("x", f64[2, 3]), Input("at", i64[2, 2])
    dy = np.array([[1.0, 10.0], [100.0, 1000.0]])
    y = apply("gather_elements", x, at, axis=1)
    (d,) = pulled(y, [x, at], dy, np.zeros((2, 3)), np.array([[2, -1], [0, 1]]))
    np.testing.assert_array_equal(d, [[0, 0, 11], [100, 1000, 0]])
    y = apply("gather_nd", x, at)
    (d,) = pulled(y, [x, at], [1.0, 10.0], np.zeros((2, 3)), np.array([[1, 2], [-1, -1]]))
    np.testing.assert_array_equal(d, [[0, 0, 0], [0, 0, 11]])
    batched = Input("at", i64[2, 2, 1])
    y = apply("gather_nd", x, batched, batch_dims=1)
    (d,) = pulled(y, [x, batched], dy, np.zeros((2, 3)), np.array([[[2], [2]], [[0], [1]]]))
    np.testing.assert_array_equal(d, [[0, 0, 11], [100, 1000, 0]])


# --- scatter: each reduction has its own ---


def scattered(reduction: str, x: Any, at: Any, updates: Any, dy: Any) -> list[Any]:
    inputs = [Input("x", f64[len(x)]), Input("at", i64[len(at)]), Input("u", f64[len(updates)])]
    y = apply("scatter_elements", *inputs, reduction=reduction)
    return pulled(y, inputs, dy, np.array(x), np.array(at), np.array(updates))


def test_of_updates_at_one_place_the_last_gets_the_gradient() -> None:
    dx, du = scattered("none", [0.0, 0, 0], [1, -2, 0, 1], [5.0, 6, 7, 8], [1.0, 10, 100])
    np.testing.assert_array_equal(dx, [0, 0, 100])
    np.testing.assert_array_equal(du, [0, 0, 1, 10])


def test_added_updates_get_the_gradient_of_their_place() -> None:
    dx, du = scattered("add", [0.0, 0, 0], [1, -2, 0], [5.0, 6, 7], [1.0, 10, 100])
    np.testing.assert_array_equal(dx, [1, 10, 100])
    np.testing.assert_array_equal(du, [10, 10, 1])


@pytest.mark.parametrize(
    ("updates", "wanted"),
    [([3.0, 5.0], [10, 6]), ([0.0, 5.0], [10, 0]), ([0.0, 0.0], [0, 0])],
)
def test_a_factor_gets_the_product_of_the_others_zeros_included(
    updates: list[float], wanted: list[float]
) -> None:
    dx, du = scattered("mul", [2.0, 7.0], [0, 0], updates, [1.0, 1.0])
    np.testing.assert_array_equal(dx, [updates[0] * updates[1], 1])
    np.testing.assert_array_equal(du, wanted)


@pytest.mark.parametrize(("reduction", "sign"), [("max", 1.0), ("min", -1.0)])
def test_equal_candidates_share(reduction: str, sign: float) -> None:
    x, updates = [sign * 4.0, sign * 9.0], [sign * 4.0, sign * 1.0, sign * 4.0, sign * 2.0]
    dx, du = scattered(reduction, x, [0, 0, 0, 1], updates, [3.0, 5.0])
    np.testing.assert_array_equal(dx, [1, 5])
    np.testing.assert_array_equal(du, [1, 0, 1, 0])


def test_slices_written_twice() -> None:
    x, at, u = Input("x", f64[3, 2]), Input("at", i32[3, 1]), Input("u", f64[3, 2])
    y = apply("scatter_nd", x, at, u)
    dy = np.arange(6.0).reshape(3, 2)
    given = np.zeros((3, 2)), np.array([[2], [0], [2]], np.int32), np.zeros((3, 2))
    dx, du = pulled(y, [x, at, u], dy, *given)
    np.testing.assert_array_equal(dx, [[0, 0], [2, 3], [0, 0]])
    np.testing.assert_array_equal(du, [[0, 0], [0, 1], [4, 5]])


def test_rows_of_a_cache() -> None:
    x, u, begins = Input("x", f64[2, 3]), Input("u", f64[2, 2]), Input("b", i64[2])
    y = apply("tensor_scatter", x, u, begins, axis=1, mode="circular")
    dy = np.arange(6.0).reshape(2, 3)
    far = np.array([2, 2**63 - 1])  # 2**63 - 1 is 1 modulo 3
    dx, du = pulled(y, [x, u, begins], dy, np.zeros((2, 3)), np.zeros((2, 2)), far)
    np.testing.assert_array_equal(dx, [[0, 1, 0], [3, 0, 0]])
    np.testing.assert_array_equal(du, [[2, 0], [4, 5]])


# --- what else moves elements ---


def test_equal_elements_of_topk_the_chosen_place_gets_all() -> None:
    x = Input("x", f64[4])
    y = apply("topk", x, k=2)
    (d,) = pulled(getitem(y, 0), [x], [1.0, 10.0], np.array([3.0, 7, 7, 7]))
    np.testing.assert_array_equal(d, [0, 1, 10, 0])


def test_the_value_of_a_border_gets_the_sum_of_the_border() -> None:
    x, v = Input("x", f64[2, 2]), Input("v", f64[()])
    y = apply("pad", x, v, pads=(1, 0, 0, -1))
    dy = np.array([[1.0], [10.0], [np.inf]])
    dx, dv = pulled(y, [x, v], dy, np.zeros((2, 2)), np.array(0.0))
    np.testing.assert_array_equal(dx, [[10, 0], [np.inf, 0]])
    assert dv == 1  # the infinity inside x is no part of it


def test_an_enlarged_image_is_summed_without_positions() -> None:
    x = Input("x", f32[1, 2, 3, 4])
    g = mc.grad(Graph.of("f", [x], [apply("resize", x, scales=(1, 1, 2, 3))]))
    assert not {"index_add", "scatter_elements", "gather"} & {*ops(g)}


def test_dropout_goes_back_through_the_mask_it_used() -> None:
    x = Input("x", f32[64])
    y = getitem(apply("dropout", x, seed=7, ratio=0.25), 0)
    g = mc.value_and_grad(Graph.of("f", [x], [y]))
    assert ops(g).count("dropout") == 1  # nothing is drawn a second time
    y, dx = interpret(g, [np.ones(64, np.float32), np.ones(64, np.float32)])
    np.testing.assert_array_equal(dx, y)
    assert 0 < np.count_nonzero(dx) < 64


def part(x: Value, *ends: int) -> Value:
    return apply("slice", x, starts=(0,) * len(ends), ends=ends)


def image(x: Value, *shape: int) -> Value:
    return apply("reshape", x, shape=shape)


MOVES: dict[str, Any] = {
    "slice back": lambda x: apply("slice", x, starts=(-1, 4), ends=(-9, 0), steps=(-2, -3)),
    "tile": lambda x: apply("tile", x, repeats=(2, 3)),
    "reflect": lambda x: apply("pad", x, pads=(1, 2, 0, 3), mode="reflect"),
    "topk": lambda x: getitem(apply("topk", x, k=3), 0),
    "pool": lambda x: getitem(
        apply("max_pool_with_indices", image(x, 1, 1, 4, 5), kernel_shape=(2, 2)), 0
    ),
    "linear": lambda x: apply("resize", x, scales=(1.6, 2.0), mode="linear"),
    "scatter": lambda x: apply("scatter_nd", x, [[1], [1]], part(x, 2), reduction="max"),
    "sample": lambda x: apply(
        "grid_sample", image(x, 1, 1, 4, 5), image(part(x, 4, 4), 1, 2, 4, 2)
    ),
}  # fmt: skip


@pytest.mark.llvm
@pytest.mark.parametrize("move", MOVES.values(), ids=MOVES)
def test_compiled_gradients_are_the_interpreted_ones(move: Any) -> None:
    x = Input("x", f32[4, 5])
    y = move(x)
    g = mc.grad(Graph.of("f", [x], [apply("sum", y * y, keepdims=False)]))
    given = np.random.default_rng(0).uniform(-1, 1, (4, 5)).astype(np.float32)
    for a, b in zip(mc.compile(g)(given), interpret(g, [given]), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-5)
