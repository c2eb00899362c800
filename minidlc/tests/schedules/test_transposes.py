"""Transposes go through tiles in registers: vector loads, shuffles, vector stores."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import minidlc as mc
from minidlc.codegen.asm import count, inner_loops
from minidlc.expr.types import dtype
from minidlc.tests.codegen.helpers import WIDTHS
from minidlc.tests.schedules.test_rows import AVX2

pytestmark = pytest.mark.llvm


def check(fn, shape, element="f32", **options):
    t = dtype(element)
    graph = mc.trace(fn, t[shape])
    exe = mc.compile(graph, **{"threads": 1, **options})
    x = np.arange(int(np.prod(shape))).reshape(shape).astype(t.numpy)
    np.testing.assert_array_equal(exe(x)[0], mc.interpret(graph, [x])[0])
    return exe.kernels[0]


def turned(*perm):
    return lambda x: mc.transpose(x, perm=perm)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize(
    ("shape", "perm"),
    [
        ((16, 16), (1, 0)),
        ((37, 53), (1, 0)),
        ((2, 9, 3, 11), (0, 2, 3, 1)),
        ((1, 19, 3, 20), (0, 2, 3, 1)),
        ((12, 9, 17), (2, 0, 1)),
    ],
)
def test_tiles_whole_and_cut(shape, perm, width):
    kernel = check(turned(*perm), shape, target=mc.target.host(vector_width=width))
    whole = min(shape[-1], shape[perm[-1]]) >= width  # there is a tile
    assert kernel.lowered.implementation == ("transpose" if whole else "injective")


def test_axes_shorter_than_a_vector_make_no_tile():
    for shape in ((3, 50), (50, 3)):
        assert check(turned(1, 0), shape).lowered.implementation == "injective"


@pytest.mark.parametrize("channels", [64, 60])
def test_layouts_of_blocks(channels):
    block = mc.target.host().lanes(32)

    def there(x):
        return mc.pack(x, block=block)

    def back(x):
        return mc.unpack(mc.relu(x), channels=channels)

    assert check(there, (1, channels, 5, 20)).lowered.implementation == "transpose"
    blocks = (1, 64 // block, 5, 20, block)
    assert check(back, blocks).lowered.implementation == "transpose"


@pytest.mark.parametrize("element", ["f64", "f16", "bf16", "i8", "u16", "i64", "bool"])
def test_every_size_of_element(element):
    kernel = check(turned(1, 0), (21, 35), element)
    assert kernel.lowered.implementation == "transpose"


def test_by_threads():
    assert "parallel(" in check(turned(1, 0), (300, 400), threads=2).trace


@pytest.mark.long
@given(st.data())
def test_any_order_of_any_axes(data):
    shape = tuple(data.draw(st.lists(st.integers(1, 11), min_size=1, max_size=4)))
    perm = data.draw(st.permutations(range(len(shape))))
    check(turned(*perm), shape)


def test_pointwise_ops_on_both_sides_stay_in_the_kernel():
    def fn(x):
        return mc.relu(mc.transpose(x * 2.0, perm=(1, 0))) + 1.0

    assert check(fn, (20, 30)).lowered.implementation == "transpose"


def test_where_rows_stay_rows_nothing_is_turned():
    kernel = check(turned(0, 2, 1, 3), (1, 6, 3, 16))
    assert kernel.lowered.implementation == "injective"
    assert "gather" not in kernel.llvm


@pytest.mark.skipif(not mc.target.host().is_x86, reason="counts instructions of x86-64")
def test_a_tile_of_eight_by_eight_takes_eight_loads_and_stores_and_24_shuffles():
    graph = mc.trace(turned(1, 0), mc.f32[64, 64])
    asm = mc.compile(graph, threads=1, target=AVX2).kernels[0].asm
    (loop,) = inner_loops(asm)
    shuffles = re.findall(r"\bv(?:shufps|unpck[lh]p[sd]|perm2f128|insertf128|blendps)\b", loop)
    loads = re.findall(r"\bvmovups\s[^%]*\(%", loop)
    stores = re.findall(r"\bvmovups\s%ymm", loop)
    assert (len(loads), len(stores)) == (8, 8)
    assert len(shuffles) <= 32
    assert count(asm).spills == 0


@pytest.mark.parametrize("width", WIDTHS)
def test_what_reads_two_places_of_one_buffer_is_copied(width):
    """A tile in registers is of one place: the two parts of the concat lie in different ones."""

    def both(x):
        y = mc.unpack(x, channels=14)
        return mc.concat(y, y, axis=1)

    check(both, (1, 4, 3, 20, 4), target=mc.target.host(vector_width=width))
