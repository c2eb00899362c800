"""Malformed tensor expressions, construct by construct: code, place, message."""

from __future__ import annotations

import pytest

from minidlc.support.errors import ParseError
from minidlc.te import parse_te

pytestmark = pytest.mark.ch04

BAD = {
    "C = compute(f32[4, 8], lambda i, j: A[i, j] +": ("MDLC0301", ""),
    "for i in x: pass": ("MDLC0350", "no tensor expression: for i in x"),
    "C = A": ("MDLC0350", "lines look like"),
    "C = tensor(f32[4])": ("MDLC0350", "no tensor expression"),
    "C = compute(f32[4], A)": ("MDLC0350", "no tensor expression"),
    "C = placeholder(f33[4])": ("MDLC0324", "expected a type such as"),
    "A = placeholder(f32[4])": ("MDLC0351", "two tensors named 'A'"),
    "C = compute(f32[4], lambda i, j: A[i, j])": ("MDLC0352", "C: 2 axes ['i', 'j'] for f32[4]"),
    "C = compute(f32[4], lambda i: AA[i, 0])": ("MDLC0321", "unknown buffer 'AA'"),
    "C = compute(f32[4], lambda i: A[i, k])": ("MDLC0321", "no loop variable 'k' here"),
    "C = compute(f32[4], lambda i: A[i])": ("MDLC0352", "A has 2 axes, got 1 indices"),
    "C = compute(i32[4], lambda i: A[i, 0])": ("MDLC0352", "C: the body is f32"),
    "C = compute(f32[4], lambda i: sum(A[i, k], k=8) + 1.0)": (
        "MDLC0352",
        "a reduction stands inside a larger expression",
    ),
    "C = compute(f32[4], lambda i: sum(A[i, i], i=8))": ("MDLC0351", "axis 'i' is bound twice"),
    "return B": ("MDLC0321", "no tensor 'B'"),
    "return A\nB = placeholder(f32[4])": ("MDLC0350", "nothing follows `return`"),
}


@pytest.mark.parametrize("line", BAD)
def test_malformed_programs(line: str) -> None:
    code, message = BAD[line]
    with pytest.raises(ParseError) as caught:
        parse_te(f"A = placeholder(f32[4, 8])\n{line}\n", "prog.txt")
    assert caught.value.code == code, str(caught.value)
    assert message in str(caught.value)
    assert str(caught.value.loc).startswith("prog.txt:")
