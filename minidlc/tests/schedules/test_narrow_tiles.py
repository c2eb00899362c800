"""Tiles of f16 and bf16: sums are f32, so that a row of results is two vectors of sums."""

from __future__ import annotations

import numpy as np
import pytest

import minidlc as mc
from minidlc.expr.types import dtype
from minidlc.tests.codegen.helpers import WIDTHS

pytestmark = pytest.mark.llvm


@pytest.mark.parametrize("element", ["bf16", "f16", "f32"])
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("shape", [(17, 600, 33), (18, 500, 40), (5, 2000, 150)])
def test_a_product_with_tails_both_ways_shared_by_threads(element, width, shape):
    rows, depth, columns = shape
    t = dtype(element)
    g = mc.trace(lambda a, b, c: mc.relu(a @ b + c), t[rows, depth], t[depth, columns], t[rows, 1])
    rng = np.random.default_rng(0)
    arrays = [rng.integers(-2, 3, i.type.dims).astype(t.numpy) for i in g.inputs]
    exe = mc.compile(g, threads=2, target=mc.target.host(vector_width=width))
    assert "parallel(" in exe.kernels[0].trace
    np.testing.assert_array_equal(exe(*arrays), mc.interpret(g, arrays))
