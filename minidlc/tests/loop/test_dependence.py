"""The dependence test: never "independent" when iterations meet; the usual loops are recognised."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minidlc.expr.index import Index, Var, minimum
from minidlc.expr.nodes import Load
from minidlc.expr.types import f32
from minidlc.loop.dependence import conflicts, independent
from minidlc.loop.interpret import interpret
from minidlc.loop.nodes import For, Kind, LoopFunction, Param, Stmt, Store, block, walk
from minidlc.loop.text import parse_function
from minidlc.support.errors import VerifyError
from minidlc.tests.expr.test_index import random_index


def loop(body: str, extent: int = 4) -> For:
    text = (
        "def f(A: f32[64], C: f32[64], D: f32[8, 64]):\n"
        f"    for v in serial(0, {extent}):\n        {body}\n"
    )
    stmt = parse_function(text).body
    assert isinstance(stmt, For)
    return stmt


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("C[v] = A[v]", True),
        ("C[0] = A[v]", False),
        ("C[v] = C[v] + 1.0", True),
        ("C[v] = C[v + 1]", False),
        ("C[2*v] = C[2*v + 1]", True),
        ("C[v//2] = 0.0", False),
        ("D[v//3, v%3] = 0.0", True),
        ("D[v//3, v%2] = 0.0", False),
        ("D[0, 0] = D[1, v]", False),
        ("for j in serial(0, 3):\n            C[3*v + j] = C[3*v + 2 - j]", True),
        ("for j in serial(0, 4):\n            C[3*v + j] = 0.0", False),
        ("for j in serial(0, min(14, 50 - 14*v)):\n            C[14*v + j] = 0.0", True),
        ("for j in serial(0, 8):\n            D[v//2, 8*(v%2) + j] = 0.0", True),
        ('T = alloc(f32[1], "stack")\n        T[0] = A[v]\n        C[v] = T[0]', True),
        ("if v - 1 >= 0:\n            C[0] = 0.0", False),
    ],
)
def test_usual_loops(body: str, expected: bool) -> None:
    assert independent(loop(body)) is expected


def test_three_fused_loops_are_recognised() -> None:
    text = (
        "def f(C: f32[2, 3, 4]):\n    for v in serial(0, 24):\n"
        "        C[v//12, v//4%3, v%4] = 0.0\n"
    )
    stmt = parse_function(text).body
    assert isinstance(stmt, For)
    assert independent(stmt)


def test_a_loop_of_one_iteration_is_independent() -> None:
    assert independent(loop("C[0] = C[0] + A[v]", extent=1))


def test_outer_variables_need_a_range_only_where_they_do_not_cancel() -> None:
    o, v = Var("o"), Var("v")
    same = For(v, Index.of(4), Kind.SERIAL, Store("C", (o + v,), Load("C", (o + v,), f32)))
    other = For(v, Index.of(4), Kind.SERIAL, Store("C", (8 * o + v,), Load("C", (9 * o + v,), f32)))
    assert independent(same)
    assert not independent(other)
    assert independent(other, {o: (0, 0)})


def test_conflicts_name_the_accesses() -> None:
    pairs = list(conflicts(loop("C[v] = C[v + 1]")))
    assert {(a.write, b.write) for a, b in pairs} == {(False, True)}


def random_loop(rng: random.Random) -> Stmt:
    """A parallel loop v around some stores to C and D at random positions."""
    v, j = Var("v"), Var("j")
    names = (v, v, j)
    bound = Index.of(rng.randint(1, 4))

    def place() -> Index:
        if rng.random() < 0.3:
            return random_index(rng, 1, names) % 64
        return rng.choice((1, 2, 3)) * v + rng.randint(0, 2) * j + rng.randint(0, 1)

    def store() -> Stmt:
        index = (v // rng.randint(1, 3) % 8, rng.choice((v % 3, place(), Index.of(v) % 2)))
        here = place()
        value = Load("C", (rng.choice((here, here, place())),), f32) * 2.0
        if rng.random() < 0.6:
            return Store("C", (here,), value)
        return Store("D", index if rng.random() < 0.7 else (Index.of(0), place()), value)

    inner = For(
        j, minimum(bound, 6 - v), Kind.SERIAL, block(*(store() for _ in range(rng.randint(1, 2))))
    )
    return For(v, Index.of(rng.randint(2, 6)), Kind.PARALLEL, inner)


@settings(max_examples=400, deadline=None)
@given(st.integers(0, 2**32))
def test_never_independent_where_iterations_meet(seed: int) -> None:
    body = random_loop(random.Random(seed))
    assert isinstance(body, For)
    fn = LoopFunction("f", (Param("C", f32[64]), Param("D", f32[8, 64])), body)
    if independent(body):
        zeros = {p.name: np.zeros(p.type.dims, np.float32) for p in fn.params}
        interpret(fn, zeros, check_parallel=True)


def test_the_random_loops_are_of_both_sorts() -> None:
    met = apart = alarms = 0
    for seed in range(300):
        body = random_loop(random.Random(seed))
        assert isinstance(body, For)
        fn = LoopFunction("f", (Param("C", f32[64]), Param("D", f32[8, 64])), body)
        arrays = {p.name: np.zeros(p.type.dims, np.float32) for p in fn.params}
        try:
            interpret(fn, arrays, check_parallel=True)
            apart, alarms = apart + 1, alarms + (not independent(body))
        except VerifyError:
            met += 1
    assert met > 50
    assert apart > 10
    assert alarms < apart


def test_kind_does_not_matter() -> None:
    stmt = loop("C[v] = A[v]")
    assert all(independent(replace(stmt, kind=kind)) for kind in Kind)
    assert len(list(walk(stmt))) == 2
