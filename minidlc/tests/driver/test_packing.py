"""Weights that a schedule packs at compile time, in compiled models."""

from __future__ import annotations

import contextlib
import random
from typing import Any

import numpy as np
import pytest

import minidlc as mc
from minidlc.codegen.compile import compile_kernel, run_kernel
from minidlc.expr.types import TensorType, f32
from minidlc.graph import Constant, Graph, Input, Value
from minidlc.support.errors import ScheduleError
from minidlc.support.locations import FileLoc
from minidlc.te import Schedule
from minidlc.te.primitives import Prepack, SetScope
from minidlc.tests.te.programs import numbers, random_case
from minidlc.tests.te.random_traces import random_schedule

pytestmark = [pytest.mark.llvm, pytest.mark.ch05]


def pack_matmul(sch: Schedule, group: Any, target: Any) -> None:
    """A schedule that packs the weight of every product in blocks of eight columns."""
    anchor = group.anchor
    for tensor in anchor.inputs:
        if tensor.name in group.constants and len(tensor.shape) == 2:
            sch[anchor].cache_read(tensor, {1: 8}).prepack()


def compiled(graph: Graph, **options: Any) -> mc.Executable:
    with mc.use(**{"schedule.matmul": pack_matmul}):
        return mc.compile(graph, threads=1, **options)


def product(*weights: Any) -> tuple[Graph, Any, Any]:
    """x @ w for each weight."""
    x = Input("x", TensorType(f32, (3, weights[0].shape[0])))
    outputs: list[Value] = [
        x @ Constant(f"w{n}", w, FileLoc("weights.py", 1 + n, 0)) for n, w in enumerate(weights)
    ]
    array = numbers(x.type.dims, 9)
    return Graph.of("g", [x], outputs), array, [array @ w for w in weights]


def test_a_compiled_model_holds_the_packed_weight_only() -> None:
    w = numbers((16, 24), 1)
    graph, x, (wanted,) = product(w)
    exe = compiled(graph)
    np.testing.assert_array_equal(exe(x)[0], wanted)
    (kernel,) = exe.kernels
    assert [v.type.dims for v in kernel.lowered.inputs] == [(3, 16), (3, 16, 8)]
    assert [v.name for v in kernel.lowered.reads] == ["x", "w0"]
    assert exe.program.constants.nbytes == w.nbytes
    packed = kernel.lowered.inputs[1]
    assert isinstance(packed, Constant)
    assert np.shares_memory(packed.array, exe.program.constants)


@pytest.mark.parametrize("precision", ["strict", "default", "fast"])
def test_packing_changes_no_bit(precision: str) -> None:
    rng = np.random.default_rng(0)
    w = rng.standard_normal((40, 21)).astype(np.float32)
    graph, _, _ = product(w)
    x = rng.standard_normal((3, 40)).astype(np.float32)
    with mc.use(**{"schedule.matmul": lambda sch, group, target: None}):
        (plain,) = mc.compile(graph, threads=1, precision=precision)(x)
    assert np.array_equal(compiled(graph, precision=precision)(x)[0], plain)


def test_a_weight_packed_twice_the_same_way_is_packed_and_stored_once() -> None:
    w = numbers((16, 24), 1)
    x = Input("x", TensorType(f32, (3, 16)))
    y = Input("y", TensorType(f32, (5, 16)))
    weight = Constant("w", w)
    exe = compiled(Graph.of("g", [x, y], [x @ weight, y @ weight]))
    packed = {v for k in exe.kernels for v in k.lowered.inputs if isinstance(v, Constant)}
    assert len(packed) == 1
    assert exe.program.constants.nbytes == w.nbytes
    a, b = numbers((3, 16), 2), numbers((5, 16), 3)
    for got, wanted in zip(exe(a, b), (a @ w, b @ w), strict=True):
        np.testing.assert_array_equal(got, wanted)


def test_a_weight_that_something_else_reads_stays() -> None:
    w = numbers((16, 24), 1)
    x, weight = Input("x", TensorType(f32, (3, 16))), Constant("w", w)
    exe = compiled(Graph.of("g", [x], [x @ weight, weight]))
    assert exe.program.constants.nbytes == 2 * w.nbytes
    a = numbers((3, 16), 2)
    np.testing.assert_array_equal(exe(a)[0], a @ w)
    np.testing.assert_array_equal(exe(a)[1], w)


def test_every_view_of_a_kernel_still_works() -> None:
    w = numbers((16, 24), 1)
    graph, x, (wanted,) = product(w)
    exe = compiled(graph)
    (kernel,) = exe.kernels
    out = np.empty((3, 24), np.float32)
    names = [p.name for p in kernel.loops.params]
    kernel.run({names[0]: x, names[2]: out})
    np.testing.assert_array_equal(out, wanted)
    assert 'constant("w0_packed")' in exe.module.main.replace("'", '"')
    assert "w0" in kernel.graph
    assert "packed" not in kernel.graph
    assert kernel.name in str(exe.where_to(exe.graph.nodes[0].name))
    assert "w0" in str(exe.where_to("w0"))
    stores = [n for n, line in enumerate(kernel.llvm.splitlines(), 1) if "store float" in line]
    assert exe.where_from(f"{kernel.name}:{stores[0]}").kernel == kernel.name
    assert kernel.trace.endswith(")")
    assert exe.report()


def test_names_of_packed_constants_are_new() -> None:
    w = numbers((16, 24), 1)
    x = Input("x", TensorType(f32, (3, 16)))
    a, b = Constant("w", w), Constant("w_packed", numbers((3, 24), 5))
    exe = compiled(Graph.of("g", [x], [x @ a + b]))
    names = [v.name for k in exe.kernels for v in k.lowered.inputs]
    assert len(set(names)) == len(names)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(40))
def test_random_schedules_with_packed_stages_as_machine_code(seed: int) -> None:
    rng = random.Random(seed)
    case = random_case(rng)
    schedule, _ = random_schedule(case, rng, steps=6)
    steps = [s for s in schedule.trace if not isinstance(s, SetScope)]  # registers: unrolled only
    names = [p.name for p in schedule.state.placeholders]
    sch = Schedule(case.outputs, steps, constants=names, checked=False)
    for stage in schedule.state.stages:
        with contextlib.suppress(ScheduleError):
            Prepack(stage.name).apply(sch.state)
            sch.apply(Prepack(stage.name))
    known = dict(case.inputs)
    for fn in (*sch.lower_init(), sch.lower()):
        for p in fn.params:
            known.setdefault(p.name, np.full(p.type.dims, 77, p.type.dtype.numpy))
        kernel = compile_kernel(fn, mc.target.host(), cache=False)
        run_kernel(kernel, [known[p.name] for p in fn.params], threads=1 + seed % 2)
    for name, expected in case.expected.items():
        np.testing.assert_allclose(known[name], expected, rtol=1e-5, atol=1e-6)
