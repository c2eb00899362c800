"""`to_onnx`: valid models, the same graph back, refusals with a reason. Single ops: tests/ops."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

from minidlc.expr.types import TensorType, bf16, f32, f64, i32, u8
from minidlc.frontend.onnx import load_onnx, to_onnx
from minidlc.graph import Constant, Fused, Graph, Input, apply, difference, getitem, interpret
from minidlc.support.errors import OnnxExportError, OptionError


def graph(*outputs: object, inputs: list[Input]) -> Graph:
    return Graph.of("g", inputs, outputs)  # type: ignore[arg-type]


def unary(name: str, type: TensorType = f32[2, 3], **attributes: object) -> Graph:
    x = Input("x", type)
    return graph(apply(name, x, **attributes), inputs=[x])


def grouped() -> Graph:
    x, scale, bias = Input("x", f32["N", 4, 3]), Input("scale", f32[4]), Input("bias", f32[4])
    y = apply("group_norm", x, scale, bias, num_groups=2)
    return graph(y, inputs=[x, scale, bias])


GROUPED = grouped()


def test_a_chain_comes_back_equal() -> None:
    x = Input("x", f32["N", 4])
    w = Constant("w", np.ones((4, 3), np.float32))
    y = apply("softmax", apply("relu", x @ w + 1.0), axis=1)
    g = graph(y, apply("sum", y, axes=(1,), keepdims=False), inputs=[x])
    model = to_onnx(g)
    onnx.checker.check_model(model, full_check=True)
    assert [i.name for i in model.graph.input] == ["x"]
    assert model.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "N"
    assert difference(g, load_onnx(model)) is None


def test_fused_groups_are_written_as_their_ops() -> None:
    a = Input("a", f32[3])
    total = apply("add", a, a)
    body = Graph.of("body", [a], [total, apply("relu", total)])
    x = Input("x", f32[3])
    pair = apply("fused", x, body=body)
    assert isinstance(pair.op, Fused)
    g = graph(getitem(pair, 1), getitem(pair, 0), inputs=[x])
    model = to_onnx(g)
    assert [n.op_type for n in model.graph.node] == ["Add", "Relu"]
    array = np.array([-1, 0, 2], np.float32)
    for got, wanted in zip(
        interpret(load_onnx(model), [array]), interpret(g, [array]), strict=True
    ):
        np.testing.assert_array_equal(got, wanted)


def test_one_value_given_out_twice() -> None:
    x = Input("x", f32[3])
    y = apply("relu", x)
    model = to_onnx(graph(y, y, inputs=[x]))
    assert len({o.name for o in model.graph.output}) == 2
    got = interpret(load_onnx(model), [np.array([-1, 0, 2], np.float32)])
    np.testing.assert_array_equal(got[0], got[1])


@pytest.mark.parametrize("opset", [13, 17, 18, 21])
def test_reductions_at_several_opsets(opset: int) -> None:
    for name in ("sum", "mean", "max", "prod", "reduce_l1", "reduce_log_sum_exp"):
        for attributes in ({"axes": (1,)}, {"axes": None}, {"axes": (0,), "keepdims": False}):
            g = unary(name, **attributes)
            assert difference(g, load_onnx(to_onnx(g, opset))) is None


@pytest.mark.parametrize(
    ("op", "type", "attributes"),
    [("transpose", f32[()], {"perm": ()}), ("pad", f32[()], {"pads": ()})],
)
def test_empty_lists_have_a_type(op: str, type: TensorType, attributes: dict[str, Any]) -> None:
    x = Input("x", type)
    inputs = (x, Constant("v", np.float32(1))) if op == "pad" else (x,)
    g = graph(apply(op, *inputs, **attributes), inputs=[x])
    for opset in (9, 17, 21):
        model = to_onnx(g, opset)
        onnx.checker.check_model(model, full_check=True)
        array = np.ones(type.dims, np.float32)
        np.testing.assert_array_equal(
            interpret(load_onnx(model), [array])[0], interpret(g, [array])[0]
        )


def test_names_that_clash_are_made_unique() -> None:
    x = Input("x", f32[2])
    y = apply("add", apply("relu", apply("relu", x)), Constant("x", np.ones(2, np.float32)))
    g = graph(y, inputs=[x])
    assert difference(g, load_onnx(to_onnx(g))) is None


@pytest.mark.parametrize(
    ("built", "opset", "message"),
    [
        (unary("gelu"), 19, "gelu: ONNX has no Gelu at opset 19"),
        (unary("sin", bf16[2]), 20, "sin: Sin at opset 20 takes no bf16 as input 0"),
        (unary("bitwise_not", u8[2]), 17, "bitwise_not: ONNX has no BitwiseNot at opset 17"),
        (unary("relu", i32[2]), 13, "Relu at opset 13 takes no i32"),
        (unary("reshape", f32[0, 3], shape=(0, 2)), 13, "allowzero, which opset 14 brought"),
        (GROUPED, 20, "a scale for each channel needs opset 21, got opset 20"),
        (unary("mean_variance_normalization", f64[2, 3], axes=(1,)), 20, "float32 constants"),
    ],
    ids=["gelu", "sin", "bitwise_not", "relu", "reshape", "group_norm", "mean_variance"],
)
def test_what_an_opset_has_not(built: Graph, opset: int, message: str) -> None:
    with pytest.raises(OnnxExportError) as caught:
        to_onnx(built, opset)
    assert caught.value.code == "MDLC0131"
    assert message in caught.value.message
    assert caught.value.loc is not None


def test_dilated_average_pools_are_younger_than_opset_18() -> None:
    x = Input("x", f32[1, 1, 9])
    y = apply("average_pool", x, kernel_shape=(2,), dilations=(3,))
    with pytest.raises(OnnxExportError, match="AveragePool has no dilations at opset 18"):
        to_onnx(graph(y, inputs=[x]), 18)
    assert difference(graph(y, inputs=[x]), load_onnx(to_onnx(graph(y, inputs=[x]), 19))) is None


@pytest.mark.parametrize("opset", [6, 999])
def test_opsets_outside_the_range(opset: int) -> None:
    with pytest.raises(OptionError, match=f"opset {opset} is outside 7 to") as caught:
        to_onnx(unary("relu"), opset)
    assert caught.value.code == "MDLC1017"
