"""Bodies of tensor expressions that are refused when a tensor is made of them."""

from __future__ import annotations

import pytest

from minidlc import te
from minidlc.expr.types import f32
from minidlc.support.errors import LoweringError

pytestmark = pytest.mark.ch04

A = te.placeholder(f32[4, 8], "A")
K = te.reduce_axis(8, "k")

BAD = {
    "one axis too few": (lambda i, j: A[i, j], "MDLC0705", "2 axes ('i', 'j') for a shape of rank"),
    "a reduction inside": (
        lambda i: te.sum(A[i, K], K) + 1.0,
        "MDLC0706",
        "a reduction stands inside a larger expression",
    ),
    "an axis bound twice": (lambda k: te.sum(A[k, K], K), "MDLC0705", "axis 'k' is bound twice"),
}


@pytest.mark.parametrize("case", BAD)
def test_bodies(case):
    body, code, message = BAD[case]
    with pytest.raises(LoweringError) as caught:
        te.compute((4,), body, name="C")
    assert (caught.value.code, message in str(caught.value)) == (code, True), str(caught.value)


def test_an_axis_reduced_over_twice():
    with pytest.raises(LoweringError, match="axis 'k' is bound twice") as caught:
        te.compute((4,), lambda i: te.sum(A[i, K], K, K), name="C")
    assert caught.value.code == "MDLC0705"
