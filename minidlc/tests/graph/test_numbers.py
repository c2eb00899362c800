"""Python numbers beside tensors: they become elements of the tensor's type, or are refused."""

from __future__ import annotations

import numpy as np
import pytest

import minidlc as mc
from minidlc.support.errors import TypeRuleError

CHANGED = {
    "half": lambda x: x + 0.5,
    "half first": lambda x: 0.5 * x,
    "compared": lambda x: x < 1.5,
    "nan": lambda x: x + float("nan"),
    "infinite": lambda x: mc.minimum(x, float("inf")),
    "too large": lambda x: x + 10**20,
    "negative": lambda x: x.astype("u8") - (-1),
    "not one byte": lambda x: x.astype("u8") + 300,
    "no truth value": lambda x: mc.equal(x > 1, 2),
}


@pytest.mark.parametrize("fn", CHANGED.values(), ids=CHANGED)
def test_a_number_that_the_type_has_not_is_refused(fn):
    """Not as 0, or as the nearest; in a graph and at once."""
    with pytest.raises(TypeRuleError, match=r"MDLC0227.*would become another number"):
        mc.trace(fn, mc.i64[3])
    with pytest.raises(TypeRuleError, match="MDLC0227"):
        fn(mc.tensor([1, 2, 3]))


def test_numbers_that_are_elements_are_taken():
    """Whole floats beside integers, truth values, large ones beside floats; rounding is usual."""
    x = mc.tensor([1, 2])
    np.testing.assert_array_equal(x * 2.0, [2, 4])
    np.testing.assert_array_equal(x + True, [2, 3])
    assert (mc.tensor([1.0], "f32") + 0.1).type == mc.f32[1]
    assert mc.tensor([1.0], "f16") + 1e9 == np.inf


def test_beside_a_condition_numbers_take_the_type_of_the_other_value():
    """`where(c, x, 0.5)`: not bool, the type of c."""
    c, x = np.array([True, False]), np.array([1, 2], np.float32)
    for fn in (lambda c, x: mc.where(c, x, 0.5), lambda c, x: mc.where(c, 0.5, x)):
        (y,) = mc.interpret(mc.trace(fn, mc.bool_[2], mc.f32[2]), [c, x])
        np.testing.assert_array_equal(y, fn(mc.tensor(c), mc.tensor(x)))
        assert y.dtype == np.float32


LOW, HIGH = -(2**63), 2**63 - 1


@pytest.mark.parametrize(
    "fn",
    [lambda a, b: a // b, lambda a, b: a % b, lambda a, b: 7 // b, lambda a, b: 7 % b],
    ids=["a // b", "a % b", "7 // b", "7 % b"],
)
def test_floor_division_and_remainder_are_those_of_numpy(fn):
    """All signs, the ends of the range, and division by zero, which gives 0."""
    a = np.array([7, -7, 7, -7, 0, LOW, 5, LOW, HIGH])
    b = np.array([2, 2, -2, -2, 3, 3, 0, -1, -1])
    with np.errstate(all="ignore"):
        want = fn(a, b)
    g = mc.trace(fn, mc.i64[9], mc.i64[9])
    np.testing.assert_array_equal(mc.interpret(g, [a, b])[0], want)
    np.testing.assert_array_equal(fn(mc.tensor(a), mc.tensor(b)), want)


def test_floor_division_of_floats_is_refused():
    """With what to write."""
    with pytest.raises(TypeRuleError, match="// is for integers, got f32") as e:
        mc.trace(lambda x: x // 2, mc.f32[3])
    assert e.value.hint == "mc.floor(a / b)"
