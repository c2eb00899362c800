"""Tensor expressions rewritten before they are scheduled: the same results from other stages."""

from __future__ import annotations

from minidlc.expr.printing import print_expr
from minidlc.expr.types import TensorType, f32
from minidlc.schedules import Group
from minidlc.schedules.variants import with_flat_reductions, with_reciprocals
from minidlc.te import compute, placeholder, reduce_axis, stages
from minidlc.te import sum as te_sum


def summed(shape, *axes):
    """Sum of x over some axes, those that are left first."""
    x = placeholder(TensorType(f32, shape), "x")
    ks = {a: reduce_axis(shape[a], f"k{a}") for a in axes}
    left = [n for a, n in enumerate(shape) if a not in axes]

    def body(*index):
        rest = iter(index)
        return te_sum(
            x[tuple(ks[a].index if a in ks else next(rest) for a in range(len(shape)))],
            *ks.values(),
        )

    return compute(left, body, "s", axes=[f"i{n}" for n in range(len(left))])


def test_axes_that_memory_runs_through_become_one():
    s = summed((4, 5, 7), 1, 2)
    flat = with_flat_reductions(Group((s,), s))
    assert flat.last.reduce_axes == (("k1k2", 35),)
    assert "x[i0, k1k2//7, k1k2%7]" in str(flat.last)
    assert flat.anchor is flat.last


def test_three_axes_and_axes_apart():
    s = summed((4, 5, 7), 0, 1, 2)
    assert with_flat_reductions(Group((s,), s)).last.reduce_axes == (("k0k1k2", 140),)
    s = summed((4, 5, 7), 0, 2)
    group = Group((s,), s)
    assert with_flat_reductions(group).last is s


def softmax_like():
    s = summed((4, 7), 1)
    (x,) = s.inputs
    return compute((4, 7), lambda i, j: x[i, j] / s[i], "y"), s


def test_a_division_of_a_row_becomes_a_product():
    y, s = softmax_like()
    group = with_reciprocals(Group((y,), s))
    assert print_expr(group.last.body) == "x[i, j] * y_factor[i]"
    factor = next(t for t in stages(group.outputs) if t.name == "y_factor")
    assert print_expr(factor.body) == "1.0 / s[i]"
    assert factor.shape == (4,)


def test_divisions_that_stay():
    x = placeholder(TensorType(f32, (4, 7)), "x")
    weights = placeholder(TensorType(f32, (4,)), "w")
    by_element = compute((4, 7), lambda i, j: 1.0 / x[i, j], "y")
    by_number = compute((4, 7), lambda i, j: x[i, j] / 7.0, "y")
    by_input = compute((4, 7), lambda i, j: x[i, j] / weights[i], "y")  # no loop over rows to use
    for y in (by_element, by_number, by_input):
        assert with_reciprocals(Group((y,))).last is y
