"""Four products of bytes as one call, dot4: exact, whatever the loops around it do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from minidlc import te
from minidlc.expr.functions import FUNCTIONS
from minidlc.expr.nodes import Call
from minidlc.expr.types import f32, i8, i32, u8
from minidlc.loop.interpret import interpret
from minidlc.loop.nodes import Store
from minidlc.loop.text import parse_function
from minidlc.loop.verify import verify_function
from minidlc.support.errors import LoweringError, ParseError, ScheduleError, VerifyError
from minidlc.te import Schedule, parse_trace

pytestmark = pytest.mark.ch05


def bytes_gemm(m: int, n: int, depth: int) -> Schedule:
    """C = A @ B of u8 and i8, added up in i32."""
    A, B = te.placeholder(u8[m, depth], "A"), te.placeholder(i8[depth, n], "B")
    k = te.reduce_axis(depth, "k")
    C = te.compute(
        (m, n),
        lambda i, j: te.sum(te.cast("i32", A[i, k]) * te.cast("i32", B[k, j]), k),
        name="C",
    )
    return te.create_schedule(C, constants=["B"])


def tiled(m: int = 6, n: int = 21, depth: int = 12, lanes: int = 8, rows: int = 2) -> Schedule:
    """Sums in registers, B packed ahead so that four of its rows lie side by side."""
    sch = bytes_gemm(m, n, depth)
    total = sch["C"].cache_write("register")
    sch["C"].tile("i", "j", rows, lanes)
    sch["C"].unroll("ii").vectorize("ji")
    total.compute_at("C", "jo")
    total.cache_read("B", {0: 4}).prepack()
    total.split("k", 4)
    total.reorder("ko", "i", "j", "ki").unroll("i")
    total.tensorize("ki").vectorize("j")
    return sch


def arrays(m: int, n: int, depth: int, seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    a = rng.integers(0, 256, (m, depth)).astype(np.uint8)
    b = rng.integers(-128, 128, (depth, n)).astype(np.int8)
    a[0], b[:, 0], b[:, -1] = 255, -128, 127
    return {"A": a, "B": b}


def packed(sch: Schedule, given: dict[str, Any]) -> dict[str, Any]:
    """An array for each parameter of the loops, prepacked ones computed."""
    known = dict(given)
    for fn in (*sch.lower_init(), sch.lower()):
        for p in fn.params:
            known.setdefault(p.name, np.full(p.type.dims, 77, p.type.dtype.numpy))
        if fn in sch.lower_init():
            interpret(fn, {p.name: known[p.name] for p in fn.params})
    return {p.name: known[p.name] for p in sch.lower().params}


def product(given: dict[str, Any]) -> Any:
    return given["A"].astype(np.int32) @ given["B"].astype(np.int32)


def test_the_loop_becomes_one_call() -> None:
    fn = verify_function(tiled(6, 16, 12).lower())
    text = str(fn)
    bytes = [f"A[2*io + i, 4*ko{p}]" for p in ("", " + 1", " + 2", " + 3")]
    packed_bytes = [f"B_p[ko, 8*jo + j, {n}]" for n in range(4)]
    assert f"C_c[i, j] = dot4(C_c[i, j], {', '.join(bytes + packed_bytes)})" in text
    assert "for ki" not in text
    assert parse_function(text) == fn


@pytest.mark.parametrize("shape", [(6, 16, 12), (5, 21, 12), (3, 7, 4), (4, 9, 14), (3, 8, 3)])
def test_it_is_exact(shape: tuple[int, int, int]) -> None:
    sch = tiled(*shape)
    given = arrays(*shape)
    buffers = packed(sch, given)
    interpret(sch.lower(), buffers, check_parallel=True)
    np.testing.assert_array_equal(buffers["C"], product(given))


def test_where_fewer_than_four_are_left_the_loop_stays() -> None:
    text = str(tiled(4, 8, 14).lower())
    assert "dot4(" in text
    assert 'cast("i32", A[' in text
    assert "dot4(" not in str(tiled(4, 8, 3).lower())
    assert "if " in str(tiled(4, 8, 14).lower(partition=False))


def test_the_trace_replays() -> None:
    sch = tiled()
    assert 'tensorize("C_c", "ki", "dot4")' in str(sch.trace)
    again = Schedule(sch.outputs, parse_trace(str(sch.trace)), constants=["B"])
    assert again.lower() == sch.lower()


def test_factors_in_the_other_order() -> None:
    A, B = te.placeholder(u8[8], "A"), te.placeholder(i8[8], "B")
    k = te.reduce_axis(8, "k")
    s = te.compute((), lambda: te.sum(te.cast("i32", B[k]) * te.cast("i32", A[k]), k), name="s")
    sch = te.create_schedule(s)
    sch["s"].split("k", 4)
    sch["s"].tensorize("ki")
    a, b = np.full(8, 255, np.uint8), np.full(8, -128, np.int8)
    out = np.zeros((), np.int32)
    interpret(sch.lower(), {"A": a, "B": b, "s": out})
    assert out == -8 * 255 * 128


def test_the_meaning_of_dot4() -> None:
    dot4 = FUNCTIONS["dot4"].numpy
    a, b = [np.uint8(255)] * 4, [np.int8(-128)] * 4
    assert dot4(np.int32(0), *a, *b) == -4 * 255 * 128
    assert dot4(np.int32(-(2**31)), *a, *b) == 2**31 - 4 * 255 * 128  # wraps
    assert dot4(np.int32(1), *map(np.uint8, (1, 2, 3, 4)), *map(np.int8, (1, -1, 1, -1))) == -1


def test_it_can_be_written() -> None:
    A, B, C = te.placeholder(u8[4], "A"), te.placeholder(i8[4], "B"), te.placeholder(i32[1], "C")

    def element(i: Any) -> Any:
        return te.dot4(C[i], [A[n] for n in range(4)], [B[n] for n in range(4)])

    D = te.compute((1,), element, name="D")
    assert "dot4(C[i], A[0], A[1], A[2], A[3], B[0], B[1], B[2], B[3])" in str(D)
    with pytest.raises(LoweringError, match="four u8 and four i8"):
        te.dot4(C[0], [B[0]] * 4, [A[0]] * 4)


def test_text_and_loops_with_other_types_are_refused() -> None:
    text = "def f(A: {0}[8], C: i32[1]):\n    C[0] = dot4(C[0], {1})\n"
    loads = ", ".join(f"A[{n}]" for n in range(8))
    with pytest.raises(ParseError, match="expected i8, got u8"):
        parse_function(text.format("u8", loads))
    with pytest.raises(ParseError, match="does not take 8"):
        parse_function(text.format("u8", loads[:-6]))
    good = parse_function(text.format("u8", ", ".join([*loads.split(", ")[:4], *["i8(1)"] * 4])))
    assert verify_function(good) == good
    assert isinstance(good.body, Store)
    assert isinstance(good.body.value, Call)
    total, *factors = good.body.value.args
    mixed = replace(good.body, value=Call("dot4", (total, *factors[:4], *factors[:4])))
    with pytest.raises(VerifyError):
        verify_function(replace(good, body=mixed))


def wrong(step: Any, type_a: Any = u8, type_b: Any = i8, body: Any = None) -> Any:
    def make() -> None:
        A, B = te.placeholder(type_a[4, 8], "A"), te.placeholder(type_b[8, 4], "B")
        k = te.reduce_axis(8, "k")

        def product(i: Any, j: Any) -> Any:
            return te.sum(te.cast("i32", A[i, k]) * te.cast("i32", B[k, j]), k)

        C = te.compute((4, 4), body or product, name="C")
        sch = te.create_schedule(C)
        if not body:
            sch["C"].split("k", 4)
        step(sch["C"])

    return make


@pytest.mark.parametrize(
    "make",
    [
        wrong(lambda C: C.tensorize("ki"), i8, i8),
        wrong(lambda C: C.tensorize("ki"), i32, i32),
        wrong(lambda C: C.tensorize("ko")),
        wrong(lambda C: C.tensorize("j")),
        wrong(lambda C: C.reorder("ki", "j").tensorize("ki")),
        wrong(lambda C: C.tensorize("ki").reorder("ki", "j")),
        wrong(lambda C: C.tensorize("ki", "dot8")),
        wrong(lambda C: C.tensorize("j"), body=lambda i, j: te.cast("i32", i + j)),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(make: Any) -> None:
    with pytest.raises(ScheduleError) as caught:
        make()
    assert caught.value.code == "MDLC0634"


def test_a_loop_of_another_length_is_refused() -> None:
    sch = bytes_gemm(2, 2, 16)
    sch["C"].split("k", 8)
    with pytest.raises(ScheduleError, match="runs 8 times, not 4"):
        sch["C"].tensorize("ki")


def test_a_body_that_is_no_product_is_refused() -> None:
    A = te.placeholder(u8[4], "A")
    k = te.reduce_axis(4, "k")
    s = te.compute((), lambda: te.sum(te.cast("i32", A[k]), k), name="s")
    with pytest.raises(ScheduleError, match="no sum of products"):
        te.create_schedule(s)["s"].tensorize("k")


def test_a_vectorised_loop_is_refused() -> None:
    sch = bytes_gemm(2, 2, 4)
    sch["C"].vectorize("k")
    with pytest.raises(ScheduleError) as caught:
        sch["C"].tensorize("k")
    assert caught.value.code == "MDLC0607"


def test_other_types_of_results_are_refused() -> None:
    A, B = te.placeholder(f32[8], "A"), te.placeholder(f32[8], "B")
    k = te.reduce_axis(4, "k")
    s = te.compute((), lambda: te.sum(A[k] * B[k], k), name="s")
    with pytest.raises(ScheduleError, match="not of a u8 and an i8"):
        te.create_schedule(s)["s"].tensorize("k")


def test_elements_taken_outside_of_a_body_are_refused() -> None:
    A = te.placeholder(f32[4], "A")
    element = A[0]
    with pytest.raises(LoweringError, match="'A' was taken outside of the body"):
        te.compute((4,), lambda i: element, name="B")
