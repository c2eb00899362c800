"""Running a kernel and the interpreter side by side."""

from __future__ import annotations

import numpy as np

from minidlc import target
from minidlc.codegen.compile import Kernel, compile_kernel, run_kernel
from minidlc.expr.types import Array, TensorType
from minidlc.loop.interpret import interpret
from minidlc.loop.nodes import LoopFunction
from minidlc.loop.text import parse_function
from minidlc.target import Target

WIDTHS = [w for w in (4, 8, 16) if w <= target.host().lanes(32)]


def random_array(type: TensorType, seed: int) -> Array:
    """Small integers for integer types (no overflow surprises), normal floats."""
    rng = np.random.default_rng(seed)
    kind, dtype = type.dtype.kind, type.dtype.numpy
    if kind == "bool":
        return rng.integers(0, 2, type.dims).astype(dtype)
    if kind in ("int", "uint"):
        return rng.integers(0 if kind == "uint" else -9, 10, type.dims).astype(dtype)
    return rng.standard_normal(type.dims).astype(dtype)


def both(
    fn: LoopFunction | str,
    machine: Target,
    threads: int = 1,
    arrays: dict[str, Array] | None = None,
) -> tuple[dict[str, Array], dict[str, Array], Kernel]:
    """What the interpreter and the compiled kernel leave in the arrays."""
    function = parse_function(fn) if isinstance(fn, str) else fn
    given = arrays or {p.name: random_array(p.type, n) for n, p in enumerate(function.params)}
    want = {n: a.copy() for n, a in given.items()}
    interpret(function, want)
    kernel = compile_kernel(function, machine, cache=False)
    got = {n: a.copy() for n, a in given.items()}
    run_kernel(kernel, [got[p.name] for p in function.params], threads)
    return want, got, kernel


def check(
    fn: LoopFunction | str,
    machine: Target,
    threads: int = 1,
    rtol: float = 2e-5,
    arrays: dict[str, Array] | None = None,
) -> Kernel:
    """Compiled code does what the interpreter does."""
    want, got, kernel = both(fn, machine, threads, arrays)
    for name, expected in want.items():
        if expected.dtype.kind in "iub":
            np.testing.assert_array_equal(got[name], expected, err_msg=name)
        else:
            wide = expected.astype(np.float64)
            np.testing.assert_allclose(
                got[name].astype(np.float64), wide, rtol=rtol, atol=rtol, err_msg=name
            )
    return kernel
