"""Attention: what no other engine is an oracle for, properties, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

import minidlc as mc
from minidlc.graph import apply, getitem
from minidlc.graph.graph import Input
from minidlc.ops import samples
from minidlc.support.errors import TypeRuleError
from minidlc.tests.ops import checks

pytestmark = pytest.mark.ch01


def attend(*arrays, **attributes):
    """Every result by the reference; the decomposition is held against it."""
    op = mc.graph.op_class("attention")(**attributes)
    example = mc.graph.Example(op, arrays, 1e-5, 1e-5)
    checks.check_decomposition(example)
    return checks.reference(example)


def qkv(queries=3, keys=5, heads=2, kv_heads=2):
    q = samples.array((2, heads, queries, 4))
    return q, *(samples.array((2, kv_heads, keys, 4), seed=n) for n in (1, 2))


def test_hidden_keys_do_not_count_whatever_they_hold():
    q, k, v = qkv()
    mask = np.array([[True, True, False, False, False]])
    wanted = attend(q, k, v, mask)[0]
    for poison in (np.inf, -np.inf, np.nan):
        poisoned = k.copy()
        poisoned[:, :, 2:] = poison
        np.testing.assert_array_equal(attend(q, poisoned, v, mask)[0], wanted)
        added = np.where(mask, 0, -np.inf).astype(np.float32)
        np.testing.assert_array_equal(attend(q, poisoned, v, added)[0], wanted)


def test_a_row_without_keys_is_zero():
    q, k, v = qkv()
    y, *_, weights = attend(q, k, v, np.zeros((1, 5), bool), qk_matmul_output_mode=3)
    assert not y.any()
    assert not weights.any()
    y, _ = attend(q, k, v, None, None, None, np.array([0, 2]), is_causal=True)
    assert not y[0].any()
    assert not y[1, :, 0].any()
    assert y[1, :, 1:].all()


def test_a_cache_gives_what_the_whole_sequence_gives():
    q, k, v = qkv(queries=6, keys=6)
    whole = attend(q, k, v, is_causal=True)[0]
    past = k[:, :, :4].copy(), v[:, :, :4].copy()
    rest = (a[:, :, 4:].copy() for a in (q, k, v))
    y, key, value, _ = attend(*rest, None, *past, is_causal=True)
    np.testing.assert_allclose(y, whole[:, :, 4:], rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(key, k)
    np.testing.assert_array_equal(value, v)
    lengths = np.array([6, 6])
    outside, _ = attend(q[:, :, 4:].copy(), k, v, None, None, None, lengths, is_causal=True)
    np.testing.assert_allclose(outside, y, rtol=1e-5, atol=1e-6)


def test_shared_heads_are_repeated_heads():
    q, k, v = qkv(heads=4, kv_heads=2)
    repeated = (np.repeat(a, 2, axis=1) for a in (k, v))
    np.testing.assert_allclose(attend(q, k, v)[0], attend(q, *repeated)[0], rtol=1e-5, atol=1e-6)


def test_raw_scores_are_before_the_softcap():
    q, k, v = qkv()
    scores = attend(q, k, v, softcap=0.5)[3]
    np.testing.assert_allclose(scores, q @ k.swapaxes(2, 3) / 2, rtol=1e-5, atol=1e-6)
    capped = attend(q, k, v, softcap=0.5, qk_matmul_output_mode=1)[3]
    np.testing.assert_allclose(capped, np.tanh(scores / 0.5) * 0.5, rtol=1e-5, atol=1e-6)


def test_a_window_wider_than_int64_has_room_is_no_bound():
    q, k, v = qkv()
    wide = attend(q, k, v, left_window_size=2**62, right_window_size=2**63 - 1)
    np.testing.assert_array_equal(wide[0], attend(q, k, v)[0])


def test_a_precision_below_f32_is_f32():
    q, k, v = qkv()
    np.testing.assert_array_equal(attend(q, k, v, softmax_precision="f16")[0], attend(q, k, v)[0])


def test_unread_results_cost_nothing():
    q, k, v = (Input(n, mc.f32[1, 2, 3, 4]) for n in "qkv")
    y = getitem(apply("attention", q, k, v, qk_matmul_output_mode=3), 0)
    exe = mc.compile(mc.Graph.of("g", [q, k, v], [y]), threads=1)
    (got,) = exe(*(samples.array((1, 2, 3, 4), seed=n) for n in range(3)))
    assert got.shape == (1, 2, 3, 4)


X = mc.f32[2, 2, 3, 4]
PACKED = mc.f32[2, 3, 8]


@pytest.mark.parametrize(
    ("types", "attributes", "text"),
    [
        ((X, X, mc.f32[2, 2, 9, 4]), {}, "v is"),
        ((X, mc.f32[2, 2, 3, 5], X), {}, "k is"),
        ((X, PACKED, X), {}, "k must have rank 4"),
        ((mc.f32[3, 4],) * 3, {}, "rank 3 or 4"),
        ((mc.f32[2, 3, 3, 4], X, X), {}, "3 query heads cannot share 2"),
        ((PACKED,) * 3, {}, "q_num_heads is 0"),
        ((PACKED,) * 3, {"q_num_heads": 3, "kv_num_heads": 2}, "q_num_heads is 3"),
        ((X,) * 3, {"q_num_heads": 3}, "q_num_heads says 3"),
        ((X,) * 3, {"softcap": -1.0}, "softcap"),
        ((X,) * 3, {"scale": float("nan")}, "scale"),
        ((X,) * 3, {"left_window_size": -2}, "window sizes"),
        ((X,) * 3, {"qk_matmul_output_mode": 4}, "0 to 3"),
        ((X,) * 3, {"softmax_precision": "i8"}, "softmax_precision"),
        ((X, X, X, mc.f32[2, 2, 4, 3]), {}, "does not broadcast"),
        ((X, X, X, mc.f32[3, 4]), {}, "does not broadcast"),
        ((X, X, X, mc.i32[3, 3]), {}, "takes float or bool"),
        ((X, X, X, None, X), {}, "come together"),
        ((X, X, X, None, X, mc.f32[2, 2, 4, 4]), {}, "past_value must be"),
        ((X, X, X, None, X, X, mc.i64[2]), {}, "not both"),
        ((X, X, X, None, None, None, mc.i64[3]), {}, "lengths must be i64[2]"),
        ((X,) * 8, {}, "takes 3 to 7 inputs"),
        ((mc.f32["B", 2, 3, 4],) * 3, {}, "symbolic"),
    ],
)  # fmt: skip
def test_refused(types, attributes, text):
    inputs = [None if t is None else Input(f"x{n}", t) for n, t in enumerate(types)]
    with pytest.raises(TypeRuleError) as caught:
        apply("attention", *inputs, **attributes)
    assert text in str(caught.value)


@pytest.mark.llvm
@pytest.mark.parametrize("causal", [False, True])
def test_scores_of_minus_infinity_without_a_mask(causal: bool) -> None:
    """As the function body in ONNX's schema; ONNX Runtime gives NaN."""
    q, v = np.ones((1, 2, 3, 4), np.float32), np.ones((1, 2, 5, 7), np.float32)
    k = np.full((1, 2, 5, 4), -np.inf, np.float32)
    types = (mc.f32[a.shape] for a in (q, k, v))
    g = mc.trace(lambda *x: mc.attention(*x, is_causal=causal)[0], *types)
    for (got,) in (mc.compile(g)(q, k, v), mc.interpret(g, (q, k, v))):
        np.testing.assert_array_equal(got, np.zeros((1, 2, 3, 7), np.float32))
