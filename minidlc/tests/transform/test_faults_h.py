"""Faults that other compilers had in graph passes: each a case for ours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import minidlc as mc
from minidlc.graph import Graph, Node, interpret, verify
from minidlc.tests.transform.rule_cases import graph
from minidlc.transform import (
    Canonicalize,
    FoldConstants,
    FoldConvBn,
    Pass,
    Pipeline,
    Recognise,
    collecting,
    registered_passes,
    rewrite,
    rules_of,
)

pytestmark = pytest.mark.ch02


def random(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def ops(g: Graph) -> list[str]:
    return [n.op.name for n in g.nodes]


def check_same(g: Graph, *inputs: np.ndarray, exact: bool = False) -> list[Graph]:
    """Each pass alone, and the whole pipeline, keep the answer; the graphs after them."""
    expected = interpret(g, inputs)
    steps: list[Pass | Pipeline] = [c() for c in registered_passes().values() if not _needs(c)]
    found: list[Graph] = []
    for step in (*steps, Pipeline.default(3)):
        after = step.run(g)
        after = after[0] if isinstance(after, tuple) else after
        verify(after)
        for a, b in zip(expected, interpret(after, inputs), strict=True):
            assert (a.dtype, a.shape) == (b.dtype, b.shape)
            np.testing.assert_allclose(b, a, rtol=1e-5, atol=1e-5, err_msg=str(step))
        found.append(after)
    return found


def _needs(cls: type[Pass]) -> bool:
    """Passes with a condition, or with options that have no default, run in the pipeline."""
    return bool(cls.requires) or cls.name in ("partition", "legalise")


def test_a_full_size_constant_after_a_grouped_conv() -> None:
    """FAULTS 92: Conv of 4 groups, then Add of a constant of every pixel."""
    w, full = random(4, 1, 1, 1), random(1, 4, 2, 2, seed=1)
    g = mc.trace(lambda x: mc.conv(x, w, group=4) + full, mc.f32[1, 4, 2, 2])
    *_, after = check_same(g, random(1, 4, 2, 2, seed=2))
    assert ops(FoldConvBn()(g)) == ["conv", "add"]
    assert len(after.nodes) >= 1


def test_a_channel_constant_after_a_grouped_conv() -> None:
    """FAULTS 92: one number a channel goes in, to the right group."""
    w, each = random(6, 2, 1, 1), random(1, 6, 1, 1, seed=1)
    g = mc.trace(lambda x: mc.conv(x, w, group=3) * each, mc.f32[1, 6, 2, 2])
    check_same(g, random(1, 6, 2, 2, seed=2))
    assert ops(FoldConvBn()(g)) == ["conv"]


def test_a_scale_that_enlarges_a_norm() -> None:
    """FAULTS 93: x (1, 1), scale (2,): the result is (1, 2), so the scale stays outside."""

    def net(x: Any) -> Any:
        d = x - mc.mean(x, axes=(-1,))
        return d / mc.sqrt(mc.mean(d * d, axes=(-1,)) + 1e-5) * np.float32([3, 4])

    g = mc.trace(net, mc.f32[1, 1])
    with collecting() as events:
        after = Recognise()(g)
    assert ops(after) == ["layer_norm", "mul"]
    assert after.output_types() == (mc.f32[1, 2],)
    assert any("f32[2] enlarges f32[1, 1]" in str(e) for e in events)
    check_same(g, np.float32([[7]]))


@pytest.mark.parametrize("shape", [(5, 1), (2, 1, 4), (4,), (1,), (), (5, 4)])
def test_scales_of_any_shape(shape: tuple[int, ...]) -> None:
    """FAULTS 93: whatever the scale, the shape and the numbers stay."""
    scale = random(*shape, seed=3)

    def net(x: Any) -> Any:
        return x / mc.sqrt(mc.mean(x * x, axes=(-1,)) + 1e-5) * scale

    check_same(mc.trace(net, mc.f32[5, 4]), random(5, 4))


def test_two_rules_that_meet() -> None:
    """FAULTS 95: a Cast to the same type feeds a Mul by 1 next to a Div; valid after each step."""
    g = graph(
        "x: f32[2, 3], z: f32[2, 3] | a = cast(x, to=f32); one = const(1.0);"
        " b = mul(a, one); c = div(a, z); y = add(b, c)"
    )
    rules = rules_of("canonicalize")
    for limit in range(5):
        after = Canonicalize(limit=limit)
        result, records = Pipeline((after,)).run(g)
        verify(result)
        assert len(records[0].done) == min(limit, 2)
    assert ops(rewrite(g, rules)) == ["div", "add"]
    assert ops(rewrite(g, rules[::-1])) == ["div", "add"]
    check_same(g, random(2, 3), random(2, 3, seed=1))


def test_a_scale_of_input_channels_stays() -> None:
    """FAULTS 97: x * c before a Conv that has two readers is not folded along a wrong axis."""
    c, w = random(1, 2, 1, 1), random(1, 2, 1, 2, seed=1)

    def net(x: Any) -> Any:
        y = mc.conv(x * c, w)
        return mc.clip(y, min=-1.0, max=1.0), mc.floor(y)

    g = mc.trace(net, mc.f32[1, 2, 2, 2])
    check_same(g, random(1, 2, 2, 2, seed=2))
    assert FoldConvBn()(g) is g


def comparison_model() -> onnx.ModelProto:
    """GreaterOrEqual of constants at opset 15, as a number of rows that a Reshape asks for."""
    constants = {"a": np.int64([4, 1]), "b": np.int64([3, 1]), "rest": np.int64([-1])}
    nodes = [
        helper.make_node("GreaterOrEqual", ["a", "b"], ["ge"]),
        helper.make_node("Cast", ["ge"], ["ones"], to=TensorProto.INT64),
        helper.make_node("ReduceSum", ["ones"], ["rows"], keepdims=1),
        helper.make_node("Concat", ["rows", "rest"], ["shape"], axis=0),
        helper.make_node("Reshape", ["x", "shape"], ["y"]),
    ]
    g = helper.make_graph(
        nodes,
        "ge",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [onnx.numpy_helper.from_array(a, n) for n, a in constants.items()],
    )
    return helper.make_model(g, opset_imports=[helper.make_opsetid("", 15)], ir_version=8)


def test_comparisons_of_constants_are_folded() -> None:
    """FAULTS 100: folded on the way to a shape; the type of the result is known before."""
    g = mc.load_onnx(comparison_model().SerializeToString())
    assert g.output_types() == (mc.f32[2, 3],)
    after, _ = Pipeline.default(1).run(g)
    assert after.nodes == ()


def test_a_size_guard_says_that_it_skips() -> None:
    """FAULTS 100: no silent end of folding: each node that is too large is a line of the log."""
    g = graph("c: f32[4] = const([1.0, 2.0, 3.0, 4.0]); a = expand(c, shape=(64, 4)); y = neg(a)")
    with collecting() as events:
        after = FoldConstants(max_bytes=512)(g)
    assert after is g
    (found,) = (str(e) for e in events)
    assert found == "fold at a: 1024 bytes are more than 512"
    assert FoldConstants(max_bytes=1024)(g).nodes == ()


def quantized_conv(x: Any) -> Any:
    scale, zero = np.float32(0.25), np.uint8(128)
    w = random(2, 1, 2, 2)
    pair = mc.dequantize_linear(mc.quantize_linear(x, scale, zero), scale, zero)
    return mc.conv(pair, w)


def test_pairs_of_quantize_and_dequantize_stay() -> None:
    """FAULTS 102: what the pair rounds away is gone after every pass; only `fast` drops it."""
    g = mc.trace(quantized_conv, mc.f32[1, 1, 4, 4])
    x = 9 * random(1, 1, 4, 4, seed=1)
    assert not np.allclose(interpret(g, [x])[0], mc.interpret(unquantized(), [x])[0], atol=1e-3)
    check_same(g, x)
    assert Canonicalize()(g) is g
    assert ops(Canonicalize("fast")(g)) == ["conv"]


def unquantized() -> Graph:
    w = random(2, 1, 2, 2)
    return mc.trace(lambda x: mc.conv(x, w), mc.f32[1, 1, 4, 4])


def test_a_small_constant_through_a_pair_is_rounded() -> None:
    """FAULTS 102: Dequantize(Quantize(const [4])) feeds a Conv: folded to the rounded number."""
    value = np.full((1, 1, 4, 4), 4.06, np.float32)
    g = mc.trace(lambda x: quantized_conv(value) + x, mc.f32[1, 2, 3, 3])
    *_, after = check_same(g, random(1, 2, 3, 3))
    (constant,) = (c for c in after.constants if c.array.shape == (1, 2, 3, 3))
    expected = mc.interpret(unquantized(), [np.full((1, 1, 4, 4), 4.0, np.float32)])[0]
    np.testing.assert_allclose(constant.array, expected, rtol=1e-6)


BOUNDS = [(1, 3), (0, 4), (2, 4)]


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2), (0, 2, 1)])
def test_chains_of_saturations_keep_the_innermost(order: tuple[int, ...]) -> None:
    """FAULTS 113: three ranges [1, 3], [0, 4], [2, 4]: what is left is [2, 3]."""
    y = "x"
    steps: list[str] = []
    for n in order:
        low, high = BOUNDS[n]
        steps.append(f"s{n} = clip({y}, min={low}.0, max={high}.0)")
        y = f"s{n}"
    g = graph(f"x: f32[9] | {'; '.join(steps)}; y = neg({y})")
    after = Canonicalize()(g)
    (clip, _) = after.nodes
    assert isinstance(clip, Node)
    assert clip.op.attributes() == {"min": 2.0, "max": 3.0}
    x = np.float32([-9, 0, 1, 2, 2.5, 3, 4, np.inf, np.nan])
    np.testing.assert_array_equal(interpret(after, [x])[0], interpret(g, [x])[0])


@pytest.mark.parametrize("seed", range(20))
def test_chains_of_any_bounds(seed: int) -> None:
    """FAULTS 113: crossed bounds and missing ones too."""
    rng = np.random.default_rng(seed)
    steps: list[str] = []
    for n in range(4):
        low, high = (f"{v}.0" if rng.random() < 0.8 else None for v in rng.integers(-3, 4, 2))
        steps.append(f"s{n + 1} = clip(s{n}, min={low}, max={high})")
    g = graph(f"x: f32[12] | s0 = neg(x); {'; '.join(steps)}; y = exp(s4)")
    x = np.float32([*range(-5, 5), np.nan, np.inf])
    after = Canonicalize()(g)
    np.testing.assert_array_equal(interpret(after, [x])[0], interpret(g, [x])[0])


def test_requantization_keeps_the_inner_saturation() -> None:
    """FAULTS 113: quantize to u8, dequantize, quantize by another scale: three roundings stay."""

    def net(x: Any) -> Any:
        a = mc.quantize_linear(x, np.float32(0.5), np.uint8(0))
        b = mc.dequantize_linear(a, np.float32(0.5), np.uint8(0))
        c = mc.quantize_linear(b, np.float32(1.0), np.uint8(0))
        return mc.dequantize_linear(c, np.float32(1.0), np.uint8(0))

    g = mc.trace(net, mc.f32[7])
    x = np.float32([-3, 0.3, 0.75, 1.25, 127.4, 300, np.nan])
    check_same(g, x)
    [y] = interpret(Canonicalize()(g), [x])
    np.testing.assert_array_equal(y, [0, 0, 1, 1, 128, 128, 0])


ROUND_TRIPS: dict[str, Callable[[], Graph]] = {
    "per axis": lambda: _round_trip(np.float32([0.1, 7.0, 1e-9]), np.int8([0, -128, 127]), "i8"),
    "negative": lambda: _round_trip(np.float32(-0.3), np.uint8(200), "u8"),
    "16 bits": lambda: _round_trip(np.float32(1 / 3), np.uint16(65535), "u16"),
}


def _round_trip(scale: Any, zero: Any, element: str) -> Graph:
    def net(q: Any) -> Any:
        x = mc.dequantize_linear(q, scale, zero, axis=1)
        return mc.quantize_linear(x, scale, zero, axis=1, to=zero.dtype)

    return mc.trace(net, getattr(mc, element)[65536 // 3, 3])


@pytest.mark.parametrize("name", ROUND_TRIPS)
def test_quantize_of_dequantize_is_exact(name: str) -> None:
    """Every integer of the type comes back, so the pair may go (FAULTS 102 is about the other)."""
    g = ROUND_TRIPS[name]()
    (i,) = g.inputs
    info = np.iinfo(i.type.dtype.numpy.name)
    q = np.resize(np.arange(info.min, info.max + 1), i.type.dims).astype(i.type.dtype.numpy)
    np.testing.assert_array_equal(interpret(g, [q])[0], q)
    assert Canonicalize()(g).outputs == g.inputs
