"""The loop nest before and after each primitive, as golden text and by running both."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from minidlc import te
from minidlc.expr.types import f32
from minidlc.loop.interpret import interpret
from minidlc.loop.text import parse_function
from minidlc.te import Schedule
from minidlc.tests.te.programs import Case, conv, gemm, softmax, stencil

pytestmark = pytest.mark.ch04

Golden = Callable[[str, str], None]


def matmul() -> Case:
    """A reduction alone, sizes that no factor divides."""
    A, B = te.placeholder(f32[5, 3], "A"), te.placeholder(f32[3, 7], "B")
    k = te.reduce_axis(3, "k")
    C = te.compute((5, 7), lambda i, j: te.sum(A[i, k] * B[k, j], k), name="C")
    x = {
        "A": np.arange(15, dtype=np.float32).reshape(5, 3),
        "B": np.arange(21, dtype=np.float32).reshape(3, 7),
    }
    return Case("matmul", (C,), x, {"C": x["A"] @ x["B"]})


def split(s: Schedule) -> None:
    assert s["C"].split("i", 2) == ("io", "ii")


def split_inside_out(s: Schedule) -> None:
    s["C"].split("i", 2)
    s["C"].reorder("ii", "io")


def split_reduction_inside_out(s: Schedule) -> None:
    s["C"].split("k", 2)
    s["C"].reorder("ki", "ko")


def split_larger_than_the_loop(s: Schedule) -> None:
    s["C"].split("i", 8)


def fuse(s: Schedule) -> None:
    assert s["C"].fuse("i", "j", "ij") == "ij"


def split_then_fuse_back(s: Schedule) -> None:
    s["C"].split("j", 7)
    s["C"].fuse("jo", "ji", "j2")


def reorder(s: Schedule) -> None:
    s["C"].reorder("k", "i")


def tile(s: Schedule) -> None:
    assert s["C"].tile("i", "j", 2, 4) == ("io", "jo", "ii", "ji")


def kinds(s: Schedule) -> None:
    s["C"].reorder("k", "j").parallel("i").vectorize("j")


def unroll(s: Schedule) -> None:
    s["C"].split("i", 2)
    s["C"].unroll("ii", "k")


def vectorized_reduction(s: Schedule) -> None:
    s["C"].vectorize("k")


def cache_write(s: Schedule) -> None:
    cache = s["C"].cache_write("stack")
    assert cache.name == "C_c"
    assert cache.loops == ("i", "j", "k")


def cache_read(s: Schedule) -> None:
    copy = s["C"].cache_read("B", {1: 4})
    assert copy.name == "B_p"
    assert copy.loops == ("i1o", "i0", "i1i")
    s["C"].split("j", 4)


def rfactor(s: Schedule) -> None:
    s["C"].split("k", 2)
    partial = s["C"].rfactor("ki")
    assert partial.name == "C_rf"
    assert partial.loops == ("i", "j", "ki", "ko")
    assert s["C"].loops == ("i", "j", "ki")


def rfactor_first(s: Schedule) -> None:
    s["C"].split("k", 2)
    assert s["C"].rfactor("ko", "first").loops == ("ko", "i", "j", "ki")


def split_shift(s: Schedule) -> None:
    assert s["C"].split("i", 2, tail="shift") == ("io", "ii")


MATMUL = (
    split,
    split_inside_out,
    split_reduction_inside_out,
    split_larger_than_the_loop,
    fuse,
    split_then_fuse_back,
    reorder,
    tile,
    kinds,
    unroll,
    vectorized_reduction,
    cache_write,
    cache_read,
    rfactor,
    rfactor_first,
    split_shift,
)


@pytest.mark.parametrize("use", MATMUL, ids=lambda f: f.__name__)
def test_loops_of_a_matmul(use: Callable[[Schedule], None], golden: Golden) -> None:
    case = matmul()
    schedule = te.create_schedule(case.outputs)
    use(schedule)
    golden(f"te/{use.__name__}.txt", page(case, schedule))


def compute_at(s: Schedule) -> None:
    s["C"].compute_at("D", "i")


def compute_at_tile(s: Schedule) -> None:
    s["D"].tile("i", "j", 2, 4)
    s["C"].compute_at("D", "jo").set_scope("register").unroll("i").reorder("k", "i", "j")
    s["D"].unroll("ii").vectorize("ji")
    s["C"].vectorize("j")


def transform_layout(s: Schedule) -> None:
    assert s["C"].transform_layout({1: 4}).loops == ("jo", "i", "ji", "k")
    s["D"].split("j", 4)


@pytest.mark.parametrize(
    "use", [compute_at, compute_at_tile, transform_layout], ids=lambda f: f.__name__
)
def test_a_stage_inside_loops_of_its_reader(
    use: Callable[[Schedule], None], golden: Golden
) -> None:
    case = gemm(5, 7, 3)
    schedule = te.create_schedule(case.outputs)
    use(schedule)
    golden(f"te/{use.__name__}.txt", page(case, schedule))


def test_halos_are_computed_with_the_tile(golden: Golden) -> None:
    case = stencil(10, 4)
    schedule = te.create_schedule(case.outputs)
    schedule["c"].split("i", 4)
    schedule["b"].compute_at("c", "io").set_scope("stack").vectorize("j")
    schedule["a"].compute_at("c", "io").set_scope("stack")
    golden("te/halo.txt", page(case, schedule))


def test_compute_inline_everywhere_it_is_read(golden: Golden) -> None:
    case = stencil(10, 4)
    schedule = te.create_schedule(case.outputs)
    schedule["a"].compute_inline()
    assert " a[" not in str(schedule.lower(partition=False))
    golden("te/compute_inline.txt", page(case, schedule))


def test_padding_is_resolved_by_cutting_loops(golden: Golden) -> None:
    case = conv(channels=2, size=5, filters=3, kernel=3, stride=1, pad=1)
    schedule = te.create_schedule(case.outputs)
    schedule["z"].split("h", 3)
    schedule["y"].compute_at("z", "ho")
    schedule["p"].compute_at("z", "ho")
    text = page(case, schedule)
    assert "select(" not in text.split("--- cut")[1]
    golden("te/padded_conv.txt", text)


def test_softmax_row_by_row(golden: Golden) -> None:
    case = softmax(3, 10)
    schedule = te.create_schedule(case.outputs)
    schedule["y"].parallel("i")
    schedule["s"].compute_at("y", "i").set_scope("register").vectorize("l")
    schedule["e"].compute_at("y", "i").set_scope("stack").vectorize("j")
    schedule["mx"].compute_at("y", "i").set_scope("register").vectorize("k")
    golden("te/softmax.txt", page(case, schedule))


def test_a_stage_stored_further_out_than_it_is_computed(golden: Golden) -> None:
    case = softmax(3, 10)
    schedule = te.create_schedule(case.outputs)
    schedule["s"].split("l", 4)
    schedule["s"].compute_at("y", "i")
    schedule["e"].store_at("y", "i").compute_at("s", "lo")
    golden("te/store_at.txt", page(case, schedule))


def page(case: Case, schedule: Schedule) -> str:
    """Program, loops before, trace, loops after, loops cut; all three nests are run as well."""
    before = te.create_schedule(case.outputs).lower(case.name, partition=False)
    after = schedule.lower(case.name, partition=False)
    cut = schedule.lower(case.name)
    for fn in (before, after, cut):
        assert parse_function(str(fn)) == fn
        got = {n: np.full_like(x, 77) for n, x in case.expected.items()}
        interpret(fn, {**case.inputs, **got}, check_parallel=True)
        for name, x in got.items():
            np.testing.assert_allclose(x, case.expected[name], rtol=1e-5)
    parts = [te.print_te(case.outputs), "--- before", str(before), "--- trace", str(schedule.trace)]
    parts += ["", "--- after", str(after)]
    return "\n".join(parts) + ("" if cut == after else f"\n--- cut\n{cut}")


def test_a_pointwise_stage_has_no_axes_to_loop_over() -> None:
    A = te.placeholder(f32[3], "A")
    k = te.reduce_axis(3, "k")
    total = te.compute((), lambda: te.sum(A[k], k), name="total")
    mean = te.compute((), lambda: total[()] / 3.0, name="mean")
    schedule = te.create_schedule(mean)
    schedule["total"].vectorize("k")
    out = {"A": np.array([1, 2, 6], np.float32), "mean": np.zeros((), np.float32)}
    interpret(schedule.lower(), out)
    assert out["mean"] == 3


def test_a_reduction_over_nothing_is_its_identity() -> None:
    A = te.placeholder(f32[2, 0], "A")
    k = te.reduce_axis(0, "k")
    for make, identity in ((te.sum, 0.0), (te.prod, 1.0), (te.max, -np.inf), (te.min, np.inf)):
        B = te.compute((2,), lambda i, f=make: f(A[i, k], k), name="B")
        out = {"A": np.zeros((2, 0), np.float32), "B": np.full(2, 7, np.float32)}
        schedule = te.create_schedule(B)
        schedule["B"].split("k", 4)
        interpret(schedule.lower(), out)
        np.testing.assert_array_equal(out["B"], identity)


def test_tensors_of_no_elements_have_no_loops() -> None:
    A = te.placeholder(f32[0, 3], "A")
    B = te.compute((0, 3), lambda i, j: A[i, j] + 1.0, name="B")
    C = te.compute((0, 3), lambda i, j: B[i, j] * 2.0, name="C")
    schedule = te.create_schedule(C)
    schedule["C"].split("i", 4)
    schedule["B"].compute_at("C", "io").split("i", 2)
    out = {"A": np.zeros((0, 3), np.float32), "C": np.zeros((0, 3), np.float32)}
    interpret(schedule.lower(), out)
