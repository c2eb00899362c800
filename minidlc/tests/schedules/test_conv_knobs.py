"""Every candidate of every knob gives the same results: a tuner may take any of them."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import minidlc as mc
from minidlc import target
from minidlc.codegen.compile import compile_kernel, run_kernel
from minidlc.lower.express import express_node
from minidlc.schedules.conv_channels import CHANNELS
from minidlc.schedules.conv_direct import DIRECT
from minidlc.schedules.depthwise import DEPTHWISE
from minidlc.te import create_schedule, lower
from minidlc.tests.schedules.blocked import conv, depthwise, image

pytestmark = [pytest.mark.llvm, pytest.mark.long]


def plain_conv():
    x, w = mc.Input("x", mc.f32[1, 3, 12, 10]), mc.Input("w", mc.f32[32, 3, 3, 3])
    return mc.conv(x, w, strides=(2, 2), pads=(1, 1, 1, 1))


PROGRAMS = {
    "direct": (DIRECT, lambda: conv(image(16, 12, 10, 8), 32, 3)[1]),
    "channels": (CHANNELS, plain_conv),
    "depthwise": (DEPTHWISE, lambda: depthwise(image(16, 12, 10, 8), 3)[1]),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_candidate(name):
    implementation, program = PROGRAMS[name]
    host = target.host()
    group = implementation.variant(express_node(program()).group)
    space = implementation.knobs(group, host)
    assert all(candidates for candidates in space.values())
    first = None
    for numbers in itertools.product(*space.values()):
        sch = create_schedule(group.outputs, checked=False)
        implementation.schedule(sch, group, host, dict(zip(space, numbers, strict=True)))
        kernel = compile_kernel(lower(sch), host, cache=False)
        rng = np.random.default_rng(0)
        arrays = [rng.standard_normal(p.type.dims).astype(np.float32) for p in kernel.fn.params]
        run_kernel(kernel, arrays)
        first = arrays[-1] if first is None else first
        np.testing.assert_array_equal(arrays[-1], first, err_msg=str(numbers))
