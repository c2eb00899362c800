"""Models with channels last: their transposes go, images stay in blocks from end to end.

An exporter puts one transpose before and one after each convolution. `sink` takes them through what
is between, `layout` does the rest; numbers are compared at every step. C, H and W all differ.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

import minidlc as mc
from minidlc.graph import Graph, interpret
from minidlc.tests.transform.test_layout import arrays_for, weights
from minidlc.tests.transform.test_layout_models import ops_of
from minidlc.transform import Layout, Pipeline, parse_pipeline
from minidlc.transform.layout import layout

pytestmark = pytest.mark.ch02
NCHW, NHWC = (0, 3, 1, 2), (0, 2, 3, 1)  # what a transpose makes


def conv(x, outputs: int, kernel: int = 3, group: int = 1, stride: int = 1):
    """A convolution of an image with channels last, and a bias, as exporters write it."""
    w = weights(outputs, x.type.dims[3] // group, kernel, kernel)
    pads, strides = (kernel // 2,) * 4, (stride, stride)
    y = mc.conv(mc.transpose(x, perm=NCHW), w, group=group, pads=pads, strides=strides)
    return mc.transpose(y, perm=NHWC) + weights(outputs)


def pool(x):
    y = mc.max_pool(mc.transpose(x, perm=NCHW), kernel_shape=(2, 2), strides=(2, 2))
    return mc.transpose(y, perm=NHWC)


def residual(x, outputs: int):
    return mc.relu(conv(mc.relu(conv(x, outputs)), outputs) + x)


def fire(x, squeeze: int, expand: int):
    s = mc.relu(conv(x, squeeze, 1))
    return mc.concat(mc.relu(conv(s, expand, 1)), mc.relu(conv(s, expand, 3)), axis=3)


def classifier(x):
    """Pool, residual branch, concatenation, depthwise convolution, mean over pixels."""
    y = fire(residual(pool(mc.relu(conv(x, 16))), 16), 8, 16)
    y = mc.relu(conv(y, 32, group=32, stride=2))
    return mc.softmax(mc.mean(y, axes=(1, 2), keepdims=False) @ weights(32, 10), axis=1)


def optimised(graph: Graph, block: int = 8) -> Graph:
    """The default passes with sink in front of layout; each keeps the numbers."""
    cleaning = parse_pipeline("sink,canonicalize,cse,dce").passes
    default = Pipeline.default().without("fuse").replace("layout", Layout(block=block)).passes
    at = [p.name for p in default].index("fold_conv_bn")
    after, records = Pipeline((*default[:at], *cleaning, *default[at:])).run(graph)
    arrays = arrays_for(graph)
    expected = interpret(graph, arrays)
    for record in records:
        for got, want in zip(interpret(record.after, arrays), expected, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4, err_msg=record.name)
    return after


def test_no_image_is_moved_inside_a_model_with_channels_last() -> None:
    g = mc.trace(classifier, mc.f32[1, 20, 24, 3])
    assert ops_of(g)["transpose"] == 16
    ops = ops_of(optimised(g))
    assert ops["transpose"] == 1  # of the image that comes in
    assert (ops["pack"], ops["unpack"]) == (0, 0)
    assert (ops["conv2d_nchwc"], ops["depthwise_nchwc"], ops["conv"]) == (6, 1, 0)
    assert (ops["add"], ops["concat"]) == (1, 1)  # biases are in the convolutions


@pytest.mark.parametrize("block", [4, 8, 16])
def test_an_image_that_goes_out_is_moved_once(block: int) -> None:
    g = mc.trace(lambda x: residual(mc.relu(conv(x, 32)), 32), mc.f32[2, 9, 11, 3])
    ops = ops_of(optimised(g, block))
    assert ops["conv2d_nchwc"] == 3
    assert (ops["pack"], ops["unpack"]) == (0, 1)
    assert ops["transpose"] == 2  # one at each end


def test_112_a_residual_branch_in_another_layout() -> None:
    """FAULTS row 112: Conv, Relu, Add(skip), Conv; the skip arrives with channels first."""

    def net(x, skip):
        y = mc.relu(conv(x, 16))
        return mc.mean(conv(y + mc.transpose(skip, perm=NHWC), 16), axes=(1, 2))

    ops = ops_of(optimised(mc.trace(net, mc.f32[1, 9, 11, 5], mc.f32[1, 16, 9, 11])))
    assert ops["transpose"] <= 2
    assert ops["conv2d_nchwc"] + ops["conv"] == 2


RESIZED = {
    "nearest": {"scales": (1.0, 2.0, 2.0, 1.0), "coordinate_transformation_mode": "asymmetric"},
    "linear": {"scales": (1.0, 2.0, 3.0, 1.0), "mode": "linear"},
    "channels too": {"scales": (1.0, 2.0, 2.0, 2.0), "mode": "linear"},
}


@pytest.mark.parametrize("name", RESIZED)
@pytest.mark.parametrize("between", [False, True])
def test_110_a_resize_between_transposes(
    name: str, between: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FAULTS row 110: an axis of NHWC is not that of NCHW; alone, and between convolutions."""
    monkeypatch.setattr(layout, "GAIN", 1000)  # sizes that tests can afford

    def net(x):
        y = conv(x, 8) if between else mc.transpose(x, perm=NHWC)
        y = mc.resize(y, **RESIZED[name])
        return conv(y, 8) if between else mc.transpose(y, perm=NCHW)

    shape = (2, 5, 6, 7) if between else (2, 7, 5, 6)
    ops = ops_of(optimised(mc.trace(net, mc.f32[shape])))
    assert ops["conv2d_nchwc"] == (2 if between else 0)
    if name != "channels too":
        assert ops["transpose"] == (2 if between else 0)


def test_grouped_convolutions_and_batches_that_are_open_keep_their_numbers() -> None:
    g = mc.trace(lambda x: mc.relu(conv(mc.relu(conv(x, 16)), 16, group=4)), mc.f32[1, 7, 9, 8])
    counted: Counter[str] = ops_of(optimised(g))
    assert counted["conv"] == 1  # four groups cut through blocks
    w = weights(16, 8, 3, 3)
    g = mc.trace(
        lambda x: mc.transpose(mc.conv(mc.transpose(x, perm=NCHW), w, pads=(1,) * 4), perm=NHWC),
        mc.f32["n", 7, 9, 8],
    )
    after, records = Pipeline.default().run(g)
    (reason,) = (e.reason for r in records if r.name == "layout" for e in r.refusals)
    assert reason == 'f32["n", 16, 7, 9] is no image of known sizes'
    assert ops_of(after)["conv"] == 1


@pytest.mark.llvm
def test_as_machine_code() -> None:
    g = mc.trace(classifier, mc.f32[1, 20, 24, 3])
    arrays = arrays_for(g)
    got = mc.compile(optimised(g), threads=2)(*arrays)
    np.testing.assert_allclose(got[0], interpret(g, arrays)[0], rtol=1e-4, atol=1e-5)
