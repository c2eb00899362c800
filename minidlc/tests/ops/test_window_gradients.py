"""Gradients of convolutions and pools: conventions, shapes at the edge, refusals."""

from __future__ import annotations

import numpy as np
import pytest

import minidlc as mc
from minidlc.graph import apply
from minidlc.support.errors import TypeRuleError

pytestmark = pytest.mark.ch03


def pooled(shape, **attributes):
    """The graph of dx of a maximum pool."""
    x = mc.Input("x", mc.f64[shape])
    return mc.grad(mc.Graph.of("g", [x], [apply("max_pool", x, **attributes)]))


def test_equal_maxima_share_evenly():
    graph = pooled((1, 1, 2, 4), kernel_shape=(2, 2), strides=(2, 2))
    x = np.array([[3.0, 3, 5, 1], [3, 0, 2, 1]]).reshape(1, 1, 2, 4)
    dx = mc.interpret(graph, [x, np.array([6.0, 7]).reshape(1, 1, 1, 2)])[0]
    np.testing.assert_array_equal(dx[0, 0], [[2, 2, 7, 0], [2, 0, 0, 0]])


def test_of_overlapping_windows_an_element_may_be_the_maximum_of_several():
    graph = pooled((1, 1, 5), kernel_shape=(3,))
    x = np.array([1.0, 2, 9, 2, 1]).reshape(1, 1, 5)
    dx = mc.interpret(graph, [x, np.array([1.0, 10, 100]).reshape(1, 1, 3)])[0]
    np.testing.assert_array_equal(dx.ravel(), [0, 0, 111, 0, 0])


def test_the_border_takes_nothing_even_from_a_window_of_minus_infinity():
    graph = pooled((1, 1, 2), kernel_shape=(2,), pads=(1, 1))
    low = np.full((1, 1, 2), -np.inf)
    dx = mc.interpret(graph, [low, np.array([1.0, 10, 100]).reshape(1, 1, 3)])[0]
    np.testing.assert_array_equal(dx.ravel(), [6, 105])


def test_a_window_with_a_nan_spreads_over_all_its_elements():
    graph = pooled((1, 1, 4), kernel_shape=(2,), strides=(2,))
    x = np.array([np.nan, 1, 2, 1]).reshape(1, 1, 4)
    dx = mc.interpret(graph, [x, np.array([4.0, 5]).reshape(1, 1, 2)])[0]
    np.testing.assert_array_equal(dx.ravel(), [2, 2, 5, 0])


def test_pixels_that_no_window_reads_have_a_gradient_of_zero():
    x, w = mc.Input("x", mc.f64[1, 1, 6]), mc.Input("w", mc.f64[1, 1, 2])
    graph = mc.grad(mc.Graph.of("g", [x, w], [apply("conv", x, w, strides=(3,))]), ["x"])
    dx = mc.interpret(graph, [np.ones((1, 1, 6)), np.array([[[2.0, 3]]]), np.ones((1, 1, 2))])[0]
    np.testing.assert_array_equal(dx.ravel(), [2, 3, 0, 2, 3, 0])


def test_a_norm_of_zero_passes_nothing_on():
    x = mc.Input("x", mc.f64[1, 1, 4])
    pool = apply("lp_pool", x, kernel_shape=(2,), strides=(2,))
    graph = mc.grad(mc.Graph.of("g", [x], [pool]))
    dx = mc.interpret(graph, [np.array([[[0.0, 0, 3, 4]]]), np.array([[[5.0, 5]]])])[0]
    np.testing.assert_allclose(dx.ravel(), [0, 0, 3, 4])


def ops_of_dx(size, kernel, **attributes):
    """The ops that the gradient of a convolution with respect to its input is made of."""
    x, w = mc.Input("x", mc.f64[1, 2, size]), mc.Input("w", mc.f64[3, 2, kernel])
    graph = mc.grad(mc.Graph.of("g", [x, w], [apply("conv", x, w, **attributes)]), ["x"])
    return [node.op.name for node in graph.nodes]


def test_dx_is_a_convolution_with_the_taps_in_reverse():
    assert ops_of_dx(8, 3, pads=(1, 1)) == ["slice", "transpose", "conv"]
    assert ops_of_dx(8, 1) == ["transpose", "conv"]


def test_dx_is_a_transposed_convolution_over_strides_and_where_the_border_would_be_large():
    assert ops_of_dx(8, 3, strides=(2,)) == ["conv_transpose"]
    assert ops_of_dx(8, 5) == ["conv_transpose"]  # 8 pixels from 4: a border of 4 on both sides
    assert ops_of_dx(8, 3, pads=(3, 3)) == ["conv_transpose"]  # more than the taps reach over


X, Y = mc.Input("x", mc.f32[2, 4, 8, 8]), mc.Input("y", mc.f32[2, 6, 6, 6])
POOLED = mc.Input("p", mc.f32[2, 4, 4, 4])
HALVED = {"kernel_shape": (2, 2), "strides": (2, 2)}

REFUSED = {
    "group": (
        lambda: apply("conv_weight_gradient", X, Y, kernel_shape=(3, 3), group=4),
        "group 4 does not divide 4 channels and 6 outputs",
    ),
    "size": (
        lambda: apply("conv_weight_gradient", X, Y, kernel_shape=(2, 2)),
        r"the windows over f32\[2, 4, 8, 8\] give f32\[2, 6, 7, 7\], got dy f32\[2, 6, 6, 6\]",
    ),
    "kernel": (
        lambda: apply("conv_weight_gradient", X, Y, kernel_shape=(3,)),
        "kernel_shape",
    ),
    "y": (
        lambda: apply("max_pool_gradient", X, Y, Y, **HALVED),
        r"give f32\[2, 4, 4, 4\], got y f32\[2, 6, 6, 6\]",
    ),
    "dy": (
        lambda: apply("max_pool_gradient", X, POOLED, Y, **HALVED),
        r"dy must be f32\[2, 4, 4, 4\] as y is",
    ),
    "dx": (
        lambda: apply("max_pool_tangent", X, POOLED, Y, **HALVED),
        r"dx must be f32\[2, 4, 8, 8\] as x is",
    ),
    "spread": (
        lambda: apply("spread_windows", Y, size=(8, 8), **HALVED),
        r"give f32\[2, 6, 4, 4\], got dy f32\[2, 6, 6, 6\]",
    ),
    "no size": (lambda: apply("spread_windows", Y, **HALVED), "size"),
}


@pytest.mark.parametrize(("build", "message"), REFUSED.values(), ids=REFUSED)
def test_what_does_not_fit_is_refused(build, message):
    with pytest.raises(TypeRuleError, match=message):
        build()


def test_onnx_has_no_such_op():
    with pytest.raises(mc.CompileError, match="max_pool_gradient has no ONNX form"):
        mc.to_onnx(pooled((1, 1, 4), kernel_shape=(2,)))
