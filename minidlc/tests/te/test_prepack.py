"""Stages of constants are computed once, at compile time; the loops get them as parameters."""

from __future__ import annotations

import contextlib
import random
from typing import Any

import numpy as np
import pytest

from minidlc import te
from minidlc.expr.types import f32, i8, i32
from minidlc.loop.interpret import interpret
from minidlc.support.errors import ScheduleError
from minidlc.te import Schedule, parse_trace
from minidlc.te.primitives import Prepack, SetScope
from minidlc.tests.te.programs import gemm, numbers, random_case
from minidlc.tests.te.random_traces import random_schedule

pytestmark = pytest.mark.ch04


def packed_gemm(n: int = 5, m: int = 20, depth: int = 6, block: int = 8) -> Schedule:
    """relu(A @ B + bias) with B in column blocks, packed ahead."""
    sch = te.create_schedule(gemm(n, m, depth).outputs, constants=["B", "bias"])
    copy = sch["C"].cache_read("B", {1: block})
    copy.vectorize("i1i").prepack()
    sch["C"].split("j", block)
    return sch


def run(sch: Schedule, arrays: dict[str, Any]) -> dict[str, Any]:
    """Init functions, then the loops, both through the interpreter; every buffer by name."""
    known = dict(arrays)
    for fn in (*sch.lower_init("k"), sch.lower("k")):
        for p in fn.params:
            known.setdefault(p.name, np.full(p.type.dims, 77, p.type.dtype.numpy))
        interpret(fn, {p.name: known[p.name] for p in fn.params})
    return known


def test_a_prepacked_stage_is_a_parameter_and_its_loops_run_once() -> None:
    sch = packed_gemm()
    (init,) = sch.lower_init("k")
    assert str(init).startswith("def k_init_B_p(B: f32[6, 20], B_p: f32[3, 6, 8]):")
    main = sch.lower("k")
    assert [p.name for p in main.params] == ["A", "bias", "B_p", "D"]
    assert "B[" not in str(main)
    case = gemm(5, 20, 6)
    got = run(sch, case.inputs)
    np.testing.assert_array_equal(got["D"], case.expected["D"])


def test_parameters_can_be_given_in_another_order() -> None:
    main = packed_gemm().lower("k", ("B_p", "A", "D", "bias"))
    assert [p.name for p in main.params] == ["B_p", "A", "D", "bias"]


def test_the_trace_says_prepack_and_replays() -> None:
    sch = packed_gemm()
    assert 'prepack("B_p")' in str(sch.trace)
    again = Schedule(sch.outputs, parse_trace(str(sch.trace)), constants=["B", "bias"])
    assert again.lower() == sch.lower()
    assert again.lower_init() == sch.lower_init()
    assert [len(p.lower_init()) for p in sch.prefixes()][-2:] == [1, 1]


def test_show_prints_what_runs_once_first(capsys: pytest.CaptureFixture[str]) -> None:
    packed_gemm().show()
    text = capsys.readouterr().out
    assert text.index("def kernel_init_B_p(") < text.index("def kernel(")


def test_stages_that_only_the_packed_one_needs_run_at_compile_time_too() -> None:
    W = te.placeholder(i8[4, 6], "W")
    x = te.placeholder(f32[6], "x")
    wide = te.compute((4, 6), lambda i, k: te.cast("f32", W[i, k]) * 0.5, name="wide")
    k = te.reduce_axis(6, "k")
    y = te.compute((4,), lambda i: te.sum(wide[i, k] * x[k], k), name="y")
    sch = te.create_schedule(y, constants=["W"])
    copy = sch["y"].cache_read("wide", {0: 2})
    copy.prepack()
    assert [p.name for p in sch.lower().params] == ["x", "wide_p", "y"]
    w = numbers((4, 6), 1).astype(np.int8)
    v = numbers((6,), 2)
    np.testing.assert_array_equal(run(sch, {"W": w, "x": v})["y"], (w * np.float32(0.5)) @ v)
    sch["wide"].compute_at(copy, "i0o")  # inside the loops that run once
    np.testing.assert_array_equal(run(sch, {"W": w, "x": v})["y"], (w * np.float32(0.5)) @ v)


def test_packed_stages_read_packed_stages() -> None:
    W = te.placeholder(f32[4, 6], "W")
    x = te.placeholder(f32[4, 6], "x")
    a = te.compute((4, 6), lambda i, j: W[i, j] * 2.0, name="a")
    b = te.compute((4, 6), lambda i, j: a[i, j] + 1.0, name="b")
    c = te.compute((4, 6), lambda i, j: a[i, j] * b[i, j] + x[i, j], name="c")
    sch = te.create_schedule(c, constants=["W"])
    sch["a"].prepack()
    sch["b"].prepack()
    first, second = sch.lower_init("k")
    assert [p.name for p in first.params] == ["W", "a"]
    assert [p.name for p in second.params] == ["a", "b"]
    assert [p.name for p in sch.lower("k").params] == ["x", "a", "b", "c"]
    w, v = numbers((4, 6), 1), numbers((4, 6), 2)
    np.testing.assert_array_equal(run(sch, {"W": w, "x": v})["c"], 2 * w * (2 * w + 1) + v)


def test_a_stage_that_both_parts_need_is_computed_in_both() -> None:
    W, x = te.placeholder(f32[6], "W"), te.placeholder(f32[6], "x")
    a = te.compute((6,), lambda i: W[i] * 2.0, name="a")
    b = te.compute((6,), lambda i: a[i] + 1.0, name="b")
    c = te.compute((6,), lambda i: a[i] * b[i] + x[i], name="c")
    sch = te.create_schedule(c, constants=["W"])
    sch["b"].prepack()
    assert [p.name for p in sch.lower().params] == ["W", "x", "b", "c"]
    w, v = numbers((6,), 1), numbers((6,), 2)
    np.testing.assert_array_equal(run(sch, {"W": w, "x": v})["c"], 2 * w * (2 * w + 1) + v)


def simple(constants: tuple[str, ...] = ("W",)) -> Schedule:
    W, x = te.placeholder(f32[6], "W"), te.placeholder(f32[6], "x")
    a = te.compute((6,), lambda i: W[i] * 2.0, name="a")
    c = te.compute((6,), lambda i: a[i] * x[i], name="c")
    return te.create_schedule(c, constants=constants)


def test_cache_write_of_a_packed_stage_packs_the_copy() -> None:
    sch = simple()
    sch["a"].prepack().cache_write("stack")
    assert len(sch.lower_init()) == 1
    assert [p.name for p in sch.lower().params] == ["x", "a", "c"]


@pytest.mark.parametrize(
    ("code", "wrong"),
    [
        ("MDLC0628", lambda: simple(())["a"].prepack()),
        ("MDLC0628", lambda: simple(("x",))["a"].prepack()),
        ("MDLC0621", lambda: simple(("W", "x"))["c"].prepack()),
        ("MDLC0629", lambda: simple()["a"].compute_at("c", "i").prepack()),
        ("MDLC0629", lambda: simple()["a"].prepack().compute_at("c", "i")),
        ("MDLC0629", lambda: simple()["a"].prepack().set_scope("stack")),
        ("MDLC0629", lambda: simple()["a"].set_scope("stack").prepack()),
        ("MDLC0602", lambda: simple(("V",))),
        ("MDLC0602", lambda: simple()["W"].prepack()),
    ],
)  # fmt: skip
def test_what_cannot_be_packed_is_refused(code: str, wrong: Any) -> None:
    with pytest.raises(ScheduleError) as caught:
        wrong()
    assert caught.value.code == code


def test_inlining_a_packed_stage_is_refused() -> None:
    with pytest.raises(ScheduleError) as caught:
        simple()["a"].prepack().compute_inline()
    assert caught.value.code == "MDLC0629"


def test_the_refusal_names_what_is_not_constant() -> None:
    with pytest.raises(ScheduleError, match=r"prepack: 'a' depends on 'W', which is no constant"):
        simple(())["a"].prepack()


def test_an_unchecked_schedule_is_refused_when_it_is_lowered() -> None:
    W = te.placeholder(f32[6], "W")
    a = te.compute((6,), lambda i: W[i] * 2.0, name="a")
    c = te.compute((6,), lambda i: a[i] + 1.0, name="c")
    sch = te.create_schedule(c, constants=["W"], checked=False)
    sch["a"].prepack().set_scope("stack")
    with pytest.raises(ScheduleError, match="set_scope") as caught:
        sch.lower()
    assert caught.value.code == "MDLC0629"


def test_packed_integers() -> None:
    W = te.placeholder(i32[3, 5], "W")
    a = te.compute((5, 3), lambda i, j: W[j, i] * 3, name="a")
    b = te.compute((5, 3), lambda i, j: a[i, j] + 1, name="b")
    sch = te.create_schedule(b, constants=["W"])
    sch["a"].prepack()
    w = numbers((3, 5), 1, np.int32)
    np.testing.assert_array_equal(run(sch, {"W": w})["b"], w.T * 3 + 1)


@pytest.mark.parametrize("seed", range(15))
def test_packing_any_stage_of_any_schedule_changes_nothing(seed: int) -> None:
    rng = random.Random(seed)
    case = random_case(rng)
    schedule, _ = random_schedule(case, rng, steps=6)
    names = [p.name for p in schedule.state.placeholders]
    known = rng.sample(names, rng.randint(1, len(names)))
    steps = [s for s in schedule.trace if not isinstance(s, SetScope)]  # registers: unrolled only
    again = Schedule(case.outputs, steps, constants=known, checked=False)
    for stage in schedule.state.stages:
        step = Prepack(stage.name)
        with contextlib.suppress(ScheduleError):
            step.apply(again.state)
            again.apply(step)
    got = run(again, case.inputs)
    for name, expected in case.expected.items():
        np.testing.assert_allclose(got[name], expected, rtol=1e-5, atol=1e-6)
