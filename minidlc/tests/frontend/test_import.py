"""What the importer makes of single nodes: opsets, attributes that became inputs, names."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from minidlc.frontend.onnx import OnnxNode, load_onnx, onnx_op, registry
from minidlc.graph import Value, apply, interpret
from minidlc.support.errors import CompileError
from minidlc.support.extension import counting, use
from minidlc.support.locations import OnnxLoc
from minidlc.tests.frontend.helpers import F, model, node, run

X = np.arange(24, dtype=F).reshape(2, 3, 4)
I64 = np.int64


def same(got: Any, wanted: Any) -> None:
    np.testing.assert_allclose(got, np.asarray(wanted), rtol=1e-6)
    assert got.shape == np.shape(wanted)


# --- attributes that became inputs, meanings that changed ---


@pytest.mark.parametrize(
    ("opset", "right"), [(7, 1 / 12), (11, 1 / 12), (12, 1 / 12), (13, 0.25), (20, 0.25)]
)
def test_softmax_before_opset_13_is_of_two_dimensions(opset: int, right: float) -> None:
    # FAULTS 71; onnx.reference has opset 11 wrong
    y = run(node("Softmax", "x", "y"), {"x": np.zeros((2, 3, 4), F)}, opset=opset)
    same(y, np.full((2, 3, 4), right))
    y = run(node("LogSoftmax", "x", "y"), {"x": np.zeros((2, 3, 4), F)}, opset=opset)
    same(y, np.full((2, 3, 4), np.log(right)))


@pytest.mark.parametrize(("axis", "right"), [(0, 1 / 24), (-1, 0.25), (2, 0.25)])
def test_softmax_11_axes(axis: int, right: float) -> None:
    y = run(node("Softmax", "x", "y", axis=axis), {"x": np.zeros((2, 3, 4), F)}, opset=11)
    same(y, np.full((2, 3, 4), right))


def test_softmax_11_has_no_axis_1_of_one() -> None:
    with pytest.raises(CompileError, match="axis 1 is outside"):
        run(node("Softmax", "x", "y"), {"x": np.zeros(3, F)}, opset=11)


@pytest.mark.parametrize(("opset", "kind"), [(7, F), (9, F), (10, np.bool_), (20, np.bool_)])
def test_the_mask_of_a_dropout(opset: int, kind: Any) -> None:
    mask = run(node("Dropout", "x", "_ y"), {"x": np.zeros((2, 3), F)}, opset=opset)
    same(mask, np.ones((2, 3), kind))
    assert mask.dtype == kind


@pytest.mark.parametrize("opset", [8, 11, 12])
def test_axes_as_attributes(opset: int) -> None:
    same(run(node("ReduceSum", "x", "y", axes=[1]), {"x": X}, opset=opset), X.sum(1, keepdims=True))
    same(run(node("Unsqueeze", "x", "y", axes=[0]), {"x": X}, opset=opset), X[None])
    y = run(node("Squeeze", "x", "y", axes=[1]), {"x": X[:, :1]}, opset=opset)
    same(y, X[:, 0])


@pytest.mark.parametrize("opset", [13, 18, 20])
def test_axes_as_inputs(opset: int) -> None:
    axes = {"a": np.array([1], I64)}
    same(run(node("ReduceSum", "x a", "y"), {"x": X}, axes, opset), X.sum(1, keepdims=True))
    same(run(node("Unsqueeze", "x a", "y"), {"x": X}, axes, opset), X[:, None])
    same(run(node("Squeeze", "x a", "y"), {"x": X[:, :1]}, axes, opset), X[:, 0])
    same(run(node("Squeeze", "x", "y"), {"x": X[:1]}, None, opset), X[0])


def test_reduction_axes_moved_at_opset_18() -> None:
    # FAULTS 75: shape (2, 1), not (1, 1)
    ones, axes = np.ones((2, 3), F), {"a": np.array([1], I64)}
    same(run(node("ReduceL1", "x a", "y"), {"x": ones}, axes, 18), [[3], [3]])
    same(run(node("ReduceL1", "x", "y", axes=[1]), {"x": ones}, None, 13), [[3], [3]])
    same(run(node("ReduceMean", "x a", "y"), {"x": ones}, axes, 18), [[1], [1]])


def test_noop_with_empty_axes_keeps_the_shape() -> None:
    # FAULTS 77
    empty = {"a": np.array([], I64)}
    x = np.array([1, 2], F)
    noop = node("ReduceMean", "x a", "y", noop_with_empty_axes=1, keepdims=0)
    same(run(noop, {"x": x}, empty, 18), x)
    same(run(node("ReduceMean", "x a", "y", keepdims=0), {"x": x}, empty, 18), 1.5)
    same(run(node("ReduceMean", "x", "y"), {"x": x}, None, 18), [1.5])


def test_clip() -> None:
    # FAULTS 80, 32; opset 6 in test_legacy.py
    x = np.array([-1, 5, np.nan], F)
    same(run(node("Clip", "x", "y", min=0.0, max=3.0), {"x": x}, opset=6 + 1), [0, 3, np.nan])
    low, high = {"lo": F(0)}, {"hi": F(3)}
    same(run(node("Clip", "x lo hi", "y"), {"x": x}, low | high, 13), [0, 3, np.nan])
    same(run(node("Clip", "x _ hi", "y"), {"x": x}, high, 13), [-1, 3, np.nan])
    same(run(node("Clip", "x lo", "y"), {"x": x}, low, 13), [0, 5, np.nan])
    same(run(node("Clip", "x", "y"), {"x": x}, None, 13), x)
    same(run(node("Clip", "x lo hi", "y"), {"x": x}, low | {"hi": F(np.nan)}), [np.nan] * 3)
    same(run(node("Clip", "x lo hi", "y"), {"x": x}, low | {"hi": F(np.inf)}), [0, 5, np.nan])
    same(run(node("Clip", "x lo hi", "y"), {"x": x, "lo": F(1), "hi": F(4)}), [1, 4, np.nan])


def test_batch_normalization_is_inference() -> None:
    # FAULTS 79; also where opset 9 has no training_mode
    weights = {"s": F([1]), "b": F([0]), "m": F([3]), "v": F([4])}
    bn = node("BatchNormalization", "x s b m v", "y", epsilon=0.0, momentum=0.9)
    for opset in (9, 14, 15):
        same(run(bn, {"x": F([[5]])}, weights, opset), [[1]])


def test_dropout_is_nothing() -> None:
    same(run(node("Dropout", "x", "y", ratio=0.9), {"x": X}, opset=7), X)
    weights = {"r": F(0.9), "t": np.array(False)}
    same(run(node("Dropout", "x r t", "y"), {"x": X}, weights, 13), X)


@pytest.mark.parametrize(
    ("wanted", "allowzero", "shape", "right"),
    [
        ([0, -1], 0, (2, 3, 4), (2, 12)),
        ([-1, 0], 0, (2, 3, 4), (8, 3)),
        ([4, 6], 0, (2, 3, 4), (4, 6)),
        ([0, 3], 1, (0, 3), (0, 3)),
        ([3, 0], 1, (0, 3), (3, 0)),
        ([0, 3], 0, (0, 3), (0, 3)),
    ],
)
def test_reshape(
    wanted: list[int], allowzero: int, shape: tuple[int, ...], right: tuple[int, ...]
) -> None:
    # FAULTS 52
    attributes = {"allowzero": 1} if allowzero else {}
    weights = {"s": np.array(wanted, I64)}
    y = run(node("Reshape", "x s", "y", **attributes), {"x": np.zeros(shape, F)}, weights)
    assert y.shape == right


def test_shapes_may_be_computed_from_constants_and_shapes() -> None:
    nodes = [
        node("Shape", "x", "s", start=0, end=1),
        node("Constant", "", "m", value_ints=[-1]),
        node("Concat", "s m", "t", axis=0),
        node("Reshape", "x t", "y"),
    ]
    assert run(nodes, {"x": X}).shape == (2, 12)
    nodes = [
        node("Size", "x", "n"),
        node("Constant", "", "two", value_int=2),
        node("Div", "n two", "half"),
        node("Unsqueeze", "half zero", "h"),
        node("Concat", "two1 h", "t", axis=0),
        node("Reshape", "x t", "y"),
    ]
    weights = {"zero": np.array([0], I64), "two1": np.array([2], I64)}
    assert run(nodes, {"x": X}, weights).shape == (2, 12)


# --- windows ---


def test_same_padding_counts_the_dilated_kernel() -> None:
    # FAULTS 64
    conv = node("Conv", "x w", "y", auto_pad="SAME_UPPER", dilations=[2], kernel_shape=[3])
    y = run(conv, {"x": np.ones((1, 1, 7), F)}, {"w": np.ones((1, 1, 3), F)})
    same(y, [[[2, 2, 3, 3, 3, 2, 2]]])


@pytest.mark.parametrize("mode", ["SAME_UPPER", "SAME_LOWER", "VALID", "NOTSET"])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("size", [6, 7])
def test_auto_pad_against_onnxruntime(mode: str, stride: int, size: int) -> None:
    ort = pytest.importorskip("onnxruntime")
    x = np.arange(size * size, dtype=F).reshape(1, 1, size, size)
    weights = {"w": np.arange(6, dtype=F).reshape(1, 1, 3, 2)}
    attributes = {"auto_pad": mode, "strides": [stride, stride], "kernel_shape": [3, 2]}
    for op, names, given in (
        ("Conv", "x w", weights),
        ("MaxPool", "x", {}),
        ("AveragePool", "x", {}),
    ):
        built = model([node(op, names, "y", **attributes)], {"x": x}, weights=given, opset=17)
        built.graph.output[0].type.tensor_type.elem_type = TensorProto.FLOAT
        (right,) = ort.InferenceSession(built.SerializeToString()).run(None, {"x": x})
        same(interpret(load_onnx(built), [x])[0], right)


def test_same_padding_of_a_symbolic_size() -> None:
    # FAULTS 145: MaxPool k 2, s 1 of a width that is not known
    pool = node("MaxPool", "x", "y", auto_pad="SAME_UPPER", kernel_shape=[2, 2])
    graph = load_onnx(model([pool], {"x": (TensorProto.FLOAT, ["N", 3, 48, "W"])}))
    assert str(graph.outputs[0].type) == 'f32["N", 3, 48, "W"]'
    for width in (5, 8):
        x = np.random.default_rng(0).standard_normal((2, 3, 48, width)).astype(F)
        assert interpret(graph, [x])[0].shape == x.shape


# --- ops without a twin ---


def test_variadic_ops() -> None:
    a, b, c = F([1, 5]), F([2, 2]), F([3, 1])
    feeds = {"a": a, "b": b, "c": c}
    same(run(node("Max", "a b c", "y"), feeds), [3, 5])
    same(run(node("Min", "a b c", "y"), feeds), [1, 1])
    same(run(node("Sum", "a b c", "y"), feeds), [6, 8])
    same(run(node("Mean", "a b c", "y"), feeds), [2, 8 / 3])
    same(run(node("Max", "a", "y"), {"a": a}), a)


def test_thresholded_relu_is_0_of_all_that_is_not_above() -> None:
    x = F([np.nan, -np.inf, np.inf, -2, 1, 2])
    y = run(node("ThresholdedRelu", "x", "y"), {"x": x})
    same(y, [0, 0, np.inf, 0, 0, 2])
    assert not np.signbit(y).any()


def test_prelu_broadcasts_from_the_right() -> None:
    # FAULTS 41
    same(run(node("PRelu", "x s", "y"), {"x": F([-1, 2])}, {"s": F([0.25])}), [-0.25, 2])


@pytest.mark.parametrize(
    ("op", "attributes"),
    [
        ("Selu", {}), ("Celu", {"alpha": 0.5}), ("ThresholdedRelu", {"alpha": 0.7}), ("Mish", {}),
        ("Celu", {"alpha": -0.5}),
        ("ReduceL2", {}), ("ReduceLogSum", {}), ("ReduceLogSumExp", {}), ("ReduceSumSquare", {}),
        ("ReduceLogSumExp", {"keepdims": 0}), ("LeakyRelu", {}), ("Elu", {"alpha": 0.3}),
        ("HardSigmoid", {}), ("HardSigmoid", {"alpha": 0.3, "beta": 0.1}), ("Gelu", {}),
        ("Gelu", {"approximate": "tanh"}), ("Swish", {}), ("Swish", {"alpha": 0.5}),
    ],
)  # fmt: skip
def test_against_the_reference_evaluator(op: str, attributes: dict[str, Any]) -> None:
    from onnx.reference import ReferenceEvaluator

    x = np.linspace(0.1, 3, 12, dtype=F).reshape(3, 4) - (0 if "Log" in op else 1.5)
    x = x.astype(F)
    built = model([node(op, "x", "y", **attributes)], {"x": x}, opset=24)
    (right,) = ReferenceEvaluator(built).run(None, {"x": x})
    np.testing.assert_allclose(interpret(load_onnx(built), [x])[0], right, rtol=2e-5, atol=1e-6)


def test_log_sum_exp_does_not_overflow() -> None:
    x = F([[1000, 1000], [-np.inf, 0], [np.inf, 0]])
    axes = {"a": np.array([1], I64)}
    y = run(node("ReduceLogSumExp", "x a", "y", keepdims=0), {"x": x}, axes)
    same(y, [1000 + np.log(2), 0, np.inf])


def test_cast_and_bit_shift_and_is_inf() -> None:
    cast = node("Cast", "x", "y", to=TensorProto.INT8)
    same(run(cast, {"x": F([300, np.nan, -3.7])}), np.int8([127, 0, -3]))
    shift = node("BitShift", "x s", "y", direction="RIGHT")
    same(run(shift, {"x": np.uint8([16, 255])}, {"s": np.uint8([4, 7])}), np.uint8([1, 1]))
    only = node("IsInf", "x", "y", detect_negative=0)
    same(run(only, {"x": F([np.inf, -np.inf, 1])}), [True, False, False])


def test_modulo_of_negative_numbers() -> None:
    # FAULTS 1
    weights = {"a": np.array([-5], I64), "b": np.array([3], I64)}
    same(run(node("Mod", "a b", "y", fmod=0), {}, weights), [1])
    same(run(node("Mod", "a b", "y", fmod=1), {}, {"a": F([-5.5]), "b": F([3])}), [-2.5])


@pytest.mark.parametrize(
    "attributes",
    [
        {"value": helper.make_tensor("t", TensorProto.FLOAT, [2], [1.0, 2.0])},
        {"value_floats": [1.0, 2.0]},
    ],
)
def test_constants(attributes: dict[str, Any]) -> None:
    same(run(node("Constant", "", "y", **attributes), {}), F([1, 2]))


def test_constant_of_shape() -> None:
    shape = {"s": np.array([2, 2], I64)}
    same(run(node("ConstantOfShape", "s", "y"), {}, shape), np.zeros((2, 2), F))
    value = helper.make_tensor("t", TensorProto.INT32, [1], [7])
    y = run(node("ConstantOfShape", "s", "y", value=value), {}, shape)
    same(y, np.full((2, 2), 7, np.int32))
    assert y.dtype == np.int32


def test_local_functions_are_inlined() -> None:
    text = """
    <ir_version: 9, opset_import: ["" : 20, "local" : 1]>
    agraph (float[3] x) => (float[3] y) { y = local.twice (x) }
    <domain: "local", opset_import: ["" : 20]>
    twice (a) => (b) { b = Add (a, a) }
    """
    graph = load_onnx(onnx.parser.parse_model(text))
    same(interpret(graph, [F([1, 2, 3])])[0], [2, 4, 6])


# --- graphs ---


def test_unsorted_nodes_are_sorted() -> None:
    # FAULTS 83
    nodes = [node("Exp", "h", "y"), node("Neg", "x", "h")]
    same(run(nodes, {"x": F([0, 0])}), [1, 1])


def test_nodes_that_no_output_needs_are_left_out() -> None:
    nodes = [node("Relu", "x", "y"), node("NoSuchOp", "x", "z")]
    same(run(nodes, {"x": F([-1, 2])}), [0, 2])


def test_names_become_identifiers_and_keep_their_origin() -> None:
    nodes = [
        node("Relu", "in-put.1", "/layer1/Relu_output_0", name="/layer1/Relu"),
        node("Exp", "/layer1/Relu_output_0", "class"),
    ]
    graph = load_onnx(model(nodes, {"in-put.1": F([1])}, "class"))
    assert graph.inputs[0].name == "in_put_1"
    assert graph.inputs[0].loc == OnnxLoc("test", "in-put.1", "input")
    assert graph.nodes[0].name == "layer1_Relu_output_0"
    assert graph.nodes[0].loc == OnnxLoc("test", "/layer1/Relu", "Relu")
    assert graph.nodes[1].name == "class_"


def test_shapes_by_symbol_and_by_input() -> None:
    built = model(
        [node("Add", "a b", "y")],
        {"a": (TensorProto.FLOAT, ["batch", 3]), "b": (TensorProto.FLOAT, ["batch", None])},
    )
    graph = load_onnx(built, shapes={"batch": 2, "b_1": 1})
    assert str(graph.outputs[0].type) == "f32[2, 3]"
    graph = load_onnx(built, shapes={"a": (5, 3), "b_1": 3})
    assert [str(t) for t in graph.input_types()] == ["f32[5, 3]", "f32[5, 3]"]
    relu = model([node("Relu", "a", "y")], {"a": (TensorProto.FLOAT, ["batch", 3])})
    assert str(load_onnx(relu).outputs[0].type) == 'f32["batch", 3]'


def test_symbols_that_are_no_identifiers_stay_apart() -> None:
    inputs = {"a": (TensorProto.FLOAT, ["n.1", "n_1", "?", "n.1"])}
    graph = load_onnx(model([node("Relu", "a", "y")], inputs))
    assert str(graph.outputs[0].type) == 'f32["n_1", "n_1_1", "N", "n_1"]'


def test_a_graph_may_give_out_its_input_and_a_weight() -> None:
    graph = load_onnx(model([], {"x": F([1])}, "x w", {"w": F([2])}))
    assert [o.name for o in graph.outputs] == ["x", "w"]


def test_paths_bytes_and_protos(tmp_path: Any) -> None:
    built = model([node("Relu", "x", "y")], {"x": F([1])})
    path = tmp_path / "relu.onnx"
    onnx.save(built, path)
    same_text = {str(load_onnx(s)) for s in (built, built.SerializeToString(), path, str(path))}
    assert len(same_text) == 1


def test_weights_in_a_file_beside_the_model(tmp_path: Any) -> None:
    weights = {"w": np.arange(1000, dtype=F)}
    built = model([node("Add", "x w", "y")], {"x": np.zeros(1000, F)}, weights=weights)
    onnx.save_model(
        built, tmp_path / "m.onnx", save_as_external_data=True, location="m.bin", size_threshold=0
    )
    graph = load_onnx(tmp_path / "m.onnx")
    same(interpret(graph, [np.zeros(1000, F)])[0], weights["w"])


# --- extension ---


def test_a_converter_of_the_readers_own() -> None:
    @onnx_op("TimesTwo")
    def times_two(node: OnnxNode, x: Value) -> Value:
        return apply("mul", x, node.attr_float("by", 2.0))

    try:
        same(run(node("TimesTwo", "x", "y", by=3.0), {"x": F([1, 2])}), [3, 6])
    finally:
        registry._converters.pop("TimesTwo")


def test_a_converter_can_be_replaced_for_a_block() -> None:
    def leaky(node: OnnxNode, x: Value) -> Value:
        return apply("leaky_relu", x, alpha=0.5)

    relu = node("Relu", "x", "y")
    with counting() as counts, use(**{"onnx.Relu": leaky}):
        same(run(relu, {"x": F([-2])}), [-1])
    assert counts["onnx.Relu"] == 1
    same(run(relu, {"x": F([-2])}), [0])


def test_float_attributes_are_the_shortest_decimal() -> None:
    graph = load_onnx(model([node("LeakyRelu", "x", "y", alpha=0.1)], {"x": F([1])}))
    assert graph.nodes[0].op.attributes() == {"alpha": 0.1}


@pytest.mark.parametrize(
    ("given", "shape"), [({"x": 5}, (5,)), ({"N": 4}, (4,)), ({"x": (3,)}, (3,))]
)
def test_the_size_of_a_vector_may_be_a_number(given, shape):
    proto = vector_of_open_size()
    assert load_onnx(proto, shapes=given).inputs[0].type.dims == shape


@pytest.mark.parametrize("given", [{"N": "4"}, {"N": (4,)}, {"x": "4"}, {"x": -1}, {"q": 3}])
def test_sizes_that_are_none_are_refused(given):
    with pytest.raises(CompileError) as caught:
        load_onnx(vector_of_open_size(), shapes=given)
    assert caught.value.code == "MDLC0114"


def vector_of_open_size():
    proto = model([node("Relu", "x", "y")], {"x": np.ones(2, np.float32)}, ["y"])
    proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "N"
    return proto
