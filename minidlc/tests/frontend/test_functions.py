"""Functions: a model's own, and ops that ONNX defines as functions."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

from minidlc.frontend.onnx import load_onnx
from minidlc.graph import interpret, verify
from minidlc.support.errors import OnnxImportError
from minidlc.support.locations import OnnxLoc
from minidlc.tests.frontend.helpers import F, model, node

X = np.linspace(-1, 1, 24, dtype=F).reshape(2, 3, 4)


def with_functions(
    calls: list[onnx.NodeProto], functions: list[onnx.FunctionProto]
) -> onnx.ModelProto:
    built = model(calls, {"x": X})
    built.opset_import.append(helper.make_opsetid("mine", 1))
    built.functions.extend(functions)
    return built


def leaky(opset: int = 20) -> onnx.FunctionProto:
    """mine.Leaky(x; slope) = LeakyRelu(x, alpha=slope)."""
    body = node("LeakyRelu", "a", "b")
    kind = onnx.AttributeProto.FLOAT
    body.attribute.append(onnx.AttributeProto(name="alpha", ref_attr_name="slope", type=kind))
    opsets = [helper.make_opsetid("", opset)]
    return helper.make_function("mine", "Leaky", ["a"], ["b"], [body], opsets, ["slope"])


def twice() -> onnx.FunctionProto:
    """mine.Twice(x) = Leaky(Leaky(x, 0.5), 0.25): a function that calls another."""
    inner = [
        node("Leaky", "a", "t", domain="mine", slope=0.5),
        node("Leaky", "t", "b", domain="mine", slope=0.25),
    ]
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("mine", 1)]
    return helper.make_function("mine", "Twice", ["a"], ["b"], inner, opsets)


def test_functions_of_the_model_are_inlined_with_their_attributes() -> None:
    built = with_functions([node("Leaky", "x", "y", domain="mine", slope=0.5)], [leaky()])
    (y,) = interpret(load_onnx(built), [X])
    np.testing.assert_allclose(y, np.where(X < 0, X * 0.5, X))


def test_functions_may_call_functions() -> None:
    built = with_functions([node("Twice", "x", "y", domain="mine")], [twice(), leaky()])
    graph = load_onnx(built)
    verify(graph)
    (y,) = interpret(graph, [X])
    np.testing.assert_allclose(y, np.where(X < 0, X * 0.125, X), rtol=1e-6)


def test_a_function_of_another_opset() -> None:
    built = with_functions([node("Leaky", "x", "y", domain="mine", slope=0.5)], [leaky(17)])
    (y,) = interpret(load_onnx(built), [X])
    np.testing.assert_allclose(y, np.where(X < 0, X * 0.5, X))


EXPANDED = [
    ([node("HannWindow", "n", "y")], {"n": np.array(7)}, 17),
    ([node("CenterCropPad", "x s", "y", axes=[1, 2])], {"s": np.array([2, 6])}, 18),
    ([node("CenterCropPad", "x s", "y")], {"s": np.array([4, 1, 4])}, 18),
]


def test_functions_without_an_end_are_refused() -> None:
    opsets = [helper.make_opsetid("mine", 1)]
    there, back = (
        helper.make_function("mine", a, ["a"], ["b"], [node(b, "a", "b", domain="mine")], opsets)
        for a, b in (("There", "Back"), ("Back", "There"))
    )
    built = with_functions([node("There", "x", "y", domain="mine")], [there, back])
    with pytest.raises(OnnxImportError, match="nested deeper than 50"):
        load_onnx(built)


def test_values_keep_their_names_and_the_place_of_the_call() -> None:
    built = with_functions([node("Twice", "x", "y", domain="mine")], [twice(), leaky()])
    graph = load_onnx(built)
    assert graph.outputs[0].name == "y"
    assert {n.loc for n in graph.nodes} == {OnnxLoc("test", "Twice_y", "Twice")}


@pytest.mark.parametrize(("nodes", "weights", "opset"), EXPANDED)
def test_an_op_without_converter_is_expanded(
    nodes: list[onnx.NodeProto], weights: dict[str, np.ndarray], opset: int
) -> None:
    nodes = [*nodes, node("Relu", "x", "z")]
    built = model(nodes, {"x": X}, "y z", weights, opset)
    graph = load_onnx(built)
    verify(graph)
    right = ReferenceEvaluator(built).run(None, {"x": X})[0]
    np.testing.assert_allclose(interpret(graph, [X])[0], right, rtol=1e-6)


def test_nodes_of_an_expansion_stand_where_the_op_stood() -> None:
    built = model([node("HannWindow", "n", "y")], {"x": X}, "y", {"n": np.array(7)}, 17)
    places = {n.loc for n in load_onnx(built).nodes}
    assert places == {OnnxLoc("test", "HannWindow_y", "HannWindow")}


def test_what_an_expansion_lacks_is_named() -> None:
    nodes = [node("HannWindow", "n", "y")]
    built = model(nodes, {"n": (onnx.TensorProto.INT64, [200, 300])}, opset=17)
    with pytest.raises(OnnxImportError, match="not supported") as caught:
        load_onnx(built)
    assert "HannWindow_y" in str(caught.value)


def test_both_names_of_the_main_domain() -> None:
    hann = node("HannWindow", "n", "y", domain="ai.onnx")
    graph = load_onnx(model([hann], {"x": X}, "y", {"n": np.array(7)}, 17))
    assert graph.outputs[0].type.shape == (7,)
