"""Kernels with several results: one pass over memory, and the numbers of the ops."""

from __future__ import annotations

import random

import numpy as np
import pytest

import minidlc as mc
from minidlc.executable import Executable
from minidlc.expr.types import bool_, f32, i64
from minidlc.graph import Graph, Input, apply, interpret, parse
from minidlc.loop.nodes import For, Kind, walk
from minidlc.tests.transform.row_graphs import SHAPES, arrays_for, row_graph
from minidlc.transform import Fuse, Pipeline

pytestmark = pytest.mark.llvm
STITCH = Pipeline.default().without("fuse").insert_after("layout", Fuse(style="stitch"))


def compiled(g: Graph, threads: int = 1) -> Executable:
    """The graph in stitched kernels; its answers are those of the interpreter."""
    exe = mc.compile(g, pipeline=STITCH, threads=threads)
    assert not any(k.refused for k in exe.program.kernels), str(exe.report())
    arrays = arrays_for(g, 0)
    for got, want in zip(exe(*arrays), interpret(g, arrays), strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-4, atol=1e-4)
    return exe


def read(*lines: str, params: str = "x: f32[64, 96], v: f32[96]") -> Graph:
    return parse("\n    ".join([f"def f({params}):", *lines]))


def outer_loops(exe: Executable) -> int:
    (kernel,) = exe.kernels
    body = kernel.loops.body
    inner = {id(x) for s in walk(body) if isinstance(s, For) for x in walk(s.body)}
    return sum(isinstance(s, For) and id(s) not in inner for s in walk(body))


def test_light_ops_share_a_loop_over_rows() -> None:
    exe = compiled(read("e = exp(x)", "y = add(e, v)", "z = relu(x)", "return e, y, z"))
    assert outer_loops(exe) == 1


def test_long_rows_go_in_blocks_to_threads() -> None:
    g = read("e = exp(x)", "y = neg(e)", "return e, y", params="x: f32[200_000]")
    exe = compiled(g, threads=2)
    loops = [s for s in walk(exe.kernels[0].loops.body) if isinstance(s, For)]
    assert any(s.kind is Kind.PARALLEL for s in loops)


def test_softmax_and_its_logarithm_in_one_loop_over_rows() -> None:
    g = read(
        "m = max(x, axes=(1,))", "d = sub(x, m)", "e = exp(d)", "s = sum(e, axes=(1,))",
        "p = div(e, s)", "l = log(s)", "q = sub(d, l)", "return p, q, m",
    )  # fmt: skip
    exe = compiled(g)
    assert outer_loops(exe) == 1
    assert exe.memory_plan.arena_bytes < 96 * 64 * 4  # rows are kept, no whole array


def test_a_result_that_no_sum_leads_to() -> None:
    exe = compiled(read("s = softmax(x)", "r = relu(x)", "return s, r"))
    assert outer_loops(exe) == 1


@pytest.mark.parametrize(("rows", "columns"), [(1, 40), (7, 33), (5, 3)])
def test_a_product_stores_what_is_before_its_activation(rows: int, columns: int) -> None:
    """Tiles of any size, with a sum in registers, and a function that needs the registers."""
    params = f"x: f32[2, {rows}, 20], w: f32[20, {columns}], b: f32[{columns}]"
    for function, results in (("relu", "m, a, r"), ("tanh", "a, r")):
        lines = ("m = matmul(x, w)", "a = add(m, b)", f"r = {function}(a)")
        exe = compiled(read(*lines, f"return {results}", params=params), threads=2)
        (kernel,) = exe.program.kernels
        assert kernel.implementation.startswith("gem")
        assert len(kernel.results) == results.count(",") + 1


def test_in_the_body_of_a_loop() -> None:
    """Both values that a run hands to the next come out of one kernel."""
    dims = (4, 96)
    i, go = Input("i", i64[()]), Input("go", bool_[()])
    a, b = Input("a", f32[dims]), Input("b", f32[dims])
    body = Graph.of("body", [i, go, a, b], [go, apply("tanh", a) + b, apply("tanh", a) - b])
    x, y = Input("x", f32[dims]), Input("y", f32[dims])
    loop = apply("loop", None, None, x, y, body=body, carried=2, trips=3)
    g = Graph.of("g", [x, y], [apply("getitem", loop, index=n) for n in (0, 1)])
    exe = compiled(g)
    assert any(len(k.results) == 2 for k in exe.program.kernels)


@pytest.mark.parametrize("shape", [(3, 4, 33), (5, 40), (2, 96)])
def test_random_rows(shape: tuple[int, ...]) -> None:
    for seed in range(4):
        compiled(row_graph(random.Random(seed), shape), threads=1 + seed % 2)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(0, 400, 20))
def test_many_random_rows(seed: int) -> None:
    for number in range(seed, seed + 20):
        shape = (2000, 70) if number % 20 == 0 else SHAPES[number % len(SHAPES)]
        compiled(row_graph(random.Random(number), shape), threads=1 + number % 2)
