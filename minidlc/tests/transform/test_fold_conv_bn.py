"""Scale and shift after a convolution: what goes into its weights, and what stays."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import minidlc as mc
from minidlc.graph import Constant, Graph, interpret, verify
from minidlc.transform import FoldConvBn, Pipeline, Refusal, Rewrite, collecting

pytestmark = pytest.mark.ch02

X = mc.f32[2, 3, 6, 5]


def array(*shape: int, seed: int = 0, low: float = 0.5, element: str = "float32") -> np.ndarray:
    return np.random.default_rng(seed).uniform(low, 2, shape).astype(element)


W, B = array(4, 3, 3, 3, low=-2), array(4, low=-2, seed=1)


def norm(y, channels: int = 4, element: str = "float32"):
    scale, bias, mean, var = (array(channels, seed=n, element=element) for n in range(4))
    return mc.batch_norm(y, scale, bias, mean, var, epsilon=1e-3)


def folded(function: Callable[..., object], *types: mc.TensorType) -> tuple[list[str], list[str]]:
    """Names of the ops after the pass, and its events; the numbers must stay."""
    g, _ = Pipeline.default(1).run(mc.trace(function, *(types or (X,))))
    with collecting() as events:
        after = FoldConvBn()(g)
    verify(after)
    assert [o.name for o in after.outputs] == [o.name for o in g.outputs]
    arrays = [np.random.default_rng(5).standard_normal(t.dims) for t in types or (X,)]
    inputs = [a.astype(i.type.dtype.numpy) for a, i in zip(arrays, g.inputs, strict=True)]
    for a, b in zip(interpret(g, inputs), interpret(after, inputs), strict=True):
        np.testing.assert_allclose(b, a, rtol=2e-5, atol=2e-5)
    if not any(isinstance(e, Rewrite) for e in events):
        assert after is g
    return [n.op.name for n in after.nodes], [str(e) for e in events]


ACTS = {
    "batch norm": lambda x: norm(mc.conv(x, W, B)),
    "without bias": lambda x: norm(mc.conv(x, W, pads=(1, 1, 1, 1), strides=(2, 1))),
    "scale": lambda x: mc.conv(x, W) * array(4, 1, 1),
    "shift": lambda x: mc.conv(x, W) + array(1, 4, 1, 1),
    "shift on the left": lambda x: array(4, 1, 1) - mc.conv(x, W, B),
    "divisor": lambda x: mc.conv(x, W, B) / array(4, 1, 1),
    "numbers": lambda x: (mc.conv(x, W) * 2.0 - 1.0) / 3.0,
    "twice": lambda x: norm(norm(mc.conv(x, W))),
    "groups": lambda x: norm(mc.conv(x, array(6, 1, 3, 3, low=-2), group=3), 6),
}


@pytest.mark.parametrize("name", ACTS)
def test_one_convolution_is_left(name: str) -> None:
    ops, events = folded(ACTS[name])
    assert ops == ["conv"]
    assert all(e.startswith("fold ") and e.endswith(": done") for e in events)


def test_in_one_and_three_dimensions() -> None:
    assert folded(lambda x: norm(mc.conv(x, array(4, 3, 3))), mc.f32[1, 3, 7])[0] == ["conv"]
    volume = mc.f32[1, 3, 4, 5, 3]
    assert folded(lambda x: norm(mc.conv(x, array(4, 3, 2, 2, 2))), volume)[0] == ["conv"]


def test_what_comes_after_the_last_step_stays() -> None:
    ops, _ = folded(lambda x: mc.relu(norm(mc.conv(x, W))) + 1.0)
    assert ops == ["conv", "relu", "add"]
    ops, _ = folded(lambda x: norm(mc.conv(norm(mc.conv(x, W)), array(4, 4, 1, 1))))
    assert ops == ["conv", "conv"]


def two_readers(x):
    y = mc.conv(x, W)
    return y * 2.0 + mc.relu(y)


def also_an_output(x):
    y = mc.conv(x, W)
    return y, y * 2.0


STAYS = {
    "two readers": (two_readers, ["conv", "mul", "relu", "add"]),
    "an output": (also_an_output, ["conv", "mul"]),
    "after an activation": (lambda x: mc.relu(mc.conv(x, W)) * 2.0, ["conv", "relu", "mul"]),
    "per pixel": (lambda x: mc.conv(x, W) * array(1, 1, 4, 3), ["conv", "mul"]),
    "per column": (lambda x: mc.conv(x, W) * array(3), ["conv", "mul"]),
    "another image": (lambda x: mc.conv(x, W) + mc.conv(x, W + 1), ["conv", "conv", "add"]),
    "by itself": (lambda x: (y := mc.conv(x, W)) * y, ["conv", "mul"]),
    "larger": (lambda x: mc.conv(x, W[:1]) * array(4, 1, 1), ["conv", "mul"]),
    "divided": (lambda x: array(4, 1, 1) / mc.conv(x, W), ["conv", "div"]),
    "no conv": (lambda x: norm(x, 3), ["sub", "mul", "add"]),
}


@pytest.mark.parametrize("name", STAYS)
def test_what_cannot_be_folded(name: str) -> None:
    function, ops = STAYS[name]
    assert folded(function) == (ops, [])


def refusal(function: Callable[..., object], *types: mc.TensorType) -> str:
    g, _ = Pipeline.default(1).run(mc.trace(function, *types))
    with collecting() as events:
        assert FoldConvBn()(g) is g
    (found,) = (e for e in events if isinstance(e, Refusal))
    return found.reason


def test_reasons_against() -> None:
    given = refusal(lambda x, w: mc.conv(x, w) * 2.0, X, mc.f32[4, 3, 3, 3])
    assert given == "its weights are not constants"
    half = refusal(lambda x: mc.conv(x, W.astype(np.float16)) * 2.0, mc.f16[2, 3, 6, 5])
    assert half == "weights of f16 would be rounded once more"
    whole = refusal(lambda x: mc.conv(x, W.astype(np.int32)) * 2, mc.i32[2, 3, 6, 5])
    assert whole == "weights of i32 would be rounded once more"
    for number in (np.float32(0), np.float32(1e-38) / 1000):
        huge = refusal(lambda x, n=number: mc.conv(x, W) / n, X)
        assert huge == "the new weights would not be finite"


def test_weights_are_rounded_once() -> None:
    """w * s in f64, then one rounding: nearer than the product of rounded factors."""
    g, _ = Pipeline.default(1).run(mc.trace(lambda x: mc.conv(x, W) * 3.0 / 7.0, X))
    (conv,) = FoldConvBn()(g).nodes
    w = conv.inputs[1]
    assert isinstance(w, Constant)
    np.testing.assert_array_equal(w.array, (W.astype(np.float64) * 3 / 7).astype(np.float32))


def test_a_shift_leaves_the_weights_as_they_are() -> None:
    """Two convolutions may share them."""

    def net(x):
        return mc.conv(x, W) + 1.0, mc.conv(x, W, strides=(2, 2)) - 1.0

    g, _ = Pipeline.default(1).run(mc.trace(net, X))
    first, second = FoldConvBn()(g).nodes
    assert first.inputs[1] is second.inputs[1]


def test_a_graph_keeps_its_place_and_names() -> None:
    x = mc.Input("x", X)
    y = norm(mc.conv(x, W))
    g, _ = Pipeline.default(1).run(Graph.of("g", [x], [y]))
    (conv,) = FoldConvBn()(g).nodes
    assert conv.name == "batch_norm"
    assert str(conv.loc).startswith("fold_conv_bn of ")
