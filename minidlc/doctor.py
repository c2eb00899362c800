"""`minidlc doctor`: is this machine ready? Each line is one thing checked.

    ✓ Python 3.11.7
    ✓ numpy 2.4.6 · onnx 1.23.2 · llvmlite 0.50.0
    ✓ target: sapphirerapids, 16 f32 lanes, 32 vector registers
    ✓ kernel: compiled in 41 ms, right

With `--stack DIR` the kernel is compiled with the parts in that folder, and each part is listed as
one's own or supplied. Exits with 1 if something a lesson needs is missing.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from rich.console import Console

import minidlc as mc
from minidlc import stack as stack_module
from minidlc import target
from minidlc.support.errors import CompileError
from minidlc.support.extension import counting

NEEDED = ("numpy", "onnx", "llvmlite", "graphviz", "jupyterlab", "nbval", "pytest")
OPTIONAL = ("onnxruntime", "hypothesis")


def doctor(out: Console, stack: Path | None = None) -> bool:
    """Print one line per check; returns True if all that is needed works."""
    checks = [_python, _wheels, _optional, _target, _kernel]
    if stack is not None:
        checks.append(lambda: _stack(stack))
    return all([_report(out, check) for check in checks])


def _report(out: Console, check: Callable[[], tuple[bool, str]]) -> bool:
    try:
        good, text = check()
    except CompileError as e:
        good, text = False, str(e)
        if e.place is None:  # a line of the command's own source helps nobody
            text = text.replace(f"\n  --> {e.loc}", "", 1)
    except (OSError, ImportError) as e:
        good, text = False, str(e)
    out.print(f"{'✓' if good else '✗'} {text}", markup=False)
    return good


def _python() -> tuple[bool, str]:
    version = sys.version_info[:3]
    good = (3, 11) <= version < (3, 14)
    text = f"Python {platform.python_version()} on {platform.system()} {platform.machine()}"
    return good, text if good else text + ": 3.11, 3.12 or 3.13 is needed"


def _versions(names: tuple[str, ...]) -> tuple[list[str], list[str]]:
    have: list[str] = []
    lack: list[str] = []
    for name in names:
        try:
            have.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            lack.append(name)
    return have, lack


def _wheels() -> tuple[bool, str]:
    have, lack = _versions(NEEDED)
    if lack:
        return False, f"missing: {', '.join(lack)} (pip install {' '.join(lack)})"
    return True, " · ".join(have)


def _optional() -> tuple[bool, str]:
    have, lack = _versions(OPTIONAL)
    return True, "optional: " + " · ".join(have + [f"no {name}" for name in lack])


def _target() -> tuple[bool, str]:
    return True, f"target: {target.host()} · {os.cpu_count()} cores"


def _kernel() -> tuple[bool, str]:
    milliseconds, right = _compiled()
    return right, f"kernel: compiled in {milliseconds:.0f} ms, {'right' if right else 'WRONG'}"


def _stack(folder: Path) -> tuple[bool, str]:
    """The parts of a folder, and the kernel once more with them."""
    mine = stack_module.load(folder)
    with mc.use(**mine.parts), counting() as calls:
        _, right = _compiled()
    called = [point for point in mine.parts if calls.get(point)]
    run = f"called while it compiled: {', '.join(called)}" if called else "it called none of them"
    text = f"stack: {mine}\n  kernel with your parts: {'right' if right else 'WRONG'}; {run}"
    return right, text


def _compiled() -> tuple[float, bool]:
    """One kernel: milliseconds to compile, and whether its result is right."""
    x, w = mc.Input("x", mc.f32[4, 8]), mc.Input("w", mc.f32[8, 3])
    graph = mc.Graph.of("doctor", [x, w], [mc.relu(x @ w)])
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(t.dims).astype(np.float32) for t in graph.input_types())
    start = time.perf_counter()
    exe = mc.compile(graph, threads=2)
    milliseconds = (time.perf_counter() - start) * 1e3
    right = np.allclose(exe(a, b)[0], np.maximum(a @ b, 0), atol=1e-5)
    return milliseconds, right
