"""Kernels that sketches are tested on, and points of them run in the interpreter of loops."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from random import Random

import numpy as np

import minidlc as mc
from minidlc import te
from minidlc.expr.index import Index
from minidlc.expr.nodes import Expr
from minidlc.expr.types import Array, i8, u8
from minidlc.graph import apply
from minidlc.loop.interpret import interpret
from minidlc.schedules import Group
from minidlc.target import Target
from minidlc.te import create_schedule, lower
from minidlc.te.tensor import stages
from minidlc.tests.tuning.kernels import tasks_of
from minidlc.tuning.space import Config, Space
from minidlc.tuning.task import Candidate, Task

AVX2 = Target("x86_64-unknown-linux-gnu", "haswell", "+avx2,+fma,+f16c", 256, 16)
STRICT = replace(AVX2, precision="strict")


def _constant(*shape: int) -> mc.Constant:
    values = np.random.default_rng(0).integers(-4, 5, shape)
    return mc.Constant("w", values.astype(np.float32))


def _conv(x: tuple[int, ...], w: tuple[int, ...], constant: bool = False, **window: object):
    image = mc.Input("x", mc.f32[x])
    weights = _constant(*w) if constant else mc.Input("w", mc.f32[w])
    y = mc.relu(mc.conv(image, weights, **window))  # pyright: ignore[reportArgumentType]
    return mc.Graph.of("conv", [image] if constant else [image, weights], [y])


def _blocked(outputs: int) -> mc.Graph:
    x = mc.Input("x", mc.f32[1, 2, 4, 3, 8])
    w = mc.Input("w", mc.f32[outputs // 8, 2, 3, 3, 8, 8])
    y = apply("conv2d_nchwc", x, w, pads=(1, 1, 1, 1))
    return mc.Graph.of("conv", [x, w], [mc.relu(y)])


def _pool(x: tuple[int, ...]) -> mc.Graph:
    image = mc.Input("x", mc.f32[x])
    y = apply("max_pool", image, kernel_shape=(3, 3), strides=(2, 2), pads=(1, 1, 1, 1))
    return mc.Graph.of("pool", [image], [y])


def bytes_product(m: int = 6, n: int = 19, depth: int = 15, *, constant: bool = False) -> Group:
    """a @ b of u8 and i8, added up in i32."""
    a, b = te.placeholder(u8[m, depth], "a"), te.placeholder(i8[depth, n], "b")
    k = te.reduce_axis(depth, "k")

    def element(i: Index, j: Index) -> Expr:
        return te.sum(te.cast("i32", a[i, k]) * te.cast("i32", b[k, j]), k)

    c = te.compute((m, n), element, "matmul")
    return Group((c,), c, frozenset({"b"} if constant else ()))


GRAPHS: Mapping[str, Callable[[], mc.Graph]] = {
    "matmul": lambda: mc.trace(lambda a, b: mc.relu(a @ b), mc.f32[13, 9], mc.f32[9, 21]),
    "bare": lambda: mc.trace(lambda a, b: a @ b, mc.f32[8, 16], mc.f32[16, 16]),
    "constant": lambda: mc.trace(lambda a: mc.relu(a @ _constant(9, 21)), mc.f32[13, 9]),
    "batched": lambda: mc.trace(lambda a, b: a @ b, mc.f32[3, 5, 7], mc.f32[3, 7, 17]),
    "transposed": lambda: mc.trace(lambda a, b: a @ b.T, mc.f32[6, 10], mc.f32[19, 10]),
    "polynomials": lambda: mc.trace(
        lambda a, b: mc.exp(mc.tanh(a @ b)), mc.f32[7, 5], mc.f32[5, 18]
    ),
    "halves": lambda: mc.trace(lambda a, b: a @ b, mc.f16[6, 8], mc.f16[8, 17]),
    "one_column": lambda: mc.trace(lambda a, b: a @ b, mc.f32[17, 12], mc.f32[12, 1]),
    "conv": lambda: _conv((1, 4, 7, 9), (5, 4, 3, 3), pads=(1, 1, 1, 1)),
    "conv_constant": lambda: _conv((1, 3, 7, 9), (5, 3, 3, 3), True),
    "strided": lambda: _conv((2, 3, 9, 9), (4, 3, 3, 3), strides=(2, 2), pads=(1, 1, 1, 1)),
    "depthwise": lambda: _conv((1, 4, 7, 7), (4, 1, 3, 3), group=4, pads=(1, 1, 1, 1)),
    "blocked": lambda: _blocked(16),
    "softmax": lambda: mc.trace(lambda x: mc.softmax(x, axis=-1), mc.f32[3, 45]),
    "softmax_batch": lambda: mc.trace(lambda x: mc.softmax(x * 2.0, axis=-1), mc.f32[2, 3, 17]),
    "layer_norm": lambda: mc.trace(
        lambda x, s, b: mc.layer_norm(x, s, b), mc.f32[5, 37], mc.f32[37], mc.f32[37]
    ),
    "reduce": lambda: mc.trace(lambda x: mc.sum(x, axes=(1, 2)), mc.f32[3, 7, 11]),
    "whole": lambda: mc.trace(lambda x: mc.max(x), mc.f32[5, 41]),
    "mean": lambda: mc.trace(lambda x: mc.relu(mc.mean(x, axes=(-1,))), mc.f32[6, 67]),
    "columns": lambda: mc.trace(lambda x: mc.sum(x, axes=(0,)), mc.f32[9, 21]),
    "matvec": lambda: mc.trace(lambda a, b: a @ b, mc.f32[9, 37], mc.f32[37]),
    "chain": lambda: mc.trace(lambda x: mc.exp(x * 2.0) + x, mc.f32[7, 3, 11]),
    "bias": lambda: mc.trace(lambda x, b: mc.relu(x + b), mc.f32[2, 5, 37], mc.f32[5, 1]),
    "long": lambda: mc.trace(lambda x: mc.sigmoid(x), mc.f32[211]),
    "transpose": lambda: mc.trace(lambda x: mc.transpose(x) + 1.0, mc.f32[13, 21]),
    "cube": lambda: mc.trace(lambda x: mc.transpose(x, perm=(2, 0, 1)) * 2.0, mc.f32[3, 10, 9]),
    "pool": lambda: _pool((1, 3, 9, 9)),
}


GROUPS: Mapping[str, Callable[[], Group]] = {
    "bytes": bytes_product,
    "bytes_constant": lambda: bytes_product(constant=True),
}
KERNELS = (*GRAPHS, *GROUPS)


def task(name: str, target: Target = AVX2) -> Task:
    """The kernel of a graph above that has an anchor, else the last one."""
    if name in GROUPS:
        return Task(GROUPS[name](), "matmul", target, 1)
    found = tasks_of(GRAPHS[name](), target)
    return next((t for t in found if t.group.anchor is not None), found[-1])


def values(task: Task) -> dict[str, Array]:
    """Small whole numbers for what a kernel is given: sums of them are exact in any order."""
    rng = np.random.default_rng(1)
    given = (t for t in stages(task.group.outputs) if t.body is None)
    return {
        t.name: rng.integers(0 if t.dtype.kind == "uint" else -4, 5, t.shape).astype(t.dtype.numpy)
        for t in given
    }


def plain(task: Task, given: Mapping[str, Array]) -> list[Array]:
    """The results by the loops that the tensor expressions state."""
    loops = lower(create_schedule(task.group.outputs, checked=False))
    arrays = dict(given) | _results(task)
    interpret(loops, {p.name: arrays[p.name] for p in loops.params})
    return [arrays[t.name] for t in task.group.outputs]


def interpreted(task: Task, candidate: Candidate, given: Mapping[str, Array]) -> list[Array]:
    """The results of a point, constants packed first."""
    arrays = dict(given) | _results(task)
    for fn in (*candidate.init, candidate.loops):
        for p in fn.params:
            arrays.setdefault(p.name, np.zeros(p.type.dims, p.type.dtype.numpy))
        interpret(fn, {p.name: arrays[p.name] for p in fn.params})
    return [arrays[t.name] for t in task.group.outputs]


def _results(task: Task) -> dict[str, Array]:
    return {t.name: np.full(t.shape, 99, t.dtype.numpy) for t in task.group.outputs}


def sketch_points(task: Task, count: int, seed: int = 0) -> list[Config]:
    """Random points of the sketches of a kernel, as many of each."""
    names = [name for name in task.ways if name.startswith("sketch")]
    found = list[Config]()
    for name in names:
        part = Space({name: task.space.ways[name]}, task.is_allowed)
        found += part.distinct(count, Random(seed))
    return found
