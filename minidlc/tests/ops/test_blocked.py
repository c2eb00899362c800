"""Blocks of channels: the same numbers as the plain ops, and errors that name what does not fit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import minidlc.ops  # noqa: F401  fills the registry
from minidlc.expr.types import TensorType, f32, f64
from minidlc.graph import Input, apply
from minidlc.graph.op import evaluate
from minidlc.ops.blocked import (
    Conv2dNchwc,
    DepthwiseNchwc,
    Pack,
    Unpack,
    pack_array,
    unpack_array,
)
from minidlc.ops.conv import Conv
from minidlc.ops.pool import AveragePool, MaxPool
from minidlc.ops.reduction import Mean
from minidlc.ops.samples import array
from minidlc.support.errors import TypeRuleError

pytestmark = pytest.mark.ch02


@given(st.lists(st.integers(0, 7), min_size=1, max_size=4), st.integers(1, 9), st.integers(0, 3))
def test_unpacking_undoes_packing(shape: list[int], block: int, axis: int) -> None:
    axis = axis % len(shape)
    x = array(shape)
    packed = evaluate(Pack(block, axis), [x])
    assert packed.shape[-1] == block
    np.testing.assert_array_equal(evaluate(Unpack(shape[axis], axis), [packed]), x)
    rest = evaluate(Unpack(packed.shape[axis] * block, axis), [packed])
    assert not np.take(rest, range(shape[axis], rest.shape[axis]), axis).any()


@pytest.mark.parametrize("channels", [3, 5, 8, 13])
@pytest.mark.parametrize("block", [1, 4, 8])
def test_a_blocked_convolution_is_the_plain_one(channels: int, block: int) -> None:
    x, w, b = array((2, channels, 7, 9)), array((6, channels, 3, 2), seed=1), array((6,), seed=2)
    geometry = (2, 1), (1, 0, 2, 1), (1, 2)
    wanted = evaluate(Conv(*geometry), [x, w, b])
    op, bias = Conv2dNchwc(*geometry), pack_array(b, 0, block)
    stem = pack_array(w, 0, block)
    np.testing.assert_allclose(
        unpack_array(evaluate(op, [x, stem, bias]), 1, 6), wanted, rtol=1e-5, atol=1e-5
    )
    dense = pack_array(pack_array(w, 1, block), 0, block)
    got = evaluate(op, [pack_array(x, 1, block), dense, bias])
    np.testing.assert_allclose(unpack_array(got, 1, 6), wanted, rtol=1e-5, atol=1e-5)
    assert not unpack_array(got, 1, got.shape[1] * block)[:, 6:].any()


def test_a_blocked_depthwise_convolution_is_the_plain_one() -> None:
    x, w = array((1, 6, 7, 9)), array((6, 1, 3, 3), seed=1)
    wanted = evaluate(Conv(pads=(1, 1, 1, 1), group=6), [x, w])
    op = DepthwiseNchwc(pads=(1, 1, 1, 1))
    got = evaluate(op, [pack_array(x, 1, 4), pack_array(w[:, 0], 0, 4)])
    np.testing.assert_allclose(unpack_array(got, 1, 6), wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("plain", "blocked"),
    [
        (MaxPool((3, 2), (2, 1), (1, 0, 1, 1)), MaxPool((3, 2, 1), (2, 1, 1), (1, 0, 0, 1, 1, 0))),
        (AveragePool((2, 2), pads=(1, 1, 1, 1)), AveragePool((2, 2, 1), pads=(1, 1, 0, 1, 1, 0))),
        (Mean((2, 3)), Mean((2, 3))),
    ],
)
def test_pools_take_blocks_as_they_are(plain, blocked) -> None:
    """One tap along the last axis: a pool of a blocked image is a pool in three dimensions."""
    x = array((1, 6, 7, 8))
    got = evaluate(blocked, [pack_array(x, 1, 4)])
    wanted = evaluate(plain, [x])
    np.testing.assert_allclose(unpack_array(got, 1, 6), wanted, rtol=1e-6, atol=1e-6)


def refused(name: str, *types: TensorType, **attributes: object) -> str:
    with pytest.raises(TypeRuleError) as caught:
        apply(name, *(Input(f"x{n}", t) for n, t in enumerate(types)), **attributes)
    return f"{caught.value.code} {caught.value.message}"


IMAGE, DENSE = f32[1, 2, 5, 5, 8], f32[3, 2, 3, 3, 8, 8]


@pytest.mark.parametrize(
    ("message", "name", "types", "attributes"),
    [
        ("MDLC0209 pack: block must be at least 1, got 0", "pack", [f32[1, 3]], {"block": 0}),
        ("MDLC0209 pack: axis 2 is outside [-2, 1]", "pack", [f32[1, 3]], {"block": 2, "axis": 2}),
        ("MDLC0205 pack: axis 1 of", "pack", [f32[1, "c"]], {"block": 2}),
        ("MDLC0204 unpack: x must have blocks", "unpack", [f32[3]], {"channels": 2, "axis": 0}),
        ("MDLC0209 unpack: 2 blocks of 4 do not hold 9 channels", "unpack",
         [f32[1, 2, 4]], {"channels": 9}),
        ("MDLC0205 unpack: the blocks of", "unpack", [f32[1, "c", 4]], {"channels": 9}),
        ("MDLC0204 conv2d_nchwc: w must have rank 6", "conv2d_nchwc",
         [IMAGE, f32[3, 2, 3, 3, 8]], {}),
        ("MDLC0204 conv2d_nchwc: x must have rank 4 or 5", "conv2d_nchwc", [f32[2, 3], DENSE], {}),
        ("MDLC0203 conv2d_nchwc: x has 3 x 8 channels, w wants 2 x 8", "conv2d_nchwc",
         [f32[1, 3, 5, 5, 8], DENSE], {}),
        ("MDLC0203 conv2d_nchwc: x has 4 channels, w wants 3", "conv2d_nchwc",
         [f32[1, 4, 5, 5], f32[2, 3, 3, 3, 8]], {}),
        ("MDLC0203 conv2d_nchwc: b must be f32[3, 8], got f32[24]", "conv2d_nchwc",
         [IMAGE, DENSE, f32[24]], {}),
        ("MDLC0202 conv2d_nchwc: element types differ", "conv2d_nchwc",
         [IMAGE, f64[3, 2, 3, 3, 8, 8]], {}),
        ("MDLC0209 conv2d_nchwc: strides must have 2 entries", "conv2d_nchwc",
         [IMAGE, DENSE], {"strides": (2,)}),
        ("MDLC0203 conv2d_nchwc: a window of 7 does not fit", "conv2d_nchwc",
         [IMAGE, DENSE], {"dilations": (3, 1)}),
        ("MDLC0203 depthwise_nchwc: x has 2 x 8 channels, w wants 2 x 4", "depthwise_nchwc",
         [IMAGE, f32[2, 3, 3, 4]], {}),
        ("MDLC0204 depthwise_nchwc: x must have rank 5", "depthwise_nchwc",
         [f32[1, 2, 5, 5], f32[2, 3, 3, 4]], {}),
    ],
)  # fmt: skip
def test_what_does_not_fit(
    message: str, name: str, types: list[TensorType], attributes: dict[str, object]
) -> None:
    assert refused(name, *types, **attributes).startswith(message)


def test_sizes_of_the_image_may_be_symbolic() -> None:
    x, w = Input("x", f32["n", 3, "h", "w"]), Input("w", f32[2, 3, 3, 3, 8])
    y = apply("conv2d_nchwc", x, w, pads=(1, 1, 1, 1))
    assert y.type == f32["n", 2, "h", "w", 8]
    assert apply("unpack", y, channels=13).type == f32["n", 13, "h", "w"]
