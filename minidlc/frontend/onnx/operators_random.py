"""Converters of draws: RandomNormal, RandomUniform, Like, Bernoulli, Multinomial, Dropout.

    RandomNormal(shape=[3], seed=7.0)    random_normal(shape=(3,), seed=7)
    RandomNormal(shape=[3])              random_normal(shape=(3,), stream=1), then 2, 3, …
    Dropout(x, 0.1, training_mode=True)  dropout(x, ratio=0.1, stream=…); at inference nothing

ONNX asks for a fresh seed where none is given; here such nodes are numbered as they are imported,
so that two differ and a model gives the same numbers whenever it is compiled. Treated in course
chapter 01_graph_ir.
"""

from __future__ import annotations

import numpy as np

from minidlc.expr.types import DType, bool_, f32, i32, i64
from minidlc.frontend.onnx.legacy import FIRST_MODERN_OPSET
from minidlc.frontend.onnx.registry import OnnxNode, onnx_op
from minidlc.frontend.onnx.tensors import element
from minidlc.graph.graph import Constant, Value, apply, results_of, tensor_type
from minidlc.ops.composing import cast_to, in_wide

WHOLE = 1 << 24  # float seeds that are whole numbers below are those integers
BITS = 1 << 32  # other float seeds are their 32 bits, above all of these


def seed_of(number: float) -> int:
    """The integer seed for one of ONNX's float seeds: 7 for 7.0; no two floats have the same."""
    if number.is_integer() and 0 <= number < WHOLE:
        return int(number)
    return BITS + int(np.float32(number).view(np.uint32))


def drawing(node: OnnxNode) -> dict[str, int]:
    """`seed` and `stream` of a node that draws: its seed, or the next number of a stream.

    Refused in the body of a loop: its runs would draw the same numbers.
    """
    assert node.scope is not None
    if node.scope.repeats:
        text = "random numbers in the body of a loop, whose runs would all draw the same"
        raise node.unsupported(text, "a loop of a known number of runs is taken run by run")
    if not node.has("seed"):
        return {"stream": next(node.scope.streams)}
    if node.op_type == "Dropout":  # the one whose seed is an integer
        return {"seed": node.attr_int("seed") % (1 << 64)}
    return {"seed": seed_of(node.attr_float("seed", 0.0))}


def _element(node: OnnxNode, default: DType = f32) -> DType:
    return element(node.attr_int("dtype"), node.loc) if node.has("dtype") else default


def _drawn(node: OnnxNode, shape: tuple[int, ...], to: DType) -> Value:
    normal = node.op_type.startswith("RandomNormal")
    names = {"mean": 0.0, "scale": 1.0} if normal else {"low": 0.0, "high": 1.0}
    bounds = {name: node.attr_float(name, default) for name, default in names.items()}
    op = "random_normal" if normal else "random_uniform"
    return apply(op, shape=shape, to=to, **bounds, **drawing(node))


@onnx_op("RandomNormal", "RandomUniform")
def random_numbers(node: OnnxNode) -> Value:
    """The shape is an attribute."""
    if not node.has("shape"):
        raise node.wrong("attribute 'shape' is missing")
    return _drawn(node, node.attr_ints("shape"), _element(node))


@onnx_op("RandomNormalLike", "RandomUniformLike")
def random_numbers_like(node: OnnxNode, x: Value) -> Value:
    """Only the shape of x matters, and its element type where no other is given."""
    return _drawn(node, node.dims(x), _element(node, tensor_type(x).dtype))


@onnx_op("Bernoulli")
def bernoulli(node: OnnxNode, x: Value) -> Value:
    """1 with probability x. ONNX's function body (1.23) compares the other way round: 1 - x."""
    u = apply("random_uniform", shape=node.dims(x), **drawing(node))
    return cast_to(u < cast_to(x, f32), _element(node, tensor_type(x).dtype))


@onnx_op("Multinomial")
def multinomial(node: OnnxNode, x: Value) -> Value:
    """For each row of logarithms of weights: the first class whose running sum is beyond u."""
    node.check_rank(x, "input", 2)
    size, to = node.attr_int("sample_size", 1), _element(node, i32)
    if to not in (i32, i64):
        raise node.wrong(f"the result is i32 or i64, not {to}")
    if size < 0:
        raise node.wrong(f"sample_size must not be negative, got {size}")
    rows = node.dims(x)[0]
    sums = apply("cumsum", apply("softmax", in_wide(x), axis=1), axis=1)
    total = apply("slice", sums, starts=(-1,), ends=(node.dims(x)[1],), axes=(1,))
    given = {"shape": (rows, size), "to": tensor_type(sums).dtype, **drawing(node)}
    u = apply("random_uniform", **given) * total
    passed = apply("unsqueeze", sums, axes=(1,)) <= apply("unsqueeze", u, axes=(2,))
    return cast_to(apply("sum", cast_to(passed, to), axes=(2,), keepdims=False), to)


@onnx_op("Dropout")
def dropout(
    node: OnnxNode, x: Value, ratio: Value | None = None, training: Value | None = None
) -> tuple[Value, ...]:
    """Nothing at inference, or with a ratio of 0; the mask says that all elements are kept."""
    node.ignore("seed")
    rate = node.attr_float("ratio", 0.5)  # an attribute before opset 12
    if node.opset < FIRST_MODERN_OPSET:
        trains = not node.attr_int("is_test", 0)
    else:
        trains = training is not None and bool(node.constant(training, "training_mode").any())
    if ratio is not None and trains:
        rate = float(str(node.constant(ratio, "ratio").max()))
    kind = bool_ if node.opset >= 10 else tensor_type(x).dtype
    if trains and rate:
        y, mask = results_of(apply("dropout", x, ratio=rate, **drawing(node)))
        return y, cast_to(mask, kind)
    y = apply("identity", x)
    if not any(node.outputs[1:]):
        return (y,)
    kept = Constant("kept", np.ones((), kind.numpy))
    return y, apply("expand", kept, shape=node.dims(x))
