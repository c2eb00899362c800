"""Losses: targets that are ignored or wrong, infinities, large logits, what is refused."""

from __future__ import annotations

import numpy as np
import pytest

import minidlc as mc
from minidlc.graph import apply
from minidlc.graph.graph import Input
from minidlc.ops import samples
from minidlc.support.errors import TypeRuleError
from minidlc.tests.ops import checks

pytestmark = pytest.mark.ch01


def loss(name, *arrays, **attributes):
    """Every result by the reference; the decomposition is held against it."""
    op = mc.graph.op_class(name)(**attributes)
    example = mc.graph.Example(op, arrays, 1e-5, 1e-5)
    checks.check_decomposition(example)
    return checks.reference(example)


X = samples.array((4, 3))


@pytest.mark.parametrize("kind", [np.int32, np.int64])
def test_a_target_that_is_no_class_gives_nan(kind):
    target = np.array([2, -1, 3, 0], kind)
    (each,) = loss("nll_loss", X, target, reduction="none")
    np.testing.assert_array_equal(each, [-X[0, 2], np.nan, np.nan, -X[3, 0]])
    (each,) = loss("nll_loss", X, target, reduction="none", ignore_index=-1)
    np.testing.assert_array_equal(each, [-X[0, 2], 0, np.nan, -X[3, 0]])
    (total,) = loss("nll_loss", X, target, reduction="sum")
    assert np.isnan(total)


def test_the_mean_counts_what_is_not_ignored():
    target = np.array([2, -1, -1, 0])
    (mean,) = loss("nll_loss", X, target, ignore_index=-1)
    np.testing.assert_allclose(mean, -(X[0, 2] + X[3, 0]) / 2, rtol=1e-6)
    (nothing,) = loss("nll_loss", X, np.full(4, 7), ignore_index=7)
    assert np.isnan(nothing)


def test_an_ignored_index_beyond_the_type_of_the_target_ignores_nothing():
    target = np.array([2, 1, 1, 0], np.int32)
    for ignored in (1 << 40, -(1 << 40)):
        np.testing.assert_array_equal(
            loss("nll_loss", X, target, ignore_index=ignored), loss("nll_loss", X, target)
        )


def test_an_infinity_elsewhere_does_not_count():
    x = np.array([[-np.inf, -1.0, np.nan]], np.float32)
    weight = np.array([0, 2, 0], np.float32)
    assert loss("nll_loss", x, np.array([1]), weight, reduction="sum") == (2.0,)


def test_large_logits_do_not_overflow():
    x = np.array([[1e4, 0, -1e4], [88, 89, 90]], np.float32)
    each, y = loss("softmax_cross_entropy", x, np.array([1, 2]), reduction="none")
    np.testing.assert_allclose(each, [1e4, np.log(1 + np.e**-1 + np.e**-2)], rtol=1e-6)
    np.testing.assert_allclose(y[0], [0, -1e4, -2e4])


@pytest.mark.parametrize("name", ["nll_loss", "softmax_cross_entropy"])
@pytest.mark.parametrize(
    ("types", "attributes", "text"),
    [
        ((mc.f32[3], mc.i64[3]), {}, "along axis 1"),
        ((mc.f32[3, 4], mc.i64[4]), {}, "the target must be i64[3]"),
        ((mc.f32[3, 4, 5], mc.i64[3]), {}, "the target must be i64[3, 5]"),
        ((mc.f32[3, 4], mc.i8[3]), {}, "i32 or i64"),
        ((mc.i32[3, 4], mc.i64[3]), {}, "takes float"),
        ((mc.f32[3, 4], mc.i64[3], mc.f32[3]), {}, "the weight must be f32[4]"),
        ((mc.f32[3, 4], mc.i64[3], mc.f64[4]), {}, "element types differ"),
        ((mc.f32[3, 4], mc.i64[3]), {"reduction": "max"}, "none of none, sum, mean"),
        ((mc.f32[3, "C"], mc.i64[3]), {}, "number of classes"),
    ],
)
def test_refused(name, types, attributes, text):
    inputs = [Input(f"x{n}", t) for n, t in enumerate(types)]
    with pytest.raises(TypeRuleError) as caught:
        apply(name, *inputs, **attributes)
    assert text in str(caught.value)
