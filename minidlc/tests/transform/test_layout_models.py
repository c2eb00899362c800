"""The layout pass on whole models and random nets: no image is moved inside, numbers stay."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import minidlc as mc
from minidlc.benchmarks.models import MODELS
from minidlc.graph import Fused, Graph, interpret
from minidlc.tests.transform.test_layout import (
    arrays_for,
    conv,
    depthwise,
    laid_out,
    no_moves,
    weights,
)
from minidlc.transform import Layout, Pipeline
from minidlc.transform.layout import layout

pytestmark = pytest.mark.ch02


def ops_of(g: Graph) -> Counter[str]:
    """Ops, those inside fused groups too."""
    found: Counter[str] = Counter()
    for node in g.nodes:
        found.update(ops_of(node.op.body) if isinstance(node.op, Fused) else [node.op.name])
    return found


@pytest.mark.parametrize(
    ("model", "block", "alone", "masks"),
    [
        pytest.param("resnet18", 8, 3, 0, marks=pytest.mark.long),
        pytest.param("resnet18", 16, 3, 0, marks=pytest.mark.long),
        pytest.param("mobilenet_v2", 8, 7, 0, marks=pytest.mark.long),
        ("mobilenet_v2", 16, 6, 2),  # 24 channels, in blocks of 16, are summed over
    ],
)
def test_no_image_is_moved_inside_a_model(model: str, block: int, alone: int, masks: int) -> None:
    """Batch norm is in the weights, every convolution in blocks with its epilogue."""
    proto, _ = MODELS[model]()
    g = mc.load_onnx(proto)
    after, records = Pipeline.default().replace("layout", Layout(block=block)).run(g)
    ops = ops_of(after)
    assert no_moves(ops)
    assert ops["where"] == masks
    assert not {"conv", "sub", "mul"} & set(ops)
    convs = ops["conv2d_nchwc"] + ops["depthwise_nchwc"]
    assert convs == {"resnet18": 20, "mobilenet_v2": 52}[model]
    assert len([n for n in after.nodes if "nchwc" in n.op.name]) == alone  # no epilogue
    rewrites = next(r for r in records if r.name == "layout").rewrites
    assert sum("conv in blocks" in r.rule for r in rewrites) == convs


def test_places_are_kept() -> None:
    g = mc.load_onnx(MODELS["lenet"]()[0])
    after = Layout()(Pipeline.default().without("layout", "fuse").run(g)[0])
    first = next(n for n in after.nodes if n.op.name == "conv2d_nchwc")
    assert str(first.loc) == "layout of lenet: node 'conv_3_n' (Conv)"
    mask = next(n for n in after.nodes if n.op.name == "where")
    assert "(MaxPool)" in str(mask.loc)


@st.composite
def nets(draw: st.DrawFn) -> Callable[..., object]:
    """Random images passed through random layers, with residual adds and concatenations."""
    layers = draw(st.lists(st.sampled_from(sorted(LAYERS)), min_size=1, max_size=6))
    choices = draw(st.lists(st.integers(0, 10**6), min_size=6, max_size=6))

    def net(x):
        values = [x]
        for layer, choice in zip(layers, choices, strict=False):
            values.append(LAYERS[layer](values, np.random.default_rng(choice)))
        return values[-1], values[len(values) // 2]

    return net


def _like(values, rng):
    """An earlier value of the shape of the last."""
    same = [v for v in values if v.type == values[-1].type]
    return same[rng.integers(len(same))]


LAYERS = {
    "conv": lambda v, rng: conv(v[-1], int(rng.integers(1, 14)), int(rng.choice([1, 2, 3]))),
    "conv of one before": lambda v, rng: conv(v[rng.integers(len(v))], int(rng.integers(1, 14))),
    "strided": lambda v, rng: conv(v[-1], 8, 3, strides=(2, 1)),
    "depthwise": lambda v, rng: depthwise(v[-1], 3),
    "relu": lambda v, rng: mc.relu(v[-1]),
    "exp": lambda v, rng: mc.exp(mc.clip(v[-1], min=-3.0, max=3.0)),
    "add": lambda v, rng: v[-1] + _like(v, rng),
    "channels": lambda v, rng: v[-1] * weights(v[-1].type.dims[1], 1, 1),
    "concat": lambda v, rng: mc.concat(v[-1], mc.relu(_like(v, rng)), axis=1),
    "pool": lambda v, rng: mc.max_pool(v[-1], kernel_shape=(2, 2), pads=(1, 1, 0, 0)),
    "mean": lambda v, rng: mc.average_pool(v[-1], kernel_shape=(3, 3), pads=(1, 1, 1, 1)),
    "gate": lambda v, rng: v[-1] * mc.sigmoid(mc.mean(v[-1], axes=(2, 3))),
    "softmax": lambda v, rng: mc.softmax(v[-1], axis=1),
}


@settings(max_examples=40, deadline=None)
@given(net=nets(), block=st.sampled_from([1, 2, 4, 8]), channels=st.integers(1, 9))
def test_random_nets_keep_their_numbers(
    net: Callable[..., object], block: int, channels: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(layout, "GAIN", 1000)
        patch.setattr(layout, "WASTE", 1000)
        laid_out(net, (1, channels, 5, 6), block=block)


@pytest.mark.llvm
@pytest.mark.long
@settings(max_examples=25, deadline=None)
@given(net=nets(), width=st.sampled_from([4, 8]), channels=st.integers(1, 9))
def test_random_nets_as_machine_code(net: Callable[..., object], width: int, channels: int) -> None:
    g = mc.trace(net, mc.f32[1, channels, 5, 6])
    arrays = arrays_for(g)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(layout, "GAIN", 1000)
        patch.setattr(layout, "WASTE", 1000)
        target = mc.target.host(vector_width=min(width, mc.target.host().lanes(32)))
        got = mc.compile(g, target=target, threads=2)(*arrays)
    for a, b in zip(got, interpret(g, arrays), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)


@pytest.mark.llvm
def test_strict_code_leaves_the_order_of_sums() -> None:
    g = mc.load_onnx(MODELS["lenet"]()[0])
    x = arrays_for(g)
    exe = mc.compile(g, precision="strict")
    assert not {"layout", "fold_conv_bn"} & {r.name for r in exe.passes}
    plain = mc.compile(g, precision="strict", opt_level=0)
    np.testing.assert_array_equal(exe(*x), plain(*x))


@pytest.mark.llvm
def test_a_node_is_found_in_its_blocked_kernel() -> None:
    lanes = min(8, mc.target.host().lanes(32))  # its 6 channels do not fill a block of 16
    exe = mc.compile(MODELS["lenet"]()[0], target=mc.target.host(vector_width=lanes))
    (part,) = exe.where_to("conv_3_n").parts
    assert part.node.op.name == "conv2d_nchwc"
    assert "conv in blocks" in str(exe.where_to("conv_3_n"))
    lines = exe.kernel(part.kernel).llvm.split("\n")
    line = next(n for n, text in enumerate(lines, 1) if "fmul" in text or "fma" in text)
    assert "conv_3_n" in str(exe.where_from(f"{part.kernel}:{line}"))
