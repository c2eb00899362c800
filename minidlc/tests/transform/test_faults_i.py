"""Faults of precision: roundings that a model asked for and that fusion or rules took away."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import minidlc as mc
from minidlc.graph import Graph
from minidlc.tests.transform.rule_cases import calls, graph
from minidlc.transform import Canonicalize, Pipeline

pytestmark = [pytest.mark.ch02, pytest.mark.llvm]


def random(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def casts(g: Graph) -> int:
    """How many casts there are, also inside fused groups."""
    inner = sum(casts(n.op.attributes()["body"]) for n in g.nodes if n.op.name == "fused")
    return inner + sum(n.op.name == "cast" for n in g.nodes)


def rounded_product(x: Any, w: Any, bias: Any) -> Any:
    return mc.cast(mc.cast(x @ w, to=mc.bf16), to=mc.f32) + bias


@pytest.mark.parametrize("level", [0, 1, 2, 3])
@pytest.mark.parametrize("precision", ["strict", "default", "fast"])
def test_a_cast_between_matmul_and_add_rounds(level: int, precision: str) -> None:
    """FAULTS 115: (x @ w) to bf16, then + f32 bias: what the cast took away is gone."""
    x, w, bias = random(4, 32), random(32, 8, seed=1), random(8, seed=2)
    exe = mc.compile(
        mc.trace(rounded_product, mc.f32[4, 32], mc.f32[32, 8], mc.f32[8]),
        opt_level=level,
        precision=precision,
    )
    assert casts(exe.graph) == 2
    [y] = exe(x, w, bias)
    product = y - bias
    kept = product.astype(ml_dtypes.bfloat16).astype(np.float32)
    np.testing.assert_allclose(kept, product, rtol=0, atol=2e-6)  # of the sum with the bias
    exact = (x.astype(np.float64) @ w).astype(np.float32)
    assert np.abs(exact - product).max() > 1e-3  # bf16 has 8 bits: it did round


def through_f16(c: Any, x: Any, z: Any) -> Any:
    narrow = mc.cast(mc.where(c, x, z), to=mc.f16)
    return mc.cast(narrow, to=mc.f32) + z


@pytest.mark.parametrize("level", [0, 1, 2, 3])
@pytest.mark.parametrize("precision", ["strict", "default", "fast"])
def test_a_pair_of_casts_down_and_up_rounds(level: int, precision: str) -> None:
    """FAULTS 117: Where, Cast to f16, Cast to f32, Add: bit-equal to the ops one by one."""
    c = np.random.default_rng(3).random((5, 33)) < 0.5
    x, z = 1e4 * random(5, 33), random(5, 33, seed=1)
    x[0, :3] = 1e6, 1e-9, np.nan  # too large for f16, too small, none
    g = mc.trace(through_f16, mc.bool_[5, 33], mc.f32[5, 33], mc.f32[5, 33])
    exe = mc.compile(g, opt_level=level, precision=precision)
    assert casts(exe.graph) == 2
    np.testing.assert_array_equal(exe(c, x, z)[0], mc.interpret(g, [c, x, z])[0])


ROUNDING = ["f32 f16 f32", "f32 bf16 f32", "f64 f32 f64", "f32 i32 f32", "f32 bool f32"]
LOSSLESS = [
    "f16 f32 f16",
    "bf16 f32 bf16",
    "f32 f64 f32",
    "u8 i32 u8",
    "i8 f16 i8",
    "bool f32 bool",
]


@pytest.mark.parametrize("names", ROUNDING)
def test_no_rounding_is_dropped(names: str) -> None:
    """FAULTS 115, 117: every pair whose first step loses something stays."""
    own, narrow, back = names.split()
    g = graph(f"x: {own}[3] | a = cast(x, to={narrow}); y = cast(a, to={back})")
    assert Canonicalize()(g) is g
    assert Canonicalize("fast")(g) is g
    assert len(Pipeline.default(3).run(g)[0].nodes) >= 1


@pytest.mark.parametrize("names", LOSSLESS)
def test_widening_then_narrowing_goes(names: str) -> None:
    own, wide, back = names.split()
    g = graph(f"x: {own}[3] | a = cast(x, to={wide}); y = cast(a, to={back})")
    assert calls(Canonicalize()(g)) == "x"


def test_a_float_between_integers_saturates() -> None:
    """i32 as f64, then as i8, saturates; as i8 at once it would wrap."""
    g = graph("x: i32[3] | a = cast(x, to=f64); y = cast(a, to=i8)")
    assert Canonicalize()(g) is g
    [y] = mc.interpret(g, [np.int32([300, -300, 5])])
    np.testing.assert_array_equal(y, [127, -128, 5])
