"""Import and export of ops of positions and bits: old forms, what is folded, what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from minidlc.expr.types import TensorType, bf16, bool_, dtype, f32, i32, i64, u8
from minidlc.frontend.onnx import load_onnx, to_onnx
from minidlc.graph import Constant, Graph, Input, apply, interpret
from minidlc.support.errors import CompileError, OnnxExportError
from minidlc.tests.frontend.helpers import F, model, node, run

X = np.arange(12, dtype=F).reshape(3, 4)


def same(got: Any, wanted: Any) -> None:
    np.testing.assert_array_equal(got, wanted)
    assert got.dtype == np.asarray(wanted).dtype


def refused(built: onnx.ModelProto, code: str, text: str) -> None:
    with pytest.raises(CompileError) as caught:
        load_onnx(built)
    assert caught.value.code == code
    assert text in str(caught.value)


def test_scatter_is_the_old_name_of_scatter_elements() -> None:
    at, new = np.array([[1, 3]]), np.array([[1.5, 2.5]], F)
    scatter = node("Scatter", "x i u", "y", axis=1)
    wanted = X.copy()
    wanted[0, [1, 3]] = [1.5, 2.5]
    for opset in (9, 10):
        same(run(scatter, {"x": X, "i": at, "u": new}, opset=opset), wanted)


def test_gather_nd_of_i32_is_taken() -> None:
    at = np.array([[2, 3], [0, -1]], np.int32)
    same(run(node("GatherND", "x i", "y"), {"x": X, "i": at}), F([11, 3]))


@pytest.mark.parametrize("depth", [np.array(3, F), np.array([3]), np.array(3, np.uint8)])
def test_the_depth_of_one_hot_is_a_number_of_any_type(depth: Any) -> None:
    weights = {"d": depth, "v": np.array([5, 7], np.int32)}
    got = run(node("OneHot", "i d v", "y", axis=0), {"i": np.array([1, -1])}, weights)
    same(got, np.int32([[5, 5], [7, 5], [5, 7]]))


def test_before_opset_11_a_negative_index_was_nowhere() -> None:
    weights = {"d": np.array(3), "v": F([0, 1])}
    one_hot = node("OneHot", "i d v", "y")
    for kind in (np.int64, F):
        inputs = {"i": np.array([1, -1], kind)}
        same(run(one_hot, inputs, weights, opset=9), F([[0, 1, 0], [0, 0, 0]]))
        same(run(one_hot, inputs, weights, opset=11), F([[0, 1, 0], [0, 0, 1]]))


def test_one_hot_refused() -> None:
    inputs, values = {"i": np.array([1])}, F([0, 1])
    for depth, text in (([3, 4], "depth must be one number"), (np.inf, "got inf")):
        weights = {"d": np.array(depth, F), "v": values}
        refused(model([node("OneHot", "i d v", "y")], inputs, weights=weights), "MDLC0115", text)


@pytest.mark.parametrize(
    ("attributes", "condition", "wanted"),
    [
        ({"axis": 0}, [0, 1, 1], X[1:]), ({"axis": -1}, [1, 0, 1], X[:, [0, 2]]),
        ({}, [0, 1, 0, 0, 0, 1], F([1, 5])), ({"axis": 1}, [0, 0], X[:, :0]),
    ],
)  # fmt: skip
def test_compress(attributes: Any, condition: Any, wanted: Any) -> None:
    weights = {"c": np.array(condition, bool)}
    same(run(node("Compress", "x c", "y", **attributes), {"x": X}, weights), wanted)


def test_compress_refused() -> None:
    computed = [node("Greater", "x z", "b"), node("Compress", "x b", "y")]
    inputs, zero = {"x": np.zeros((2, 2), F)}, {"z": F(0)}
    refused(model(computed, inputs, weights=zero), "MDLC0116", "'condition' is computed at run")
    for attributes, condition, text in (
        ({"axis": 0}, [1] * 4, "at most 3 bools, got bool[4]"), ({"axis": 2}, [1], "[-2, 1]"),
        ({}, [[True]], "bool[1, 1]"),
    ):  # fmt: skip
        weights = {"c": np.array(condition, bool)}
        compress = node("Compress", "x c", "y", **attributes)
        refused(model([compress], {"x": X}, weights=weights), "MDLC0115", text)
    weights = {"c": np.array([True])}
    symbolic = {"x": (TensorProto.FLOAT, ["N"])}
    refused(
        model([node("Compress", "x c", "y")], symbolic, weights=weights), "MDLC0116", "not know"
    )


def test_what_depends_on_data_is_refused_unless_it_is_constant() -> None:
    given = np.array([[3, 0, 3], [0, 5, 0]], F)
    for op, wanted in (
        ("NonZero", np.array([[0, 0, 1], [0, 2, 1]])), ("Unique", F([0, 3, 5])),
    ):  # fmt: skip
        refused(model([node(op, "x", "y")], {"x": given}), "MDLC0116", "size of the result depends")
        same(run(node(op, "x", "y"), {}, {"x": given}), wanted)
    same(run(node("NonZero", "x", "y"), {}, {"x": np.array(2.0, F)}), np.array([[0]]))


@pytest.mark.parametrize("attributes", [{}, {"sorted": 0}, {"axis": 1}, {"axis": -2, "sorted": 0}])
def test_unique_of_a_constant(attributes: Any) -> None:
    x = np.array([[2, 1, 2], [3, 1, 3], [2, 1, 2]], F)
    unique = node("Unique", "x", "y first which counts", **attributes)
    graph = load_onnx(model([unique], {}, "y first which counts", {"x": x}))
    values, first, which, counts = interpret(graph, [])
    axis = attributes.get("axis")
    flat = x.reshape(-1) if axis is None else x
    same(np.take(values, which, axis or 0), flat)
    same(np.take(flat, first, axis or 0), values)
    assert counts.tolist() == np.bincount(which).tolist()
    if not attributes.get("sorted", 1):
        assert first.tolist() == sorted(first)


def test_eye_like() -> None:
    x = np.zeros((3, 4), np.int32)
    same(run(node("EyeLike", "x", "y"), {"x": x}), np.eye(3, 4, dtype=np.int32))
    same(run(node("EyeLike", "x", "y", dtype=1, k=-1), {"x": x}), np.eye(3, 4, -1, F))
    same(run(node("EyeLike", "x", "y", k=2**40), {"x": x}), np.zeros((3, 4), np.int32))
    refused(model([node("EyeLike", "x", "y")], {"x": x[0]}), "MDLC0115", "takes a matrix")
    symbolic = {"x": (TensorProto.FLOAT, ["N", 3])}
    refused(model([node("EyeLike", "x", "y")], symbolic), "MDLC0116", "not known")
    large = {"x": (TensorProto.FLOAT, [2**13, 2**13])}
    refused(model([node("EyeLike", "x", "y")], large), "MDLC0116", "at most 16777216 elements")


def test_mod_of_floats_before_and_since_opset_28() -> None:
    a, b = F([-4.3, 7.2, 5]), F([2.1, -3.4, np.inf])
    for opset, attributes, function in ((13, {"fmod": 1}, np.fmod), (28, {}, np.mod)):
        mod = node("Mod", "a b", "y", **attributes)
        same(run(mod, {"a": a, "b": b}, opset=opset), function(a, b))
    refused(model([node("Mod", "a b", "y")], {"a": a, "b": b}), "MDLC0115", "fmod=1 at opset 20")


def test_shrink() -> None:
    x = F([-2, -1.5, -0.5, 0, 1, 1.6, np.nan])
    shrink = node("Shrink", "x", "y", lambd=1.5, bias=0.5)
    same(run(shrink, {"x": x}), F([-1.5, 0, 0, 0, 0, F(1.6) - F(0.5), 0]))
    same(run(shrink, {"x": np.array([-3, 1, 2, 3])}), np.array([-2, 0, 1, 2]))


def graph_of(op: str, *types: TensorType, **attributes: Any) -> Graph:
    inputs = [Input(f"x{n}", type) for n, type in enumerate(types)]
    return Graph.of("g", inputs, [apply(op, *inputs, **attributes)])


def op_types(graph: Graph, opset: int | None = None) -> list[str]:
    return [n.op_type for n in to_onnx(graph, opset).graph.node]


def test_positions_of_i32_are_cast_where_onnx_takes_i64() -> None:
    x, row = f32[3, 4], i32[1]
    assert op_types(graph_of("gather", x, i32[2])) == ["Gather"]
    assert op_types(graph_of("gather_nd", x, i32[2, 1])) == ["Cast", "GatherND"]
    assert op_types(graph_of("scatter_nd", x, i32[2, 1], f32[2, 4])) == ["Cast", "ScatterND"]
    assert op_types(graph_of("reverse_sequence", x, i32[4])) == ["Cast", "ReverseSequence"]
    written = op_types(graph_of("tensor_scatter", f32[1, 3, 4], f32[1, 2, 4], row))
    assert written == ["Cast", "TensorScatter"]


def test_export_to_old_opsets() -> None:
    scatter = graph_of("scatter_elements", f32[3], i64[2], f32[2])
    assert op_types(scatter, 10) == ["Scatter"]
    one_hot = graph_of("one_hot", u8[2], f32[2], depth=3)
    assert op_types(one_hot, 9) == ["OneHot"]


@pytest.mark.parametrize(
    ("graph", "opset", "text"),
    [
        (graph_of("scatter_elements", f32[3], i64[2], f32[2], reduction="max"), 17, "opset 18"),
        (graph_of("scatter_nd", f32[3], i64[2, 1], f32[2], reduction="min"), 16, "opset 18"),
        (graph_of("scatter_nd", f32[3], i64[2, 1], f32[2], reduction="add"), 15, "no reduction"),
        (graph_of("one_hot", i64[2], f32[2], depth=3), 10, "from the end needs opset 11"),
        (graph_of("mod", f32[3], f32[3]), 27, "fmod=False on floats needs opset 28"),
        (graph_of("shift_left", i32[3], i32[3]), 27, "opset 28 does"),
        (graph_of("bit_cast", bf16[3], to=dtype("i16")), 25, "opset 26 brought it"),
        (graph_of("gather_nd", bool_[3, 2], i64[3, 1], batch_dims=1),
         11, "no batch_dims"),
    ],
)  # fmt: skip
def test_what_an_opset_cannot_say_is_refused(graph: Graph, opset: int, text: str) -> None:
    with pytest.raises(OnnxExportError) as caught:
        to_onnx(graph, opset)
    assert caught.value.code == "MDLC0131"
    assert text in str(caught.value)


def test_folded_values_are_constants() -> None:
    graph = load_onnx(model([node("EyeLike", "x", "y")], {"x": X}))
    assert isinstance(graph.outputs[0], Constant)


def test_a_size_gathered_from_a_shape_is_a_constant() -> None:
    """FAULTS 2: Shape, Gather and Div on int64 give the bound of a Slice."""
    nodes = [
        node("Shape", "x", "s"), node("Gather", "s zero", "n"), node("Div", "n three", "third"),
        node("Slice", "x first third", "y"),
    ]  # fmt: skip
    weights = {"zero": np.array([0]), "three": np.array([3]), "first": np.array([0])}
    x = np.arange(386, dtype=F)
    same(run(nodes, {"x": x}, weights), x[:128])
