"""An op that writes its loops itself runs like any other; wrong loops are refused."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

import minidlc as mc
from minidlc.graph import Example, Graph, Input, Op, TupleType, apply, build
from minidlc.graph.op import Positions, register_op, unregister_op
from minidlc.loop.text import parse_function
from minidlc.support.errors import CallError, CompileError
from minidlc.te import compute
from minidlc.tests.ops.checks import check_all

TEXT = """
def running(x: f32[{n}], y: f32[{n}], total: f32[1]):
    total[0] = 0.0
    for i in serial(0, {n}):
        total[0] = total[0] + x[i]
        y[i] = total[0]
"""


@pytest.fixture
def running():
    @register_op
    @dataclass(frozen=True)
    class Running(Op):
        """y[i] = x[0] + … + x[i], and the sum of all."""

        def type_rule(self, x):
            return TupleType((x, x.with_shape((1,))))

        def reference(self, x):
            y = np.cumsum(x, dtype=np.float32)
            return y, (y[-1:] if x.size else np.zeros(1, np.float32))

        def loops(self, x):
            return parse_function(TEXT.format(n=x.dims[0]))

        @classmethod
        def examples(cls):
            return [Example(cls(), (np.arange(n, dtype=np.float32),)) for n in (1, 2, 17)]

    yield Running
    unregister_op("running")


def test_generic_checks(running):
    check_all(running)


@pytest.mark.llvm
def test_compiled(running):
    x = Input("x", mc.f32[5])
    node = apply("running", apply("relu", x))
    g = Graph.of("g", [x], [apply("getitem", node, index=0) + 1.0])
    exe = mc.compile(g)
    (y,) = exe(np.array([1, -2, 3, 4, 5], np.float32))
    np.testing.assert_array_equal(y, [2, 2, 5, 9, 14])
    kernel = next(k for k in exe.kernels if k.origin.op.name == "running")
    assert (kernel.te, kernel.trace) == ("", "")
    with pytest.raises(CompileError, match="writes the loops itself"):
        _ = kernel.schedule


@pytest.mark.llvm
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def f(x: f32[5], y: f32[5]):\n    y[0] = x[0]\n", "1 results, not 2"),
        ("def f(x: f32[5], y: f32[4], z: f32[1]):\n    y[0] = x[0]\n", "expected x: f32"),
        (
            "def f(x: f32[5], y: f32[5], z: f32[1]):\n"
            "    for i in serial(0, 6):\n        y[i] = x[0]\n    z[0] = x[0]\n",
            "reaches 0..5",
        ),
        (
            "def f(x: f32[5], y: f32[5], z: f32[1]):\n"
            "    for i in parallel(0, 5):\n        y[i] = x[0]\n        z[0] = x[i]\n",
            "parallel loop",
        ),
    ],
)
def test_wrong_loops_are_refused(running, text, message, monkeypatch):
    monkeypatch.setattr(running, "loops", lambda self, x: parse_function(text))
    x = Input("x", mc.f32[5])
    g = Graph.of("g", [x], [apply("getitem", apply("running", x), index=0)])
    with pytest.raises(CompileError, match=message):
        mc.compile(g)


@pytest.mark.llvm
def test_several_results_of_one_compute():
    @register_op
    @dataclass(frozen=True)
    class Ends(Op):
        """x + 1 and x * 2."""

        def type_rule(self, x):
            return TupleType((x, x))

        def reference(self, x):
            return x + 1, x * 2

        def compute(self, x):
            plus = compute(x.shape, lambda i: x[i] + 1.0, "plus")
            return plus, compute(x.shape, lambda i: x[i] * 2.0, "twice")

        @classmethod
        def examples(cls):
            return [Example(cls(), (np.arange(n, dtype=np.float32),)) for n in (1, 3, 40)]

    try:
        check_all(Ends)
        x = Input("x", mc.f32[40])
        node = build(Ends(), [x])
        g = Graph.of("g", [x], [apply("getitem", node, index=k) for k in (1, 0, 1)])
        a = np.arange(40, dtype=np.float32)
        for level in range(4):
            got = mc.compile(g, opt_level=level)(a)
            np.testing.assert_array_equal(got, [a * 2, a + 1, a * 2])
    finally:
        unregister_op("ends")


def test_positions_are_checked():
    @register_op
    @dataclass(frozen=True)
    class Pick(Op):
        """x[i]."""

        def type_rule(self, x, i):
            return x.with_shape(i.shape)

        def positions(self, x, i):
            return (Positions(1, 0, x.dims[0]),)

        def reference(self, x, i):
            return x[i]

        def compute(self, x, i):
            raise NotImplementedError

        @classmethod
        def examples(cls):
            return []

    try:
        x, i = Input("x", mc.f32[3]), Input("i", mc.i64[2])
        g = Graph.of("g", [x, i], [build(Pick(), [x, i])])
        data = np.arange(3, dtype=np.float32)
        assert mc.interpret(g, [data, np.array([2, 0])])[0].tolist() == [2, 0]
        with pytest.raises(CallError, match=r"pick: 3 in input 1 is outside the range 0 to 2"):
            mc.interpret(g, [data, np.array([2, 3])])
    finally:
        unregister_op("pick")
