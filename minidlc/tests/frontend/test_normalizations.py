"""Import of normalisations: older meanings, outputs that are seldom used, what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from minidlc.expr.types import f32
from minidlc.frontend.onnx import load_onnx
from minidlc.graph import Graph, Input, apply, interpret
from minidlc.support.errors import OnnxImportError
from minidlc.tests.frontend.helpers import F, model, node, run
from minidlc.transform import Decompose

X = np.arange(24, dtype=F).reshape(1, 4, 3, 2) ** 2
FOUR = {"s": F([1, 2, 3, 4]), "b": F([0.5, 0, -1, 2])}
TWO = {"s": F([1, 3]), "b": F([0.5, -1])}


def normal(x: Any, axes: tuple[int, ...]) -> Any:
    mean, variance = x.mean(axes, keepdims=True), x.var(axes, keepdims=True)
    return (x - mean) / np.sqrt(variance + 1e-5)


def close(got: Any, wanted: Any) -> None:
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("stash", [1, 11])
def test_layer_norm_with_all_its_outputs(stash: int) -> None:
    x = X.astype(F if stash == 1 else np.float64)
    weights = {n: np.ones(2, x.dtype) for n in ("s", "b")}
    layer = node("LayerNormalization", "x s b", "y m v", stash_type=stash, axis=-1)
    graph = load_onnx(model([layer], {"x": x}, "y m v", weights))
    y, mean, inverse = interpret(graph, [x])
    close(y, normal(x, (3,)) + 1)
    close(mean, x.mean(3, keepdims=True))
    close(inverse, 1 / np.sqrt(x.var(3, keepdims=True) + 1e-5))
    assert mean.dtype == inverse.dtype == x.dtype


def test_layer_norm_without_bias_and_with_one_output_left_out() -> None:
    layer = node("LayerNormalization", "x s", "y _ v", axis=2)
    graph = load_onnx(model([layer], {"x": X}, "y v", {"s": np.ones((3, 2), F)}))
    y, inverse = interpret(graph, [X])
    close(y, normal(X, (2, 3)))
    assert inverse.shape == (1, 4, 1, 1)


def test_group_norm_had_a_scale_for_each_group_before_opset_21() -> None:
    grouped = normal(X.reshape(1, 2, 12), (2,)).reshape(X.shape)
    group = node("GroupNormalization", "x s b", "y", num_groups=2)
    old = run(group, {"x": X}, TWO, 18)
    close(old, grouped * F([1, 1, 3, 3])[:, None, None] + F([0.5, 0.5, -1, -1])[:, None, None])
    new = run(group, {"x": X}, FOUR, 21)
    close(new, grouped * FOUR["s"][:, None, None] + FOUR["b"][:, None, None])


@pytest.mark.parametrize("opset", [7, 22])
def test_instance_norm(opset: int) -> None:
    y = run(node("InstanceNormalization", "x s b", "y"), {"x": X}, FOUR, opset)
    close(y, normal(X, (2, 3)) * FOUR["s"][:, None, None] + FOUR["b"][:, None, None])


def test_rms_norm() -> None:
    y = run(node("RMSNormalization", "x s", "y"), {"x": X}, {"s": F([1, 2])}, 23)
    close(y, X / np.sqrt((X * X).mean(3, keepdims=True) + 1e-5) * F([1, 2]))


@pytest.mark.parametrize(("p", "right"), [(1, [3 / 7, -4 / 7]), (2, [0.6, -0.8])])
def test_lp_normalization(p: int, right: list[float]) -> None:
    y = run(node("LpNormalization", "x", "y", p=p), {"x": F([[3, -4], [0, 0]])}, None, 7)
    close(y, [right, [0, 0]])


def test_mean_variance_normalization_has_default_axes() -> None:
    y = run(node("MeanVarianceNormalization", "x", "y"), {"x": X}, None, 9)
    close(y, (X - X.mean((0, 2, 3), keepdims=True)) / X.std((0, 2, 3), keepdims=True))


@pytest.mark.parametrize(
    ("op", "attributes", "weights", "opset", "message"),
    [
        ("GroupNormalization", {"num_groups": 3}, TWO, 18, "num_groups 3 of f32[1, 4, 3, 2]"),
        ("GroupNormalization", {"num_groups": 2}, FOUR, 18, "must have 2 values, got f32[4]"),
        ("GroupNormalization", {}, FOUR, 21, "num_groups is missing"),
        ("LayerNormalization", {"stash_type": 11}, TWO, 17, "stash_type f64 of f32"),
        ("LayerNormalization", {"stash_type": 7}, TWO, 17, "stash_type i64"),
    ],
)
def test_refused(
    op: str, attributes: dict[str, Any], weights: dict[str, Any], opset: int, message: str
) -> None:
    built = model([node(op, "x s b", "y", **attributes)], {"x": X}, "y", weights, opset)
    with pytest.raises(OnnxImportError) as caught:
        load_onnx(built)
    assert caught.value.code == "MDLC0116"
    assert message in caught.value.message


@pytest.mark.parametrize("shape", [("N", 4, 6), (2, 4, "W")])
def test_one_symbolic_dim_is_enough_for_group_norm(shape: tuple[Any, ...]) -> None:
    x, scale, bias = Input("x", f32[shape]), Input("s", f32[4]), Input("b", f32[4])
    y = apply("group_norm", x, scale, bias, num_groups=2)
    simpler = Decompose().run(Graph.of("g", [x, scale, bias], [y]))
    assert simpler.outputs[0].type == x.type
