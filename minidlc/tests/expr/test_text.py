"""Text of positions and scalar expressions: printed, parsed back, refused with a place."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minidlc.expr.functions import FUNCTIONS
from minidlc.expr.index import Cond, Index, Var
from minidlc.expr.nodes import (
    Binary,
    Call,
    Cast,
    Compare,
    Const,
    Expr,
    IndexValue,
    Load,
    Reduce,
    Select,
)
from minidlc.expr.printing import print_expr
from minidlc.expr.text import parse_expr, parse_index
from minidlc.expr.types import DTYPES, DType, bool_, f32, f64, i32, u8
from minidlc.support.errors import ParseError
from minidlc.tests.expr.test_index import random_index

i, k = Var("i"), Var("k")
TYPES = {"A": f32, "D": f64, "N": i32, "M": bool_, "S": f32, "U": u8}
A, N = Load("A", (Index.of(i), k + 1), f32), Load("N", (Index.of(i),), i32)
D, M, S = Load("D", (2 * i,), f64), Load("M", (Index.of(k),), bool_), Load("S", (), f32)


def random_expr(rng: random.Random, type: DType, depth: int) -> Expr:
    """A well-typed expression over the buffers of TYPES."""
    if depth == 0 or rng.random() < 0.15:
        loads = [e for e in (A, N, D, M, S) if e.dtype == type]
        if loads and rng.random() < 0.7:
            return rng.choice(loads)
        if type == bool_:
            return Const(rng.random() < 0.5, bool_)
        if type.is_float:
            return Const(rng.choice((0.5, -1.5, 0.1, 1e-30, -0.0, float("inf"))), type)
        return Const(rng.choice((0, 1, 7, 100)), type)
    if type == bool_ and rng.random() < 0.7:
        inner = rng.choice((f32, i32))
        op = rng.choice(("==", "!=", "<", "<=", ">", ">="))
        return Compare(op, random_expr(rng, inner, depth - 1), random_expr(rng, inner, depth - 1))
    a, b = random_expr(rng, type, depth - 1), random_expr(rng, type, depth - 1)
    match rng.randint(0, 4):
        case 0:
            return Select(Cond((random_index(rng, 1), random_index(rng, 0))), a, b)
        case 1:
            return Select(random_expr(rng, bool_, depth - 1), a, b)
        case 2 if type != bool_:
            return Cast(type, random_expr(rng, rng.choice((f32, i32, bool_)), depth - 1))
        case 3 if type.is_float:
            return rng.choice((Call("exp", (a,)), Call("pow", (a, b)), Call("abs", (a,))))
        case _:
            floats, integers = ("+", "-", "*", "/", "min", "max"), ("+", "-", "*", "&", "<<")
            ops = floats if type.is_float else integers if type.is_integer else ("&", "|", "^")
            return Binary(rng.choice(ops), a, b)


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 2**32))
def test_position_round_trip(seed: int) -> None:
    e = random_index(random.Random(seed), 2)
    assert parse_index(str(e)) == e


@pytest.mark.long
@settings(max_examples=300, deadline=None)
@given(st.integers(0, 2**32))
def test_expression_round_trip(seed: int) -> None:
    rng = random.Random(seed)
    e = random_expr(rng, rng.choice((f32, f64, i32, u8, bool_)), 3)
    text = print_expr(e)
    assert parse_expr(text, TYPES, e.dtype) == e
    assert parse_expr(text, TYPES) == e, "the text says its types itself"


@pytest.mark.parametrize(
    ("e", "text"),
    [
        (S * S - S / (S + S), "S[()] * S[()] - S[()] / (S[()] + S[()])"),
        (A - (A - A), "A[i, k + 1] - (A[i, k + 1] - A[i, k + 1])"),
        ((A - A) - A, "A[i, k + 1] - A[i, k + 1] - A[i, k + 1]"),
        (S + 1.0, "S[()] + 1.0"),
        (D * 0.5, "D[2*i] * f64(0.5)"),
        (Const(float("nan"), f32), 'f32("nan")'),
        (Const(float("-inf"), f64), 'f64("-inf")'),
        (Const(True, bool_), "True"),
        (N + 3, "N[i] + i32(3)"),
        (Binary("max", A, Const(0.0, f32)), "max(A[i, k + 1], 0.0)"),
        (Select((i >= 1) & (i < 5), S, Const(0.0, f32)),
         "select(i - 1 >= 0 and 4 - i >= 0, S[()], 0.0)"),
        (Select(Compare("<", S + S, S), S, S), "where(S[()] + S[()] < S[()], S[()], S[()])"),
        (Cast(f32, IndexValue(i + 1)), 'cast("f32", index(i + 1))'),
        (Call("exp", (S,)), "exp(S[()])"),
        (Reduce("sum", A * A, (("k", 8),)), "sum(A[i, k + 1] * A[i, k + 1], k=8)"),
    ],
)  # fmt: skip
def test_text(e: Expr, text: str) -> None:
    assert print_expr(e) == text
    if text != 'f32("nan")':  # a NaN differs from itself
        assert parse_expr(text, TYPES) == e


def test_bare_constants_take_the_type_of_the_other_side() -> None:
    assert parse_expr("N[i] + 1", TYPES) == N + 1
    assert parse_expr("2 * D[2*i]", TYPES) == 2 * D
    assert parse_expr("select(i < 3, 0, D[2*i])", TYPES).dtype == f64
    assert parse_expr("0", TYPES, f32) == Const(0.0, f32)


def test_conditions_may_use_any_comparison() -> None:
    e = parse_expr("select(i > 0 and i <= 3 and True, S[()], 0.0)", TYPES)
    assert isinstance(e, Select)
    assert e.cond == (i > 0) & (i <= 3)


@pytest.mark.parametrize(
    ("text", "code", "message", "span"),
    [
        ("A[i, k", "MDLC0301", "not valid syntax: '[' was never closed", (2, 3)),
        ("A[i * k, 0]", "MDLC0322", "not affine: (i) * (k)", (3, 8)),
        ("A[i // 0, 0]", "MDLC0322", "the divisor must be an integer other than 0", (3, 9)),
        ("A[0.5, 0]", "MDLC0322", "not a position: 0.5", (3, 6)),
        ("A[z, 0]", "MDLC0321", "no loop variable 'z' here", (3, 4)),
        ("S[()] + B[i]", "MDLC0321", "unknown buffer 'B'", (9, 13)),
        ("S[()] + i", "MDLC0320", "'i' is not a value", (9, 10)),
        ("S[()] + Q", "MDLC0321", "unknown name 'Q'", (9, 10)),
        ("S[()] @ S[()]", "MDLC0320", "not a scalar expression: S[()] @ S[()]", (1, 14)),
        ("S[()] if 1 else 0", "MDLC0320", "not a scalar expression", (1, 18)),
        ("exq(S[()])", "MDLC0321", "unknown function 'exq'", (1, 11)),
        ("exp(S[()], S[()])", "MDLC0326", "exp does not take 2 arguments", (1, 18)),
        ("exp(x=S[()])", "MDLC0326", "exp takes no keywords", (1, 13)),
        ("select(S[()] < 0.0, 1.0, 0.0)", "MDLC0322", "not a position: S[()]", (8, 13)),
        ("select(i, 1.0, 0.0)", "MDLC0323", "not a condition on positions: i", (8, 9)),
        ("where(S[()], 1.0, 0.0)", "MDLC0325", "where tests a f32", (7, 12)),
        ('cast("f31", S[()])', "MDLC0324", "not an element type: 'f31'", (6, 11)),
        ("S[()] + D[i]", "MDLC0325", "element types differ: f32 and f64", (1, 13)),
        ("N[i] / N[i]", "MDLC0325", "no operator / on i32", (1, 12)),
        ("S[()] & S[()]", "MDLC0325", "no operator & on f32", (1, 14)),
        ("N[i] + 0.5", "MDLC0325", "0.5 is not a constant of type i32", (8, 11)),
        ("u8(300)", "MDLC0325", "300 does not fit u8", (4, 7)),
        ("i32(True)", "MDLC0325", "True is not a constant of type i32", (1, 10)),
        ("f32(S[()])", "MDLC0326", "f32(…) takes a number", (1, 11)),
        ("sum(S[()], k=i)", "MDLC0326", "a reduction axis is written name=extent", (12, 15)),
    ],
)  # fmt: skip
def test_errors_have_a_place(text: str, code: str, message: str, span: tuple[int, int]) -> None:
    with pytest.raises(ParseError) as error:
        parse_expr(text, TYPES, variables=("i", "k"))
    assert error.value.code == code
    assert message in str(error.value)
    carets = str(error.value).splitlines()[3]
    start, end = carets.index("^") - carets.index("|") - 1, carets.rindex("^") - carets.index("|")
    assert (start, end) == span


@pytest.mark.parametrize("text", ["(" * 5000, "-" * 90000 + "1", "S[()]" + " + S[()]" * 20000])
def test_deep_nesting_is_refused_not_a_crash(text: str) -> None:
    with pytest.raises(ParseError) as error:
        parse_expr(text, TYPES)
    assert error.value.code == "MDLC0301"


def test_every_word_has_one_meaning() -> None:
    assert not set(FUNCTIONS) & (set(DTYPES) | {"select", "where", "cast", "index", "min", "max"})
