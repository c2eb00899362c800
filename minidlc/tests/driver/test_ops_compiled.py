"""Examples of every op through the whole compiler: narrow vectors, and with an epilogue.

A few examples an op in the normal tier, all of them with --full.
"""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest

import minidlc as mc
import minidlc.ops  # the registry is full from here on
from minidlc.graph import Graph, registered_ops
from minidlc.tests.ops import checks

pytestmark = pytest.mark.llvm

OPS = sorted(registered_ops())
SAMPLE = 3


def check_narrow(example, width):
    exe = mc.compile(checks.graph_of(example), target=mc.target.host(vector_width=width), threads=2)
    got = exe(*checks.given(example))
    checks.assert_close(got, checks.reference(example), example.rtol, example.atol)


def check_epilogue(example):
    """y → max(-y, 0.5) fuses behind the op; the values are those of the op alone."""
    graph = checks.graph_of(example)
    (value, *_) = graph.outputs
    if value.type.dtype != mc.f32:
        return
    tail = Graph.of("tail", graph.inputs, [mc.maximum(-value, 0.5)])
    got = mc.compile(tail, threads=1)(*checks.given(example))
    wanted = np.maximum(-checks.reference(example)[0], np.float32(0.5))
    checks.assert_close(got, [wanted], example.rtol, example.atol)


@pytest.mark.parametrize("name", OPS)
def test_some_examples(name):
    for example in islice(registered_ops()[name].examples(), SAMPLE):
        check_narrow(example, 8)
        check_epilogue(example)


@pytest.mark.slow
@pytest.mark.parametrize("width", [4, 8])
@pytest.mark.parametrize("name", OPS)
def test_every_example_at_narrow_widths(name, width):
    for example in registered_ops()[name].examples():
        check_narrow(example, width)


@pytest.mark.slow
@pytest.mark.parametrize("name", OPS)
def test_every_float_result_with_an_epilogue(name):
    for example in registered_ops()[name].examples():
        check_epilogue(example)
