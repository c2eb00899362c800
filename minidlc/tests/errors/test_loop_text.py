"""Malformed loop text, construct by construct: code, place, message."""

from __future__ import annotations

import pytest

from minidlc.loop.text import parse_function
from minidlc.support.errors import ParseError
from minidlc.support.locations import FileLoc

MATMUL = """\
def matmul(A: f32[4, 8], B: f32[8, 3], C: f32[4, 3]):
    for i in parallel(0, 4):
        for j in serial(0, 3):
            C[i, j] = 0.0
            for k in serial(0, 8):
                C[i, j] = C[i, j] + A[i, k] * B[k, j]
"""


def _with(line: str) -> str:
    return f"def f(A: f32[4, 8], n: i32[4]):\n    for i in serial(0, 4):\n        {line}\n"


@pytest.mark.parametrize(
    ("text", "code", "message", "line"),
    [
        ("", "MDLC0330", "expected one function", 1),
        ("x = 1\n", "MDLC0330", "expected one function", 1),
        (MATMUL + MATMUL, "MDLC0330", "expected one function", 7),
        ("def f(A: f32[4]:\n    pass\n", "MDLC0301", "not valid syntax", 1),
        ("def f(A):\n    pass\n", "MDLC0324", "expected a type such as f32[4, 8], got nothing", 1),
        ("def f(A: f31[4]):\n    pass\n", "MDLC0324", "got f31[4]", 1),
        ("def f(A: f32[-1]):\n    pass\n", "MDLC0324", "not a dimension: -1", 1),
        ('def f(A: f32["N*M"]):\n    pass\n', "MDLC0324", "not affine: (N) * (M)", 1),
        ("def f(A: f32[4], A: f32[4]):\n    pass\n", "MDLC0331", "two parameters named", 1),
        ("def f(A: f32[4], *B):\n    pass\n", "MDLC0330", "plain parameters", 1),
        (_with("while True: pass"), "MDLC0330", "not a statement of loop IR: while True:", 3),
        (_with("A[i, 0] += 1.0"), "MDLC0330", "not a statement of loop IR: A[i, 0] += 1.0", 3),
        (_with("for j in range(4): pass"), "MDLC0330", "no kind of loop 'range'", 3),
        (_with("for j in serial(1, 4): pass"), "MDLC0330", "expected for NAME in KIND", 3),
        (_with("for j in vectorised(0, 4): pass"), "MDLC0330", "did you mean 'vectorized'?", 3),
        (_with("for i in serial(0, 4): pass"), "MDLC0331", "'i' is already a loop variable", 3),
        (_with("A = alloc(f32[4], \"stack\")"), "MDLC0331", "'A' is already a buffer here", 3),
        (_with("T = alloc(f32[4], \"heap\")"), "MDLC0330", "no scope 'heap'", 3),
        (_with("T = 3"), "MDLC0330", "a bare name holds a buffer", 3),
        (_with("del T"), "MDLC0330", "nothing allocated in this block to end by: del T", 3),
        (_with("B[i] = 0.0"), "MDLC0321", "unknown buffer 'B'", 3),
        (_with("A[j, 0] = 0.0"), "MDLC0321", "no loop variable 'j' here", 3),
        (_with("A[i, 0] = n[i]"), "MDLC0325", "A holds f32, the value is i32", 3),
        (_with("if A[i, 0]: pass"), "MDLC0325", "if tests a f32", 3),
        (_with("if i: pass"), "MDLC0323", "not a condition on positions: i", 3),
    ],
)  # fmt: skip
def test_errors_have_a_place(text: str, code: str, message: str, line: int) -> None:
    with pytest.raises(ParseError) as error:
        parse_function(text, "f.loops")
    assert error.value.code == code
    assert message in str(error.value)
    assert isinstance(error.value.loc, FileLoc)
    assert (error.value.loc.file, error.value.loc.line) == ("f.loops", line)
    assert "^" in str(error.value) or not text


def test_carets_stand_under_the_cause() -> None:
    with pytest.raises(ParseError) as error:
        parse_function(_with("A[i, j*i] = 0.0"), "f.loops")
    assert str(error.value).splitlines()[:4] == [
        "error[MDLC0321]: no loop variable 'j' here",
        "  --> f.loops:3:14",
        "  3 |         A[i, j*i] = 0.0",
        "    |              ^",
    ]
