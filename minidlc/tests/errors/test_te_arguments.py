"""Arguments of tensor expressions and schedules: each wrong one is refused, by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from minidlc import te
from minidlc.expr.types import f32
from minidlc.support.errors import (
    CompileError,
    LoweringError,
    OptionError,
    ScheduleError,
    VerifyError,
)
from minidlc.te import Schedule, Tensor, Trace
from minidlc.te.primitives import Split

pytestmark = pytest.mark.ch04

NOTHING = object()
WRONG = (
    *(None, 5, -1, 2.5, True, np.int64(4), np.zeros(3), np.array(["a", "b"])),
    *("4", "", "a b", "for", b"i", [4], (), ("q",), ("a", "b"), ("for", "ii"), (5, "q")),
    *([(0, 4)], {"a": 1, 0: 2}, {1}, NOTHING, Split),
)

A = te.placeholder(f32[20, 9], "A")
P = te.compute((20, 9), lambda i, j: A[i, j] + 1.0, name="P")
C = te.compute((20, 9), lambda i, j: P[i, j] * 2.0, name="C")
K = te.reduce_axis(9, "k")
R = te.compute((20,), lambda i: te.sum(C[i, K], K), name="R")


def sch() -> Schedule:
    return te.create_schedule(R, constants=("A",))


def body(f: Callable[..., object]) -> Tensor:
    """A tensor of 4 elements made of those of a tensor a."""
    a = te.placeholder(f32[4], "a")
    return te.compute((4,), lambda i: f(a, i), name="y")


def halves(w: Any) -> object:
    s = sch()
    s["R"].split("k", 3)
    return s["R"].rfactor("ki", w)


def tuned(w: Any) -> object:
    s = sch()
    s["C"].split("i", s.knob("n", 5, (4, 5)))
    return s.trace.with_knobs(n=w)


def whole(w: object) -> bool:
    return isinstance(w, (int, np.integer)) and not isinstance(w, bool)


def count(w: object) -> bool:
    return whole(w) and w != -1


def position(w: object) -> bool:
    return isinstance(w, (int, np.integer))  # True is position 1, as in Python


def one_of(*fitting: object) -> Callable[[object], bool]:
    def fits(w: object) -> bool:
        return any(type(w) is type(x) and w == x for x in fitting)

    return fits


nothing = one_of()
STEPS = {
    "sch[…]": (lambda w: sch()[w], nothing),
    "split: axis": (lambda w: sch()["C"].split(w, 4), nothing),
    "split: factor": (lambda w: sch()["C"].split("i", w), count),
    "split: names": (lambda w: sch()["C"].split("i", 4, w), one_of(None, ("a", "b"))),
    "split: tail": (lambda w: sch()["C"].split("i", 4, tail=w), nothing),
    "fuse: outer": (lambda w: sch()["C"].fuse(w, "j"), nothing),
    "fuse: inner": (lambda w: sch()["C"].fuse("i", w), nothing),
    "fuse: name": (lambda w: sch()["C"].fuse("i", "j", w), one_of(None)),
    "reorder": (lambda w: sch()["C"].reorder("i", w), nothing),
    "tile: i": (lambda w: sch()["C"].tile(w, "j", 4, 4), nothing),
    "tile: rows": (lambda w: sch()["C"].tile("i", "j", w, 4), count),
    "tile: columns": (lambda w: sch()["C"].tile("i", "j", 4, w), count),
    "tile: names": (lambda w: sch()["C"].tile("i", "j", 4, 4, w), one_of(None)),
    "unroll": (lambda w: sch()["C"].unroll(w), nothing),
    "vectorize": (lambda w: sch()["C"].vectorize(w), nothing),
    "parallel": (lambda w: sch()["C"].parallel(w), nothing),
    "compute_at: target": (lambda w: sch()["P"].compute_at(w, "i"), nothing),
    "compute_at: axis": (lambda w: sch()["P"].compute_at("C", w), nothing),
    "store_at: target": (lambda w: sch()["P"].store_at(w, "i"), nothing),
    "store_at: axis": (lambda w: sch()["P"].store_at("C", w), nothing),
    "tensorize: axis": (lambda w: sch()["R"].tensorize(w), nothing),
    "tensorize: intrinsic": (lambda w: sch()["R"].tensorize("k", w), nothing),
    "prefetch: tensor": (lambda w: sch()["P"].prefetch(w, "i", 4), nothing),
    "prefetch: axis": (lambda w: sch()["P"].prefetch("A", w, 4), nothing),
    "prefetch: distance": (lambda w: sch()["P"].prefetch("A", "i", w), count),
    "set_scope": (lambda w: sch()["P"].set_scope(w), nothing),
    "cache_write": (lambda w: sch()["P"].cache_write(w), nothing),
    "rfactor: half": (lambda w: sch()["R"].rfactor(w), nothing),
    "rfactor: position": (halves, nothing),
    "transform_layout": (lambda w: sch()["P"].transform_layout(w), one_of((), [(0, 4)])),
    "transform_layout: factor": (lambda w: sch()["P"].transform_layout({0: w}), count),
    "cache_read: tensor": (lambda w: sch()["P"].cache_read(w), nothing),
    "cache_read: tiles": (lambda w: sch()["P"].cache_read("A", w), one_of(None, (), [(0, 4)])),
    "cache_read: readers": (lambda w: sch()["P"].cache_read("A", None, w), one_of(())),
    "apply": (lambda w: sch().apply(w), nothing),
    "Trace": (lambda w: Trace([w]), nothing),
    "knob: name": (lambda w: sch().knob(w, 4), nothing),
    "knob: value": (lambda w: sch().knob("n", w), whole),
    "knob: candidates": (lambda w: sch().knob("n", 4, w), one_of("", (), [4])),
    "knob: a candidate": (lambda w: sch().knob("n", 4, (4, w)), whole),
    "with_knobs": (tuned, one_of(5, np.int64(4))),
    "lower: name": (lambda w: sch().lower(w), nothing),
    "lower: params": (lambda w: sch().lower(params=w), one_of(None)),
    "lower: a parameter": (lambda w: sch().lower(params=("A", w)), nothing),
    "lower_init: name": (lambda w: sch().lower_init(w), nothing),
    "te.lower": (lambda w: te.lower(w), nothing),
    "replay: outputs": (lambda w: te.replay(w, ()), one_of(())),
    "replay: trace": (lambda w: te.replay([R], w), one_of(())),
    "create_schedule: outputs": (lambda w: te.create_schedule(w), one_of(())),
    "create_schedule: an output": (lambda w: te.create_schedule([w]), nothing),
    "create_schedule: constants": (lambda w: te.create_schedule(R, constants=w), one_of(())),
    "parse_trace": (lambda w: te.parse_trace(w), one_of("")),
    "from_json": (lambda w: Trace.from_json(w), nothing),
}
TENSORS = {
    "placeholder: type": (lambda w: te.placeholder(w, "x"), nothing),
    "placeholder: name": (lambda w: te.placeholder(f32[4], w), nothing),
    "compute: shape": (lambda w: te.compute(w, lambda i: 1.0), one_of([4])),
    "compute: an extent": (lambda w: te.compute((w,), lambda i: 1.0), count),
    "compute: body": (lambda w: te.compute((4,), w), nothing),
    "compute: value": (lambda w: te.compute((4,), lambda i: w), one_of(5, -1, 2.5, True)),
    "compute: name": (lambda w: te.compute((4,), lambda i: 1.0, w), nothing),
    "compute: axes": (lambda w: te.compute((4,), lambda i: 1.0, axes=w), one_of(None, ("q",))),
    "compute: two axes": (lambda w: te.compute((4, 4), lambda i, j: 1.0, axes=("i", w)), nothing),
    "compute: element": (
        lambda w: te.compute((4,), lambda i: 1.0, element=w),
        one_of(None, np.int64(4), b"i"),
    ),
    "reduce_axis: extent": (lambda w: te.reduce_axis(w, "k"), count),
    "reduce_axis: name": (lambda w: te.reduce_axis(4, w), nothing),
    "sum: value": (lambda w: te.sum(w, K), one_of(5, -1, 2.5, True)),
    "sum: axis": (lambda w: te.sum(1.0, w), nothing),
    "state: type": (lambda w: te.state(w), nothing),
    "state: init": (lambda w: te.state(f32[4], w), one_of(5, -1, 2.5, Split)),
    "state: name": (lambda w: te.state(f32[4], 0, w), nothing),
    "scan: before": (lambda w: te.scan(w, lambda t: 1.0), nothing),
    "scan: update": (lambda w: te.scan(te.state(f32[4]), w), nothing),
    "einstein: text": (lambda w: te.einstein(w), nothing),
    "einstein: extents": (lambda w: te.einstein("y[i]=x[i, 0]", w, x=A), one_of(None)),
    "einstein: an extent": (lambda w: te.einstein("y[i]=x[i, 0]", {"i": w}, x=A), one_of(5)),
    "einstein: a tensor": (lambda w: te.einstein("y[i]=x[i, 0]", x=w), nothing),
    "parse_te": (lambda w: te.parse_te(w), one_of("")),
    "print_te": (lambda w: te.print_te(w), one_of(())),
    "stages": (lambda w: te.stages(w), one_of(())),
    "lookup: tensor": (lambda w: body(lambda a, i: te.lookup(w, i)), nothing),
    "lookup: position": (lambda w: body(lambda a, i: te.lookup(a, w)), position),
    "a[…]": (lambda w: body(lambda a, i: a[w]), position),
    "select: cond": (lambda w: body(lambda a, i: te.select(w, a[i], 0.0)), nothing),
    "where: cond": (lambda w: body(lambda a, i: te.where(w, a[i], 0.0)), nothing),
    "cast: to": (lambda w: body(lambda a, i: te.cast(w, a[i])), one_of(np.int64(4), b"i")),
    "bitwise: op": (lambda w: body(lambda a, i: te.bitwise(w, i, i)), nothing),
    "bitwise: a": (lambda w: body(lambda a, i: te.bitwise("&", w, i)), one_of(5, -1, True)),
    "dot4: total": (lambda w: body(lambda a, i: te.dot4(w, (), ())), nothing),
    "dot4: a": (lambda w: body(lambda a, i: te.dot4(1.0, w, ())), nothing),
    "exp": (lambda w: body(lambda a, i: te.exp(w)), one_of(5, -1, 2.5, True)),
}
ARGUMENTS = STEPS | TENSORS


@pytest.mark.parametrize("what", ARGUMENTS)
def test_every_wrong_argument_is_refused(what: str) -> None:
    use, fits = ARGUMENTS[what]
    for wrong in WRONG:
        refused = None
        try:
            use(wrong)
        except CompileError as error:
            refused = str(error)
        assert (refused is None) == fits(wrong), f"{wrong!r}: {refused}"


def test_the_report_of_a_wrong_type_says_what_the_primitive_takes() -> None:
    wrong: Any = "4"
    for use in (lambda: sch()["C"].split("i", wrong), lambda: te.replay([R], [_split(wrong)])):
        with pytest.raises(ScheduleError) as caught:
            use()
        report = str(caught.value)
        assert report.startswith("error[MDLC0604]: split: factor is '4', expected int\n")
        assert f"--> {__file__}:" in report
        takes = "stage: str, axis: str, factor: int, names: tuple[str, str], tail: str"
        assert f"hint: split takes ({takes})" in report


def _split(factor: int) -> Split:
    return Split("C", "i", factor, ("io", "ii"))


def test_what_is_no_primitive() -> None:
    step: Any = Split  # the class, not a step
    with pytest.raises(ScheduleError, match="is no primitive") as caught:
        sch().apply(step)
    assert caught.value.code == "MDLC0604"
    assert "such as Split(" in str(caught.value)


def test_integers_of_numpy_become_ints_and_knobs_stay_knobs() -> None:
    s = sch()
    four: Any = np.int64(4)
    s["C"].split("i", four)
    s["C"].split("j", s.knob("n", four, np.array([4, 8])))
    assert [type(step.to_list()[3]) for step in s.trace] == [int, dict]
    assert s.trace.knobs["n"].declaration == 'knob("n", 4, candidates=[4, 8])'
    assert te.parse_trace(str(s.trace)) == s.trace == Trace.from_json(s.trace.to_json())


def test_a_list_of_names_is_a_tuple_in_the_trace() -> None:
    s, names = sch(), ["a", "b"]
    made: Any = names
    s["C"].split("i", 4, made)
    names.append("c")
    assert s.trace == (Split("C", "i", 4, ("a", "b")),)


@pytest.mark.parametrize("n", [1 << 63, 10**30])
def test_extents_and_layouts_beyond_any_memory(n: int) -> None:
    with pytest.raises(LoweringError) as extent:
        te.reduce_axis(n)
    with pytest.raises(ScheduleError, match="no memory holds") as layout:
        sch()["P"].transform_layout({0: n})
    assert (extent.value.code, layout.value.code) == ("MDLC0730", "MDLC0604")
    assert sch()["C"].split("i", n) == ("io", "ii")  # one block


@pytest.mark.parametrize("position", [9, -1, 10**6])
def test_a_read_outside_the_shape_is_refused_before_it_is_compiled(position: int) -> None:
    y = te.compute((4,), lambda i: A[i, position], name="y")
    with pytest.raises(VerifyError, match=f"A: f32.* position {position} of axis 1") as caught:
        te.create_schedule(y)
    assert caught.value.code == "MDLC0455"


def test_a_reduction_longer_than_what_it_reads() -> None:
    k = te.reduce_axis(10, "k")
    y = te.compute((20,), lambda i: te.sum(A[i, k], k), name="y")
    with pytest.raises(VerifyError, match=r"position k of axis 1 reaches 0\.\.9"):
        te.create_schedule(y)


def test_a_fraction_is_no_integer() -> None:
    with pytest.raises(LoweringError, match=r"2\.5 is no i64") as caught:
        te.compute((4,), lambda i: te.index(i) + 2.5)
    assert caught.value.code == "MDLC0702"
    assert str(te.compute((4,), lambda i: te.index(i) + 2.0).body) == str(
        te.compute((4,), lambda i: te.index(i) + 2).body
    )


def test_comparing_expressions_is_no_condition() -> None:
    """`==` gives one bool of Python, which would choose one side for all elements."""
    for choose in (te.select, te.where):
        with pytest.raises(LoweringError, match="the condition is False for all") as caught:
            body(lambda a, i, choose=choose: choose(a[i] == 0.0, a[i], 1.0))
        assert "te.equal(a, b)" in str(caught.value)


def test_the_names_of_arguments_and_the_place_of_the_call() -> None:
    wrong: Any = "C"
    with pytest.raises(OptionError) as caught:
        te.create_schedule(wrong)
    assert caught.value.message == "schedule: outputs is a str, expected list or tuple"
    wrong = (R, 5)
    with pytest.raises(OptionError) as caught:
        te.create_schedule(wrong)
    assert caught.value.message == "schedule: outputs[1] is a int, expected Tensor"
    assert "test_te_arguments.py:" in str(caught.value)
