"""Regions: the boxes that statements touch, exact for split loops and never too small."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minidlc.expr.index import Index, Var, evaluate, evaluate_cond, minimum
from minidlc.expr.nodes import Cond, Load, Select
from minidlc.loop.nodes import Alloc, Block, For, If, Kind, Stmt, Store
from minidlc.loop.regions import accesses, loads, regions
from minidlc.loop.text import parse_function
from minidlc.tests.loop.random_loops import random_function

io = Var("io")


def body(text: str) -> Stmt:
    params = 'A: f32[200, "io"], C: f32[200, 8], T: f32[8]'
    return parse_function(f"def f({params}):\n{text}").body


def box(s: Stmt, buffer: str, mode: str) -> list[str] | None:
    found = regions(s, buffer, mode)
    return None if found is None else [f"{lo}: {extent}" for lo, extent in found]


TILE = """\
    for ii in serial(0, min(14, 127 - 14*io)):
        for j in vectorized(0, 8):
            C[14*io + ii, j] = A[14*io + ii, j] + A[14*io + ii + 2, 3] + T[7 - j]
"""


def test_split_loops_have_exact_boxes() -> None:
    s = body(TILE)
    assert box(s, "C", "w") == ["14*io: min(14, 127 - 14*io)", "0: 8"]
    assert box(s, "A", "r") == ["14*io: min(16, 129 - 14*io)", "0: 8"]
    assert box(s, "T", "r") == ["0: 8"]
    assert box(s, "T", "rw") == box(s, "T", "r")


def test_a_buffer_that_is_not_touched_has_no_box() -> None:
    s = body(TILE)
    assert regions(s, "C", "r") is None
    assert regions(s, "A", "w") is None
    assert regions(s, "nothing", "rw") is None


def test_a_scalar_has_a_box_without_axes() -> None:
    s = parse_function("def f(S: f32[()], C: f32[1]):\n    C[0] = S[()]\n").body
    assert regions(s, "S", "r") == ()
    assert regions(s, "S", "w") is None


def test_the_whole_loop_has_constant_bounds() -> None:
    s = For(io, Index.of(10), Kind.SERIAL, body(TILE))
    assert box(s, "C", "w") == ["0: 127", "0: 8"]
    assert box(s, "A", "r") == ["0: 129", "0: 8"]


def test_reads_and_writes_are_joined_by_their_hull() -> None:
    s = body("    C[3, 0] = C[5, 1]\n    C[4, io] = 0.0\n")
    assert box(s, "C", "w") == ["3: 2", "min(0, io): max(0, io) - min(0, io) + 1"]
    assert box(s, "C", "rw") == ["3: 3", "min(0, io): max(1, io) - min(0, io) + 1"]
    known = regions(s, "C", "w", {io: (2, 6)})
    assert known is not None
    assert known[1] == (Index.of(0), io + 1)


def test_accesses_come_in_program_order_with_their_loops() -> None:
    found = list(accesses(body(TILE)))
    assert [(a.buffer, a.write) for a in found] == [
        ("A", False), ("A", False), ("T", False), ("C", True)
    ]  # fmt: skip
    assert [str(v) for v, _ in found[0].loops] == ["ii", "j"]
    assert found[0].loops[0][1] == minimum(14, 127 - 14 * io)


def touched(s: Stmt, values: dict[Var, int]) -> set[tuple[str, bool, tuple[int, ...]]]:
    """Every (buffer, write, place) that running `s` touches, a scalar local as the place ()."""
    match s:
        case For(var, extent, _, inner):
            runs = range(evaluate(extent, values))
            return set().union(*(touched(inner, {**values, var: n}) for n in runs))
        case Alloc(body=inner):
            return touched(inner, values)
        case If(cond, inner):
            return touched(inner, values) if evaluate_cond(cond, values) else set()
        case Block(stmts):
            return set().union(*(touched(child, values) for child in stmts))
        case Store(buffer, index, value):
            places = {(buffer, True, tuple(evaluate(e, values) for e in index))}
            todo = [value]
            while todo:
                e = todo.pop()
                if isinstance(e, Select) and isinstance(e.cond, Cond):
                    todo.append(e.a if evaluate_cond(e.cond, values) else e.b)
                elif isinstance(e, Load):
                    places.add((e.buffer, False, tuple(evaluate(i, values) for i in e.index)))
                else:
                    todo += [x for x in (getattr(e, "a", None), getattr(e, "b", None)) if x]
            return places


@pytest.mark.long
@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32))
def test_boxes_hold_what_is_touched(seed: int) -> None:
    s = random_function(random.Random(seed)).body
    places = touched(s, {})
    for buffer in ("A", "C"):
        for mode, write in (("r", False), ("w", True)):
            found = regions(s, buffer, mode)
            for place in (p for b, w, p in places if (b, w) == (buffer, write)):
                assert found is not None
                for n, (lo, extent) in zip(place, found, strict=True):
                    assert lo.value <= n < lo.value + extent.value


@pytest.mark.parametrize("depth", [40])
def test_shared_loads_are_found_once(depth: int) -> None:
    e = body("    C[0, 0] = A[0, 1] + T[1]\n")
    assert isinstance(e, Store)
    value = e.value
    for _ in range(depth):
        value = value * value
    assert [x.buffer for x in loads(value)] == ["A", "T"]
