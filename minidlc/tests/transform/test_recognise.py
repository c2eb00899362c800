"""Composite ops found in chains: every spelling, what must stay a chain, the same numbers."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import minidlc as mc
from minidlc.benchmarks.transformers import bert_layer, gpt2_block
from minidlc.expr.types import TensorType, dtype
from minidlc.graph import Graph, Node, interpret, verify
from minidlc.ops import samples
from minidlc.tests.transform.rule_cases import hostile
from minidlc.transform import Pipeline, Recognise, collecting, rules_of
from minidlc.transform.dataflow.fact import of_array

pytestmark = pytest.mark.ch02

X = mc.f32[2, 5, 8]
W, B = samples.array((8,), seed=1), samples.array((8,), seed=2)


def centred(x: Any) -> Any:
    return x - mc.mean(x, axes=(-1,))


def variance(d: Any, square: Callable[[Any], Any] = lambda d: d * d) -> Any:
    return mc.sqrt(mc.mean(square(d), axes=(-1,)) + 1e-5)


def with_power(x: Any) -> Any:
    d = centred(x)
    return d / variance(d, lambda d: mc.pow(d, 2.0)) * W + B


def twice_centred(x: Any) -> Any:
    return centred(x) / variance(centred(x)) * W + B


def reciprocal(x: Any) -> Any:
    d = centred(x)
    return B + mc.reciprocal(variance(d)) * d * W


def quotient(x: Any) -> Any:
    d = centred(x)
    return W * (d * (1.0 / variance(d))) + B


def over_two_axes(x: Any) -> Any:
    d = x - mc.mean(x, axes=(2, 1))
    return d / mc.sqrt(mc.mean(d * d, axes=(1, 2)) + 1e-3)


def rms(x: Any) -> Any:
    return x / variance(x) * W


def rms_first(x: Any) -> Any:
    return W * (x * mc.reciprocal(variance(x, lambda d: mc.pow(d, 2.0))))


def gelu(x: Any, inner: Callable[[Any], Any], order: int) -> Any:
    curve = 1.0 + mc.erf(inner(x))
    return (lambda: x * curve * 0.5, lambda: 0.5 * x * curve, lambda: x * (0.5 * curve))[order]()


def gelu_tanh(x: Any, cube: Callable[[Any], Any], order: int) -> Any:
    curve = mc.tanh(0.7978845608 * (x + 0.044715 * cube(x))) + 1.0
    return (lambda: x * curve * 0.5, lambda: 0.5 * x * curve, lambda: (0.5 * curve) * x)[order]()


ROOTS: tuple[Callable[[Any], Any], ...] = (
    lambda x: x / math.sqrt(2),
    lambda x: x * 0.70710678,
    lambda x: 0.7071067811865475 * x,
)
CUBES: tuple[Callable[[Any], Any], ...] = (lambda x: mc.pow(x, 3.0), lambda x: x * x * x)


def relu6(x: Any) -> Any:
    return mc.clip(x + 3.0, min=0.0, max=6.0)


def softmax(x: Any) -> Any:
    e = mc.exp(x - mc.max(x, axes=(1,)))
    return e / mc.sum(e, axes=(1,))


def softmax_of_stopped(x: Any) -> Any:
    e = mc.exp(x - mc.stop_gradient(mc.max(x, axes=(1,))))
    return e / mc.sum(e, axes=(1,))


FOUND: dict[str, tuple[Callable[[Any], Any], list[str]]] = {
    "layer norm": (lambda x: centred(x) / variance(centred(x)), ["layer_norm"]),
    "power": (with_power, ["layer_norm"]),
    "twice centred": (twice_centred, ["layer_norm"]),
    "reciprocal": (reciprocal, ["layer_norm"]),
    "quotient": (quotient, ["layer_norm"]),
    "two axes": (over_two_axes, ["layer_norm"]),
    "rms norm": (rms, ["rms_norm"]),
    "rms reciprocal": (rms_first, ["rms_norm"]),
    **{
        f"gelu {n} {order}": (lambda x, f=f, o=order: gelu(x, f, o), ["gelu"])
        for n, f in enumerate(ROOTS)
        for order in range(3)
    },
    **{
        f"gelu tanh {n} {order}": (lambda x, f=f, o=order: gelu_tanh(x, f, o), ["gelu"])
        for n, f in enumerate(CUBES)
        for order in range(3)
    },
    "hard sigmoid": (lambda x: relu6(x) / 6.0, ["hard_sigmoid"]),
    "hard swish": (lambda x: x * (relu6(x) / 6.0), ["hard_swish"]),
    "hard swish late": (lambda x: relu6(x) * x / 6.0, ["hard_swish"]),
    "hard swish of an op": (lambda x: x * mc.hard_sigmoid(x, alpha=0.16666667), ["hard_swish"]),
    "softmax": (softmax, ["softmax"]),
    "softmax of a stopped maximum": (softmax_of_stopped, ["softmax"]),
    "square": (lambda x: mc.pow(x, 2.0), ["mul"]),
}


def recognised(function: Callable[..., Any], *types: TensorType, rules: str = "recognise") -> Graph:
    """What the pass makes of a traced function; it computes the same up to rounding."""
    early = Pipeline.default(1)
    g, _ = early.run(mc.trace(function, *types))
    after = Recognise(rules)(g)
    verify(after)
    assert Recognise(rules)(after) is after
    for seed in (0, 2):  # of plain numbers
        inputs = [hostile(i.type, seed + 4 * n) for n, i in enumerate(g.inputs)]
        for a, b in zip(interpret(g, inputs), interpret(after, inputs), strict=True):
            assert (a.dtype, a.shape) == (b.dtype, b.shape)
            tolerance = 2e-2 if a.dtype.itemsize == 2 else 2e-5
            wide = [v.astype(np.float64) for v in (a, b)]
            np.testing.assert_allclose(wide[1], wide[0], rtol=tolerance, atol=tolerance)
    return after


def ops(g: Graph) -> list[str]:
    return [node.op.name for node in g.nodes]


@pytest.mark.parametrize("name", FOUND)
def test_chains_that_are_found(name: str) -> None:
    function, expected = FOUND[name]
    assert ops(recognised(function, X)) == expected


@pytest.mark.parametrize("element", ["f64", "f16", "bf16"])
def test_in_other_types(element: str) -> None:
    type = TensorType(dtype(element), (2, 5, 8))
    assert ops(recognised(lambda x: centred(x) / variance(centred(x)), type)) == ["layer_norm"]
    assert ops(recognised(lambda x: relu6(x) / 6.0, type)) == ["hard_sigmoid"]


def test_symbolic_rows() -> None:
    g = mc.trace(lambda x: centred(x) / variance(centred(x)), mc.f32["N", 8])
    assert ops(Recognise()(Pipeline.default(1).run(g)[0])) == ["layer_norm"]


def other_mean(x: Any) -> Any:
    return (x - mc.mean(x, axes=(-1,))) / mc.sqrt(mc.mean(x * x, axes=(-1,)) + 1e-5)


STAYS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "another mean": (other_mean, "layer_norm"),
    "an axis in front": (lambda x: x / mc.sqrt(mc.mean(x * x, axes=(1,)) + 1e-5), "rms_norm"),
    "a negative epsilon": (lambda x: x / mc.sqrt(mc.mean(x * x, axes=(2,)) - 1e-5), "rms_norm"),
    "an epsilon a row": (
        lambda x: x / mc.sqrt(mc.mean(x * x, axes=(2,)) + W[:5].reshape(5, 1)),
        "rms_norm",
    ),
    "another root": (lambda x: x * (1.0 + mc.erf(x / 1.41)) * 0.5, "gelu"),
    "another half": (lambda x: x * (1.0 + mc.erf(x / math.sqrt(2))) * 0.25, "gelu"),
    "another cube": (lambda x: gelu_tanh(x, lambda x: x * x, 0), "gelu"),
    "relu5": (lambda x: mc.clip(x + 3.0, min=0.0, max=5.0) / 6.0, "hard_sigmoid"),
    "another slope": (lambda x: x * mc.hard_sigmoid(x), "hard_swish"),
    "sum over two axes": (lambda x: mc.exp(x) / mc.sum(mc.exp(x), axes=(1,)), "softmax"),
}


@pytest.mark.parametrize("name", STAYS)
def test_chains_that_stay(name: str) -> None:
    function, op = STAYS[name]
    assert op not in ops(recognised(function, X))


def test_a_residual_is_no_bias() -> None:
    """x + norm(x): the sum stays an op of its own."""
    residual = ops(recognised(lambda x, r: centred(x) / variance(centred(x)) * W + r, X, X))
    assert residual == ["layer_norm", "add"]
    gated = ops(recognised(lambda x, z: rms(x) * z, X, X))
    assert gated == ["rms_norm", "mul"]


def test_reasons_are_logged() -> None:
    g = mc.trace(lambda x: x / mc.sqrt(mc.mean(x * x, axes=(1,)) + 1e-5), X)
    with collecting() as events:
        Recognise()(g)
    assert any("the mean is over axes [1] of 3" in str(e) for e in events)


Q, K, V = mc.f32[2, 3, 5, 8], mc.f32[2, 3, 7, 8], mc.f32[2, 3, 7, 4]
SCALED: dict[str, Callable[[Any], Any]] = {
    "unscaled": lambda s: s,
    "multiplied": lambda s: 0.25 * s,
    "divided": lambda s: s / 8.0,
}
MASKED: dict[str, Callable[[Any, Any], Any]] = {
    "unmasked": lambda s, m: s,
    "added": lambda s, m: m + s,
    "chosen": lambda s, m: mc.where(m, s, -math.inf),
}
GUARDED: dict[str, Callable[[Any], Any]] = {
    "plain": lambda w: w,
    "guarded": lambda w: mc.where(mc.isnan(w), 0.0, w),
}


@pytest.mark.parametrize("rows", GUARDED)
@pytest.mark.parametrize("mask", MASKED)
@pytest.mark.parametrize("scale", SCALED)
def test_attention(scale: str, mask: str, rows: str) -> None:
    """Each spelling; `decompose` opens it again."""

    def net(q: Any, k: Any, v: Any, m: Any) -> Any:
        scores = SCALED[scale](q @ mc.transpose(k, perm=(0, 1, 3, 2)))
        return GUARDED[rows](mc.softmax(MASKED[mask](scores, m))) @ v

    m = (mc.bool_ if mask == "chosen" else mc.f32)[2, 1, 5, 7]
    after = recognised(net, Q, K, V, m, rules="attention")
    attention = next(n for n in after.nodes if n.op.name == "attention")
    assert not {"matmul", "softmax", "isnan"} & set(ops(after))
    by = {"unscaled": 1.0, "multiplied": 0.25, "divided": 0.125}
    assert attention.op.attributes()["scale"] == by[scale]
    opened, _ = Pipeline.default(1).run(after)
    assert "attention" not in ops(opened)


def test_hidden_rows_of_a_guarded_attention_are_0() -> None:
    """What the exporter's guard says is what the op means."""

    def net(q: Any, k: Any, v: Any, m: Any) -> Any:
        weights = mc.softmax(q @ mc.transpose(k, perm=(0, 1, 3, 2)) + m)
        return mc.where(mc.isnan(weights), 0.0, weights) @ v

    g = mc.trace(net, Q, K, V, mc.f32[1, 1, 5, 7])
    arrays = [hostile(i.type, 2 * n) for n, i in enumerate(g.inputs)]
    arrays[3] = np.where(np.arange(5).reshape(5, 1) == 2, np.float32(-np.inf), arrays[3])
    [expected] = interpret(g, arrays)
    after = Recognise("attention")(g)
    assert "attention" in ops(after)
    [got] = interpret(after, arrays)
    assert not got[:, :, 2].any()
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.skipif("MINIDLC_MODELS" not in os.environ, reason="MINIDLC_MODELS is not set")
@pytest.mark.parametrize(("name", "count"), [("minilm_int8w", 6), ("ppocr_v4_rec", 2)])
def test_attention_of_models(name: str, count: int) -> None:
    """PyTorch scales both factors and guards hidden rows, Paddle scales q."""
    shapes = {"batch": 1, "sequence": 32} if name == "minilm_int8w" else {"x": (1, 3, 48, 320)}
    path = Path(os.environ["MINIDLC_MODELS"]) / f"{name}.onnx"
    g, _ = Pipeline.default(1).run(mc.load_onnx(str(path), shapes=shapes))
    assert ops(Recognise("attention")(g)).count("attention") == count


def test_what_is_no_attention() -> None:
    def other_heads(q: Any, k: Any, v: Any) -> Any:
        return mc.softmax(q @ k / 8.0) @ v

    rank_3 = (mc.f32[2, 5, 8], mc.f32[2, 8, 7], mc.f32[2, 7, 4])
    assert "attention" not in ops(recognised(other_heads, *rank_3, rules="attention"))
    one_head = (mc.f32[2, 3, 5, 8], mc.f32[2, 1, 8, 7], mc.f32[2, 1, 7, 4])
    assert "attention" not in ops(recognised(other_heads, *one_head, rules="attention"))


@pytest.mark.parametrize(
    ("model", "counts"),
    [(bert_layer, {"gelu": 1, "layer_norm": 2}), (gpt2_block, {"gelu": 1, "layer_norm": 2})],
    ids=["bert_layer", "gpt2_block"],
)
def test_models(model: Callable[[], Any], counts: dict[str, int]) -> None:
    """The pass finds what exporters spelt out, and the pipeline has no more nodes after it."""
    g = mc.load_onnx(model()[0])
    with_it, _ = Pipeline.default(2).run(g)
    without, records = Pipeline.default(2).without("recognise").run(g)
    assert len(with_it.nodes) <= len(without.nodes)
    found = ops(Recognise()(records[-1].before))
    assert {op: found.count(op) for op in counts} == counts
    assert "erf" not in found
    assert "tanh" not in found


@pytest.mark.skipif("MINIDLC_MODELS" not in os.environ, reason="MINIDLC_MODELS is not set")
def test_a_model_of_paddle() -> None:
    """Norms by pow, sqrt and div; hard_swish by clip and div: 124 of 408 nodes go."""
    path = Path(os.environ["MINIDLC_MODELS"]) / "ppocr_v4_rec.onnx"
    g = mc.load_onnx(str(path), shapes={"x": (1, 3, 48, 320)})
    before, _ = Pipeline.default(1).run(g)
    after = ops(Recognise()(before))
    assert (after.count("layer_norm"), after.count("hard_swish")) == (5, 28)
    assert not {"pow", "sqrt", "div"} & set(after)
    assert len(after) <= len(before.nodes) - 124


def test_strict_programs_keep_their_chains() -> None:
    target = replace(mc.target.host(), precision="strict")
    assert "recognise" not in Pipeline.default(3, target).names
    assert "recognise" in Pipeline.default(3).names


def test_every_recognising_rule_fires_somewhere() -> None:
    """A rule that no chain above needs is a rule too many."""
    fired: set[str] = set()
    graphs = [mc.trace(f, X) for f, _ in FOUND.values()]
    for g in [*graphs, *(mc.trace(f, X) for f in more_spellings())]:
        with collecting() as events:
            Recognise()(Pipeline.default(1).run(g)[0])
        fired |= {e.rule for e in events if hasattr(e, "rule") and str(e).endswith("done")}
    assert fired >= {r.name for r in rules_of("recognise")}


def more_spellings() -> list[Callable[[Any], Any]]:
    """Those of products that differ in their brackets only."""
    norms = [
        lambda x, f=f, d=d: f(d(x), variance(d(x)))
        for f in (lambda d, r: d / r, lambda d, r: d * mc.reciprocal(r), lambda d, r: d * (1.0 / r))
        for d in (centred, lambda x: x)
    ]
    tanhs = [lambda x, o=o: gelu_tanh(x, lambda x: x * (x * x), o) for o in range(3)]

    def inside(x: Any, order: int) -> Any:
        curve = mc.tanh(0.7978845608 * (x + x * (x * (x * 0.044715)))) + 1.0
        return (lambda: x * curve * 0.5, lambda: 0.5 * x * curve, lambda: 0.5 * curve * x)[order]()

    return [*norms, *tanhs, *(lambda x, o=o: inside(x, o) for o in range(3))]


def test_facts_of_what_is_found() -> None:
    """The range of a softmax is known, that of its chain is not."""
    g = recognised(softmax, X)
    (node,) = g.nodes
    assert isinstance(node, Node)
    assert mc.transform.fact_of(node).high == 1.0
    assert of_array(np.float32([0, 1])).high == 1.0
