"""ONNX in and out of transposed convolutions, resizes, top-k, scans, pools, at every opset."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from minidlc.frontend.onnx import load_onnx, to_onnx
from minidlc.graph import Graph, Input, apply, difference, getitem, interpret
from minidlc.support.errors import CompileError, OnnxExportError
from minidlc.tests.frontend.helpers import F, model, node, run

X = np.arange(16, dtype=F).reshape(1, 1, 4, 4)
W = np.ones((1, 1, 3, 3), F)


def same(got: Any, wanted: Any) -> None:
    np.testing.assert_array_equal(got, wanted)
    assert got.dtype == np.asarray(wanted).dtype


def refused(built: onnx.ModelProto, code: str, text: str) -> None:
    with pytest.raises(CompileError) as caught:
        load_onnx(built)
    assert caught.value.code == code
    assert text in str(caught.value)


def in_runtime(built: onnx.ModelProto, **arrays: Any) -> list[Any]:
    ort = pytest.importorskip("onnxruntime")
    options = ort.SessionOptions()
    options.log_severity_level = 4
    return ort.InferenceSession(built.SerializeToString(), options).run(None, arrays)


def ints(values: Any) -> Any:
    return np.array(values, np.int64)


@pytest.mark.parametrize(
    ("attributes", "shape"),
    [
        ({"auto_pad": "SAME_UPPER"}, (8, 8)),
        ({"auto_pad": "SAME_LOWER"}, (8, 8)),
        ({"auto_pad": "VALID"}, (9, 9)),
        ({"output_shape": [10, 8]}, (10, 8)),
        ({"output_shape": [9, 7], "auto_pad": "SAME_UPPER"}, (9, 7)),
        ({"output_shape": [1, 1, 12, 9]}, (12, 9)),
        ({"output_padding": [1, 0], "pads": [0, 1, 2, 0]}, (8, 8)),
        ({"output_shape": [8, 8], "dilations": [2, 1]}, (8, 8)),
    ],
    ids=str,
)
def test_66_the_pads_of_a_transposed_convolution(
    attributes: dict[str, Any], shape: tuple[int, int]
) -> None:
    """FAULTS 66: auto_pad was ignored. ONNX Runtime says which side gets the odd element."""
    w = np.arange(9, dtype=F).reshape(1, 1, 3, 3)
    built = node("ConvTranspose", "x w", "y", strides=[2, 2], **attributes)
    y = run(built, {"x": X}, {"w": w})
    assert y.shape == (1, 1, *shape)
    proto = model([built], {"x": X}, weights={"w": w})
    proto.graph.output[0].type.tensor_type.elem_type = TensorProto.FLOAT
    if attributes.get("output_shape", [0])[0] != 1:  # it takes spatial sizes alone
        np.testing.assert_allclose(y, in_runtime(proto, x=X)[0], rtol=1e-6)


def test_what_a_transposed_convolution_refuses() -> None:
    def transposed(**attributes: Any) -> onnx.ModelProto:
        return model([node("ConvTranspose", "x w", "y", **attributes)], {"x": X}, weights={"w": W})

    refused(transposed(kernel_shape=[2, 2]), "MDLC0116", "kernel_shape (2, 2) of a weight")
    refused(transposed(auto_pad="SAME"), "MDLC0116", "auto_pad 'SAME'")
    refused(transposed(output_shape=[8]), "MDLC0116", "output_shape (8,)")
    nodes = [node("ConvTranspose", "x w", "y", auto_pad="SAME_UPPER")]
    symbolic = model(nodes, {"x": (TensorProto.FLOAT, [1, 1, "H", 4])}, weights={"w": W})
    refused(symbolic, "MDLC0116", 'the shape of f32[1, 1, "H", 4] is not known')


@pytest.mark.parametrize("opset", [7, 9])
def test_upsample_floors_and_does_not_centre(opset: int) -> None:
    scales = [1.0, 1.0, 2.0, 1.5]
    old = opset < 9
    attributes = {"scales": scales} if old else {}
    built = node("Upsample", "x" if old else "x s", "y", mode="nearest", **attributes)
    y = run(built, {"x": X}, {} if old else {"s": np.array(scales, F)}, opset)
    same(y, X[:, :, [0, 0, 1, 1, 2, 2, 3, 3]][..., [0, 0, 1, 2, 2, 3]])
    built = node("Upsample", "x" if old else "x s", "y", mode="linear", **attributes)
    y = run(built, {"x": X}, {} if old else {"s": np.array(scales, F)}, opset)
    np.testing.assert_allclose(y[0, 0, :, 0], [0, 2, 4, 6, 8, 10, 12, 12], rtol=1e-6)


def test_resize_10_is_upsample_and_11_centres() -> None:
    scales = np.array([1, 1, 0.5, 1], F)
    ten = run(node("Resize", "x s", "y", mode="linear"), {"x": X}, {"s": scales}, 10)
    same(ten, X[:, :, ::2])
    for opset in (11, 13, 18, 19, 20):
        y = run(node("Resize", "x _ s", "y", mode="linear"), {"x": X}, {"s": scales}, opset)
        same(y, (X[:, :, ::2] + X[:, :, 1::2]) / 2)
    empty = {"r": np.zeros(0, F), "s": np.zeros(0, F), "n": ints([1, 1, 2, 8])}
    y = run(node("Resize", "x r s n", "y"), {"x": X}, empty, 11)
    same(y, X[:, :, [0, 2]][..., [0, 0, 1, 1, 2, 2, 3, 3]])


def test_what_resize_refuses() -> None:
    def resized(inputs: str, weights: dict[str, Any], **attributes: Any) -> onnx.ModelProto:
        return model([node("Resize", inputs, "y", **attributes)], {"x": X}, weights=weights)

    refused(resized("x", {}), "MDLC0115", "takes scales or sizes")
    refused(
        resized("x _ s", {"s": ints([1, 1, 2, 2])}), "MDLC0118", "'scales' must be a list of fl"
    )
    scales = {"s": np.array([1, 1, 2, -2], F)}
    refused(resized("x _ s", scales), "MDLC0115", "numbers above 0, got (1.0, 1.0, 2.0, -2.0)")
    refused(resized("x _ s", scales, mode="area"), "MDLC0115", "mode 'area' is none of")
    built = model([node("Resize", "x _ s", "y")], {"x": X, "s": scales["s"]})
    refused(built, "MDLC0116", "input 'scales' is computed at run time")


@pytest.mark.parametrize("opset", [7, 10, 11, 20])
def test_topk_at_every_opset(opset: int) -> None:
    x = np.array([[3, 1, 3, 2]], F)
    attributes = {"k": 2} if opset < 10 else {}
    built = node("TopK", "x" if opset < 10 else "x k", "v i", **attributes)
    weights = {} if opset < 10 else {"k": ints([2])}
    same(run(built, {"x": x}, weights, opset, "v"), F([[3, 3]]))
    same(run(built, {"x": x}, weights, opset, "i"), ints([[0, 2]]))
    if opset >= 11:
        least = node("TopK", "x k", "v i", largest=0, sorted=0, axis=1)
        same(run(least, {"x": x}, weights, opset, "i"), ints([[1, 3]]))


@pytest.mark.parametrize("k", [0, -1, 2])
def test_82_a_topk_of_nothing_or_of_too_much_is_refused(k: int) -> None:
    """FAULTS 82: K <= 0 was accepted."""
    built = model([node("TopK", "x k", "v i")], {"x": np.ones(1, F)}, "v", {"k": ints([k])})
    refused(built, "MDLC0115", f"k is {k}" if k > 1 else f"k must be at least 1, got {k}")


def test_the_axis_of_a_scan_is_an_input() -> None:
    x = np.array([[1, 2], [3, 4]], np.int32)
    for axis in (np.int64(1), np.array([-1], np.int32)):
        y = run(node("CumSum", "x a", "y"), {"x": x}, {"a": axis})
        same(y, np.int32([[1, 3], [3, 7]]))
    y = run(node("CumProd", "x a", "y", exclusive=1, reverse=1), {"x": x}, {"a": ints(0)}, 26)
    same(y, np.int32([[3, 4], [1, 1]]))
    built = model([node("CumSum", "x a", "y")], {"x": x}, weights={"a": ints([0, 1])})
    refused(built, "MDLC0118", "input 'axis' must be one integer, got (0, 1)")


@pytest.mark.parametrize(("opset", "right"), [(11, [1, 0, 0, 0]), (13, [1, 0, 1, 0])])
def test_hardmax_before_opset_13_is_of_two_dimensions(opset: int, right: list[float]) -> None:
    x = np.ones((1, 2, 2), F)
    attributes = {"axis": 1} if opset < 13 else {}
    y = run(node("Hardmax", "x", "y", **attributes), {"x": x}, opset=opset)
    same(y.reshape(-1), F(right))


@pytest.mark.parametrize("order", [0, 1])
def test_the_positions_of_maxima(order: int) -> None:
    x = np.random.default_rng(0).permutation(2 * 3 * 6 * 7).reshape(2, 3, 6, 7).astype(F)
    built = node("MaxPool", "x", "y i", kernel_shape=[3, 2], strides=[2, 2], pads=[1, 0, 0, 1],
                 storage_order=order)  # fmt: skip
    proto = model([built], {"x": x}, "y i")
    proto.graph.output[0].type.tensor_type.elem_type = TensorProto.FLOAT
    proto.graph.output[1].type.tensor_type.elem_type = TensorProto.INT64
    for got, wanted in zip(interpret(load_onnx(proto), [x]), in_runtime(proto, x=x), strict=True):
        same(got, wanted)


def test_maxima_are_put_back() -> None:
    y, where = np.ones((1, 1, 2, 2), F), ints([[[[0, 3], [8, 15]]]])
    built = node("MaxUnpool", "y i s", "x", kernel_shape=[2, 2], strides=[2, 2])
    x = run(built, {"y": y, "i": where}, {"s": ints([1, 1, 4, 5])}, outputs="x")
    assert np.flatnonzero(x).tolist() == [0, 3, 10, 18]
    beyond = [y, where + 1]
    g = load_onnx(model([built], {"y": y, "i": where}, "x", {"s": ints([1, 1, 4, 5])}))
    with pytest.raises(CompileError, match="16 in input 1 is outside the range 0 to 15"):
        interpret(g, beyond)


@pytest.mark.parametrize("element", ["f32", "u8"])
def test_arg_max_takes_equal_elements_and_every_opset(element: str) -> None:
    x = np.array([[1, 3, 3], [2, 2, 2]], F if element == "f32" else np.uint8)
    for opset in (7, 11, 12, 13, 20):
        same(run(node("ArgMax", "x", "y", axis=1), {"x": x}, opset=opset), ints([[1], [0]]))
    last = node("ArgMax", "x", "y", axis=1, keepdims=0, select_last_index=1)
    same(run(last, {"x": x}), ints([2, 2]))


def test_lp_pools() -> None:
    x = np.array([[[3, -4, 0, 5]]], F)
    y = run(node("LpPool", "x", "y", kernel_shape=[2], strides=[2]), {"x": x})
    same(y, F([[[5, 5]]]))
    same(run(node("GlobalLpPool", "x", "y", p=1), {"x": x}), F([[[12]]]))


def test_old_opsets_say_what_they_can() -> None:
    """A smallest element needs opset 11, sizes of a resize too; scales and k do not."""
    x = Input("x", load_onnx(model([node("Relu", "x", "y")], {"x": X})).inputs[0].type)
    smallest = apply("topk", x, k=2, largest=False)
    largest = apply("topk", x, k=2)
    enlarged = apply("resize", x, scales=(1, 1, 2, 2), nearest_mode="floor",
                     coordinate_transformation_mode="asymmetric")  # fmt: skip
    for value, opset in (
        (getitem(largest, 1), 7),
        (enlarged, 7),
        (enlarged, 9),
        (enlarged, 10),
        (enlarged, 11),
    ):
        g = Graph.of("g", [x], [value])
        back = load_onnx(to_onnx(g, opset))
        assert difference(g, back) is None
        same(interpret(back, [X])[0], interpret(g, [X])[0])
    for value in (getitem(smallest, 0), apply("resize", x, sizes=(1, 1, 8, 8))):
        with pytest.raises(OnnxExportError) as caught:
            to_onnx(Graph.of("g", [x], [value]), 10)
        assert caught.value.code == "MDLC0131"
