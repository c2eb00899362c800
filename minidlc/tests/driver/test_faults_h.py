"""FAULTS class H, what only shows when compiled code runs; the rest is in tests/transform."""

from __future__ import annotations

import gc

import numpy as np
import pytest

import minidlc as mc
from minidlc.graph import Constant

pytestmark = pytest.mark.llvm


def test_row_99_a_folded_constant_outlives_the_one_it_was_made_of():
    """A folded reshape is a view of its source in NumPy: the source may be dropped."""
    weights = np.arange(12, dtype=np.float32)
    x = mc.Input("x", mc.f32[3, 4])
    graph = mc.Graph.of("f", [x], [x + mc.reshape(Constant("w", weights), shape=(3, 4))])
    exe = mc.compile(graph)
    expected = weights.reshape(3, 4).copy()
    weights[:] = np.nan  # constants are the graph's own
    del graph, weights
    gc.collect()
    for _ in range(2):
        (got,) = exe(np.zeros((3, 4), np.float32))
        np.testing.assert_array_equal(got, expected)
