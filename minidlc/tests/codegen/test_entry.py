"""Branches, loops and flags of the native entry: their text, and what runs."""

from __future__ import annotations

import numpy as np
import pytest

from minidlc import target
from minidlc.codegen.compile import compile_kernel
from minidlc.codegen.control import (
    Branch,
    Flag,
    KernelCall,
    Operand,
    Repeat,
    kernel_calls,
    placed,
    renamed,
)
from minidlc.codegen.entry import compile_entry, emit_entry
from minidlc.loop.text import parse_function
from minidlc.runtime.module import LoadedModule, PositionCheck
from minidlc.runtime.spec import ArraySpec
from minidlc.support.errors import CallError, CodegenError

pytestmark = pytest.mark.llvm

ADD = """
def f(A: i64[2], B: i64[2], C: i64[2]):
    for i in serial(0, 2):
        C[i] = A[i] + B[i]
"""
IN, OUT, ARENA = Operand("input"), Operand("output"), Operand("arena")
COUNTER, FLAG = Operand("arena", offset=64), Operand("arena", offset=128)


def module(steps, inputs, outputs=1, checks=()):
    """A module whose kernel "add" adds two i64[2]."""
    kernel = compile_kernel(parse_function(ADD), target.host())
    steps = renamed(tuple(steps), {"add": kernel.symbol}.__getitem__)
    return LoadedModule(
        (kernel.object, compile_entry("main", steps, target.host())),
        "main",
        tuple(ArraySpec(f"x{n}", a.dtype, a.shape) for n, a in enumerate(inputs)),
        tuple(ArraySpec(f"y{n}", np.dtype(np.int64), (2,)) for n in range(outputs)),
        arena_bytes=256,
        checks=checks,
    ).run(inputs)


def repeat(steps, **options):
    given = {"trips": None, "start": None, "proceed": None, **options}
    return Repeat(0, counter=COUNTER, flag=FLAG, steps=tuple(steps), **given)


def pair(*numbers):
    return np.array(numbers, np.int64)


def test_a_branch():
    x, y = Operand("input", 1), Operand("input", 2)
    steps = [Branch(IN, (KernelCall("add", (x, x, OUT)),), (KernelCall("add", (x, y, OUT)),))]
    arrays = [pair(1, 2), pair(10, 20)]
    for condition, wanted in ((True, [2, 4]), (False, [11, 22])):
        (got,) = module(steps, [np.array(condition), *arrays])
        assert got.tolist() == wanted


@pytest.mark.parametrize("trips", [0, 1, 7])
def test_a_counted_loop_and_operands_that_move(trips):
    rows = np.arange(2 * max(1, trips), dtype=np.int64).reshape(-1, 2)
    row = Operand("input", 1, moves=((0, 16),))
    steps = [
        KernelCall("add", (IN, IN, OUT)),
        repeat([KernelCall("add", (OUT, row, ARENA)), KernelCall("add", (ARENA, IN, OUT))],
               trips=trips),
    ]  # fmt: skip
    (got,) = module(steps, [pair(0, 0), rows])
    assert got.tolist() == rows[:trips].sum(0).tolist()


def test_the_limit_is_read_and_the_counter_and_condition_are_written():
    # the kernel reads the number of the run, so the last one is left in the output
    inner = KernelCall("add", (COUNTER, IN, OUT))
    for limit, wanted in ((3, 2), (-4, 77)):
        steps = [
            KernelCall("add", (IN, Operand("input", 2), OUT)),
            repeat([inner], trips=Operand("input", 1)),
        ]
        (got,) = module(steps, [pair(0, 0), pair(limit, 0), pair(77, 0)])
        assert got[0] == wanted
    ends = repeat([inner], trips=5, start=Operand("input", 1), proceed=COUNTER)
    (got,) = module([ends], [pair(0, 0), pair(1, 0)])
    assert got[0] == 0  # in the first run the counter, 0, is the condition


def test_flags_are_joined_over_all_runs_and_reported_first_one_first():
    checks = tuple(PositionCheck(f"check {n}") for n in range(2))
    row = Operand("input", 0, moves=((0, 8),))
    steps = [repeat([Flag(row, output=1, number=1)], trips=3)]
    with pytest.raises(CallError, match="check 1"):
        module(steps, [np.array([0, 1, 0])], checks=checks)
    module(steps, [np.array([0, 0, 0])], checks=checks)
    both = [*steps, Flag(IN, output=1, number=0)]
    with pytest.raises(CallError, match="check 0"):
        module(both, [np.array([1, 0, 1])], checks=checks)


def test_steps_as_text_and_as_data():
    call = KernelCall("add", (IN, Operand("constant", offset=64), OUT))
    steps = (Branch(IN, (call,), ()), repeat([call, Flag(ARENA, 1, 0)], trips=3), call)
    assert [c.symbol for c in kernel_calls(steps)] == ["add"] * 3
    assert "\n".join(map(str, steps)).splitlines() == [
        "if input 0:",
        "    add(input 0, constant 64, output 0)",
        "else:",
        "    pass",
        "repeat 3 times:  # i0",
        "    add(input 0, constant 64, output 0)",
        "    flag 0 |= arena 0",
        "add(input 0, constant 64, output 0)",
    ]
    moved = placed(steps, lambda x: Operand("output") if x == IN else x)
    assert str(moved[0]).startswith("if output 0:\n    add(output 0")
    assert placed(steps, lambda x: x) == steps


def test_calls_inside_blocks_agree_on_the_number_of_operands():
    steps = (Branch(IN, (KernelCall("k", (IN,)),), (KernelCall("k", (IN, OUT)),)),)
    with pytest.raises(CodegenError, match="called with 2 and with 1 operands"):
        emit_entry("main", steps)


@pytest.mark.parametrize("word", [0, 1])
def test_told_to_stop_it_calls_no_further_kernel(word):
    """Also in a branch and a loop; the first kernel runs in any case."""
    steps = [
        KernelCall("add", (IN, IN, OUT)),
        Branch(Operand("input", 1), (KernelCall("add", (OUT, OUT, OUT)),), ()),
        repeat([KernelCall("add", (OUT, IN, OUT))], trips=3),
    ]
    stop = Operand("input", 2)
    text = emit_entry("main", tuple(steps), stop=stop)
    assert text.count("load volatile") == 2
    kernel = compile_kernel(parse_function(ADD), target.host())
    calls = renamed(tuple(steps), {"add": kernel.symbol}.__getitem__)
    arrays = [pair(1, 2), np.array(True), np.array(word)]
    (got,) = LoadedModule(
        (kernel.object, compile_entry("main", calls, target.host(), stop=stop)),
        "main",
        tuple(ArraySpec(f"x{n}", a.dtype, a.shape) for n, a in enumerate(arrays)),
        (ArraySpec("y", np.dtype(np.int64), (2,)),),
        arena_bytes=256,
    ).run(arrays)
    assert got.tolist() == ([2, 4] if word else [7, 14])
