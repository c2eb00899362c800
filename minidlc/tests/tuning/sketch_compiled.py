"""Points of sketches as machine code, for tests that have LLVM."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from minidlc.codegen.compile import compile_kernel, run_kernel
from minidlc.expr.types import Array
from minidlc.tuning.space import Config
from minidlc.tuning.task import Task


def compiled(task: Task, config: Config, given: Mapping[str, Array]) -> list[Array]:
    """The results of a point, constants packed first."""
    candidate = task.lower(config)
    arrays = {**given, **{t.name: np.full(t.shape, 99, t.dtype.numpy) for t in task.group.outputs}}
    for fn in (*candidate.init, candidate.loops):
        for p in fn.params:
            arrays.setdefault(p.name, np.zeros(p.type.dims, p.type.dtype.numpy))
        run_kernel(compile_kernel(fn, task.target), [arrays[p.name] for p in fn.params])
    return [arrays[t.name] for t in task.group.outputs]
