"""Recurrences: tensors computed step by step along their first axis."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from minidlc import te
from minidlc.expr.types import f32, f64, i64
from minidlc.loop.interpret import interpret
from minidlc.loop.verify import verify_function
from minidlc.support.errors import LoweringError, ParseError, ScheduleError
from minidlc.te import Schedule, Tensor, parse_te, parse_trace, print_te
from minidlc.te.primitives import SetScope
from minidlc.tests.te.programs import Case, numbers
from minidlc.tests.te.random_traces import random_schedule

pytestmark = pytest.mark.ch04


def run(schedule: Schedule, **arrays: Any) -> Any:
    fn = verify_function(schedule.lower())
    for partition in (False, True):
        out = {p.name: p for p in fn.params}
        buffers = {
            n: arrays.get(n, np.full(p.type.dims, 77, p.type.dtype.numpy)) for n, p in out.items()
        }
        interpret(schedule.lower(partition=partition), buffers, check_parallel=True)
    return buffers[fn.params[-1].name]


def cumsum(n: int = 9) -> Tensor:
    x = te.placeholder(f32[n], "x")
    c = te.state(f32[n], 0.0, "c")
    return te.scan(c, lambda t: c[t - 1] + x[t])


def doubled_cumsum() -> Tensor:
    c = cumsum()
    return te.compute(c.shape, lambda t: c[t] * 2.0, name="doubled")


def rnn(steps: int = 4, n: int = 5) -> tuple[Tensor, Tensor]:
    """h[t] = max(h[t - 1] @ U + x[t], 0), in integers that are exact in any order."""
    x, U = te.placeholder(f32[steps, n], "x"), te.placeholder(f32[n, n], "U")
    first = te.placeholder(f32[n], "first")
    h = te.state(f32[steps, n], lambda i: first[i], "h")
    j = te.reduce_axis(n, "j")
    z = te.compute((steps, n), lambda t, i: te.sum(h[t - 1, j] * U[j, i], j), name="z")
    return te.scan(h, lambda t, i: te.maximum(z[t, i] + x[t, i], 0.0)), z


ARRAYS = {"x": numbers((4, 5), 1), "U": numbers((5, 5), 2), "first": numbers((5,), 3)}


def rnn_by_numpy() -> Any:
    rows, h = [], ARRAYS["first"]
    for x in ARRAYS["x"]:
        h = np.maximum(h @ ARRAYS["U"] + x, 0)
        rows.append(h)
    return np.stack(rows)


def test_a_cumulative_sum() -> None:
    x = numbers((9,), 1)
    sch = te.create_schedule(cumsum())
    np.testing.assert_array_equal(run(sch, x=x), np.cumsum(x))
    assert "c[t] = select(t - 1 >= 0, c[t - 1], 0.0) + x[t]" in str(sch.lower(partition=False))
    assert "select" not in str(sch.lower())  # the first step is cut off


def test_steps_further_back() -> None:
    f = te.state(i64[12], 1, "f")
    fibonacci = te.scan(f, lambda t: f[t - 1] + f[t - 2])
    got = run(te.create_schedule(fibonacci))
    assert got.tolist() == [2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233, 377]


def test_a_layer_of_an_rnn() -> None:
    h, _ = rnn()
    sch = te.create_schedule(h)
    np.testing.assert_array_equal(run(sch, **ARRAYS), rnn_by_numpy())
    assert 'z = alloc(f32[1, 5], "arena")' in str(sch.lower(partition=False))


def test_the_other_axes_are_scheduled_as_any() -> None:
    h, z = rnn()
    sch = te.create_schedule(h)
    io, ii = sch[h].split("i", 2)
    sch[h].parallel(io).vectorize(ii)
    sch[z].split("i", 2, names=("zo", "zi"))
    sch[z].reorder("zo", "j", "zi").vectorize("zi").set_scope("stack")
    np.testing.assert_array_equal(run(sch, **ARRAYS), rnn_by_numpy())
    again = Schedule(sch.outputs, parse_trace(str(sch.trace)))
    assert again.lower() == sch.lower()


def test_derived_stages_are_computed_in_the_steps() -> None:
    h, z = rnn()
    sch = te.create_schedule(h)
    sch[z].cache_write("stack")
    sch["z_c"].cache_read("U", {1: 2})
    sch["z_c"].cache_read("h")
    np.testing.assert_array_equal(run(sch, **ARRAYS), rnn_by_numpy())
    sch["z"].compute_inline()
    np.testing.assert_array_equal(run(sch, **ARRAYS), rnn_by_numpy())


def test_a_step_through_a_buffer_of_its_own() -> None:
    x = numbers((9,), 1)
    sch = te.create_schedule(doubled_cumsum())
    sch["c"].cache_write("stack")
    np.testing.assert_array_equal(run(sch, x=x), 2 * np.cumsum(x))


def test_partial_sums_inside_the_steps() -> None:
    h, z = rnn()
    sch = te.create_schedule(h)
    sch[z].split("j", 2)
    sch[z].rfactor("ji")
    np.testing.assert_array_equal(run(sch, **ARRAYS), rnn_by_numpy())


def test_steps_are_split_unrolled_and_fused_in_order() -> None:
    x = numbers((9,), 1)
    sch = te.create_schedule(cumsum())
    sch["c"].split("t", 4)
    np.testing.assert_array_equal(run(sch, x=x), np.cumsum(x))
    y = te.placeholder(f32[3, 4], "y")
    s = te.state(f32[3, 4], 0.0, "s")
    sch = te.create_schedule(te.scan(s, lambda t, i: s[t - 1, 3 - i] + y[t, i]))
    sch["s"].fuse("t", "i")
    rows = numbers((3, 4), 1)
    wanted = [rows[0]]
    for row in rows[1:]:
        wanted.append(wanted[-1][::-1] + row)
    np.testing.assert_array_equal(run(sch, y=rows), np.stack(wanted))


def test_a_scan_among_other_stages() -> None:
    x = te.placeholder(f32[6, 4], "x")
    doubled = te.compute((6, 4), lambda t, i: x[t, i] * 2.0, name="doubled")
    m = te.state(f32[6, 4], float("-inf"), "m")
    top = te.scan(m, lambda t, i: te.maximum(m[t - 1, i], doubled[t, i]))
    out = te.compute((6, 4), lambda t, i: top[t, i] - doubled[t, i], name="out")
    sch = te.create_schedule(out)
    sch["doubled"].compute_inline()
    a = numbers((6, 4), 1)
    np.testing.assert_array_equal(run(sch, x=a), np.maximum.accumulate(2 * a) - 2 * a)


def test_a_reduction_may_be_the_step_itself() -> None:
    U, x = te.placeholder(f32[3, 3], "U"), te.placeholder(f32[3], "x")
    h = te.state(f32[4, 3], lambda i: x[i], "h")
    j = te.reduce_axis(3, "j")
    powers = te.scan(h, lambda t, i: te.sum(U[i, j] * h[t - 1, j], j))
    u, v = numbers((3, 3), 1), numbers((3,), 2)
    wanted = [u @ v]
    for _ in range(3):
        wanted.append(u @ wanted[-1])
    np.testing.assert_array_equal(run(te.create_schedule(powers), U=u, x=v), np.stack(wanted))


def test_text_parses_back() -> None:
    h, _ = rnn()
    text = print_te([h])
    assert "h = state(f32[4, 5])" in text
    program = parse_te(text)
    assert str(program) == text
    assert print_te(program.outputs) == text
    assert te.create_schedule(program.outputs).lower() == te.create_schedule(h).lower()
    with pytest.raises(ParseError, match="no state 'h'"):
        parse_te("h = scan(f32[4], lambda t: 0.0)")
    with pytest.raises(ParseError, match="no step before t"):
        parse_te("h = state(f32[4])\nh = scan(f32[4], lambda t: h[t])")


@pytest.mark.parametrize(
    ("code", "step"),
    [
        ("MDLC0632", lambda sch: sch["h"].reorder("i", "t")),
        ("MDLC0632", lambda sch: sch["h"].parallel("t")),
        ("MDLC0633", lambda sch: sch["h"].compute_at("y", "t")),
        ("MDLC0605", lambda sch: sch["h"].compute_inline()),
        ("MDLC0633", lambda sch: sch["z"].compute_at("y", "t")),
        ("MDLC0605", lambda sch: sch["h"].split("t", 2)),
    ],
)
def test_what_breaks_the_order_of_steps_is_refused(code: str, step: Any) -> None:
    h, _ = rnn()
    y = te.compute((4, 5), lambda t, i: h[t, i] * 2.0, name="y")
    sch = te.create_schedule(y)
    with pytest.raises(ScheduleError) as caught:
        step(sch)
    assert caught.value.code == code
    np.testing.assert_array_equal(run(sch, **ARRAYS), 2 * rnn_by_numpy())


def test_vectorised_and_reordered_steps_are_refused() -> None:
    with pytest.raises(ScheduleError) as caught:
        te.create_schedule(cumsum())["c"].vectorize("t")
    assert caught.value.code == "MDLC0632"
    with pytest.raises(ScheduleError) as caught:
        te.create_schedule(doubled_cumsum())["c"].compute_inline()
    assert caught.value.code == "MDLC0633"
    sch = te.create_schedule(cumsum())
    sch["c"].split("t", 3)
    with pytest.raises(ScheduleError) as caught:
        sch["c"].reorder("ti", "to")
    assert caught.value.code == "MDLC0632"


def test_a_reader_of_an_inner_stage_outside_the_scan_is_refused() -> None:
    h, z = rnn()
    y = te.compute((4, 5), lambda t, i: h[t, i] + z[t, i], name="y")
    with pytest.raises(ScheduleError) as caught:
        te.create_schedule(y).lower()
    assert caught.value.code == "MDLC0615"


def wrong(update: Any, init: Any = 0.0) -> Any:
    def make() -> Tensor:
        x = te.placeholder(f32[4, 3], "x")
        h = te.state(f32[4, 3], init, "h")
        return te.scan(h, lambda t, i: update(h, x, t, i))

    return make


@pytest.mark.parametrize(
    "make",
    [
        wrong(lambda h, x, t, i: h[t, i] + x[t, i]),
        wrong(lambda h, x, t, i: h[t + 1, i]),
        wrong(lambda h, x, t, i: h[3 - t, i]),
        wrong(lambda h, x, t, i: h[i, t - 1]),
        wrong(lambda h, x, t, i: te.cast("i32", h[t - 1, i])),
        lambda: te.state(f32[()], 0.0),
    ],
)
def test_ill_formed_steps_are_refused(make: Any) -> None:
    with pytest.raises(LoweringError) as caught:
        make()
    assert caught.value.code == "MDLC0729"


def test_the_state_read_from_outside_is_refused() -> None:
    x = te.placeholder(f64[4], "x")
    c = te.state(f64[4], 0.0, "c")
    C = te.scan(c, lambda t: c[t - 1] + x[t])
    late = te.compute((4,), lambda t: c[t - 1] * 2.0, name="late")
    for outputs in ((late,), (C, late)):
        with pytest.raises(LoweringError, match="no part of its step"):
            te.create_schedule(outputs)


def test_scans_that_need_each_other_are_refused_and_can_be_one() -> None:
    x = te.placeholder(f32[4], "x")
    c, h = te.state(f32[4], 0.0, "c"), te.state(f32[4], 0.0, "h")
    C = te.scan(c, lambda t: c[t - 1] + h[t - 1])
    with pytest.raises(LoweringError, match="need each other"):
        te.scan(h, lambda t: C[t] + x[t])
    s = te.state(f32[4, 2], 0.0, "s")
    cell = te.compute((4,), lambda t: s[t - 1, 1] + s[t - 1, 0], name="cell")
    both = te.scan(s, lambda t, w: te.select(w < 1, cell[t] + x[t], cell[t]))
    a = numbers((4,), 1)
    wanted, out, kept = [], 0.0, 0.0
    for value in a:
        kept = kept + out
        out = kept + value
        wanted.append((out, kept))
    np.testing.assert_array_equal(run(te.create_schedule(both), x=a), np.array(wanted))


def test_an_inner_stage_reads_its_own_step_only() -> None:
    h = te.state(f32[4, 3], 0.0, "h")
    z = te.compute((4, 3), lambda t, i: h[t - 1, i] * 2.0, name="z")
    with pytest.raises(LoweringError, match="another step"):
        te.scan(h, lambda t, i: z[3 - t, i])


@pytest.mark.long
@pytest.mark.parametrize("seed", range(60))
def test_any_legal_schedule_of_a_scan_computes_it(seed: int) -> None:
    h, _ = rnn()
    y = te.compute((4, 5), lambda t, i: h[t, i] * 2.0 - h[3 - t, i], name="y")
    rows, x = rnn_by_numpy(), numbers((9,), 1)
    cases = (
        Case("rnn", (h,), ARRAYS, {"h": rows}),
        Case("reader", (y,), ARRAYS, {"y": 2 * rows - rows[::-1]}),
        Case("cumsum", (cumsum(),), {"x": x}, {"c": np.cumsum(x)}),
    )
    case = cases[seed % 3]
    schedule, _ = random_schedule(case, random.Random(seed), steps=2 + seed % 7)
    steps = [s for s in schedule.trace if not isinstance(s, SetScope)]  # registers: unrolled only
    got = run(Schedule(case.outputs, steps, checked=False), **case.inputs)
    (wanted,) = case.expected.values()
    np.testing.assert_array_equal(got, wanted)


def test_another_layout_of_a_scan_is_refused() -> None:
    x = te.placeholder(f32[8, 5], "x")
    steps = te.state(f32[8, 5], 0.0, "h")
    h = te.scan(steps, lambda t, i: steps[t - 1, i] * 0.5 + x[t, i])
    sch = te.create_schedule(te.compute((8, 5), lambda t, i: h[t, i] * 2.0, name="y"))
    with pytest.raises(ScheduleError, match="is a scan") as caught:
        sch["h"].transform_layout({1: 4})
    assert caught.value.code == "MDLC0633"
    sch["y"].cache_read("h", {1: 4})  # a copy may have any
    assert "h_p" in str(sch.lower())
