"""Loop IR simplified: the same numbers, fewer tests."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minidlc.expr.index import Index, Var, minimum
from minidlc.expr.nodes import Binary, Load, Select
from minidlc.expr.types import f32
from minidlc.loop.simplify import simplify_expr, simplify_stmt, substitute_stmt
from minidlc.loop.text import parse_function, print_stmt
from minidlc.loop.verify import verify_function
from minidlc.tests.loop.random_loops import random_function, run
from minidlc.tests.loop.test_text import MATMUL

i = Var("i")


@pytest.mark.long
@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32), st.booleans())
def test_simplified_loops_compute_the_same(seed: int, drop: bool) -> None:
    fn = verify_function(random_function(random.Random(seed)))
    simple = verify_function(replace(fn, body=simplify_stmt(fn.body, {}, drop_unit_loops=drop)))
    np.testing.assert_array_equal(run(simple), run(fn))
    assert parse_function(str(simple)) == simple, "text of loops round-trips"


def test_the_same_object_where_nothing_changes() -> None:
    body = parse_function(MATMUL).body
    assert simplify_stmt(body, {}) is body


def _body(text: str) -> str:
    params = "A: f32[64], C: f32[64]"
    return print_stmt(simplify_stmt(parse_function(f"def f({params}):\n{text}").body, {}))


def test_decided_tests_disappear() -> None:
    text = """\
    for i in serial(0, 4):
        if i >= 0:
            C[i] = select(i < 4, A[(4*i + 3)//4], 0.0)
        if i - 9 >= 0:
            C[0] = 0.0
"""
    assert _body(text) == "for i in serial(0, 4):\n    C[i] = A[i]"


def test_loops_that_never_run_disappear() -> None:
    assert _body("    for i in serial(0, 0):\n        C[i] = 0.0\n") == "pass"


def test_a_unit_loop_is_kept_unless_asked() -> None:
    body = parse_function(
        "def f(C: f32[4]):\n    for i in serial(0, 1):\n        C[i] = 0.0\n"
    ).body
    assert print_stmt(simplify_stmt(body, {})) == "for i in serial(0, 1):\n    C[0] = 0.0"
    assert print_stmt(simplify_stmt(body, {}, drop_unit_loops=True)) == "C[0] = 0.0"


def test_ranges_around_decide() -> None:
    io = Var("io")
    body = parse_function(
        'def f(C: f32["io"]):\n    for i in serial(0, min(14, 127 - 14*io)):\n        C[i] = 0.0\n'
    ).body
    assert "serial(0, 14)" in print_stmt(simplify_stmt(body, {io: (0, 8)}))
    assert "serial(0, 1)" in print_stmt(simplify_stmt(body, {io: (9, 9)}))


def test_substitution_leaves_other_variables() -> None:
    body = parse_function(MATMUL).body
    assert substitute_stmt(body, {Var("z"): Index.of(3)}) is body
    inner = parse_function(
        'def f(C: f32["n"]):\n    for i in serial(0, 4):\n        C[n + i] = 0.0\n'
    )
    new = substitute_stmt(inner.body, {Var("n"): 2 * Var("m")})
    assert print_stmt(new) == "for i in serial(0, 4):\n    C[2*m + i] = 0.0"


def test_shared_expressions_are_simplified_once() -> None:
    """A chain of squares has 2**40 paths but 41 nodes."""
    e = Select(i >= 0, Load("A", (minimum(i, 3),), f32), Load("A", (Index.of(0),), f32))
    shared = simplify_expr(e, {i: (0, 1)})
    assert shared == Load("A", (Index.of(i),), f32)
    chain = e
    for _ in range(40):
        chain = Binary("*", chain, chain)  # type: ignore[assignment]
    result = simplify_expr(chain, {i: (0, 1)})
    for _ in range(40):
        assert isinstance(result, Binary)
        assert result.a is result.b
        result = result.a
    assert result == shared
