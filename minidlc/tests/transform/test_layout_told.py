"""The layout pass told which convolutions stay plain, and its estimate of few channels."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

import minidlc as mc
from minidlc.graph import interpret
from minidlc.graph.printer import value_names
from minidlc.support.errors import OptionError
from minidlc.tests.transform.test_layout import arrays_for, conv, laid_out, refusals
from minidlc.transform import Layout, Pipeline, Refusal, collecting, parse_pipeline

pytestmark = pytest.mark.ch02


def two_convs(x):
    return mc.relu(conv(mc.relu(conv(x, 16)), 16))


def test_who_names_the_plain_convolutions_is_obeyed() -> None:
    """Nothing is weighed: the second alone goes into blocks, though it does not pay."""
    g, _ = Pipeline.default().without("layout", "fuse").run(mc.trace(two_convs, mc.f32[1, 8, 5, 6]))
    first, second = (value_names(g)[n] for n in g.nodes if n.op.name == "conv")
    for plain, blocked in (
        ((), 2),
        ((first,), 1),
        ((second,), 1),
        ((first, second), 0),
    ):
        with collecting() as events:
            after = Layout(block=4, plain=plain)(g)
        ops = [n.op.name for n in after.nodes if "conv" in n.op.name]
        assert ops == ["conv" if n in plain else "conv2d_nchwc" for n in (first, second)]
        assert ops.count("conv2d_nchwc") == blocked
        refused = {e.reason for e in events if isinstance(e, Refusal)}
        assert refused == ({"it is to stay plain"} if plain else set())
        arrays = arrays_for(g)
        for got, want in zip(interpret(after, arrays), interpret(g, arrays), strict=True):
            np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5)


def test_an_image_that_is_packed_for_one_is_read_in_blocks_by_what_comes_before_it() -> None:
    """x is packed for the convolution; the product before it, and the sum, take that form."""

    def net(x):
        a = x * 2.0
        return conv(x, 8) + a

    g = mc.trace(net, mc.f32[1, 8, 5, 6])
    g, _ = Pipeline.default().without("layout", "fuse").run(g)
    ops = Counter(n.op.name for n in Layout(block=4, plain=())(g).nodes)
    assert (ops["pack"], ops["unpack"]) == (1, 1)


def test_the_plain_option_is_text_too() -> None:
    for told in (Layout(block=16, plain=("a", "b")), Layout(plain=("a",)), Layout(plain=())):
        assert parse_pipeline(str(told)).passes == (told,)
    assert str(Layout(plain=("a",))) == 'layout{plain=("a",)}'
    with pytest.raises(OptionError, match="plain is a tuple of names, got 'conv_1'"):
        Layout(plain="conv_1")  # pyright: ignore[reportArgumentType]
    with pytest.raises(OptionError, match="option 'plain': expected"):
        parse_pipeline('layout{plain="conv_1"}')


def test_a_name_that_no_convolution_has_is_reported() -> None:
    g, _ = Pipeline.default().without("layout").run(mc.trace(two_convs, mc.f32[1, 8, 5, 6]))
    with collecting() as events:
        Layout(block=4, plain=("convv",))(g)
    (refused,) = (e for e in events if isinstance(e, Refusal))
    assert (refused.node, refused.reason) == ("convv", "no convolution has this name")


def test_few_channels_in_a_block_are_work_on_zeros() -> None:
    """8 of 16 channels: the second convolution reads 8 zeros for its 8 numbers, and does not pay.

    In blocks of 8 nothing is filled up.
    """

    def net(x):
        return mc.mean(conv(mc.relu(conv(x, 8, 5)), 16, 5), axes=(2, 3))

    (reason,) = refusals(net, mc.f32[1, 1, 28, 28], block=16)  # of both: they have one name
    assert reason.startswith("not worth it: ")
    assert laid_out(net, (1, 1, 28, 28), block=8)["conv2d_nchwc"] == 2
