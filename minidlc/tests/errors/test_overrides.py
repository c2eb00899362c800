"""Overrides that raise, return nonsense, or lie: refused, and it is said whose fault it is."""

from __future__ import annotations

import linecache
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import minidlc as mc
from minidlc.expr.index import Cond, Index
from minidlc.loop.nodes import Block, For, If, Kind, LoopFunction, Stmt, Store, rewrite
from minidlc.support.errors import CompileError
from minidlc.te import lower
from minidlc.tests.driver.conftest import PACKAGED
from minidlc.tests.driver.test_every_point import ROWS

pytestmark = pytest.mark.llvm

MODEL = PACKAGED / "mnist_cntk.onnx"


def boom(*args: object) -> None:
    raise ValueError("boom")


def other_arguments(*, needed: int) -> None:
    pass


UNCHECKED = ("verify", "schedule.conv_nchwc")  # what these return does not matter


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("wrong", [boom, other_arguments])
def test_an_override_that_raises_is_named(name: str, wrong: Callable[..., Any]) -> None:
    with mc.use(**{name: wrong}), pytest.raises(CompileError) as caught:
        ROWS[name][1]()
    text = str(caught.value)
    assert f"the override of {name!r} failed: " in text
    if wrong is boom:
        assert "ValueError: boom" in text
        assert 'in boom: raise ValueError("boom")' in text


CELL = """
def order(outputs):
    return visit(outputs, 0)

def visit(value, depth):
    return visit(value, depth + 1) if depth < 990 else 1 // 0
"""


def test_the_lines_that_led_there_are_readable() -> None:
    """A cell of a notebook is called so, and a line of a recursion stands once."""
    file = "/tmp/ipykernel_1/2.py"
    scope: dict[str, Any] = {}
    linecache.cache[file] = (len(CELL), None, CELL.splitlines(keepends=True), file)
    exec(compile(CELL, file, "exec"), scope)
    limit = sys.getrecursionlimit()
    try:
        sys.setrecursionlimit(5000)
        with mc.use(toposort=scope["order"]), pytest.raises(CompileError) as caught:
            mc.trace(mc.relu, mc.f32[2])
    finally:
        sys.setrecursionlimit(limit)
        del linecache.cache[file]
    line = "return visit(value, depth + 1) if depth < 990 else 1 // 0"
    assert str(caught.value).split("\n")[1:] == [
        "  --> a notebook cell, line 2",
        "  = it is called as toposort(outputs: tuple[Value, ...]) -> list[Node]",
        "  = a notebook cell, line 3 in order: return visit(outputs, 0)",
        f"  = a notebook cell, line 6 in visit: {line} … 991 times",
    ]


@pytest.mark.parametrize("name", [name for name in ROWS if name not in UNCHECKED])
@pytest.mark.parametrize("wrong", [None, 7, object(), (1, 2)])
def test_an_override_that_returns_nonsense_is_refused(name: str, wrong: object) -> None:
    with mc.use(**{name: lambda *args: wrong}), pytest.raises(CompileError) as caught:
        ROWS[name][1]()
    assert name.split(".")[-1] in str(caught.value)


def edited(edit: Callable[[LoopFunction], LoopFunction]) -> Callable[..., LoopFunction]:
    """An override of `lower` that changes what the shipped one made."""
    return lambda schedule, name: edit(lower(schedule, name, partition=False))


def each(change: Callable[[Stmt], Stmt]) -> Callable[..., LoopFunction]:
    return edited(lambda fn: replace(fn, body=rewrite(fn.body, change)))


def far_away(s: Stmt) -> Stmt:
    """A store outside its buffer under a condition that is not decided: it once crashed."""
    if isinstance(s, Store) and s.index and s.index[-1].vars():
        var = Index.of(min(s.index[-1].vars(), key=str))
        return If(Cond((var - 1,)), replace(s, index=tuple(e + 1_000_000 for e in s.index)))
    return s


def nothing(s: Stmt) -> Stmt:
    return Block(()) if isinstance(s, Store) else s


def reduction_in_parallel(s: Stmt) -> Stmt:
    return replace(s, kind=Kind.PARALLEL) if isinstance(s, For) and s.var.name == "k" else s


def twice_as_large(fn: LoopFunction) -> LoopFunction:
    types = [p.type.with_shape(tuple(2 * d for d in p.type.dims)) for p in fn.params]
    pairs = zip(fn.params, types, strict=True)
    return replace(fn, params=tuple(replace(p, type=t) for p, t in pairs))


@pytest.mark.parametrize(
    ("code", "overrides"),
    [
        ("MDLC0455", {"lower": each(far_away)}),
        ("MDLC0709", {"lower": each(nothing)}),
        ("MDLC0709", {"lower": edited(twice_as_large)}),
        ("MDLC0462", {"lower": each(reduction_in_parallel)}),
        ("MDLC0803", {"vectorize": lambda index, lane: "vector"}),
        ("MDLC1019", {"simplify": lambda e, ranges: e + 1}),
        ("MDLC1019", {"simplify": lambda e, ranges: Index.of(0)}),
    ],
)
def test_an_override_that_lies_never_reaches_machine_code(
    code: str, overrides: dict[str, Any]
) -> None:
    x, w = mc.Input("x", mc.f32[4, 8]), mc.Input("w", mc.f32[8, 24])
    graph = mc.Graph.of("g", [x, w], [mc.transpose(x @ w) + 1.0])
    with mc.use(**overrides), pytest.raises(CompileError) as caught:
        mc.compile(graph, opt_level=0 if "lower" in overrides else 3)
    assert caught.value.code == code


def test_numbers_of_numpy_are_offsets_too() -> None:
    def plan(requests: Any) -> list[Any]:
        sizes = [-(-r.nbytes // 64) * 64 for r in requests]
        return list(np.cumsum([0, *sizes[:-1]])) if sizes else []

    with mc.use(memory_plan=plan):
        exe = mc.compile(MODEL, threads=1)
    assert exe.memory_plan.arena_bytes >= exe.memory_plan.peak_bytes
