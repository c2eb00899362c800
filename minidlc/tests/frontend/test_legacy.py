"""Opsets 1 to 6: old forms mean what they meant, or are refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

from minidlc.frontend.onnx import load_onnx
from minidlc.graph import interpret
from minidlc.support.errors import OnnxImportError
from minidlc.tests.frontend.helpers import F, model, node, run

X = np.arange(24, dtype=F).reshape(2, 3, 4)
B3 = F([10, 20, 30])


@pytest.mark.parametrize(
    ("shape", "attributes", "view"),
    [
        ((3,), {"broadcast": 1, "axis": 1}, (3, 1)),
        ((2,), {"broadcast": 1, "axis": 0}, (2, 1, 1)),
        ((2, 3), {"broadcast": 1, "axis": 0}, (2, 3, 1)),
        ((3, 4), {"broadcast": 1}, (3, 4)),
        ((4,), {"broadcast": 1, "axis": -1}, (4,)),
        ((1,), {"broadcast": 1}, (1,)),
        ((2, 3, 4), {}, (2, 3, 4)),
    ],
)
@pytest.mark.parametrize("op", ["Add", "Sub", "Mul", "Div", "Pow"])
def test_broadcast_from_an_axis(
    op: str, shape: tuple[int, ...], attributes: Any, view: tuple[int, ...]
) -> None:
    b = np.arange(1, 1 + np.prod(shape), dtype=F).reshape(shape) / 8
    ufunc = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": np.divide}
    got = run(node(op, "x b", "y", **attributes), {"x": X, "b": b}, opset=6)
    right = ufunc.get(op, np.power)(X, b.reshape(view))
    np.testing.assert_allclose(got, right, rtol=1e-6)


def test_consumed_inputs_is_a_hint_about_memory() -> None:
    np.testing.assert_array_equal(
        run(node("Relu", "x", "y", consumed_inputs=[0]), {"x": -X}, opset=1), np.maximum(-X, 0)
    )


def test_reshape_by_attribute() -> None:
    got = run(node("Reshape", "x", "y", shape=[0, -1]), {"x": X}, opset=1)
    np.testing.assert_array_equal(got, X.reshape(2, 12))


def test_clip_of_opset_6() -> None:
    # FAULTS 80
    got = run(node("Clip", "x", "y", min=0.0, max=3.0), {"x": F([-1, 5])}, opset=6)
    np.testing.assert_array_equal(got, [0, 3])


@pytest.mark.parametrize(("opset", "name"), [(1, "paddings"), (2, "pads")])
def test_pads_had_another_name(opset: int, name: str) -> None:
    got = run(node("Pad", "x", "y", **{name: [0, 1, 0, 2]}), {"x": X[0]}, opset=opset)
    np.testing.assert_array_equal(got, np.pad(X[0], ((0, 0), (1, 2))))


def test_cast_to_a_name() -> None:
    got = run(node("Cast", "x", "y", to="INT32"), {"x": X}, opset=1)
    assert got.dtype == np.int32
    assert run(node("Cast", "x", "y", to=TensorProto.INT32), {"x": X}, opset=6).dtype == np.int32


def test_a_slope_for_each_channel() -> None:
    got = run(node("PRelu", "x s", "y"), {"x": -X, "s": B3}, opset=6)
    np.testing.assert_array_equal(got, -X * B3[:, None])
    got = run(node("PRelu", "x s", "y"), {"x": -X, "s": F([2])}, opset=6)
    np.testing.assert_array_equal(got, -X * 2)


def test_defaults_of_opset_1() -> None:
    got = run(node("Concat", "x x", "y"), {"x": X}, opset=1)
    assert got.shape == (2, 6, 4)


def test_inference_said_so() -> None:
    statistics = {"s": F([1] * 3), "b": F([0] * 3), "m": F([3] * 3), "v": F([4] * 3)}
    bn = node("BatchNormalization", "x s b m v", "y", epsilon=0.0, is_test=1)
    got = run(bn, {"x": X}, statistics, 6)
    np.testing.assert_allclose(got, (X - 3) / 2, rtol=1e-6)
    np.testing.assert_array_equal(run(node("Dropout", "x", "y", is_test=1), {"x": X}, opset=6), X)


@pytest.mark.parametrize("opset", [1, 6])
def test_a_dropout_trained_unless_told_otherwise(opset: int) -> None:
    both = load_onnx(model([node("Dropout", "x", "y m", ratio=0.25)], {"x": X}, "y m", opset=opset))
    y, mask = interpret(both, [X])
    assert mask.dtype == F
    np.testing.assert_allclose(y, X * mask / F(0.75), rtol=1e-6)
    assert 0 < mask.sum() < mask.size


@pytest.mark.parametrize(
    ("built", "message"),
    [
        (node("Add", "x b", "y"), r"f32\[2, 3, 4\] and f32\[3\] without broadcast=1"),
        (node("Add", "x b", "y", broadcast=1, axis=2), "shapes do not broadcast"),
        (node("Add", "x b", "y", broadcast=1, axis=7), r"broadcast of f32\[3\] to .* at axis 7"),
        (node("BatchNormalization", "x b b b b", "y"), r"is_test=0 \(training\)"),
        (node("Tile", "x b b", "y"), "Tile of opset 5"),
        (node("Cast", "x", "y", to="NUMBER"), "names no element type"),
    ],
    ids=lambda v: v.op_type if hasattr(v, "op_type") else None,
)
def test_what_cannot_be_told_is_refused(built: Any, message: str) -> None:
    with pytest.raises(OnnxImportError, match=message):
        load_onnx(model([built], {"x": X, "b": B3}, opset=5))
