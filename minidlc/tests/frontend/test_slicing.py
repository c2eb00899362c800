"""What the importer makes of Slice, Split, Pad, Tile, Trilu, Range and Shape, at every opset."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from minidlc.expr.types import f32
from minidlc.frontend.onnx import load_onnx, to_onnx
from minidlc.graph import Constant, Graph, Input, apply, interpret
from minidlc.support.errors import CompileError, OnnxExportError
from minidlc.tests.frontend.helpers import F, model, node, run

X = np.arange(24, dtype=F).reshape(4, 6)
LEAST, MOST = -(2**63), 2**63 - 1


def ints(**values: Any) -> dict[str, Any]:
    return {name: np.array(v, np.int64) for name, v in values.items()}


def same(got: Any, wanted: Any) -> None:
    np.testing.assert_array_equal(got, wanted)
    assert got.dtype == np.asarray(wanted).dtype


def refused(built: onnx.ModelProto, code: str, text: str) -> None:
    with pytest.raises(CompileError) as caught:
        load_onnx(built)
    assert caught.value.code == code
    assert text in str(caught.value)


def test_slice_attributes_became_inputs() -> None:
    old = node("Slice", "x", "y", starts=[1, 0], ends=[-1, MOST])
    same(run(old, {"x": X}, opset=9), X[1:-1])
    only = node("Slice", "x", "y", starts=[2], ends=[5], axes=[-1])
    same(run(only, {"x": X}, opset=7), X[:, 2:5])
    inputs = ints(s=[-1, 0], e=[LEAST, 4], a=[0, 1], t=[-2, 3])
    for opset in (10, 13, 20):
        same(run(node("Slice", "x s e a t", "y"), {"x": X}, inputs, opset), X[::-2, 0:4:3])
        no_axes = node("Slice", "x s e _ t", "y")
        same(run(no_axes, {"x": X}, inputs, opset), X[::-2, 0:4:3])
    bounds = {"s": np.array([1], np.int32), "e": np.array([3], np.int32)}
    same(run(node("Slice", "x s e", "y"), {"x": X}, bounds), X[1:3])


def test_a_start_before_the_first_element_is_the_first_going_down_too() -> None:
    """The schema clamps to [0, dim - 1]; NumPy takes nothing."""
    inputs = ints(s=[-99], e=[LEAST], a=[0], t=[-1])
    same(run(node("Slice", "x s e a t", "y"), {"x": X}, inputs), X[:1])


def test_slice_of_a_scalar_and_of_a_symbol() -> None:
    x = np.array(3, F)
    same(run(node("Slice", "x s e", "y"), {"x": x}, ints(s=[], e=[])), x)
    nodes = [node("Slice", "x s e", "y")]
    symbolic = {"x": (TensorProto.FLOAT, ["N", 3])}
    whole = load_onnx(model(nodes, symbolic, weights=ints(s=[0], e=[MOST])))
    assert whole.outputs[0].type == f32["N", 3]
    refused(model(nodes, symbolic, weights=ints(s=[1], e=[3])), "MDLC0115", "size N")


def test_slice_bounds_must_be_constants() -> None:
    built = model([node("Slice", "x s e", "y")], {"x": X, "s": np.array([0])}, weights=ints(e=[1]))
    refused(built, "MDLC0116", "'starts' is computed at run time")
    refused(model([node("Slice", "x", "y")], {"x": X}), "MDLC0119", "got 1")
    zero = ints(s=[0], e=[1], a=[0], t=[0])
    refused(model([node("Slice", "x s e a t", "y")], {"x": X}, weights=zero), "MDLC0115", "nowhere")
    for given in ({"a": []}, {"a": [0, 1]}, {"t": []}, {"e": [1, 2]}):
        lists = ints(**{"s": [0], "e": [1], "a": [0], "t": [1]} | given)
        slices = model([node("Slice", "x s e a t", "y")], {"x": X}, weights=lists)
        refused(slices, "MDLC0115", "lists of different lengths")


def both(built: onnx.ModelProto, *arrays: Any) -> list[Any]:
    return list(interpret(load_onnx(built), list(arrays)))


@pytest.mark.parametrize(
    ("opset", "attributes", "sizes", "parts"),
    [
        (7, {"axis": 1}, None, (3, 3)), (12, {"axis": 1, "split": [2, 4]}, None, (2, 4)),
        (13, {"axis": -1}, [5, 1], (5, 1)), (17, {"axis": 1}, None, (3, 3)),
        (18, {"axis": 1, "num_outputs": 2}, None, (3, 3)), (20, {"axis": 1}, [6, 0], (6, 0)),
    ],
)  # fmt: skip
def test_split(opset: int, attributes: Any, sizes: Any, parts: tuple[int, ...]) -> None:
    weights = {} if sizes is None else ints(s=sizes)
    text = "x" if sizes is None else "x s"
    built = model([node("Split", text, "y z", **attributes)], {"x": X}, "y z", weights, opset)
    for got, wanted in zip(both(built, X), np.split(X, [parts[0]], 1), strict=True):
        same(got, wanted)


def test_split_18_may_be_uneven() -> None:
    x = np.arange(7, dtype=F)
    built = model([node("Split", "x", "a b c", num_outputs=3)], {"x": x}, "a b c")
    assert [r.tolist() for r in both(built, x)] == [[0, 1, 2], [3, 4, 5], [6]]


def test_split_refused() -> None:
    x = {"x": np.zeros(7, F)}
    refused(model([node("Split", "x", "y z")], x, "y z", opset=13), "MDLC0115", "2 equal parts")
    built = model([node("Split", "x s", "y z")], x, "y z", ints(s=[3, 3]))
    refused(built, "MDLC0115", "parts (3, 3)")
    refused(model([node("Split", "x", "y z", axis=1)], x, "y z", opset=13), "MDLC0115", "[-1, 0]")
    symbolic = {"x": (TensorProto.FLOAT, ["N"])}
    refused(model([node("Split", "x", "y z")], symbolic, "y z", opset=13), "MDLC0116", "'N': …")


def test_pad_attributes_became_inputs() -> None:
    old = node("Pad", "x", "y", pads=[0, 1, 0, 2], value=1.5)
    wanted = np.pad(X, ((0, 0), (1, 2)), constant_values=1.5)
    same(run(old, {"x": X}, opset=10), wanted)
    weights = {**ints(p=[0, 1, 0, 2]), "v": np.array(1.5, F)}
    same(run(node("Pad", "x p v", "y"), {"x": X}, weights, 11), wanted)
    weights = {**ints(p=[1, 2], a=[-1]), "v": np.array([1.5], F)}
    same(run(node("Pad", "x p v a", "y"), {"x": X}, weights, 18), wanted)
    wrapped = run(node("Pad", "x p _ a", "y", mode="wrap"), {"x": X}, weights, 19)
    same(wrapped, np.pad(X, ((0, 0), (1, 2)), mode="wrap"))
    twice = model([node("Pad", "x p _ a", "y")], {"x": X}, weights=ints(p=[1, 1, 1, 1], a=[1, -1]))
    refused(twice, "MDLC0115", "axes (1, -1)")


def test_pads_of_a_scalar() -> None:
    same(run(node("Pad", "x p", "y", mode="edge"), {"x": np.array(2, F)}, ints(p=[])), F(2))


def test_wrap_is_exported_from_opset_19_on() -> None:
    x = Input("x", f32[4])
    graph = Graph.of("g", [x], [apply("pad", x, pads=(1, 1), mode="wrap")])
    to_onnx(graph, 19)
    with pytest.raises(OnnxExportError, match="no mode wrap at opset 18") as caught:
        to_onnx(graph, 18)
    assert caught.value.code == "MDLC0131"


def test_tile_and_trilu() -> None:
    same(run(node("Tile", "x r", "y"), {"x": X}, ints(r=[2, 1]), 7), np.tile(X, (2, 1)))
    for k in (0, 2, -1):
        same(run(node("Trilu", "x k", "y"), {"x": X}, ints(k=k), 14), np.triu(X, k))
        lower = node("Trilu", "x k", "y", upper=0)
        same(run(lower, {"x": X}, ints(k=k), 14), np.tril(X, k))
    same(run(node("Trilu", "x k", "y"), {"x": X}, ints(k=MOST), 14), np.zeros_like(X))
    same(run(node("Trilu", "x k", "y"), {"x": X}, ints(k=LEAST), 14), X)


@pytest.mark.parametrize(
    ("start", "limit", "delta", "kind"),
    [(0, 10, 3, "i8"), (10, 0, -3, "i8"), (5, 5, 1, "i8"), (5, 0, 1, "i4"), (0, 1, 0.25, "f4"),
     (1, -1, -0.5, "f8")],
)  # fmt: skip
def test_range_is_a_constant(start: float, limit: float, delta: float, kind: str) -> None:
    weights = {n: np.array(v, kind) for n, v in (("s", start), ("l", limit), ("d", delta))}
    built = model([node("Range", "s l d", "y")], {}, weights=weights)
    graph = load_onnx(built)
    assert isinstance(graph.outputs[0], Constant)
    same(interpret(graph, [])[0], np.arange(start, limit, delta, kind))


def test_range_refused() -> None:
    def built(*given: float) -> onnx.ModelProto:
        return model([node("Range", "s l d", "y")], {}, weights=ints(**dict(zip("sld", given))))  # noqa: B905

    refused(built(0, 1, 0), "MDLC0115", "in steps of 0")
    refused(built(0, 2**40, 1), "MDLC0116", "1099511627776 elements")


def test_sizes_computed_from_shapes_are_constants() -> None:
    """FAULTS 2: Shape, Slice, Div and Concat on int64 give the shape of a Reshape."""
    nodes = [
        node("Shape", "x", "s"), node("Slice", "s zero one", "n"), node("Div", "n two", "half"),
        node("Concat", "half rest", "shape", axis=0), node("Reshape", "x shape", "y"),
    ]  # fmt: skip
    weights = ints(zero=[0], one=[1], two=[2], rest=[-1])
    same(run(nodes, {"x": X}, weights), X.reshape(2, 12))


def test_shape_needs_only_the_sizes_it_gives() -> None:
    symbolic = {"x": (TensorProto.FLOAT, ["N", 3])}
    graph = load_onnx(model([node("Shape", "x", "y", start=1)], symbolic))
    assert interpret(graph, [np.zeros((2, 3), F)])[0].tolist() == [3]


def test_constant_of_shape_with_an_empty_value() -> None:
    value = onnx.helper.make_tensor("v", TensorProto.FLOAT, [0], [])
    built = model([node("ConstantOfShape", "s", "y", value=value)], {}, weights=ints(s=[2]))
    refused(built, "MDLC0118", "one number")
