"""ONNX operators that are imported as several of ours: losses, attention, quantized ones, training.

Expected values are written out in NumPy, or come from onnx.reference.
"""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, checker
from onnx.reference import ReferenceEvaluator

import minidlc as mc
from minidlc.frontend.onnx import load_onnx, to_onnx
from minidlc.graph import interpret
from minidlc.ops import samples
from minidlc.support.errors import OnnxImportError
from minidlc.tests.frontend.helpers import F, model, node

pytestmark = pytest.mark.ch01


def run(nodes, inputs, outputs="y", opset=20):
    """Imported and computed; exported again it computes the same."""
    proto = model([nodes], inputs, outputs, opset=opset)
    graph = load_onnx(proto.SerializeToString())
    got = interpret(graph, list(inputs.values()))
    exported = to_onnx(graph)
    checker.check_model(exported, full_check=True)
    again = interpret(load_onnx(exported.SerializeToString()), list(inputs.values()))
    for a, b in zip(got, again, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)
    return got


def expected(nodes, inputs, outputs="y", opset=20):
    return ReferenceEvaluator(model([nodes], inputs, outputs, opset=opset)).run(None, inputs)


def refused(nodes, inputs, outputs="y", opset=20):
    with pytest.raises(OnnxImportError) as caught:
        load_onnx(model([nodes], inputs, outputs, opset=opset).SerializeToString())
    return str(caught.value)


X = samples.array((2, 3, 4))


def test_dropout_keeps_everything_and_says_so():
    y, mask = run(node("Dropout", "x", "y mask"), {"x": X}, "y mask")
    np.testing.assert_array_equal(y, X)
    assert mask.dtype == bool
    assert mask.all()


def test_dropout_in_training_drops_unless_its_ratio_is_0():
    proto = model(
        [node("Dropout", "x ratio training", "y mask", seed=-5)],
        {"x": X},
        "y mask",
        weights={"ratio": F(0.25), "training": np.array(True)},
    )
    y, mask = interpret(load_onnx(proto.SerializeToString()), [X])
    np.testing.assert_allclose(y, np.where(mask, X / F(0.75), 0), rtol=1e-6)
    assert not mask.all()
    proto.graph.initializer[0].raw_data = F(0).tobytes()
    np.testing.assert_array_equal(interpret(load_onnx(proto.SerializeToString()), [X])[0], X)


def test_batch_normalization_in_training():
    nodes = node("BatchNormalization", "x s b m v", "y mean var", training_mode=1, momentum=0.75)
    given = [samples.array((3,), low=0.5, seed=n) for n in range(4)]
    inputs = dict(zip("xsbmv", (X, *given), strict=True))
    got = run(nodes, inputs, "y mean var")
    for a, b in zip(got, expected(nodes, inputs, "y mean var"), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_statistics_of_training_without_training_are_refused():
    nodes = node("BatchNormalization", "x s b m v", "y mean var")
    given = [samples.array((3,), low=0.5, seed=n) for n in range(4)]
    inputs = dict(zip("xsbmv", (X, *given), strict=True))
    assert "not supported" in refused(nodes, inputs, "y mean var")


def test_the_loss_alone_or_with_its_logarithms():
    target = np.array([[0, 1, 2, 2], [1, 1, 0, 2]])
    alone = run(node("SoftmaxCrossEntropyLoss", "x t", "y"), {"x": X, "t": target})
    both = run(node("SoftmaxCrossEntropyLoss", "x t", "y z"), {"x": X, "t": target}, "y z")
    np.testing.assert_array_equal(alone[0], both[0])
    np.testing.assert_allclose(np.exp(both[1]).sum(1), np.ones((2, 4)), rtol=1e-6)


def test_attention_with_lengths_gives_scores_as_fourth_output():
    q = samples.array((1, 2, 3, 4))
    inputs = {"q": q, "k": q, "v": q, "n": np.array([2])}
    nodes = node("Attention", "q k v _ _ _ n", "y _ _ s")
    nodes.output[1] = nodes.output[2] = ""
    y, scores = run(nodes, inputs, "y s", opset=24)
    assert y.shape == q.shape
    assert scores.shape == (1, 2, 3, 3)
    present = node("Attention", "q k v _ _ _ n", "y pk pv")
    assert "not supported" in refused(present, inputs, "y pk pv", opset=24)


def test_rotary_positions_choose_rows():
    x, positions = samples.array((2, 4, 3, 6)), np.array([[4, 0, 2], [1, 1, 3]])
    angle = samples.array((5, 3))
    inputs = {"x": x, "c": np.cos(angle), "s": np.sin(angle), "p": positions}
    nodes = node("RotaryEmbedding", "x c s p", "y")
    (y,) = run(nodes, inputs, opset=23)
    np.testing.assert_allclose(y, expected(nodes, inputs, opset=23)[0], rtol=1e-5, atol=1e-6)


def test_swiglu_does_not_broadcast():
    a = samples.array((2, 4))
    (y,) = run(node("SwiGLU", "a b", "y", alpha=2.0), {"a": a, "b": a + 1}, opset=28)
    np.testing.assert_allclose(y, a / (1 + np.exp(-2 * a)) * (a + 1), rtol=1e-5, atol=1e-6)
    row = node("SwiGLU", "a b", "y")
    assert "not supported" in refused(row, {"a": a, "b": a[:1].copy()}, opset=28)


def test_a_causal_convolution_continues_from_its_state():
    x, w, b = samples.array((2, 3, 7)), samples.array((3, 1, 4)), samples.array((3,))
    nodes = node("CausalConvWithState", "x w b", "y state", activation="silu")
    whole, _ = run(nodes, {"x": x, "w": w, "b": b}, "y state", opset=27)
    first, rest = np.ascontiguousarray(x[..., :5]), np.ascontiguousarray(x[..., 5:])
    y, state = run(nodes, {"x": first, "w": w, "b": b}, "y state", opset=27)
    np.testing.assert_allclose(y, whole[..., :5], rtol=1e-5, atol=1e-6)
    nodes = node("CausalConvWithState", "x w b past", "y state", activation="silu")
    inputs = {"x": rest, "w": w, "b": b, "past": state}
    y, _ = run(nodes, inputs, "y state", opset=27)
    np.testing.assert_allclose(y, whole[..., 5:], rtol=1e-5, atol=1e-6)
    other = node("CausalConvWithState", "x w b", "y state", activation="relu")
    assert "not supported" in refused(other, {"x": x, "w": w, "b": b}, "y state", opset=27)


def quantized(shape, kind, scale, zero):
    """Integers, their scale and zero point, and the numbers that they stand for."""
    q = samples.array(shape, kind, 0 if kind == "u8" else -99, 99)
    number = (q.astype(np.int32) - np.asarray(zero).astype(np.int32)) * np.asarray(scale)
    return q, np.asarray(scale, F), np.asarray(zero, q.dtype), number


@pytest.mark.parametrize("kind", ["u8", "i8"])
def test_a_quantized_product_is_the_product_rounded(kind):
    a, a_scale, a_zero, left = quantized((3, 5), kind, 0.02, 7)
    b, b_scale, b_zero, right = quantized((5, 4), kind, [0.01, 0.02, 0.5, 0.1], [3, 2, 1, 0])
    y_scale, y_zero = F(0.25), np.asarray(50, a.dtype)
    names = "a as az b bs bz ys yz"
    arrays = (a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero)
    (y,) = run(node("QLinearMatMul", names, "y"), dict(zip(names.split(), arrays, strict=True)))
    info = np.iinfo(a.dtype)
    wanted = np.clip(np.rint(left @ right / 0.25) + 50, info.min, info.max)
    assert y.dtype == a.dtype
    np.testing.assert_allclose(y.astype(int), wanted, atol=1)


def test_a_quantized_convolution_pads_with_the_zero_point():
    x, x_scale, x_zero, value = quantized((1, 1, 3, 3), "u8", 0.5, 9)
    w = samples.array((2, 1, 3, 3), "i8", -99, 99)
    w_scale, w_zero = np.array([0.1, 0.2], F), np.zeros(2, np.int8)
    bias = np.array([100, -50], np.int32)
    names = "x xs xz w ws wz ys yz b"
    arrays = (x, x_scale, x_zero, w, w_scale, w_zero, F(4), np.uint8(128), bias)
    inputs = dict(zip(names.split(), map(np.asarray, arrays), strict=True))
    (y,) = run(node("QLinearConv", names, "y", pads=[1, 1, 1, 1]), inputs)
    weight = w.astype(int) * np.array([0.1, 0.2]).reshape(2, 1, 1, 1)
    middle = (value * weight).sum((1, 2, 3)) + bias * 0.5 * np.array([0.1, 0.2])
    wanted = np.clip(np.rint(middle / 4) + 128, 0, 255)
    np.testing.assert_allclose(y[0, :, 1, 1].astype(int), wanted, atol=1)
    corner = (value[:, :, :2, :2] * weight[:, :, 1:, 1:]).sum((1, 2, 3))
    corner = np.clip(np.rint((corner + bias * 0.5 * np.array([0.1, 0.2])) / 4) + 128, 0, 255)
    np.testing.assert_allclose(y[0, :, 0, 0].astype(int), corner, atol=1)


@pytest.mark.parametrize(
    ("attributes", "right"),
    [({}, [4, 10, 12, 22]), ({"precision": TensorProto.FLOAT}, [5, 11, 11, 23])],
    ids=str,
)
def test_the_quotient_has_the_type_of_the_scale_or_the_precision(attributes, right):
    x, scale = np.array([1.5, 3.5, 3.832, 7.5], np.float16), np.array(1 / 3, np.float16)
    got = run(node("QuantizeLinear", "x s", "y", **attributes), {"x": x, "s": scale}, opset=23)
    np.testing.assert_array_equal(got[0], right)


def test_the_type_of_a_quantized_result():
    x = samples.array((2, 3), low=-90, high=90)
    nodes = node("QuantizeLinear", "x s", "y", output_dtype=TensorProto.INT8)
    (y,) = run(nodes, {"x": x, "s": F(1)}, opset=21)
    np.testing.assert_array_equal(y, np.rint(x).astype(np.int8))
    assert run(node("QuantizeLinear", "x s", "y"), {"x": x, "s": F(1)})[0].dtype == np.uint8


def test_einsum_broadcasts_dots_of_different_rank():
    a, b = samples.array((2, 3, 4)), samples.array((4, 5))
    proto = model([node("Einsum", "a b", "y", equation="...ij,...jk->...ik")], {"a": a, "b": b})
    (y,) = interpret(load_onnx(proto.SerializeToString()), [a, b])
    np.testing.assert_allclose(y, a @ b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("equation", "text"),
    [
        ("ij,jk->iz", "names an axis twice"),
        ("ij,jk->ii", "names an axis twice"),
        ("ij->i", "names 1 inputs, got 2"),
        ("i1,jk->i", "is no equation"),
        ("i....j,jk->i", "is no equation"),
        ("ijk,jk->i", "does not name the axes"),
        ("i,jk->i", "does not name the axes"),
        ("ij,ik->jk", "has sizes"),
    ],
)
def test_einsum_refuses(equation, text):
    inputs = {"a": samples.array((3, 4)), "b": samples.array((4, 5))}
    assert text in refused(node("Einsum", "a b", "y", equation=equation), inputs)


@pytest.mark.parametrize("windowed", [False, True])
def test_a_short_time_transform_is_one_of_each_frame(windowed):
    x, window = samples.array((2, 20, 1)), samples.array((8,))
    weights = {"step": np.array(3), "n": np.array(8)} | ({"w": window} if windowed else {})
    proto = model(
        [node("STFT", f"x step {'w' if windowed else '_'} n", "y")], {"x": x}, weights=weights
    )
    (y,) = interpret(load_onnx(proto.SerializeToString()), [x])
    for n in range(5):
        frame = x[:, 3 * n : 3 * n + 8, 0] * (window if windowed else 1)
        wanted = np.fft.rfft(frame)
        np.testing.assert_allclose(y[:, n, :, 0] + 1j * y[:, n, :, 1], wanted, atol=1e-5)


def test_a_transform_and_its_inverse():
    x = samples.array((3, 10, 1))
    there = node("DFT", "x", "z", axis=1, onesided=1)
    back = node("DFT", "z", "y", axis=1, onesided=1, inverse=1)
    proto = model([there, back], {"x": x}, opset=19)
    graph = load_onnx(proto.SerializeToString())
    np.testing.assert_allclose(interpret(graph, [x])[0], x, atol=1e-6)
    again = load_onnx(to_onnx(graph, 19).SerializeToString())
    np.testing.assert_allclose(interpret(again, [x])[0], x, atol=1e-6)


def test_a_transform_too_long_for_a_matrix_is_refused():
    x = np.zeros((1, 1 << 13, 1), F)
    assert "not supported" in refused(node("DFT", "x", "y"), {"x": x})


@pytest.mark.llvm
def test_faults_of_quantization():
    """FAULTS 20: i8 reaches -128. 24: a tie stays a tie. 102: the pair of both is no identity."""
    x = F([-129, -128, -127, -126, 126, 127, 128])
    wanted = np.int8([-128, -128, -127, -126, 126, 127, 127])
    weights = {"s": F(1), "z": np.int8(0)}
    proto = model([node("QuantizeLinear", "x s z", "y")], {"x": x}, weights=weights)
    (y,) = mc.compile(proto.SerializeToString(), threads=1)(x)
    np.testing.assert_array_equal(y, wanted)
    both = [node("QuantizeLinear", "x s z", "q"), node("DequantizeLinear", "q s z", "y")]
    proto = model(both, {"x": x}, weights=weights)
    (y,) = mc.compile(proto.SerializeToString(), threads=1)(x)
    np.testing.assert_array_equal(y, wanted.astype(F))
    x = F([0, 2, -3, -2.5, 1.34, 0.5])
    proto = model([node("DynamicQuantizeLinear", "x", "y s z")], {"x": x}, "y s z")
    y, scale, zero = mc.compile(proto.SerializeToString(), threads=1)(x)
    np.testing.assert_array_equal(y, np.uint8([153, 255, 0, 26, 221, 179]))
    np.testing.assert_allclose(scale, 5 / 255, rtol=1e-6)
    assert zero == 153
