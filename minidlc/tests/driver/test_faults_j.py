"""Memory planning, in-place results and aliases, at every level: FAULTS class J, a test a row."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from onnx import TensorProto

import minidlc as mc
from minidlc.expr.types import TensorType, dtype
from minidlc.graph import Graph, apply
from minidlc.tests.frontend.helpers import model, node
from minidlc.tests.random_graphs import Case, cases

pytestmark = [pytest.mark.llvm, pytest.mark.ch05]
LEVELS = pytest.mark.parametrize("level", [0, 1, 2, 3])


def run(graph: Graph, arrays: list[np.ndarray], level: int) -> list[np.ndarray]:
    """Two calls, the arena dirty in the second; they must be equal."""
    exe = mc.compile(graph, opt_level=level, threads=1)
    exe.memory_plan.proof()
    first, second = exe(*arrays), exe(*arrays)
    for a, b in zip(first, second, strict=True):
        np.testing.assert_array_equal(a, b)
    return first


def check(
    function: Callable[..., object],
    types: tuple[mc.TensorType, ...],
    arrays: list[np.ndarray],
    level: int,
) -> None:
    graph = mc.trace(function, *types)
    for got, want in zip(run(graph, arrays, level), mc.interpret(graph, arrays), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6)


X = np.linspace(1, 2, 12, dtype=np.float32).reshape(3, 4)


@LEVELS
def test_118_storage_reused_across_an_alias(level: int) -> None:
    """left = alias(src) is read after right is written: 2x + 0.375, not 2x + 0.25."""

    def net(x):
        src = x + 0.25
        left = mc.reshape(src, shape=(12,))
        right = mc.reshape(mc.cumsum(x + 0.125, axis=0), shape=(12,))
        return left + right, mc.cumsum(left, axis=0)

    check(net, (mc.f32[3, 4],), [X], level)


@LEVELS
@pytest.mark.parametrize("flag", [True, False])
def test_120_storage_of_one_branch_used_in_the_other(level: int, flag: bool) -> None:
    """Chains of reshapes, and of work that needs buffers, in both branches: the identity."""

    def chain(name: str, shapes: list[tuple[int, ...]]) -> Graph:
        x = mc.Input("x", mc.f32[3, 4])
        value: mc.Value = x
        for shape in shapes:
            value = apply(
                "slice", mc.reshape(value, shape=shape), starts=(-1,), ends=(-100,), steps=(-1,)
            )
            value = apply("slice", value, starts=(-1,), ends=(-100,), steps=(-1,))
        return Graph.of(name, [x], [mc.reshape(value, shape=(3, 4))])

    yes, no = chain("yes", [(12,), (4, 3), (2, 6)]), chain("no", [(6, 2), (12,)])
    c, x = mc.Input("c", mc.bool_[()]), mc.Input("x", mc.f32[3, 4])
    g = Graph.of("g", [c, x], [mc.if_(c, x, then_branch=yes, else_branch=no)])
    np.testing.assert_array_equal(run(g, [np.array(flag), X], level)[0], X)


def test_121_a_size_that_has_no_upper_bound() -> None:
    """Batch 1, then 2, then 1 again: each has a plan of its own."""
    ops = [
        node("Softmax", "x", "h", axis=1),
        node("Concat", "h x", "y", axis=0),
        node("Exp", "y", "z"),
    ]
    exe = mc.compile(model(ops, {"x": (TensorProto.FLOAT, ("n", 5))}, "z"), threads=1)
    for n in (1, 2, 1, 7):
        x = np.random.default_rng(n).standard_normal((n, 5)).astype(np.float32)
        h = np.exp(x) / np.exp(x).sum(axis=1, keepdims=True)
        np.testing.assert_allclose(exe(x)[0], np.exp(np.concatenate([h, x])), rtol=1e-5)


@LEVELS
def test_123_an_output_without_a_reader_is_not_given_away_while_it_is_written(level: int) -> None:
    """Split in two, the second part unused; the same of top-k, whose two results are one step's."""

    def net(x):
        h = mc.exp(x)
        first, _ = (apply("slice", h, starts=(s,), ends=(s + 2,), axes=(1,)) for s in (0, 2))
        values, _ = mc.topk(h, k=2)
        return mc.cumsum(first, axis=1), mc.cumsum(values, axis=1)

    check(net, (mc.f32[3, 4],), [X], level)


@LEVELS
def test_125_no_promise_that_what_overlaps_does_not(level: int) -> None:
    """b = a + 1; a <- b; c = a + 2; a * b / c of a = 1 is 1."""

    def net(a):
        b = a + 1.0
        a = mc.identity(b)
        c = a + 2.0
        return a * b / c

    g = mc.trace(net, mc.f32[5])
    np.testing.assert_array_equal(run(g, [np.ones(5, np.float32)], level)[0], np.ones(5))


def test_125_parameters_that_may_overlap_are_not_promised_apart() -> None:
    def net(x, r):
        return mc.cumsum(mc.relu(mc.matmul(x, x)) + mc.cumsum(r, axis=0), axis=0)

    exe = mc.compile(mc.trace(net, mc.f32[8, 8], mc.f32[8, 8]), threads=1)
    (add,) = (v for v in exe.memory_plan.values if v.how == "in place")
    line = next(t for t in exe.kernel(add.name).llvm.split("\n") if t.startswith("define"))
    params = [p.split() for p in line[line.index("(") + 1 :].split(",")]
    promised = {p[-1].strip("%") for p in params if "noalias" in p}
    names = [p.name for p in exe.kernel(add.name).lowered.loops.params]
    line = f"256 bytes at 0, steps {add.first} to {add.last}, in place of cumsum"
    assert line in mc.debug.explain(exe, add.name).of("memory")
    assert promised == {names[0]}  # the matrix; not what is added, nor the result


@LEVELS
@pytest.mark.parametrize("n", [7, 8, 33])
def test_126_a_flip_is_not_done_in_place(level: int, n: int) -> None:
    def net(x):
        h = mc.cumsum(x, axis=0)  # dead after the flip
        y = apply("slice", h, starts=(-1,), ends=(-100,), steps=(-1,))
        return mc.cumsum(y * 2.0, axis=0)

    check(net, (mc.f32[n],), [np.arange(n, dtype=np.float32)], level)


@LEVELS
def test_128_a_reshape_of_a_slice_lives_until_its_last_reader(level: int) -> None:
    def net(x):
        h = mc.cumsum(x, axis=0)
        part = apply("slice", h, starts=(1,), ends=(3,), axes=(0,))
        nested = apply("slice", mc.reshape(part, shape=(8,)), starts=(2,), ends=(6,))
        others = mc.cumsum(mc.exp(mc.cumsum(x * 3.0, axis=1)), axis=0)
        return mc.cumsum(nested, axis=0), others

    check(net, (mc.f32[3, 4],), [X], level)


@LEVELS
def test_concats_slices_and_sums_in_place_together(level: int) -> None:
    def net(x):
        a = mc.cumsum(x, axis=0)
        b = mc.cumsum(a, axis=1) + a
        c = mc.concat(mc.cumsum(b, axis=0), mc.cumsum(x, axis=1), axis=0)
        d = apply("slice", mc.cumsum(c, axis=1), starts=(2,), ends=(5,))
        return mc.concat(mc.cumsum(d, axis=0) * 0.5, mc.cumsum(d, axis=1), axis=0), c

    check(net, (mc.f32[3, 4],), [X], level)


@pytest.mark.parametrize("element", ["f16", "bf16", "f64", "i8", "i64", "bool"])
def test_every_element_type_shares_bytes(element: str) -> None:
    """Concat, slice and in place, at offsets that are no multiple of a vector."""

    def net(x, r):
        c = mc.concat(mc.transpose(x), mc.transpose(r), axis=0)
        d = apply("slice", mc.reshape(c, shape=(30,)), starts=(7,), ends=(22,))
        e = mc.reshape(d, shape=(3, 5))
        return mc.transpose(
            mc.where(mc.equal(e, mc.transpose(x)), e, mc.transpose(r))
        ), mc.transpose(c)

    t = TensorType(dtype(element), (5, 3))
    rng = np.random.default_rng(3)
    arrays = [rng.integers(0, 2, (5, 3)).astype(t.dtype.numpy) for _ in range(2)]
    graph = mc.trace(net, t, t)
    unmoved = mc.Pipeline.default().without("sink", "hoist")  # these would leave less to share
    for level, pipeline in ((0, None), (3, unmoved)):
        exe = mc.compile(graph, opt_level=level, threads=1, pipeline=pipeline)
        assert {"part", "view"} <= {v.how for v in exe.memory_plan.values}
        for got, want in zip(exe(*arrays), mc.interpret(graph, arrays), strict=True):
            np.testing.assert_array_equal(got, want)


@settings(max_examples=15, deadline=None)
@given(case=cases())
def test_every_read_of_random_programs_finds_its_value(case: Case) -> None:
    """The proof of each plan can be printed, whatever the graph."""
    exe = mc.compile(case.graph, opt_level=0, threads=1)
    steps = 1 + max((b.last for b in exe.memory_plan.buffers), default=-1)
    assert exe.memory_plan.proof().count("no two overlap") == steps
