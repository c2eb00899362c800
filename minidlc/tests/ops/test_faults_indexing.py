"""Faults that other compilers had with positions: the last, one outside, one of more than 32 bits.

The same right value, or the same error, must come from the interpreter and from machine code.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import minidlc as mc
from minidlc.expr.types import TensorType, dtype
from minidlc.graph import Graph, Input, apply
from minidlc.support.errors import CallError
from minidlc.tests.frontend.helpers import model, node

F = np.float32
Run = Callable[[Graph, list[Any]], Any]


def interpreted(graph: Graph, arrays: list[Any]) -> Any:
    return mc.interpret(graph, arrays)[0]


def compiled(graph: Graph, arrays: list[Any]) -> Any:
    return mc.compile(graph, threads=1)(*arrays)[0]


both_ways = pytest.mark.parametrize(
    "run", [interpreted, pytest.param(compiled, marks=pytest.mark.llvm)]
)


def graph_of(op: str, arrays: list[Any], **attributes: Any) -> Graph:
    types = [TensorType(dtype(a.dtype), a.shape) for a in arrays]
    inputs = [Input(f"x{n}", type) for n, type in enumerate(types)]
    return Graph.of("g", inputs, [apply(op, *inputs, **attributes)])


@both_ways
def test_46_one_hot_along_the_first_axis(run: Run) -> None:
    arrays = [np.array([0, 2, -1, 9]), np.array([0, 1], F)]
    got = run(graph_of("one_hot", arrays, depth=3, axis=0), arrays)
    assert got.tolist() == [[1, 0, 0, 0], [0, 0, 0, 0], [0, 1, 1, 0]]


@both_ways
def test_47_a_negative_position_counts_from_the_end(run: Run) -> None:
    arrays = [np.arange(1, 6, dtype=F), np.array([-1, -3, 0])]
    assert run(graph_of("gather", arrays), arrays).tolist() == [5, 3, 1]


X = np.arange(12, dtype=F).reshape(3, 4)
OUTSIDE = [
    ("gather", [F([1, 2]), np.array([5])], {}, "-2 to 1"),
    ("gather", [X, np.array([[0, -5]])], {"axis": 1}, "-4 to 3"),
    ("gather_elements", [X, np.array([[0, 3, 0, 0]])], {}, "-3 to 2"),
    ("gather_nd", [X, np.array([[2, 3], [3, 0]])], {}, r"\[-3 -4\] to \[2 3\]"),
    ("scatter_nd", [X, np.array([[3]]), X[:1]], {}, r"\[-3\] to \[2\]"),
    ("scatter_elements", [X, np.array([[-4]]), X[:1, :1]], {}, "-3 to 2"),
    ("reverse_sequence", [X, np.array([4, 0, 0, 0])], {}, "0 to 3"),
    ("tensor_scatter", [X[None], X[None, :2], np.array([2])], {}, "0 to 1"),
    ("gather", [X, np.array([1, 2**32 + 1])], {}, "-3 to 2"),
]


@both_ways
@pytest.mark.parametrize(("op", "arrays", "attributes", "range"), OUTSIDE)
def test_49_a_position_outside_is_an_error(
    run: Run, op: str, arrays: list[Any], attributes: dict[str, Any], range: str
) -> None:
    with pytest.raises(CallError, match=f"{op}: .*outside the range {range}") as caught:
        run(graph_of(op, arrays, **attributes), arrays)
    assert caught.value.code == "MDLC0909"


@pytest.mark.llvm
def test_49_also_inside_a_fused_group() -> None:
    x, i = Input("x", mc.f32[3, 4]), Input("i", mc.i64[2])
    y = apply("relu", apply("gather", x, i) + 1.0)
    exe = mc.compile(Graph.of("g", [x, i], [y]))
    np.testing.assert_array_equal(exe(X, np.array([2, -1]))[0], X[[2, 2]] + 1)
    with pytest.raises(CallError, match="outside the range -3 to 2"):
        exe(X, np.array([2, 3]))


@both_ways
def test_51_a_scatter_writes_the_listed_cells_only(run: Run) -> None:
    data, updates = np.zeros((2, 3, 4), F), np.ones((1, 3, 1), F)
    indices = np.array([[[1], [0], [1]]])
    graph = mc.load_onnx(
        model([node("Scatter", "d i u", "y")], {"d": data, "i": indices, "u": updates}, opset=10)
    )
    wanted = np.zeros((2, 3, 4), F)
    wanted[[1, 0, 1], [0, 1, 2], 0] = 1
    np.testing.assert_array_equal(run(graph, [data, indices, updates]), wanted)


@both_ways
def test_144_positions_of_64_bits_stay_what_they_are(run: Run) -> None:
    rng = np.random.default_rng(144)
    data, indices = rng.random((10, 200), F), rng.integers(-10, 10, (35, 1))
    for kind in (np.int64, np.int32):
        arrays = [data, indices.astype(kind)]
        np.testing.assert_array_equal(run(graph_of("gather", arrays), arrays), data[indices])


@both_ways
def test_an_update_in_circles_may_begin_anywhere(run: Run) -> None:
    cache, new = np.zeros((4, 5, 1), F), np.arange(1, 4, dtype=F).reshape(1, 3, 1).repeat(4, 0)
    begins = np.array([-1, 2**63 - 1, -(2**63), 4])
    arrays = [cache, new, begins]
    got = run(graph_of("tensor_scatter", arrays, mode="circular"), arrays)[:, :, 0]
    for row, begin in zip(got, begins.tolist(), strict=True):
        wanted = np.zeros(5, F)
        wanted[[(begin + n) % 5 for n in range(3)]] = [1, 2, 3]
        np.testing.assert_array_equal(row, wanted)


@both_ways
def test_updates_at_one_place_are_made_in_order(run: Run) -> None:
    x, at = np.zeros(2, np.float16), np.array([1, 1, 1])
    updates = np.array([2048, 1, 1], np.float16)
    last = run(graph_of("scatter_elements", [x, at, updates]), [x, at, updates])
    assert last.tolist() == [0, 1]
    total = graph_of("scatter_elements", [x, at, updates], reduction="add")
    assert run(total, [x, at, updates]).tolist() == [0, 2048]  # 2049 is no f16: rounded each time


@both_ways
def test_nan_wins_over_every_update(run: Run) -> None:
    x, at = F([np.nan, 1, np.inf, 3]), np.array([0, 1, 2, 3, 3])
    updates = F([5, np.nan, np.nan, 4, -4])
    for reduction, last in (("max", 4), ("min", -4)):
        graph = graph_of("scatter_elements", [x, at, updates], reduction=reduction)
        np.testing.assert_array_equal(run(graph, [x, at, updates]), F([np.nan] * 3 + [last]))


@both_ways
def test_an_index_of_one_hot_is_truncated_and_may_be_anywhere(run: Run) -> None:
    values = F([0, 1])
    fractions = F([1.9, -0.5, -1.5, np.inf, -np.inf, 3e18])
    got = run(graph_of("one_hot", [fractions, values], depth=3), [fractions, values])
    assert got.tolist() == [[0, 1, 0], [1, 0, 0], [0, 0, 1], [0] * 3, [0] * 3, [0] * 3]
    large = np.array([2**64 - 1, 2**63, 2**63 + 2, 2], np.uint64)
    got = run(graph_of("one_hot", [large, values], depth=3), [large, values])
    assert got.tolist() == [[0] * 3, [0] * 3, [0] * 3, [0, 0, 1]]


@both_ways
@pytest.mark.parametrize(("kind", "to"), [("i16", "f16"), ("u16", "bf16"), ("i32", "f32")])
def test_bits_stay_what_they_are_also_those_of_nan(run: Run, kind: str, to: str) -> None:
    bits = np.array([-1, 0x7F81, 0x7C01, 0]).astype(dtype(kind).numpy)
    got = run(graph_of("bit_cast", [bits], to=to), [bits])
    assert got.dtype == dtype(to).numpy
    np.testing.assert_array_equal(got.view(bits.dtype), bits)


@pytest.mark.llvm
@pytest.mark.parametrize("axis", [0, 1])
def test_threads_share_a_large_scatter(axis: int) -> None:
    rng = np.random.default_rng(axis)
    x, updates = rng.random((300, 260), F), rng.random((300, 260), F)
    at = rng.integers(-260, 260, (300, 260))
    at %= x.shape[axis]
    graph = graph_of("scatter_elements", [x, at, updates], axis=axis)
    got = mc.compile(graph, threads=2)(x, at, updates)[0]
    wanted = x.copy()
    for n in range(updates.shape[axis]):  # in order along the axis
        line, new = np.take(at, [n], axis), np.take(updates, [n], axis)
        np.put_along_axis(wanted, line, new, axis)
    np.testing.assert_array_equal(got, wanted)
