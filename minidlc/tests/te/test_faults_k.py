"""Faults that other compilers had in their schedules and loop IR; each test names its row.

The rows are those of class K in the study of faults: 129, 131, 132, 134, 135, 137, 139.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from minidlc import target, te
from minidlc.codegen.compile import compile_kernel, run_kernel
from minidlc.expr.index import Var, maximum, minimum
from minidlc.expr.types import Array, f32
from minidlc.loop.interpret import interpret
from minidlc.loop.nodes import For, walk
from minidlc.loop.verify import verify_function
from minidlc.support.errors import LoweringError
from minidlc.te import Schedule
from minidlc.tests.codegen.helpers import WIDTHS
from minidlc.tests.codegen.test_bounds import runs
from minidlc.tests.te.programs import numbers, stencil

pytestmark = pytest.mark.ch04


def run(s: Schedule, inputs: dict[str, Array]) -> Array:
    """The one output, by loops as scheduled and cut, which must agree."""
    (name,) = s.state.outputs
    got: list[Array] = []
    for partition in (False, True):
        fn = s.lower(partition=partition)
        verify_function(fn)
        out = {**inputs, name: np.full(s.state.type_of(name).dims, 77, np.float32)}
        interpret(fn, out, check_parallel=True)
        got.append(out[name])
    np.testing.assert_array_equal(*got)
    return got[0]


@pytest.mark.parametrize("n", [1024, 1000])
@pytest.mark.parametrize("kept", ["compute_at", "store_at"])
def test_129_an_attached_producer_is_computed_everywhere(n: int, kept: str) -> None:
    A, B = te.placeholder(f32[n], "A"), te.placeholder(f32[n], "B")
    C = te.compute((n,), lambda i: A[i] + B[i], name="C")
    E = te.compute((n,), lambda i: (C[i] + C[i]) + A[i], name="E")
    s = te.create_schedule(E)
    io, ii = s["E"].split("i", 32)
    if kept == "compute_at":
        s["C"].compute_at("E", io)
    else:
        s["C"].store_at("E", io).compute_at("E", ii)
    x = {"A": numbers((n,), 1), "B": numbers((n,), 2)}
    np.testing.assert_array_equal(run(s, x), 3 * x["A"] + 2 * x["B"])


@pytest.mark.parametrize("tail", ["cut", "shift"])
@pytest.mark.parametrize("rows", [3, 4, 7])
def test_129_halos_of_several_readers_and_tails(tail: str, rows: int) -> None:
    """a is read by b and c at different distances; no factor divides."""
    case = stencil(13, 5)
    s = te.create_schedule(case.outputs)
    s["c"].split("i", rows, tail=tail)
    s["b"].compute_at("c", "io")
    s["a"].compute_at("c", "io").split("j", 2)
    np.testing.assert_array_equal(run(s, case.inputs), case.expected["c"])


@pytest.mark.parametrize("stride", [2, 3])
@pytest.mark.parametrize("n", [9, 10])
def test_129_strided_readers_get_all_that_lies_between(stride: int, n: int) -> None:
    X = te.placeholder(f32[stride * n + 2], "X")
    p = te.compute((stride * n + 2,), lambda i: X[i] + 1.0, name="p")
    q = te.compute((n,), lambda i: p[stride * i] + p[stride * i + 2], name="q")
    s = te.create_schedule(q)
    s["q"].split("i", 4)
    s["p"].compute_at("q", "io")
    x = numbers((stride * n + 2,), 1)
    expected = x[: stride * n : stride] + x[2::stride][:n] + 2
    np.testing.assert_array_equal(run(s, {"X": x}), expected)
    assert f"alloc(f32[{3 * stride + 3}]" in str(s.lower(partition=False))


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("n", [128, 100, 3])
@pytest.mark.llvm
def test_131_a_vectorised_reduction_adds_all_lanes(width: int, n: int) -> None:
    A = te.placeholder(f32[n], "A")
    k = te.reduce_axis(n, "k")
    S = te.compute((1,), lambda i: te.sum(A[k], k), name="S")
    s = te.create_schedule(S)
    s["S"].vectorize("k")
    ones, out = np.ones(n, np.float32), np.zeros(1, np.float32)
    kernel = compile_kernel(s.lower("k"), target.host(vector_width=width), cache=False)
    run_kernel(kernel, [ones, out])
    assert out[0] == n


@pytest.mark.parametrize(("half", "position"), [("ki", "last"), ("ki", "first"), ("ko", "first")])
def test_132_rfactor_of_a_split_that_does_not_divide(half: str, position: str) -> None:
    A = te.placeholder(f32[10], "A")
    k = te.reduce_axis(10, "k")
    S = te.compute((1,), lambda i: te.sum(A[k], k), name="S")
    s = te.create_schedule(S)
    s["S"].split("k", 4)
    s["S"].rfactor(half, position)
    x = np.arange(10, dtype=np.float32)
    assert run(s, {"A": x})[0] == 45


def test_134_a_divisor_that_is_no_positive_number_is_refused_where_it_is_written() -> None:
    i, r = Var("i"), Var("r")
    for divide in (lambda: (i + 2) % r, lambda: (i + 2) // r, lambda: i % 0, lambda: i // -1):
        with pytest.raises(LoweringError) as caught:
            divide()
        assert caught.value.code == "MDLC0711"
    with pytest.raises(LoweringError, match=r"\(i \+ 2\) % \(r\)"):
        _ = (i + 2) % r


def test_135_a_shared_expression_stays_inside_its_loops() -> None:
    """`verify_function` in `run` refuses a variable that is used outside its loop."""
    A = te.placeholder(f32[9, 10], "A")
    shared = te.compute((9, 10), lambda i, j: te.exp(A[i, j] * 0.0) + A[i, j], name="shared")
    P = te.compute((9, 10), lambda i, j: shared[i, j] * shared[i, j], name="P")
    Q = te.compute((9, 10), lambda i, j: P[i, j] + shared[i, j] * shared[8 - i, j], name="Q")
    x = {"A": numbers((9, 10), 1)}
    e = x["A"] + 1
    for inline in (True, False):
        s = te.create_schedule(Q)
        s["Q"].tile("i", "j", 4, 3)
        if inline:
            s["shared"].compute_inline()
        s["P"].compute_at("Q", "jo")
        if not inline:
            s["shared"].compute_at("Q", "jo")
        np.testing.assert_array_equal(run(s, x), e * e + e * e[::-1])


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.llvm
def test_137_minimum_and_maximum_as_positions_stay_inside(width: int) -> None:
    """g[y, x] = f[min(x, y), max(x, y)], vectorised over x, arrays between guard pages."""
    f = te.placeholder(f32[16, 16], "f")
    g = te.compute((16, 16), lambda y, x: f[minimum(x, y), maximum(x, y)], name="g")
    s = te.create_schedule(g)
    s["g"].split("x", width)
    s["g"].vectorize("xi")
    x = numbers((16, 16), 1)
    rows, columns = np.indices((16, 16))
    expected = x[np.minimum(rows, columns), np.maximum(rows, columns)]
    np.testing.assert_array_equal(run(s, {"f": x}), expected)
    assert runs(str(s.lower("g")), width)


def tile_twice(s: Schedule) -> None:
    s["C"].split("i", 32, ("io", "ii"))
    s["C"].split("ii", 8, ("im", "il"))


def tile_from_inside(s: Schedule) -> None:
    s["C"].split("i", 8, ("im", "il"))
    s["C"].split("im", 4, ("io", "ii"))


@pytest.mark.parametrize("use", [tile_twice, tile_from_inside])
def test_139_tiles_of_tiles(use: Callable[[Schedule], None]) -> None:
    A = te.placeholder(f32[64], "A")
    C = te.compute((64,), lambda i: A[i] * 2.0, name="C")
    s = te.create_schedule(C)
    use(s)
    loops = [x.extent.value for x in walk(s.lower().body) if isinstance(x, For)]
    assert loops == [2, 4, 8]
    x = numbers((64,), 1)
    np.testing.assert_array_equal(run(s, {"A": x}), x * 2)
