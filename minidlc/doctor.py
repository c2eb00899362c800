"""`minidlc doctor`: is this machine ready? Each line is one thing checked.

    ✓ Python 3.11.7
    ✓ numpy 2.4.6 · onnx 1.23.2 · llvmlite 0.50.0
    ✓ target: sapphirerapids, 16 f32 lanes, 32 vector registers
    ✓ kernel: compiled in 41 ms, right

With `--stack DIR` the digit classifier of `models/` is compiled and interpreted with the parts in
that folder, and each part is listed as one's own or supplied. If that fails, the part to look at is
named. Exits with 1 if something a lesson needs is missing.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

import minidlc as mc
from minidlc import stack as stack_module
from minidlc import target
from minidlc.support.errors import CompileError
from minidlc.support.extension import counting

NEEDED = ("numpy", "onnx", "llvmlite", "graphviz", "jupyterlab", "nbval", "pytest")
OPTIONAL = ("onnxruntime", "hypothesis")
DIGITS = 10  # of the 40 in the file: enough to see that a model is right


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
    """The parts of a folder, and the digit classifier run with them."""
    mine = stack_module.load(folder)
    with counting() as calls:
        fault = _fault(mine.parts)
    ran = [point for point in mine.parts if calls.get(point)]
    idle = [point for point in mine.parts if not calls.get(point)]
    lines = [f"stack: {mine}"]
    if fault:
        lines += [f"  digit classifier with your parts: {fault}", f"  {_blame(mine)}"]
    else:
        lines.append("  digit classifier with your parts: right, compiled and interpreted")
    lines.append(f"  your parts that ran: {', '.join(ran) or 'none'}")
    if idle:
        lines.append(f"  your parts that did not run: {', '.join(idle)}")
    return not fault, "\n".join(lines)


def _blame(mine: stack_module.Stack) -> str:
    """Which part to look at: one that fails alone, else the first that fails with those before."""
    alone = [part.file.name for part in mine.own if _fault(part.functions)]
    if alone:
        return f"to look at: {', '.join(alone)} (fails also without your other parts)"
    for part in mine.own:
        if _fault(mine.up_to(part.task).parts):
            return f"to look at: {part.file.name} (alone it works, with the parts before it not)"
    return "to look at: none of them fails alone or after those before it; run it again"


def _fault(parts: Mapping[str, Callable[..., Any]]) -> str:
    """What went wrong in a run of the digit classifier and of a small function; "" if nothing."""
    try:
        with mc.use(**parts):
            right = _digits()
            small = _small()
    except CompileError as e:
        return _without_place(e)
    if right < DIGITS:
        return f"WRONG, {right} of {DIGITS} digits"
    return "" if small else "right, but a small function parsed and traced is WRONG"


def _without_place(error: CompileError) -> str:
    """The report without its place, which is a line of this command or of what called it."""
    lines = str(error).splitlines()
    return "\n    ".join(line for line in lines if not line.lstrip().startswith("--> "))


def _digits() -> int:
    """How many digits are read right: all by the compiled model, the first also interpreted."""
    models = Path(mc.__file__).parent / "models"
    with np.load(models / "mnist_digits_40.npz") as digits:
        images, labels = digits["x"][:DIGITS], digits["y"][:DIGITS].tolist()
    graph = mc.load_onnx(models / "mnist_cntk.onnx")
    exe = mc.compile(graph, threads=2)
    read = [int(np.argmax(exe(image)[0])) for image in images]
    (first,) = mc.interpret(graph, [images[0]])
    return (
        sum(a == b for a, b in zip(read, labels, strict=True)) if first.argmax() == read[0] else 0
    )


def _small() -> bool:
    """A text and a Python function that mean the same, for the stages that a model does not use."""
    x = np.array([-3, 0, 2], np.float32)
    text = mc.parse("def f(x: f32[3]):\n    y = add(x, x)\n    z = relu(y)\n    return z\n")
    traced = mc.trace(_relu_of_twice, mc.f32[3])
    return all(mc.interpret(g, [x])[0].tolist() == [0, 0, 4] for g in (text, traced))


def _relu_of_twice(x: mc.Value) -> mc.Value:
    return mc.relu(x + x)


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
