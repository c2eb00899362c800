"""The layout pass: which regions go into blocks of channels, and that nothing else changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest

import minidlc as mc
from minidlc.expr.types import dtype
from minidlc.graph import Graph, interpret, parse, verify, weights_of
from minidlc.support.errors import OptionError
from minidlc.transform import Layout, Pipeline, Refusal, Rewrite, collecting, parse_pipeline
from minidlc.transform.layout import layout

pytestmark = pytest.mark.ch02


def weights(*shape: int, seed: int = 0) -> np.ndarray:
    values = np.random.default_rng(seed).standard_normal(shape) / np.prod(shape[1:]) ** 0.5
    return values.astype(np.float32)


def conv(x, outputs: int, kernel: int = 3, element: str = "f32", **attributes):
    """A convolution of the right width, with a bias."""
    per_group = x.type.shape[1] // attributes.get("group", 1)
    w = weights(outputs, per_group, kernel, kernel).astype(dtype(element).numpy)
    pad = {"pads": (kernel // 2,) * 4} | attributes
    return mc.conv(x, w, w[:, 0, 0, 0], **pad)


def depthwise(x, kernel: int = 3, **attributes):
    return conv(x, x.type.dims[1], kernel, group=x.type.dims[1], **attributes)


def arrays_for(g: Graph, special: bool = False) -> list[np.ndarray]:
    rng = np.random.default_rng(1)
    arrays = [rng.standard_normal(i.type.dims).astype(i.type.dtype.numpy) for i in g.inputs]
    if special:
        for a in arrays:
            a.ravel()[:: max(1, a.size // 5)] = np.resize([np.inf, np.nan, -np.inf], 5)[: a.size]
    return arrays


def laid_out(
    function: Callable[..., object], *shapes: tuple[int, ...], block: int = 4, special: bool = False
) -> Counter[str]:
    """Trace, run the passes without fusion, compare the numbers; how often each op is there."""
    g = mc.trace(function, *(mc.f32[s] for s in shapes))
    before, _ = Pipeline.default().without("layout", "fuse").run(g)
    after = Layout(block=block)(before)
    verify(after)
    assert parse(str(after), weights_of(after)) == after
    assert after.output_types() == g.output_types()
    arrays = arrays_for(g, special)
    for a, b in zip(interpret(before, arrays), interpret(after, arrays), strict=True):
        np.testing.assert_allclose(b, a, rtol=2e-5, atol=2e-5, equal_nan=True)
    return Counter(n.op.name for n in after.nodes)


def refusals(function: Callable[..., object], *types: mc.TensorType, block: int = 4) -> list[str]:
    """Why nothing was done: the pass must return the graph as it is."""
    g, _ = Pipeline.default().without("layout", "fuse").run(mc.trace(function, *types))
    with collecting() as events:
        assert Layout(block=block)(g) is g
    return [e.reason for e in events if isinstance(e, Refusal)]


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every region pays: for shapes that tests can afford."""
    monkeypatch.setattr(layout, "GAIN", 1000)
    monkeypatch.setattr(layout, "WASTE", 1000)


def no_moves(ops: Counter[str]) -> bool:
    return not ops["pack"] and not ops["unpack"]


def test_a_small_net_stays_in_blocks_from_its_first_convolution_to_its_mean() -> None:
    def net(x):
        y = mc.max_pool(mc.relu(conv(x, 16)), kernel_shape=(2, 2), strides=(2, 2))
        y = mc.clip(conv(y, 16, strides=(2, 2)), min=0.0, max=6.0)
        return mc.flatten(mc.global_average_pool(y)) @ weights(16, 10)

    ops = laid_out(net, (1, 3, 16, 16))
    assert no_moves(ops)
    assert ops["conv2d_nchwc"] == 2
    assert not ops["conv"]


def basic_block(x, channels: int, stride: int):
    y = conv(mc.relu(conv(x, channels, strides=(stride, stride))), channels)
    skip = x if stride == 1 else conv(x, channels, 1, strides=(stride, stride))
    return mc.relu(skip + y)


def test_residual_blocks() -> None:
    def net(x):
        y = basic_block(basic_block(mc.relu(conv(x, 16)), 16, 1), 32, 2)
        return mc.mean(y, axes=(2, 3), keepdims=False)

    ops = laid_out(net, (1, 3, 12, 10))
    assert no_moves(ops)
    assert (ops["conv2d_nchwc"], ops["add"]) == (6, 2)


def test_inverted_residuals_with_batch_norm() -> None:
    def norm(x):
        c = x.type.dims[1]
        mean, scale = weights(c, seed=1), weights(c, seed=2)
        return mc.batch_norm(x, scale, mean, mean, scale * scale)

    def net(x):
        x = mc.relu(norm(conv(x, 16)))
        y = mc.clip(norm(conv(x, 48, 1)), min=0.0, max=6.0)
        y = mc.clip(norm(depthwise(y)), min=0.0, max=6.0)
        return mc.global_average_pool(x + norm(conv(y, 16, 1)))

    ops = laid_out(net, (1, 3, 14, 14))
    assert no_moves(ops)
    assert (ops["conv2d_nchwc"], ops["depthwise_nchwc"], ops["mul"]) == (3, 1, 0)


def fire(x, squeeze: int, expand: int):
    s = mc.relu(conv(x, squeeze, 1))
    return mc.concat(mc.relu(conv(s, expand, 1)), mc.relu(conv(s, expand, 3)), axis=1)


def test_concatenations_of_whole_blocks() -> None:
    ops = laid_out(lambda x: mc.mean(conv(fire(conv(x, 16), 8, 16), 8), axes=(2, 3)), (1, 3, 9, 9))
    assert no_moves(ops)
    assert ops["conv2d_nchwc"] == 5


@pytest.mark.usefixtures("always")
def test_concatenations_that_would_split_a_block_are_plain() -> None:
    ops = laid_out(lambda x: mc.mean(conv(fire(x, 8, 6), 8), axes=(2, 3)), (1, 3, 5, 5))
    assert ops["unpack"] == 2  # the two parts
    assert ops["pack"] == 1


def squeeze_excite(x, reduced: int):
    gate = mc.sigmoid(conv(mc.relu(conv(mc.global_average_pool(x), reduced, 1)), 16, 1))
    return x * gate


@pytest.mark.parametrize("reduced", [8, 1])
def test_squeeze_and_excite(reduced: int) -> None:
    """Of a gate whose blocks would be mostly zeros only the vector is plain, not the image."""

    def net(x):
        return mc.mean(squeeze_excite(mc.relu(conv(x, 16)), reduced), axes=(2, 3))

    ops = laid_out(net, (1, 3, 10, 10))
    assert no_moves(ops)
    assert ops["conv"] == (0 if reduced == 8 else 1)


C = 8
OPERANDS = {
    "scalar": lambda x: x * 2.0 + 1.0,
    "channels": lambda x: x * weights(C, 1, 1) - weights(1, C, 1, 1, seed=3),
    "constant first": lambda x: weights(C, 1, 1) - x,
    "prelu": lambda x: mc.where(x < 0, x * weights(C, 1, 1), x),
    "row": lambda x: x + weights(6),
    "pixels": lambda x: x + weights(5, 6) * weights(1, 1, 5, 6),
    "everything": lambda x: x + weights(1, C, 5, 6),
    "one": lambda x: x + weights(1, 1, 1, 1),
    "hard_swish": mc.hard_swish,
    "max": lambda x: mc.maximum(x, weights(C, 1, 1)),
    "cast": lambda x: mc.cast(mc.cast(x, to="f64"), to="f32"),
}  # fmt: skip


@pytest.mark.parametrize("name", OPERANDS)
def test_what_may_stand_beside_a_blocked_image(name: str) -> None:
    def net(x):
        return mc.mean(conv(OPERANDS[name](conv(x, C, pads=(1,) * 4)), C), axes=(2, 3))

    ops = laid_out(net, (2, 3, 5, 6))
    assert no_moves(ops)
    assert ops["conv2d_nchwc"] == 2


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize(
    "second", [(1, 8, 1, 1), (2, 1, 5, 6), (8, 1, 1), (5, 6), (2, 8, 5, 6), (1, 8, 5, 1)]
)
def test_other_inputs_beside_a_blocked_image(second: tuple[int, ...]) -> None:
    ops = laid_out(lambda x, y: conv(conv(x, 8) * y, 8), (2, 3, 5, 6), second)
    images = len(second) == 4 and second[2:] != (1, 1) and second[1] > 1
    assert ops["unpack"] == (2 if images else 1)  # a plain image makes the product plain


GEOMETRY = (
    {"strides": (2, 1)},
    {"pads": (0, 1, 2, 0)},
    {"dilations": (2, 1), "pads": (2, 1, 2, 1)},
    {"kernel": 1, "strides": (2, 2)},
    {"kernel": 2, "pads": (0, 0, 1, 1)},
)


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("attributes", GEOMETRY)
@pytest.mark.parametrize("block", [2, 8])
def test_geometries(attributes: dict[str, object], block: int) -> None:
    def net(x):
        return conv(depthwise(conv(x, 6, **attributes), **attributes), 5, **attributes)

    assert laid_out(net, (2, 3, 9, 11), block=block)["conv"] == 0


POOLS = {
    "max": lambda x: mc.max_pool(x, kernel_shape=(3, 2), strides=(2, 1), pads=(1, 0, 0, 1)),
    "ceil": lambda x: mc.max_pool(x, kernel_shape=(2, 2), strides=(2, 2), ceil_mode=True),
    "average": lambda x: mc.average_pool(x, kernel_shape=(3, 3), pads=(1, 1, 1, 1)),
    "average of pads": lambda x: mc.average_pool(
        x, kernel_shape=(3, 3), strides=(2, 2), pads=(1, 1, 1, 1), count_include_pad=True
    ),
    "lp": lambda x: mc.lp_pool(x, kernel_shape=(2, 2)),
    "dilated": lambda x: mc.max_pool(x, kernel_shape=(2, 2), dilations=(2, 1)),
    "global max": mc.global_max_pool,
    "mean of rows": lambda x: mc.mean(x, axes=(2,)),
    "pad": lambda x: mc.pad(x, 1.5, pads=(0, 0, 1, 2, 0, 0, 0, 1)),
    "pad by edge": lambda x: mc.pad(x, pads=(0, 0, 1, 2, 0, 0, 0, 1), mode="edge"),
    "larger": lambda x: mc.resize(
        x, scales=(1.0, 1.0, 2.0, 2.0), coordinate_transformation_mode="asymmetric"
    ),
}  # fmt: skip


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("name", POOLS)
@pytest.mark.parametrize("channels", [8, 5])
def test_ops_on_pixels(name: str, channels: int) -> None:
    def net(x):
        return mc.mean(conv(POOLS[name](conv(x, channels)), 8), axes=(2, 3))

    assert no_moves(laid_out(net, (2, 3, 7, 8)))


def test_images_in_images_out_are_moved_once() -> None:
    def net(x):
        y, z = mc.relu(conv(x, 32)), conv(x, 32, 1)
        return y, y + z, mc.softmax(y, axis=1)

    ops = laid_out(net, (1, 32, 8, 8))
    assert (ops["pack"], ops["unpack"], ops["conv2d_nchwc"]) == (1, 2, 2)


def exploding(x):
    """Of 0 this makes infinity and NaN."""
    return mc.log(x) + mc.reciprocal(x) - mc.sqrt(x - 1.0)


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("channels", [3, 5, 12, 13])
@pytest.mark.parametrize("special", [False, True])
def test_channels_that_only_fill_a_block_do_no_harm(channels: int, special: bool) -> None:
    def net(x):
        y = conv(x, channels)
        z = conv(exploding(mc.abs(y) + 1.5), 7)
        return conv(depthwise(z), channels) + y, mc.mean(exploding(z), axes=(2, 3))

    ops = laid_out(net, (1, channels, 5, 5), block=8, special=special)
    assert ops["conv"] == 0
    assert ops["where"] == 2  # before each sum over channels, but not after `pack`


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("element", ["f16", "f64", "i32"])
def test_other_elements(element: str) -> None:
    def net(x):
        return conv(conv(mc.cast(x, to=element), 5, element=element), 6, element=element)

    assert laid_out(net, (1, 5, 4, 4))["conv2d_nchwc"] == 2


def test_what_stays_plain_and_why() -> None:
    image = mc.f32[1, 16, 8, 8]
    assert refusals(lambda x: conv(x, 16, group=4), image) == ["4 groups cut through blocks"]
    (reason,) = refusals(lambda x, w: mc.conv(x, w), image, mc.f32[16, 16, 3, 3])
    assert reason.startswith("its weights are not constants")
    (reason,) = refusals(lambda x: mc.conv(x, weights(16, 16, 3)), mc.f32[1, 16, 8])
    assert reason == "f32[1, 16, 6] is no image of known sizes"
    (reason,) = refusals(lambda x: conv(x, 16), mc.f32["n", 16, 8, 8])
    assert reason == 'f32["n", 16, 8, 8] is no image of known sizes'
    (reason,) = refusals(lambda x: conv(x, 1), image)
    assert reason == "most of its blocks of 4 channels would be zeros"
    assert refusals(lambda x: mc.transpose(x), image) == []


def test_a_convolution_between_packs_must_be_worth_them() -> None:
    small, large = (lambda x: conv(x, 8, 1)), (lambda x: conv(x, 128, 1))
    (reason,) = refusals(small, mc.f32[1, 8, 10, 10])
    moved = "3200 bytes moved into blocks, 3200 out of them"
    assert reason == f"not worth it: 6400 multiply-adds, {moved}"
    assert laid_out(large, (1, 128, 10, 10))["conv2d_nchwc"] == 1


def test_what_a_region_costs_is_reported() -> None:
    """At its borders 3 channels are read plain, an image of 32 is unpacked, a mean is neither."""

    def net(x):
        y = mc.relu(conv(x, 32))
        return y, mc.mean(conv(y, 32), axes=(2, 3))

    g, _ = Pipeline.default().without("layout", "fuse").run(mc.trace(net, mc.f32[1, 3, 8, 8]))
    with collecting() as events:
        Layout(block=8)(g)
    adds, out = 64 * 9 * 32 * (3 + 32), 32 * 64 * 4
    costs = f"{adds} multiply-adds, 0 bytes moved into blocks, {out} out of them"
    first, *_ = events
    assert (type(first), first.rule) == (Rewrite, f"4 ops in blocks of channels: {costs}")


def test_a_value_read_in_both_layouts_and_weights_read_twice() -> None:
    w = weights(16, 16, 3, 3)

    def net(x):
        y = mc.conv(conv(x, 16), w, pads=(1,) * 4)
        return mc.mean(mc.conv(y, w), axes=(2, 3)), mc.softmax(mc.mean(y, axes=(3,)), axis=1)

    g, _ = Pipeline.default().run(mc.trace(net, mc.f32[1, 3, 8, 8]))
    assert len([c for c in g.constants if c.array.ndim == 6]) == 1
    laid_out(net, (1, 3, 8, 8))


def test_bodies_of_branches() -> None:
    x = mc.Input("x", mc.f32[1, 32, 8, 8])
    yes, no = mc.Graph.of("yes", [x], [conv(x, 32)]), mc.Graph.of("no", [x], [conv(x, 32, 5)])
    flag, x = mc.Input("flag", mc.bool_[()]), mc.Input("x", mc.f32[1, 32, 8, 8])
    g = mc.Graph.of("g", [flag, x], [mc.if_(flag, x, then_branch=yes, else_branch=no)])
    after, _ = Pipeline.default().without("fuse").run(g)
    assert str(after).count("conv2d_nchwc(") == 2


def test_the_option() -> None:
    assert str(Layout(block=16)) == "layout{block=16}"
    assert parse_pipeline("layout{block=16}").passes == (Layout(block=16),)
    with pytest.raises(OptionError, match="block must be at least 1, got 0"):
        Layout(block=0)(mc.trace(lambda x: conv(x, 4), mc.f32[1, 4, 8, 8]))
    for target, block in ((mc.target.host(vector_width=4), 4), (None, 8)):
        passes = Pipeline.default(3, target)
        assert Layout(block=block) in passes.passes
