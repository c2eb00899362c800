"""`to_onnx` at old opsets: the same values, or a refusal with the reason. Never another meaning."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import pytest

import minidlc.ops  # noqa: F401  fills the registry
from minidlc.expr.types import TensorType, bf16, f32, f64, i8, i64
from minidlc.frontend.onnx import NodeWriter, export_registry, load_onnx, onnx_export, to_onnx
from minidlc.frontend.onnx.export import DEFAULT_OPSET
from minidlc.graph import (
    Constant,
    Graph,
    Input,
    apply,
    interpret,
    register_op,
    registered_ops,
    unregister_op,
)
from minidlc.ops.elementwise import Unary
from minidlc.support.errors import OnnxExportError, OnnxImportError
from minidlc.tests.frontend.helpers import model, node
from minidlc.tests.ops import checks

F = np.float32
X = np.random.default_rng(7).standard_normal((2, 3, 4)).astype(F)
OLD = (7, 9, 11, 12, 17)


def graph(name: str, type: TensorType = f32[2, 3, 4], **attributes: Any) -> Graph:
    x = Input("x", type)
    return Graph.of("g", [x], [apply(name, x, **attributes)])


def opset(exported: onnx.ModelProto) -> int:
    return exported.opset_import[0].version


def in_runtime(exported: onnx.ModelProto, array: Any) -> Any:
    """What ONNX Runtime, which knows the old opsets, computes."""
    ort = pytest.importorskip("onnxruntime")
    options = ort.SessionOptions()
    options.log_severity_level = 4
    session = ort.InferenceSession(exported.SerializeToString(), options)
    return session.run(None, {"x": array})[0]


@pytest.mark.parametrize("name", [n for n in registered_ops() if n != "getitem"])
def test_every_op_at_old_opsets(name: str) -> None:
    """The first example of each op: what is written means the same, or nothing is written."""
    example = next(iter(registered_ops()[name].examples()))
    for version in OLD:
        try:
            exported = to_onnx(checks.graph_of(example), version)
        except OnnxExportError:
            continue
        assert opset(exported) == version
        back = interpret(load_onnx(exported), checks.given(example))
        checks.assert_close(back, checks.reference(example), 1e-6, 1e-6)


@pytest.mark.parametrize("op_type", ["Softmax", "LogSoftmax"])
@pytest.mark.parametrize("axis", [0, 1, 2, -2])
def test_73_a_softmax_of_one_axis_before_opset_13(op_type: str, axis: int) -> None:
    """FAULTS 73: opset 12 means all axes from `axis` on; transposes make it one."""
    newer = load_onnx(model([node(op_type, "x", "y", axis=axis)], {"x": X}, opset=13))
    older = to_onnx(newer, 12)
    wanted = interpret(newer, [X])[0]
    kinds = [n.op_type for n in older.graph.node]
    inner = ["Transpose", op_type, "Transpose"]
    assert kinds == (inner if axis in (0, 1, -2) else [op_type])
    np.testing.assert_allclose(interpret(load_onnx(older), [X])[0], wanted, rtol=1e-6)
    np.testing.assert_allclose(in_runtime(older, X), wanted, rtol=1e-5)


def test_74_an_old_softmax_of_unknown_rank_is_refused_until_the_shape_is_given() -> None:
    """FAULTS 74: what opset 11 flattens depends on the rank; then opset 13 says the same."""
    old = model([node("Softmax", "x", "y")], {"x": (onnx.TensorProto.FLOAT, None)}, opset=11)
    with pytest.raises(OnnxImportError, match="not declared, not even its rank") as caught:
        load_onnx(old)
    assert caught.value.hint == "give it: shapes={'x': (1, 3, 224, 224)}"
    flattened = load_onnx(old, shapes={"x": (2, 3, 4)})
    newer = to_onnx(flattened, 13)
    zeros = np.zeros((2, 3, 4), F)
    np.testing.assert_allclose(in_runtime(newer, zeros), np.full((2, 3, 4), 1 / 12, F), rtol=1e-6)


def test_without_an_opset_it_is_20_or_the_first_that_has_the_ops() -> None:
    assert opset(to_onnx(graph("relu"))) == DEFAULT_OPSET == 20
    x, scale = Input("x", f32[2, 3]), Input("scale", f32[3])
    rms = Graph.of("g", [x, scale], [apply("rms_norm", x, scale)])
    assert opset(to_onnx(rms)) == 23
    with pytest.raises(OnnxExportError, match="no RMSNormalization at opset 20") as caught:
        to_onnx(rms, 20)
    assert caught.value.hint == "opset 23 brought it"


def test_what_no_opset_can_say() -> None:
    with pytest.raises(OnnxExportError, match=r"ReduceMean at opset \d+ takes no i8") as caught:
        to_onnx(graph("mean", i8[2]))
    assert caught.value.hint == "use cast"


def test_bounds_of_clip_as_attributes() -> None:
    """Before opset 11 a bound left out was the largest finite number, and min <= max."""
    array = np.array([-np.inf, -3, 0, 1.5, 9, np.inf, np.nan], F)
    for low, high in ((None, 2.0), (-1.0, None), (None, None), (2.0, 1.0)):
        g = graph("clip", f32[7], min=low, max=high)
        exported = to_onnx(g, 10)
        np.testing.assert_array_equal(in_runtime(exported, array), interpret(g, [array])[0])
    with pytest.raises(OnnxExportError, match="bounds are float32 before opset 11"):
        to_onnx(graph("clip", f64[7], max=0.1), 10)


@pytest.mark.parametrize(
    ("name", "attributes", "op_type", "stated"),
    [
        ("max", {"axes": (-1,)}, "ReduceMax", (2,)),
        ("sum", {"axes": (-3, -1)}, "ReduceSum", (0, 2)),
        ("unsqueeze", {"axes": (-1,)}, "Unsqueeze", (3,)),
        ("slice", {"starts": (1,), "ends": (9,), "axes": (-2,)}, "Slice", (1,)),
    ],
)
def test_no_axis_is_negative_before_opset_11(
    name: str, attributes: dict[str, Any], op_type: str, stated: tuple[int, ...]
) -> None:
    g = graph(name, **attributes)
    exported = to_onnx(g, 9)
    (written,) = exported.graph.node
    axes = next(a for a in written.attribute if a.name == "axes")
    assert (written.op_type, tuple(axes.ints)) == (op_type, stated)
    np.testing.assert_allclose(in_runtime(exported, X), interpret(g, [X])[0], rtol=1e-6)


def test_a_sum_over_no_axes_is_no_sum_over_all() -> None:
    """Empty axes meant all of them, until noop_with_empty_axes."""
    for name in ("sum", "mean", "max"):
        exported = to_onnx(graph(name, axes=()), 12)
        np.testing.assert_array_equal(interpret(load_onnx(exported), [X])[0], X)
    with pytest.raises(OnnxExportError, match="empty list of axes means all of them before"):
        to_onnx(graph("reduce_l2", axes=()), 17)


def test_the_summand_of_gemm_could_not_be_left_out() -> None:
    x = Input("x", f32[2, 3])
    w = Constant("w", np.arange(12, dtype=F).reshape(3, 4))
    g = Graph.of("g", [x], [apply("gemm", x, w)])
    exported = to_onnx(g, 9)
    assert len(exported.graph.node[0].input) == 3
    np.testing.assert_allclose(in_runtime(exported, X[0, :2, :3]), X[0, :2, :3] @ w.array)


@pytest.mark.parametrize(
    ("built", "version", "message"),
    [
        (graph("slice", starts=(0,), ends=(3,), steps=(2,)), 9, "steps need opset 10"),
        (graph("pad", pads=(1,) * 6, mode="wrap"), 18, "ONNX has no mode wrap at opset 18"),
        (graph("cast", to="bf16"), 12, "Cast at opset 12 gives no bf16 as output 0"),
        (graph("round"), 10, "ONNX has no Round at opset 10"),
    ],
    ids=["slice", "pad", "cast", "round"],
)
def test_refusals(built: Graph, version: int, message: str) -> None:
    with pytest.raises(OnnxExportError) as caught:
        to_onnx(built, version)
    assert message in caught.value.message
    assert caught.value.code == "MDLC0131"


def test_inputs_that_broadcast_need_opset_8() -> None:
    x, b = Input("x", f32[2, 3]), Input("b", f32[3])
    g = Graph.of("g", [x, b], [apply("maximum", x, b)])
    with pytest.raises(OnnxExportError, match="inputs of different shapes need opset 8"):
        to_onnx(g, 7)
    assert [n.op_type for n in to_onnx(g, 8).graph.node] == ["Max"]


def test_an_op_that_only_passes_make() -> None:
    x = Input("x", i64[4])
    g = Graph.of("g", [x], [apply("outside_range", x, low=(0,), high=(3,))])
    with pytest.raises(OnnxExportError, match="outside_range has no ONNX form") as caught:
        to_onnx(g)
    assert (caught.value.code, caught.value.hint) == ("MDLC0130", "export it before the passes")


def test_an_exporter_of_the_readers_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Registered by the op's name, it may write several nodes; the last has the node's name."""
    monkeypatch.setattr(export_registry, "_exporters", dict(export_registry._exporters))

    @register_op
    @dataclass(frozen=True)
    class Cube(Unary):
        """cube(x)[i] = x[i] * x[i] * x[i]."""

        def scalar(self, x: Any) -> Any:
            return x * x * x

        def numpy(self, x: Any) -> Any:
            return x * x * x

    @onnx_export("cube")
    def cube(to: NodeWriter, op: Cube, x: str) -> str:
        return to.emit("Mul", to.emit("Mul", x, x), x)

    try:
        exported = to_onnx(graph("cube"))
        back = load_onnx(exported)
        assert [n.op_type for n in exported.graph.node] == ["Mul", "Mul"]
        assert exported.graph.output[0].name == "cube"
        np.testing.assert_allclose(interpret(back, [X])[0], X**3, rtol=1e-6)
        with pytest.raises(OnnxExportError, match="Mul at opset 12 takes no bf16 as input 0"):
            to_onnx(graph("cube", bf16[2]), 12)
    finally:
        unregister_op("cube")
