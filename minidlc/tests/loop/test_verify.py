"""The verifier: one wrong program for each invariant, and right ones that look wrong."""

from __future__ import annotations

import pytest

from minidlc.expr.index import Index, Var
from minidlc.expr.nodes import Binary, Call, Cast, Compare, Const, Expr, Load, Reduce, Select
from minidlc.expr.types import bool_, f32, f64, i32
from minidlc.loop.nodes import Alloc, For, Kind, LoopFunction, Param, Scope, Stmt, Store, block
from minidlc.loop.text import parse_function
from minidlc.loop.verify import verify_function
from minidlc.support.errors import VerifyError
from minidlc.tests.loop.test_text import MATMUL, TILED

i, j = Var("i"), Var("j")
A = Load("A", (Index.of(i),), f32)
ZERO = Const(0.0, f32)


def function(body: Stmt) -> LoopFunction:
    return LoopFunction("f", (Param("A", f32[4]), Param("C", f32[4])), body)


def over_i(body: Stmt, extent: int = 4) -> Stmt:
    return For(i, Index.of(extent), Kind.SERIAL, body)


def store(value: Expr, index: Index | None = None) -> Stmt:
    return over_i(Store("C", (Index.of(i) if index is None else index,), value))


def test_right_programs_pass() -> None:
    fn = parse_function(MATMUL)
    assert verify_function(fn) is fn
    verify_function(parse_function(TILED))


@pytest.mark.parametrize(
    "body",
    [
        "C[i] = select(i - 1 >= 0, A[i - 1], 0.0)",
        "if i - 1 >= 0:\n            C[i - 1] = A[i]",
        "for j in serial(0, min(2, 3 - i)):\n            C[i + j] = A[i]",
        "C[min(i + 2, 3)] = A[(i + 1)%4]",
        "C[i] = select(i >= 0, 1.0, A[9])",
        "for j in serial(0, 2*i - 1):\n            C[i + j - 4] = A[i]",
    ],
)
def test_what_may_be_right_is_not_refused(body: str) -> None:
    text = f"def f(A: f32[4], C: f32[4]):\n    for i in serial(0, 4):\n        {body}\n"
    verify_function(parse_function(text))


@pytest.mark.parametrize(
    ("body", "code", "message"),
    [
        (Store("C", (Index.of(i),), ZERO), "MDLC0450", "i is used outside its loop: i"),
        (store(Load("A", (Index.of(j),), f32)), "MDLC0450", "j is used outside its loop"),
        (over_i(For(j, Index.of(Var("n")), Kind.SERIAL, block())), "MDLC0450", "n is used outside"),
        (store(Select(j >= 0, ZERO, ZERO)), "MDLC0450", "j is used outside its loop"),
        (over_i(over_i(Store("C", (Index.of(i),), ZERO))), "MDLC0451", "i is already bound"),
        (Alloc("A", f32[4], Scope.STACK, block()), "MDLC0451", "'A' is already bound"),
        (over_i(Store("T", (Index.of(i),), ZERO)), "MDLC0452", "'T' is used outside its"),
        (block(Alloc("T", f32[4], Scope.STACK, block()), store(Load("T", (Index.of(0),), f32))),
         "MDLC0452", "'T' is used outside its allocation"),
        (over_i(Store("C", (i + 0, i + 0), ZERO)), "MDLC0453", "has 1 axes, got 2 positions"),
        (store(Load("A", (), f32)), "MDLC0453", "A: f32[4] has 1 axes, got 0 positions"),
        (store(Const(0, i32)), "MDLC0454", "C holds f32, the value is i32"),
        (store(Cast(f32, Load("A", (Index.of(i),), f64))), "MDLC0454", "it is loaded as f64"),
        (store(A, i + 1), "MDLC0455", "C: f32[4]: position i + 1 of axis 0 reaches 1..4"),
        (store(Load("A", (i - 1,), f32)), "MDLC0455", "position i - 1 of axis 0 reaches -1..2"),
        (store(Select(i >= 0, Load("A", (Index.of(9),), f32), ZERO)), "MDLC0455", "reaches 9..9"),
        (store(Binary("+", A, Const(1, i32))), "MDLC0456", "f32 + i32 is not defined: A[i] +"),
        (store(Binary("&", A, A)), "MDLC0456", "f32 & f32 is not defined"),
        (store(Select(A, A, A)), "MDLC0456", "a test of f32 is not defined"),
        (store(Select(i >= 1, A, Const(1, i32))), "MDLC0456", "a choice of f32 or i32"),
        (store(Call("exp", (A, A))), "MDLC0456", "exp of 2 arguments is not defined"),
        (store(Call("pow", (A, Const(1, i32)))), "MDLC0456", "pow of f32, i32 is not defined"),
        (store(Cast(f32, Compare("<", A, Const(True, bool_)))), "MDLC0456", "f32 < bool is not"),
        (Alloc("T", f32["N"], Scope.STACK, block()), "MDLC0457", 'T has the size f32["N"]'),
        (store(Reduce("sum", A, (("k", 8),))), "MDLC0458", "a reduction is left: sum(A[i], k=8)"),
    ],
)  # fmt: skip
def test_one_message_per_invariant(body: Stmt, code: str, message: str) -> None:
    with pytest.raises(VerifyError) as error:
        verify_function(function(body))
    assert error.value.code == code
    assert message in str(error.value)
    assert "in f: " in str(error.value)


def test_two_parameters_of_one_name() -> None:
    fn = LoopFunction("f", (Param("A", f32[4]), Param("A", f32[4])), block())
    with pytest.raises(VerifyError, match="two parameters named 'A'"):
        verify_function(fn)


def test_sizes_of_parameters_are_bound() -> None:
    text = 'def f(C: f32["N"]):\n    for i in serial(0, N):\n        C[N - i - 1] = 0.0\n'
    verify_function(parse_function(text))
