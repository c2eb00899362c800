"""Mistakes that schedule mechanisms invite, each numbered as in docs/schedule_pitfalls.md.

The other numbers have their tests where the mechanism is: expr, loop, codegen, errors.
"""

from __future__ import annotations

import random
import re
from pathlib import Path

import numpy as np
import pytest

from minidlc import target, te
from minidlc.codegen.compile import compile_kernel
from minidlc.codegen.llvm import emit
from minidlc.expr.types import Array, f32
from minidlc.loop.interpret import interpret
from minidlc.loop.nodes import LoopFunction
from minidlc.loop.text import parse_function
from minidlc.support.errors import ScheduleError
from minidlc.target import Target
from minidlc.te import Schedule
from minidlc.tests.te.programs import conv, gemm, numbers, softmax

pytestmark = pytest.mark.ch04


ROOT = Path(te.__file__).parents[1]


def test_what_the_list_of_pitfalls_names_is_there():
    rows = (ROOT / "docs" / "schedule_pitfalls.md").read_text(encoding="utf-8").splitlines()
    places = [row.split(" | ")[2] for row in rows if re.match(r"\| \d+ \|", row)]
    assert len(places) == 24
    for place in places:
        path, text = ROOT, ""
        for file, test, name in re.findall(r"([\w/]+\.py)|::(\w+)|`(\w+)`", place):
            if file:
                path = ROOT / file if "/" in file else path.parent / file
                text = path.read_text(encoding="utf-8")
            assert (f"def {test}" if test else name) in text, f"{file}{test}{name}: {place}"


def run(fn: LoopFunction, inputs: dict[str, Array], name: str) -> Array:
    """The output of loops; the interpreter refuses positions outside a buffer."""
    (shape,) = [p.type.dims for p in fn.params if p.name == name]
    out = {**inputs, name: np.full(shape, 77, np.float32)}
    interpret(fn, out)
    return out[name]


def copied(n: int, m: int) -> tuple[Schedule, Array]:
    A = te.placeholder(f32[n, m], "A")
    C = te.compute((n, m), lambda i, j: A[i, j] + 1.0, name="C")
    return te.create_schedule(C), numbers((n, m), 1)


@pytest.mark.parametrize("n", [5, 12, 13])
@pytest.mark.parametrize("m", [3, 4])
def test_4_ranges_of_variables_that_are_split_again_come_from_caps(n: int, m: int) -> None:
    """split, then fuse of the outer part: a wrong range would make the `%` of the fuse vanish."""
    s, a = copied(n, m)
    s["C"].split("i", 4)
    s["C"].reorder("ii", "io", "j")
    s["C"].fuse("io", "j", "f")
    s["C"].split("f", 5)
    for partition in (False, True):
        np.testing.assert_array_equal(run(s.lower(partition=partition), {"A": a}, "C"), a + 1)


@pytest.mark.parametrize("order", [("io", "j", "k", "ii"), ("ii", "k", "io", "j")])
def test_5_what_guards_the_update_guards_the_init(order: tuple[str, ...]) -> None:
    """Zeros stored past the end would be stored outside the buffer."""
    case = gemm(5, 3, 4)
    s = te.create_schedule(case.outputs)
    s["C"].split("i", 4)
    s["C"].reorder(*order)
    fn = s.lower(partition=False)
    np.testing.assert_array_equal(run(fn, case.inputs, "D"), case.expected["D"])


def test_10_a_function_stays_a_call_in_the_loops() -> None:
    """Its polynomial is shared inside code generation; in the text it would be a tree."""
    s = te.create_schedule(softmax(3, 64).outputs)
    s["e"].vectorize("j")
    text = str(s.lower())
    assert text.count("exp(") == 1
    assert max(map(len, text.splitlines())) < 100


AVX512 = Target(
    "x86_64-unknown-linux-gnu", "skylake-avx512", "+avx512f,+avx512vl,+avx512dq,+fma", 512, 32
)
AVX2 = Target("x86_64-unknown-linux-gnu", "haswell", "+avx2,+fma", 256, 16)


@pytest.mark.llvm
def test_11_exp_scales_by_the_instruction_the_target_has_for_it() -> None:
    fn = parse_function(
        "def f(A: f32[64]):\n    for i in vectorized(0, 64):\n        A[i] = exp(A[i])\n"
    )
    wide, narrow = (emit(fn, machine, "k") for machine in (AVX512, AVX2))
    assert "scalef" in wide
    assert "fptosi" not in wide
    assert "scalef" not in narrow


def lanes(position: str) -> str:
    """The machine's text of partial sums of 16 lanes, whose axis is first or last."""
    A = te.placeholder(f32[32, 64], "A")
    k = te.reduce_axis(64, "k")
    S = te.compute((32,), lambda i: te.sum(A[i, k], k), name="S")
    s = te.create_schedule(S)
    s["S"].split("k", 16)
    partial = s["S"].rfactor("ki", position)
    partial.reorder("i", "ko", "ki").vectorize("ki")
    return emit(s.lower("k"), AVX512, "k")


@pytest.mark.llvm
def test_13_lanes_are_neighbours_if_their_axis_is_last() -> None:
    """With the axis first each lane is 32 elements further: an address per lane."""
    assert "scatter" not in lanes("last")
    assert "scatter" in lanes("first") or lanes("first").count("store float") >= 16


@pytest.mark.parametrize(("tile", "block", "tied"), [(32, 32, True), (32, 64, False)])
@pytest.mark.llvm
def test_16_split_and_packing_of_different_factors_are_right_but_gather(
    tile: int, block: int, tied: bool
) -> None:
    case = gemm(4, 96, 3)
    s = te.create_schedule(case.outputs)
    s["C"].cache_read("B", {1: block})
    s["C"].split("j", tile)
    s["C"].reorder("jo", "i", "k", "ji")
    text = str(s.lower())
    assert ("//" not in text) == tied
    np.testing.assert_array_equal(run(s.lower(), case.inputs, "D"), case.expected["D"])


def test_17_padding_inside_a_loop_computes_the_border_again() -> None:
    """Legal, and counted: at root each element of the border is stored once."""
    stored: dict[str, int] = {}
    for place in ("root", "inside"):
        case = conv(channels=2, size=6, filters=4, kernel=3, stride=1, pad=1)
        s = te.create_schedule(case.outputs)
        s["y"].compute_at("z", "o")
        if place == "inside":
            s["p"].compute_at("z", "o")
        text = str(s.lower(partition=False))
        inner = text[text.index("for o in") :]
        stored[place] = inner.count("p[")
        np.testing.assert_array_equal(run(s.lower(), case.inputs, "z"), case.expected["z"])
    assert stored["inside"] > stored["root"]


@pytest.mark.llvm
def test_21_large_stack_buffers_move_to_the_workspace() -> None:
    """A worker's stack would not hold a megabyte."""
    for n, on_stack in ((512, True), (1 << 18, False)):
        text = emit(big_scratch(n), target.host(), "k")
        sizes = [int(size) for size in re.findall(r"alloca \[(\d+) x float\]", text)]
        assert any(size >= n for size in sizes) == on_stack


def big_scratch(n: int) -> LoopFunction:
    A = te.placeholder(f32[2, n], "A")
    P = te.compute((2, n), lambda i, j: A[i, j] + 1.0, name="P")
    C = te.compute((2, n), lambda i, j: P[i, j] * P[i, n - 1 - j], name="C")
    s = te.create_schedule(C)
    s["C"].parallel("i")
    s["P"].compute_at("C", "i").set_scope("stack")
    return s.lower("k")


@pytest.mark.llvm
def test_23_constants_are_reached_from_the_code_not_by_absolute_addresses() -> None:
    source = "def f(A: f32[64]):\n    for i in vectorized(0, 64):\n        A[i] = exp(A[i])\n"
    kernel = compile_kernel(parse_function(source), target.host(), cache=False)
    if target.host().is_x86:
        assert "(%rip)" in kernel.asm
        assert "movabs" not in kernel.asm


def test_24_what_has_no_machine_code_is_refused_at_the_step_that_asks_for_it() -> None:
    """Any kind on any loop: a ScheduleError that names the loop, or loops that compile.

    test_random_machine_code compiles what is accepted.
    """
    refused: list[tuple[str, str]] = []
    for seed in range(10):
        rng = random.Random(seed)
        s = te.create_schedule(gemm(5, 6, 7).outputs)
        s["C"].split("k", 3)
        s["C"].split("j", 4)
        s["C"].reorder(*rng.sample(s["C"].loops, 5))
        s["C"].compute_at("D", rng.choice("ij"))
        for _ in range(4):
            name = rng.choice("CD")
            leaf = rng.choice(s[name].loops)
            step = rng.choice((s[name].vectorize, s[name].unroll, s[name].parallel))
            try:
                step(leaf)
            except ScheduleError as error:
                refused.append((leaf, error.message))
    assert len(refused) > 10
    for leaf, message in refused:
        assert f"'{leaf}" in message  # a name like i_C begins so too
