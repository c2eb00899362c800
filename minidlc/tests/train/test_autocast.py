"""Mixed precision: which op runs in which type, and training that only loss scaling saves."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

import minidlc as mc
from minidlc import f16, f32, f64, i64
from minidlc.expr.types import TensorType
from minidlc.graph import Graph
from minidlc.graph.op import infer, registered_ops
from minidlc.graph.types import result_types
from minidlc.support.errors import CompileError, OptionError, TrainError
from minidlc.train.mixed_precision import FOLLOWERS, PRODUCTS

pytestmark = pytest.mark.ch03


def types(graph: Graph) -> list[str]:
    """Op and element type of each node but casts."""
    nodes = (n for n in graph.nodes if n.op.name != "cast")
    return [f"{n.op.name} {result_types(n.type)[0].dtype}" for n in nodes]


def test_products_are_low_and_the_loss_is_not() -> None:
    def loss(x: Any, y: Any, w1: Any, b1: Any, w2: Any, b2: Any) -> Any:
        return mc.train.cross_entropy(mc.relu(x @ w1 + b1) @ w2 + b2, y)

    graph = mc.trace(loss, f32[8, 4], i64[8], f32[4, 6], f32[6], f32[6, 3], f32[3])
    cast = mc.train.autocast(graph, "f16")
    assert types(cast) == [
        "matmul f16", "add f16", "relu f16", "matmul f16", "add f32",
        "softmax_cross_entropy f32", "getitem f32",
    ]  # fmt: skip
    assert cast.input_types() == graph.input_types()
    assert cast.output_types() == graph.output_types()
    gradient = mc.value_and_grad(cast, ["w1", "b2"])
    assert [str(o.type) for o in gradient.outputs] == ["f32[()]", "f32[4, 6]", "f32[3]"]


def test_a_value_is_cast_once_and_what_was_computed_in_f32_stays() -> None:
    def f(x: Any, a: Any, b: Any) -> Any:
        h = mc.softmax(x @ a, axis=1)  # f32, between products
        return (h @ a) + (h @ b), (x + h) @ a

    graph = mc.trace(f, f32[4, 4], f32[4, 4], f32[4, 4])
    cast = mc.train.autocast(graph, "bf16")
    assert types(cast) == [
        "matmul bf16", "softmax f32", "matmul bf16", "matmul bf16", "add f32", "add f32",
        "matmul bf16",
    ]  # fmt: skip
    pairs = Counter((n.inputs[0], n.type) for n in cast.nodes if n.op.name == "cast")
    assert set(pairs.values()) == {1}
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal((4, 4)).astype(np.float32) for _ in range(3)]
    for found, wanted in zip(mc.interpret(cast, arrays), mc.interpret(graph, arrays), strict=True):
        np.testing.assert_allclose(found, wanted, atol=0.05)


def test_what_reads_a_value_of_f32_is_of_f32() -> None:
    """Rounded to f16, the large values of exp would be infinite."""

    def f(x: Any, a: Any) -> Any:
        h = x @ a
        return (h + mc.exp(h)) @ a

    cast = mc.train.autocast(mc.trace(f, f32[4, 4], f32[4, 4]), "f16")
    assert types(cast) == ["matmul f16", "exp f32", "add f32", "matmul f16"]


def test_several_results_and_bodies() -> None:
    def f(q: Any, w: Any) -> Any:
        return mc.attention(q @ w, q, q)[0] @ w

    cast = mc.train.autocast(mc.trace(f, f32[1, 2, 4, 8], f32[8, 8]), "f16")
    assert types(cast) == ["matmul f16", "attention f16", "getitem f16", "matmul f16"]
    branches = mc.trace(
        lambda c, x: mc.if_(
            c,
            x,
            then_branch=mc.parse("def t(x: f32[2]):\n    y: f32[2] = exp(x)\n    return y"),
            else_branch=mc.parse("def e(x: f32[2]):\n    y: f32[2] = neg(x)\n    return y"),
        ),
        mc.bool_[()],
        f32[2],
    )
    assert mc.train.autocast(branches, "f16") is branches  # what holds graphs is left alone


@pytest.mark.parametrize("low", ["f16", "bf16"])
def test_gradients_through_casts_are_those_of_f32_but_for_rounding(low: str) -> None:
    def loss(x: Any, y: Any, kernel: Any, bias: Any, w: Any) -> Any:
        h = mc.relu(mc.conv(x, kernel, bias, pads=(1, 1, 1, 1)))
        h = mc.max_pool(h, kernel_shape=(2, 2), strides=(2, 2)).reshape(3, 2, 8)
        h = mc.attention(h, h, h, q_num_heads=2, kv_num_heads=2)[0]
        h = mc.layer_norm(h, mc.exp(mc.concat(bias, bias, axis=0)))
        return mc.train.cross_entropy(h.reshape(3, 16) @ w, y)

    shapes = [(3, 1, 4, 4), (4, 1, 3, 3), (4,), (16, 5)]
    rng = np.random.default_rng(1)
    x, kernel, bias, w = (rng.normal(0, 0.5, shape).astype(np.float32) for shape in shapes)
    y = rng.integers(0, 5, 3)
    types_ = [f32[shapes[0]], i64[3], *[f32[shape] for shape in shapes[1:]]]
    graph = mc.trace(loss, *types_)
    wanted, found = (
        mc.interpret(mc.value_and_grad(g, ["kernel", "bias", "w"]), [x, y, kernel, bias, w])
        for g in (graph, mc.train.autocast(graph, low))
    )
    close = 0.01 if low == "f16" else 0.06
    for a, b in zip(found, wanted, strict=True):
        assert a.dtype == np.float32
        assert np.abs(a - b).max() <= close * np.abs(b).max()


def test_f64_and_graphs_without_products_are_left_alone() -> None:
    for graph in (
        mc.trace(lambda x, w: x @ w, f64[2, 2], f64[2, 2]),
        mc.trace(lambda x: mc.relu(x + 1.0), f32[3]),
    ):
        assert mc.train.autocast(graph, "f16") is graph


@pytest.mark.parametrize("name", sorted(PRODUCTS | FOLLOWERS))
def test_ops_of_the_table_take_low_types(name: str) -> None:
    """With inputs of f16 in place of f32 they give f16, comparisons apart."""
    seen = 0
    for example in registered_ops()[name].examples():
        given = [None if a is None else mc.Constant("c", a).type for a in example.inputs]
        low = [None if t is None else _low(t) for t in given]
        if low == given:
            continue
        found, old = (result_types(infer(example.op, t)) for t in (low, given))
        assert [t.dtype for t in found] == [f16 if t.dtype == f32 else t.dtype for t in old]
        seen += 1
    assert seen or name == "getitem"  # which reads a tuple


def _low(type: TensorType) -> TensorType:
    return type.with_dtype(f16) if type.dtype == f32 else type


def test_another_type_is_refused() -> None:
    graph = mc.trace(lambda x: x @ x, f32[2, 2])
    with pytest.raises(TrainError, match="'f61' is no type to compute in") as e:
        mc.train.autocast(graph, "f61")
    assert e.value.code == "MDLC1257"
    assert e.value.hint == "did you mean 'f16'?"
    with pytest.raises(OptionError):
        mc.train.autocast("model.onnx", "f16")  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="autocast: to is a list, expected str"):
        mc.train.autocast(graph, ["f16"])  # type: ignore[arg-type]
    assert issubclass(TrainError, CompileError)


ROWS, FEATURES, HIDDEN, TARGETS = 64, 16, 32, 16
HUGE = 2.0**40


def losses(count: int = 300, **options: Any) -> tuple[np.ndarray, mc.train.TrainStep]:
    """A regression on targets of 1e-5: its gradients of about 1e-8 are 0 in f16."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((ROWS, FEATURES)).astype(np.float32)
    matrix = rng.standard_normal((FEATURES, TARGETS)) / 4
    target = (1e-5 * np.tanh(x @ matrix)).astype(np.float32)

    def loss(x: Any, target: Any, w1: Any, w2: Any) -> Any:
        return mc.train.mse(mc.tanh(x @ w1) @ w2, target)

    shapes = [x.shape, target.shape, (FEATURES, HIDDEN), (HIDDEN, TARGETS)]
    graph = mc.trace(loss, *[f32[shape] for shape in shapes])
    start = {
        "w1": rng.normal(0, 0.25, shapes[2]).astype(np.float32),
        "w2": np.zeros(shapes[3], np.float32),
    }
    step = mc.compile_train_step(graph, start, mc.train.sgd(2.0), threads=1, **options)
    return np.array([step(x, target)[0] for _ in range(count)]), step


@pytest.fixture(scope="module")
def in_f32() -> np.ndarray:
    found, _ = losses()
    assert found[-1] < 0.07 * found[0]
    return found


@pytest.mark.llvm
def test_f16_without_a_scale_does_not_learn() -> None:
    found, step = losses(20, autocast="f16", loss_scale=1.0)
    assert (found == found[0]).all()
    assert not step.params["w2"].any()


@pytest.mark.llvm
def test_f16_with_too_large_a_scale_is_lost() -> None:
    found, _ = losses(3, autocast="f16", loss_scale=HUGE)
    assert np.isfinite(found[0])
    assert np.isnan(found[1:]).all()


@pytest.mark.llvm
def test_f16_with_a_dynamic_scale_learns_as_f32_does(in_f32: np.ndarray) -> None:
    found, step = losses(autocast="f16")
    assert step.loss_scale == 2**15
    np.testing.assert_allclose(found[-1], in_f32[-1], rtol=0.02)


@pytest.mark.llvm
def test_a_dynamic_scale_that_overflows_comes_down_and_then_learns(in_f32: np.ndarray) -> None:
    rule = mc.train.DynamicScale(HUGE, largest=HUGE)
    found, step = losses(autocast="f16", loss_scale=rule)
    left_out = 300 - step.steps
    assert left_out == 3
    assert step.loss_scale == HUGE / 2**left_out
    assert (found[: left_out + 1] == found[0]).all()
    np.testing.assert_allclose(found[-1], in_f32[-1], rtol=0.02)


@pytest.mark.llvm
def test_bf16_has_the_range_of_f32_and_needs_no_scale(in_f32: np.ndarray) -> None:
    found, step = losses(autocast="bf16")
    assert step.loss_scale == 1
    np.testing.assert_allclose(found[-1], in_f32[-1], rtol=0.02)
