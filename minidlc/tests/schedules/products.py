"""Matrix products for tests: compiled by a given implementation, for a given machine."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from unittest import mock

import numpy as np

import minidlc as mc
from minidlc import schedules
from minidlc.codegen.asm import count, inner_loops, instructions
from minidlc.codegen.compile import Kernel, compile_kernel
from minidlc.expr.types import Array, TensorType
from minidlc.lower.express import express_node
from minidlc.lower.kernels import LoweredKernel, lower_node
from minidlc.target import Target
from minidlc.transform import Pipeline

AVX2 = Target("x86_64-unknown-linux-gnu", "haswell", "+avx2,+fma,+f16c", 256, 16)
AVX512 = Target(
    "x86_64-unknown-linux-gnu",
    "sapphirerapids",
    "+avx512f,+avx512vl,+avx512dq,+avx512bw,+avx2,+fma",
    512,
    32,
    48 << 10,
    2 << 20,
)
NEON = Target("aarch64-unknown-linux-gnu", "neoverse-n1", "+neon", 128, 32, 64 << 10, 1 << 20)
MACHINES = {"avx2": AVX2, "avx512": AVX512, "neon": NEON}


def only(name: str | None):
    """Within it, matrix products are computed by the implementation `name` (None: the best)."""
    kept = (i for i in schedules.IMPLEMENTATIONS if i.kind != "matmul" or name in (None, i.name))
    return mock.patch.object(schedules, "IMPLEMENTATIONS", tuple(kept))


def product(
    left: TensorType,
    right: TensorType | Array,
    epilogue: Callable[[mc.Value], mc.Value] = lambda y: y,
) -> mc.Graph:
    """The graph of a product; an array as the right operand is a constant."""
    if isinstance(right, TensorType):
        return mc.trace(lambda a, b: epilogue(a @ b), left, right)
    return mc.trace(lambda a: epilogue(a @ right), left)


def chosen(graph: mc.Graph, machine: Target) -> str:
    """Name of the implementation of the one kernel of a graph."""
    (node,) = Pipeline.default().run(graph)[0].nodes
    expressed = express_node(node)
    return schedules.implementation(expressed.kind, expressed.group, machine).name


def takes(name: str | None, graph: mc.Graph, machine: Target) -> bool:
    """True if the implementation of that name applies to the one kernel of a graph."""
    (node,) = Pipeline.default().run(graph)[0].nodes
    group = express_node(node).group
    return any(i.name == name and i.applies(group, machine) for i in schedules.IMPLEMENTATIONS)


def lowered(graph: mc.Graph, machine: Target) -> LoweredKernel:
    """The one kernel of a graph, before code generation."""
    (node,) = Pipeline.default().run(graph)[0].nodes
    return lower_node(node, "kernel", machine, fast=True)


def kernel(graph: mc.Graph, machine: Target) -> Kernel:
    """The machine code of a graph of one kernel."""
    return compile_kernel(lowered(graph, machine).loops, machine)


@dataclass(frozen=True)
class Step:
    """Vector instructions of the busiest inner loop: all steps of k that it unrolls."""

    fma: int
    broadcasts: int
    loads: int
    spills: int
    others: int

    @property
    def loads_each(self) -> float:
        """Loads of either operand for a multiply-add of vectors."""
        return (self.broadcasts + self.loads) / self.fma


_LOAD = re.compile(r"^v?mov[au]p[sd]\s+[^%]*\(.*\),")
_FOLDED = re.compile(r"^vf\w+\s+[^%]*\(")  # a load that is part of the multiply-add


def busiest(code: Kernel) -> Step:
    """The counts of the loop that does most multiply-adds, on x86."""
    loop = max(inner_loops(code.asm), key=lambda x: count(x).fma)
    found, lines = count(loop), instructions(loop)
    broadcasts = sum("broadcast" in x or "{1to" in x for x in lines)
    loads = sum(bool(_LOAD.match(x) or (_FOLDED.match(x) and "{1to" not in x)) for x in lines)
    others = sum("%ymm" not in x and "%zmm" not in x for x in lines)
    return Step(found.fma, broadcasts, loads, found.spills, others)


def check(graph: mc.Graph, arrays: list[Array], machine: Target, threads: int = 1) -> LoweredKernel:
    """Compiled code gives what the interpreter does; returns the kernel."""
    exe = mc.compile(graph, threads=threads, target=machine)
    (want,) = mc.interpret(graph, arrays)
    bound = {"f8": 1e-11, "f4": 1e-5, "f2": 2e-3}.get(want.dtype.str[1:], 1e-2)
    if want.dtype.kind in "iu":
        bound = 0
    depth = graph.inputs[0].type.dims[-1]
    got, wide = exe(*arrays)[0].astype(np.float64), want.astype(np.float64)
    np.testing.assert_allclose(got, wide, rtol=bound, atol=4 * bound * depth**0.5)
    return exe.kernels[-1].lowered
