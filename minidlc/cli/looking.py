"""Commands that show: opt runs passes, show prints a level, explain tells what became of one op.

    minidlc opt m.onnx --passes "canonicalize,cse{limit=3}" --dump-after-each out
    minidlc show m.onnx --level loops --kernel conv_relu
    minidlc explain m.onnx --op Conv_3

Treated in course chapter 02_frontend_opt.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

import minidlc as mc
from minidlc.cli.common import (
    Model,
    OptLevel,
    Passes,
    Shapes,
    Threads,
    Tuned,
    app,
    compiled,
    known,
    load,
    out,
)
from minidlc.graph import print_graph, save_text
from minidlc.transform import Pipeline, parse_pipeline


class Level(StrEnum):
    """Levels that `show` prints."""

    GRAPH = "graph"
    TE = "te"
    TRACE = "trace"
    LOOPS = "loops"
    LLVM = "llvm"
    ASM = "asm"


@app.command()
def opt(
    model: Model,
    passes: Passes = None,
    dump: Annotated[
        Path | None,
        typer.Option("--dump-after-each", help="write the graph after each pass here, numbered"),
    ] = None,
    save: Annotated[Path | None, typer.Option(help="write the result as .dlc and .npz")] = None,
    shape: Shapes = None,
) -> None:
    """Run passes over a graph and print the result as text.

    Should a pass fail, MINIDLC_REPRODUCER=DIR keeps the graph before it, and how to repeat it.
    """
    pipeline = Pipeline.default() if passes is None else parse_pipeline(passes)
    graph, _ = pipeline.run(load(model, shape), dump=dump)
    if save is not None:
        save_text(graph, save)
    out.print(print_graph(graph), markup=False)


@app.command()
def show(
    model: Model,
    level: Annotated[Level, typer.Option(help="which representation")] = Level.GRAPH,
    kernel: Annotated[str | None, typer.Option(help="one kernel (default: all)")] = None,
    shape: Shapes = None,
    threads: Threads = None,
    opt_level: OptLevel = 3,
    passes: Passes = None,
    database: Tuned = None,
) -> None:
    """Print one level of the compiled model: graph, te, trace, loops, llvm or asm.

    Assembly is printed with the loops and the ONNX nodes that it came from.
    """
    exe = known(compiled(model, shape, threads, opt_level, passes, database))
    if level is Level.GRAPH and kernel is None:
        out.print(print_graph(exe.graph), markup=False)
        return
    kernels = exe.kernels if kernel is None else (exe.kernel(kernel),)
    for k in kernels:
        out.print(f"# {k.name}", markup=False)
        text = k.listing if level is Level.ASM else str(getattr(k, level.value))
        out.print(text.rstrip() + "\n", markup=False)


@app.command()
def explain(
    model: Model,
    op: Annotated[str, typer.Option("--op", help="name of an ONNX node or of a value")],
    shape: Shapes = None,
    threads: Threads = None,
    opt_level: OptLevel = 3,
    passes: Passes = None,
) -> None:
    """Tell everything that happened to one op: import, each pass and why, kernel, bytes."""
    exe = known(compiled(model, shape, threads, opt_level, passes))
    out.print(str(mc.debug.explain(exe, op)), markup=False)
