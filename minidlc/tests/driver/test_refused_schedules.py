"""A schedule of ours that is refused is no error of the model: the next implementation takes over.

The report says what was refused and why. What a reader put in is never replaced.
"""

from __future__ import annotations

from unittest import mock

import numpy as np
import pytest

import minidlc as mc
from minidlc import schedules
from minidlc.codegen import statements
from minidlc.lower.kernels import lower_node
from minidlc.schedules import Choice, Implementation, tiles
from minidlc.support.errors import CodegenError, ScheduleError
from minidlc.target import host
from minidlc.transform import Pipeline

pytestmark = pytest.mark.llvm


@pytest.fixture(autouse=True)
def no_schedule_is_refused():
    """Here they are, on purpose."""


def no_such_loop(sch, group, target, knobs):
    sch[group.last].split("nowhere", 4)


def in_registers(sch, group, target, knobs):
    sch[group.anchor].set_scope("register")  # and nothing is unrolled


def planted(*functions, kind="softmax"):
    """The implementations of the library behind others, which are cheaper."""
    made = (Implementation(f.__name__, kind, f, cost=lambda g, t: -1.0) for f in functions)
    return mock.patch.object(schedules, "IMPLEMENTATIONS", (*made, *schedules.IMPLEMENTATIONS))


def normal(*shape, seed=0):
    """Drawn anew for each test: what it sees does not depend on which tests ran before."""
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def compiled(fn, *types, **options):
    """Compiled without a cache, its results compared; the only kernel."""
    graph = mc.trace(fn, *types)
    exe = mc.compile(graph, threads=1, cache=False, **options)
    arrays = [normal(*t.dims) for t in types]
    want = mc.interpret(graph, arrays)[0]
    largest = float(np.abs(want).max())  # terms of a sum may cancel: its error goes with them
    np.testing.assert_allclose(exe(*arrays)[0], want, rtol=1e-5, atol=1e-6 * largest)
    assert all(str(k) in str(exe.report()) for k in exe.kernels)
    (kernel,) = exe.kernels
    return kernel


def softmax(x):
    return mc.softmax(x, axis=-1)


def test_the_next_implementation():
    with planted(no_such_loop, in_registers):
        kernel = compiled(softmax, mc.f32[5, 40])
    assert kernel.lowered.implementation == "softmax"
    assert kernel.lowered.refused == ("no_such_loop: MDLC0603", "in_registers: MDLC0618")
    assert str(kernel).endswith(
        "schedule softmax, refused no_such_loop: MDLC0603, in_registers: MDLC0618"
    )
    assert compiled(softmax, mc.f32[5, 40]).lowered.refused == ()


def test_the_plain_loops_if_no_other():
    only = Implementation("broken", "softmax", no_such_loop)
    plain = next(i for i in schedules.IMPLEMENTATIONS if i.kind == "plain")
    with mock.patch.object(schedules, "IMPLEMENTATIONS", (only, plain)):
        kernel = compiled(softmax, mc.f32[5, 40])
    assert str(kernel).endswith("schedule softmax (plain), refused broken: MDLC0603")
    assert kernel.trace == ""


def test_an_implementation_that_refuses_constants():
    """The same for a product whose weight would have been packed."""
    w = normal(64, 48, seed=1)
    with planted(in_registers, kind="matmul"):
        kernel = compiled(lambda x: mc.relu(x @ w), mc.f32[32, 64])
    assert kernel.lowered.refused == ("in_registers: MDLC0618",)
    assert kernel.lowered.implementation not in ("in_registers", "plain")


def test_what_code_generation_cannot_take_gets_plain_loops():
    with mock.patch.object(statements, "MAX_INSTRUCTIONS", 100):
        kernel = compiled(softmax, mc.f32[5, 40])
    assert str(kernel).endswith("schedule softmax (plain), refused softmax: MDLC0810")
    with (
        mock.patch.object(statements, "MAX_INSTRUCTIONS", 1),
        pytest.raises(CodegenError, match="more than 1 instructions"),
    ):
        compiled(softmax, mc.f32[5, 40])


def test_the_schedule_of_a_reader_is_not_replaced():
    def mine(sch, group, target):
        sch[group.last].split("nowhere", 4)

    with (
        mc.use(**{"schedule.softmax": mine}),
        pytest.raises(ScheduleError, match="nowhere") as caught,
    ):
        compiled(softmax, mc.f32[5, 40])
    assert caught.value.code == "MDLC0603"


def test_where_a_part_of_a_reader_runs_nothing_is_replaced():
    with planted(no_such_loop), mc.use(verify=lambda graph: None), pytest.raises(ScheduleError):
        compiled(softmax, mc.f32[5, 40])


def test_loops_of_a_batched_product_are_fused_under_a_free_name(monkeypatch):
    """Loops i and j of the last stage become one, beside a ji that is there already."""
    monkeypatch.setattr(tiles, "PARALLEL_SUMS", 50)
    w = normal(2, 2, 4, seed=1)
    target = mc.target.host(vector_width=4)
    kernel = compiled(lambda x: mc.cast(x @ w, to="f64"), mc.f32[2, 2, 17, 2], target=target)
    assert kernel.lowered.refused == ()


def test_a_tuned_schedule_gives_way_to_the_default():
    """What a record says is tried first; if it is refused, the kernel says of which record."""
    choice = Choice(Implementation("bad", "softmax", no_such_loop), {}, "record 3f2a9c, 1 µs")
    graph = Pipeline.default(3, host()).run(mc.trace(softmax, mc.f32[5, 40]))[0]
    kernel = lower_node(graph.nodes[0], "k", host(), fast=True, tuned=lambda _: choice)
    assert kernel.refused == ("bad of record 3f2a9c, 1 µs: MDLC0603",)
    assert (kernel.implementation, kernel.source) == ("softmax", "")
