"""Faults that other compilers had (classes A to F), as values that are right here.

Each row: where it was reported, an op on arrays, the right value. The same value must come from
the reference, from the loops run by Python, and from machine code: folded and run must agree.
Basis where engines differ: the ONNX schema of the op; the rule is stated in the op's docstring.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from minidlc.expr.types import TensorType, dtype, i8, u8
from minidlc.graph import Graph, Input, Op, OpKind, apply, build, evaluate, interpret
from minidlc.loop.interpret import interpret as run_loops
from minidlc.lower.kernels import lower_node
from minidlc.ops.activation import Clip, Relu
from minidlc.ops.binary import Add, CastTo, Div, Mod, Pow
from minidlc.ops.conv import Conv
from minidlc.ops.conv_transpose import ConvTranspose
from minidlc.ops.norm import BatchNorm
from minidlc.ops.normalization import LayerNorm
from minidlc.ops.padding import Pad
from minidlc.ops.pool import AveragePool, MaxPool
from minidlc.ops.reduction import Max, Softmax, Sum
from minidlc.ops.resize import Resize
from minidlc.ops.scans import Cumsum
from minidlc.ops.shape import Flatten, Reshape
from minidlc.ops.slicing import Slice
from minidlc.ops.unary import Round, Sign
from minidlc.target import host
from minidlc.tests.ops.checks import ANY_MACHINE

F = np.float32
NAN, INF = np.nan, np.inf
GRID = np.arange(1, 17, dtype=F).reshape(1, 1, 4, 4)


def f(*values: float) -> Any:
    return np.array(values, F)


# row of the table, op, inputs, right value
ROWS: list[tuple[str, Op, tuple[Any, ...], Any]] = [
    ("1 tvm#20170", Mod(), (np.array([-5]), np.array([3])), np.array([1])),
    ("1 tvm#20170 fmod", Mod(fmod=True), (f(-5.5), f(3)), f(-2.5)),
    ("2 tvm#19974", Div(), (np.array([386]), np.array([3])), np.array([128])),
    ("4 tvm#19541", Div(), (np.int32([1, 2]), np.int32([0, 1])), np.int32([0, 2])),
    ("4 modulo", Mod(), (np.int32([1, 5]), np.int32([0, 3])), np.int32([0, 2])),
    ("4 lowest / -1", Div(), (np.int32([-(2**31)]), np.int32([-1])), np.int32([-(2**31)])),
    ("6 tf-onnx#2174", Div(), (np.int32([-7, 7, -7, 7]), np.int32([2, -2, -2, 2])),
     np.int32([-3, -3, 3, 3])),
    ("27 iree#16916", Add(), (np.uint8([200]), np.uint8([100])), np.uint8([44])),
    ("29 tvm#15718", Pow(), (np.int32([2, 3]), f(2.0, 0.5)), np.int32([4, 1])),
    ("29 an exponent that only its own type holds", Pow(),
     (np.int8([2, 3, -3, -1]), np.uint8([200, 129, 255, 255])), np.int8([0, 3, 85, -1])),
    ("29 of a narrow base", Pow(), (np.uint8([2, 3, 0]), np.int16([256, 257, -1])),
     np.uint8([0, 3, 255])),
    ("29 an odd exponent that f32 rounds to an even one", Pow(),
     (f(-1, -1, -1, -2), np.int64([2**24 + 1, 2**24 + 2, -(2**53) + 1, 3])), f(-1, 1, -1, -8)),
    ("19 float to i8", CastTo(i8), (f(300, NAN, INF, 50, -50),), np.int8([127, 0, 127, 50, -50])),
    ("19 float to u8", CastTo(u8), (f(-1.5, 0, 255.9),), np.uint8([0, 0, 255])),
    ("22 tvm#18590", Round(), (f(0.5, 1.5, 2.5, -0.5, -1.5, -4.5),), f(0, 2, 2, -0.0, -2, -4)),
    ("30 tvm#19572", Relu(), (f(NAN, -1),), f(NAN, 0)),
    ("30 sign", Sign(), (f(NAN, -3, 0, -0.0),), f(NAN, -1, 0, 0)),
    ("30 max", Max((1,), False), (np.array([[NAN, 1], [2, NAN]], F),), f(NAN, NAN)),
    ("32 clip", Clip(0.0, 6.0), (f(0.5, -3, NAN),), f(0.5, 0, NAN)),
    ("33 x * 0", apply("mul", Input("x", TensorType(dtype("f32"), (3,))), 0.0).op,
     (f(INF, NAN, 1), f(0)), f(NAN, NAN, 0)),
    ("38 ngraph#3411", Sum(), (f(-INF, -INF),), f(-INF)),
    ("40 tvm#19592", LayerNorm(epsilon=1e-5),
     (F([[80000, 80001, 80002, 80003]]), f(1, 1, 1, 1), f(0, 0, 0, 0)),
     F([[-1.5, -0.5, 0.5, 1.5]]) / np.sqrt(F(1.25 + 1e-5))),
    ("43 flatten 0", Flatten(0), (np.zeros((2, 3, 4), F),), np.zeros((1, 24), F)),
    ("43 flatten -1", Flatten(-1), (np.zeros((2, 3, 4), F),), np.zeros((6, 4), F)),
    ("45 tvm#19437", Cumsum(1), (F([[1, 2], [3, 4]]),), F([[1, 3], [3, 7]])),
    ("45 exclusive, reverse", Cumsum(-1, True, True), (f(1, 2, 3),), f(5, 3, 0)),
    ("52 reshape", Reshape((2, -1)), (np.zeros((2, 3, 4), F),), np.zeros((2, 12), F)),
    ("52 allowzero", Reshape((0, 3)), (np.zeros((0, 3), F),), np.zeros((0, 3), F)),
    ("54 tvm#19532", Slice((0,), (5,), (), (-1,)), (np.arange(10, dtype=F),), np.zeros(0, F)),
    ("56 ort#2433", Pad((-1, 2)), (np.arange(5, dtype=F),), f(1, 2, 3, 4, 0, 0)),
    ("57 softmax", Softmax(), (np.zeros((5, 0), F),), np.zeros((5, 0), F)),
    ("57 max axis 0", Max((0,), False), (np.zeros((2, 0), F),), np.zeros((0,), F)),
    ("57 max axis 1", Max((1,), False), (np.zeros((2, 0), F),), f(-INF, -INF)),
    ("57 sum axis 1", Sum((1,), False), (np.zeros((2, 0), F),), f(0, 0)),
    ("59 no window starts in the pad", AveragePool((1, 1), (2, 2), ceil_mode=True),
     (np.ones((1, 1, 4, 4), F),), np.ones((1, 1, 2, 2), F)),
    ("59 nor for a maximum", MaxPool((1, 1), (2, 2), ceil_mode=True),
     (-np.ones((1, 1, 4, 4), F),), -np.ones((1, 1, 2, 2), F)),
    ("61 pytorch#183528", AveragePool((3, 3), (2, 2), (1, 1, 1, 1), (), True, True), (GRID,),
     F([[14 / 9, 30 / 9, 12 / 6], [57 / 9, 99 / 9, 36 / 6], [27 / 6, 45 / 6, 16 / 4]])[None, None]),
    ("63 onnxscript#754", AveragePool((3, 3), (2, 2), ceil_mode=True), (GRID,),
     F([6, 7.5, 12, 13.5]).reshape(1, 1, 2, 2)),
    ("64 onnx#2043", Conv(dilations=(2,), pads=(2, 2)),
     (np.ones((1, 1, 7), F), np.ones((1, 1, 3), F)), f(2, 2, 3, 3, 3, 2, 2).reshape(1, 1, 7)),
    ("64 an infinity paints no more than its kernel", ConvTranspose((3,), (1, 0), (2,)),
     (f(1, INF, 2).reshape(1, 1, 3), f(3, 4).reshape(1, 1, 2), f(0.5)),
     f(0.5, 4.5, INF, 0.5, INF, 6.5, 0.5, 8.5).reshape(1, 1, 8)),
    ("64 nor an infinite weight more than its places", ConvTranspose((2,)),
     (f(1, 2).reshape(1, 1, 2), f(1, 2, INF).reshape(1, 1, 3)),
     f(1, 2, INF, 4, INF).reshape(1, 1, 5)),
    ("67 tvm#19500", Resize((1.5, 1.5)), (np.arange(9, dtype=F).reshape(3, 3),),
     F([[0, 0, 1, 2], [0, 0, 1, 2], [3, 3, 4, 5], [6, 6, 7, 8]])),
    ("69 ort#5151", Resize((), (3, 2, 4), nearest_mode="ceil"),
     (np.arange(12, dtype=F).reshape(3, 2, 2),),
     np.arange(12, dtype=F).reshape(3, 2, 2)[:, :, [0, 1, 1, 1]]),
    ("79 tvm#19818", BatchNorm(0.0), (F([[5]]), f(1), f(0), f(3), f(4)), F([[1]])),
]  # fmt: skip
IDS = [row[0] for row in ROWS]


def by_reference(op: Op, inputs: tuple[Any, ...]) -> Any:
    return evaluate(op, inputs)


def lowered(op: Op, inputs: tuple[Any, ...], run: Callable[..., None]) -> Any:
    values = [Input(f"x{n}", TensorType(dtype(a.dtype), a.shape)) for n, a in enumerate(inputs)]
    node = build(op, values)
    kernel = lower_node(node, "k", ANY_MACHINE, fast=False)
    arrays = dict(zip(values, inputs, strict=True))
    params = kernel.loops.params
    buffers = {p.name: arrays[v] for p, v in zip(params, kernel.inputs, strict=False)}
    out = params[-1]
    buffers[out.name] = np.full(out.type.dims, 77, out.type.dtype.numpy)
    run(kernel.loops, buffers)
    return buffers[out.name]


def by_machine(loops: Any, buffers: dict[str, Any]) -> None:
    from minidlc.codegen.compile import compile_kernel, run_kernel

    run_kernel(compile_kernel(loops, host()), [buffers[p.name] for p in loops.params])


def assert_same(got: Any, wanted: Any) -> None:
    assert got.dtype == wanted.dtype
    assert got.shape == wanted.shape
    np.testing.assert_allclose(got, wanted, rtol=1e-6)
    if wanted.dtype.kind == "f":
        same_sign = np.signbit(got) == np.signbit(wanted)
        assert np.all(same_sign | np.isnan(wanted)), "a zero has the wrong sign"


@pytest.mark.parametrize(("row", "op", "inputs", "right"), ROWS, ids=IDS)
def test_reference(row: str, op: Op, inputs: tuple[Any, ...], right: Any) -> None:
    assert_same(by_reference(op, inputs), right)


@pytest.mark.parametrize(("row", "op", "inputs", "right"), ROWS, ids=IDS)
def test_loops(row: str, op: Op, inputs: tuple[Any, ...], right: Any) -> None:
    if op.kind is OpKind.COMPOSITE:
        values = [Input(f"x{n}", TensorType(dtype(a.dtype), a.shape)) for n, a in enumerate(inputs)]
        graph = Graph.of("simpler", values, [type(op).decompose(op, *values)])
        assert_same(interpret(graph, inputs)[0], right)
    else:
        assert_same(lowered(op, inputs, run_loops), right)


@pytest.mark.llvm
@pytest.mark.parametrize(("row", "op", "inputs", "right"), ROWS, ids=IDS)
def test_machine_code(row: str, op: Op, inputs: tuple[Any, ...], right: Any) -> None:
    if op.kind is OpKind.COMPILED:
        assert_same(lowered(op, inputs, by_machine), right)


# graphs of several ops: narrow integers wrap at each value


def i(name: str, array: Any) -> Input:
    return Input(name, TensorType(dtype(array.dtype), array.shape))


def test_14_uint8_wraps_before_the_next_cast() -> None:
    a = np.uint8([128])
    x = i("x", a)
    y = apply("cast", apply("add", x, x), to="i16")
    assert_same(interpret(Graph.of("g", [x], [y]), [a])[0], np.int16([0]))


def test_16_abs_of_uint8_keeps_its_type_through_concat_and_sum() -> None:
    a = np.uint8([200, 200])
    x = i("x", a)
    y = apply("sub", apply("sub", x, x), apply("abs", x))
    total = apply("sum", apply("cast", apply("concat", y, y, axis=0), to="i64"))
    assert_same(interpret(Graph.of("g", [x], [total]), [a])[0], np.int64([224]))


def test_18_the_square_of_int8_may_be_negative() -> None:
    a = np.int8([12, 7, 20, 15, 11])
    x = i("x", a)
    p = x * x
    y = apply("where", apply("less", p, np.int8(0)), apply("abs", p), p)
    assert_same(interpret(Graph.of("g", [x], [y]), [a])[0], np.int8([112, 49, 112, 31, 121]))


def test_6_ceiling_division_needs_floor() -> None:
    a = np.int32([3, 7, 10])
    x = i("x", a)
    three = np.int32(3)
    minus = apply("neg", x)
    floor = apply("div", apply("sub", minus, apply("mod", minus, three)), three)
    assert_same(interpret(Graph.of("g", [x], [apply("neg", floor)]), [a])[0], np.int32([1, 3, 4]))


def test_34_and_36_nothing_is_simplified_on_floats() -> None:
    a = f(89, 2e19, -1.5)
    x = i("x", a)
    there_and_back = apply("log", apply("exp", x))
    root = apply("sqrt", x * x)
    power = apply("log", apply("pow", x, x))
    got = interpret(Graph.of("g", [x], [there_and_back, root, power]), [a])
    assert got[0][0] == INF
    assert got[1][1] == INF
    assert np.isnan(got[2][2])


def test_32_a_nan_bound_makes_all_nan() -> None:
    a, bound = f(0.5, -3, NAN), f(NAN)
    x, b = i("x", a), i("b", bound)
    y = apply("minimum", apply("clip", x, min=0.0), b)
    assert_same(interpret(Graph.of("g", [x, b], [y]), [a, bound])[0], f(NAN, NAN, NAN))


def test_the_maximum_of_no_positions_is_the_lowest_value() -> None:
    a = np.zeros((1, 2, 0), np.float32)
    y = apply("global_max_pool", i("x", a))
    assert_same(
        interpret(Graph.of("g", y.inputs, [y]), [a])[0], np.full((1, 2, 1), -INF, np.float32)
    )


def test_a_mean_counts_more_elements_than_its_type_can() -> None:
    a = np.int8([-128, *[0] * 127])
    y = apply("mean", i("x", a))
    assert_same(interpret(Graph.of("g", y.inputs, [y]), [a])[0], np.int8([-1]))
