"""`minidlc tour`: one real network through every stage, on screen and as pictures.

Reads the digit classifier and the 40 digits in minidlc/models, writes pictures and texts to a
folder. Every number on screen was measured in that run.
"""

from __future__ import annotations

import importlib
import statistics
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator
from rich.console import Console

import minidlc as mc
from minidlc.codegen.asm import count, inner_loops
from minidlc.expr.types import Array
from minidlc.levels import CompiledKernel
from minidlc.loop.interpret import interpret as run_loops

MODELS = Path(__file__).parent / "models"
MODEL = MODELS / "mnist_cntk.onnx"
TOLERANCE = 1e-4  # of the largest expected value
ROUNDS, CALLS = 21, 200
WIDTH, COLUMN = 88, 70  # of program text; where file names begin


class Screen:
    """The left column counts and names stages, the right one says what came out."""

    def __init__(self, out: Console) -> None:
        self._out, self._number = out, 0

    def step(self, name: str, text: str, file: Path | None = None) -> None:
        """Print one stage: number, name, what happened, and on the right the file written."""
        self._number += 1
        line = f" {self._number}  {name:<11} {text}"
        if file is not None:
            fits = len(line) < COLUMN
            line = f"{line:<{COLUMN}} {file}" if fits else f"{line}\n{'':<{COLUMN}} {file}"
        self.line(line)

    def line(self, text: str = "") -> None:
        """Print one line as it is."""
        self._out.print(text, markup=False)

    def code(self, text: str, limit: int = 12) -> None:
        """Print program text, indented and cut to `limit` lines."""
        lines = text.rstrip().splitlines()
        for line in lines[:limit]:
            self.line(f"        {line if len(line) <= WIDTH else line[: WIDTH - 2] + ' …'}")
        if len(lines) > limit:
            self.line(f"        … {len(lines) - limit} lines more")


def tour(directory: Path, out: Console) -> bool:
    """Run the tour; returns True if every answer was right."""
    directory.mkdir(parents=True, exist_ok=True)
    screen = Screen(out)
    model: Any = cast(Any, onnx).load(MODEL)
    size = MODEL.stat().st_size
    nodes = len(model.graph.node)
    screen.line(f"minidlc tour   a real digit classifier: {nodes} ONNX nodes, {size // 1000} kB")
    screen.line()
    graph = mc.load_onnx(MODEL)
    mc.viz.graph(graph).save(directory / "1_graph.svg")
    screen.step(
        "import",
        f"{len(model.graph.node)} nodes → {len(graph.nodes)} ops, every value typed",
        directory / "1_graph.svg",
    )
    exe = mc.compile(graph, threads=1)
    _optimised(screen, exe, directory)
    kernel = max(exe.kernels, key=lambda k: len(k.trace.splitlines()))
    _expressed(screen, exe, kernel)
    _scheduled(screen, kernel, directory)
    _lowered(screen, exe)
    _generated(screen, exe, kernel, directory)
    good = _ran(screen, exe, model)
    screen.line()
    screen.line(" next: make lab (opens the lessons)      read: ARCHITECTURE.md, minidlc/driver.py")
    return good


def _optimised(screen: Screen, exe: mc.Executable, directory: Path) -> None:
    mc.viz.passes(exe.passes).save(directory / "2_passes.html")
    mc.viz.graph(exe.graph).save(directory / "2_graph.svg")
    counts = [f"{r.name} {r.nodes_before}→{r.nodes_after}" for r in exe.passes if r.changed]
    plan = exe.memory_plan
    memory = f"arena {plan.arena_bytes / 1e3:.0f} kB (without reuse {plan.naive_bytes / 1e3:.0f})"
    screen.step(
        "optimise",
        f"{', '.join(counts)} · {len(exe.kernels)} kernels · {memory}",
        directory / "2_passes.html",
    )


def _expressed(screen: Screen, exe: mc.Executable, kernel: CompiledKernel) -> None:
    screen.step("express", f"1 of {len(exe.kernels)} kernels as tensor expressions: {kernel.name}")
    screen.code(kernel.te)


def _scheduled(screen: Screen, kernel: CompiledKernel, directory: Path) -> None:
    prefixes = kernel.schedule.prefixes()
    mc.viz.loops(kernel.schedule).save(directory / "4_loops.svg")
    text = "\n".join(f"# after {len(p.trace)} primitives\n{p.lower()}" for p in prefixes)
    (directory / "4_schedule.txt").write_text(text, encoding="utf-8")
    screen.step(
        "schedule",
        f"{len(kernel.schedule.trace)} primitives; the loop nest after each in 4_schedule.txt",
        directory / "4_loops.svg",
    )
    screen.code(kernel.trace, 6)


def _lowered(screen: Screen, exe: mc.Executable) -> None:
    """Run the smallest matrix kernel's loop text under Python and compare it with machine code."""
    kernel = min(exe.kernels, key=lambda k: sum(p.type.size for p in k.loops.params))
    rng = np.random.default_rng(0)
    arrays: dict[str, Array] = {
        p.name: rng.standard_normal(p.type.dims).astype(p.type.dtype.numpy)
        for p in kernel.loops.params
    }
    native = {name: array.copy() for name, array in arrays.items()}
    run_loops(kernel.loops, arrays)
    kernel.run(native)
    output = kernel.loops.outputs[0]
    error = float(np.max(np.abs(arrays[output] - native[output])))
    screen.step(
        "lower",
        f"the loop IR of {kernel.name} runs as Python: machine code differs by {error:.0e} at most",
    )
    screen.code(str(kernel.loops))


def _generated(screen: Screen, exe: mc.Executable, kernel: CompiledKernel, directory: Path) -> None:
    lines = sum(len(k.llvm.splitlines()) for k in exe.kernels)
    size = sum(len(k.native.object) for k in exe.kernels)
    (directory / "6_code.ll").write_text("\n".join(k.llvm for k in exe.kernels), encoding="utf-8")
    (directory / "6_code.s").write_text("\n".join(k.asm for k in exe.kernels), encoding="utf-8")
    screen.step(
        "generate",
        f"{lines} lines of LLVM IR → {size / 1e3:.1f} kB of code for {mc.target.host().cpu}",
        directory / "6_code.s",
    )
    loop = max(inner_loops(kernel.asm), key=lambda text: count(text).fma)
    screen.line(f"        the inner loop of {kernel.name}, {count(loop).fma} multiply-adds:")
    screen.code(loop.expandtabs(8), 6)


def _ran(screen: Screen, exe: mc.Executable, model: Any) -> bool:
    with np.load(MODELS / "mnist_digits_40.npz") as digits:
        images, labels = digits["x"], digits["y"]
    with np.load(MODELS / "mnist_cntk.case0.npz") as case:
        given = next(case[k] for k in case.files if k.startswith("in::"))
        wanted = next(case[k] for k in case.files if k.startswith("out::"))
    reference: Any = ReferenceEvaluator(model)
    name = exe.source.inputs[0].name
    right, worst = 0, 0.0
    for image, label in zip(images, labels, strict=True):
        (ours,) = exe(image)
        right += int(np.argmax(ours)) == int(label)
        expected = reference.run(None, {model.graph.input[0].name: image})[0]
        worst = max(worst, float(np.abs(ours - expected).max() / np.abs(expected).max()))
    stored = float(np.abs(exe({name: given})[0] - wanted).max() / np.abs(wanted).max())
    worst = max(worst, stored)
    screen.step(
        "run",
        f"{right} of {len(labels)} digits right · largest relative error {worst:.0e} · "
        f"{_times(exe, images[0])}",
    )
    return right == len(labels) and worst <= TOLERANCE


def _times(exe: mc.Executable, image: Array) -> str:
    """Median microseconds a call, interleaved with ONNX Runtime's where it is installed."""
    runs: dict[str, Callable[[], object]] = {"minidlc": lambda: exe(image)}
    if find_spec("onnxruntime") is not None:
        onnxruntime: Any = importlib.import_module("onnxruntime")  # a second opinion, optional
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        session = onnxruntime.InferenceSession(str(MODEL), options, ["CPUExecutionProvider"])
        feed: dict[str, Array] = {session.get_inputs()[0].name: image}
        runs["ONNX Runtime"] = lambda: session.run(None, feed)
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(ROUNDS):
        for name, call in runs.items():
            start = time.perf_counter()
            for _ in range(CALLS):
                call()
            times[name].append((time.perf_counter() - start) / CALLS * 1e6)
    medians = {name: statistics.median(values) for name, values in times.items()}
    return " · ".join(f"{name} {value:.1f} µs" for name, value in medians.items()) + " (1 thread)"
