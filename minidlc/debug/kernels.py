"""Which kernel's machine code differs from what its node means.

    found = first_wrong_kernel(graph, arrays, pipeline, expected, tolerance, Memo())
    # ("k3_conv", "16 of 64 elements differ, most at [0, 3]: got 2.0, expected 1.0"), or None

The interpreter gives every value of the optimised graph; each kernel runs alone on those that it
reads, and its results are compared. Kernels inside branches and loops are not run: their inputs
have no single value. Treated in course chapter 05_backend_opt.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from minidlc.debug.answers import Memo, wrong_array, wrong_output
from minidlc.driver import compile
from minidlc.expr.types import Array
from minidlc.graph import Graph, Value
from minidlc.levels import CompiledKernel
from minidlc.transform import Pipeline


def first_wrong_kernel(
    graph: Graph,
    arrays: Mapping[str, Array],
    pipeline: Pipeline,
    expected: Sequence[Array],
    tolerance: float | None,
    memo: Memo,
) -> tuple[str | None, str] | None:
    """The first kernel that is wrong, and how; no name if each alone is right but not together.

    None if compiled code answers rightly.
    """
    exe = compile(graph, pipeline=pipeline)
    wrong = wrong_output(exe(*(arrays[i.name] for i in graph.inputs)), expected, graph, tolerance)
    if wrong is None:
        return None
    values = {v: k.arrays for v, k in memo.values(exe.graph, arrays).items()}
    skipped = 0
    for kernel in exe.kernels:
        if not all(v in values for v in (kernel.origin, *kernel.lowered.reads)):
            skipped += 1
            continue
        reason = _wrong_kernel(kernel, values, tolerance)
        if reason is not None:
            return kernel.name, reason
    inside = (
        f"; {skipped} kernels of branches, loops and checks were not run alone" if skipped else ""
    )
    text = "each kernel alone is right: look at the steps, memory plan and entry"
    return None, f"{wrong}\n  = {text}{inside}"


def _wrong_kernel(
    kernel: CompiledKernel, values: Mapping[Value, tuple[Array, ...]], tolerance: float | None
) -> str | None:
    """How the results of one kernel are wrong, or None."""
    read = {v: values[v][0] for v in kernel.lowered.inputs if v in values}
    given = {k: np.ascontiguousarray(a) for k, a in kernel.lowered.arrays(read).items()}
    params = kernel.loops.params[len(kernel.lowered.inputs) :]
    results = [np.empty(p.type.dims, p.type.dtype.numpy) for p in params]
    kernel.run(given | {p.name: a for p, a in zip(params, results, strict=True)})
    wanted = values[kernel.origin]
    for result, want in zip(results, wanted, strict=True):
        reason = wrong_array(result, want.reshape(result.shape), tolerance)
        if reason is not None:
            return reason
    return None
