"""Commands that compile and run: tour, doctor, compile, run, bench.

    minidlc compile m.onnx --shape N=1 --threads 2  # kernels and memory
    minidlc run m.onnx --input x=digits.npy --save y.npz

Treated in course chapter 01_graph_ir.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
import typer

import minidlc as mc
from minidlc import bench as bench_module
from minidlc import doctor as doctor_module
from minidlc import tour as tour_module
from minidlc.cli.common import (
    Inputs,
    Model,
    OptLevel,
    Passes,
    Seed,
    Shapes,
    Threads,
    Tuned,
    app,
    compiled,
    known,
    out,
    with_inputs,
)
from minidlc.viz.picture import check_picture_path


@app.command()
def tour(
    directory: Annotated[Path, typer.Option("--out", help="where the pictures go")] = Path("out"),
) -> None:
    """Take a real digit classifier through every stage, on screen."""
    raise typer.Exit(0 if tour_module.tour(directory, out) else 1)


@app.command()
def doctor(
    stack: Annotated[
        Path | None, typer.Option(help="a folder of your own parts: which run, which are supplied")
    ] = None,
) -> None:
    """Check Python, wheels, LLVM and cores; compile and run one kernel."""
    raise typer.Exit(0 if doctor_module.doctor(out, stack) else 1)


@app.command(name="compile")
def compile_command(
    model: Model,
    shape: Shapes = None,
    threads: Threads = None,
    opt_level: OptLevel = 3,
    passes: Passes = None,
    database: Tuned = None,
) -> None:
    """Compile a model and report its kernels and memory."""
    exe = known(compiled(model, shape, threads, opt_level, passes, database))
    out.print(str(exe.report()), markup=False)


@app.command()
def run(
    model: Model,
    inputs: Inputs = None,
    save: Annotated[Path | None, typer.Option(help="write the outputs to this .npz")] = None,
    seed: Seed = 0,
    shape: Shapes = None,
    threads: Threads = None,
    opt_level: OptLevel = 3,
    database: Tuned = None,
) -> None:
    """Compile a model, run it once, print its outputs."""
    exe = compiled(model, shape, threads, opt_level, None, database)
    exe, arrays = with_inputs(exe, inputs, seed)
    results = exe.run_dict(**arrays)
    for name, array in results.items():
        out.print(f"{name}: {array.dtype}{list(array.shape)}", markup=False)
        out.print(np.array2string(array, threshold=20, precision=5), markup=False)
    if save is not None:
        np.savez(save, **results)  # pyright: ignore[reportArgumentType]


@app.command()
def bench(
    model: Model,
    inputs: Inputs = None,
    seed: Seed = 0,
    shape: Shapes = None,
    threads: Threads = None,
    opt_level: OptLevel = 3,
    database: Tuned = None,
    rounds: Annotated[int, typer.Option(min=1, help="turns of each engine")] = 15,
    profile: Annotated[
        bool, typer.Option("--profile", help="also the time of each kernel")
    ] = False,
    roofline: Annotated[
        Path | None, typer.Option(help="also draw the kernels under this machine's roofs")
    ] = None,
) -> None:
    """Time a model against ONNX Runtime, in turns; `--profile` says where the time goes."""
    if roofline is not None:
        check_picture_path(roofline)  # before minutes of measuring
    exe = compiled(model, shape, threads, opt_level, None, database)
    exe, arrays = with_inputs(exe, inputs, seed)
    source = model
    if model.suffix == ".dlc":
        source = mc.to_onnx(exe.source).SerializeToString()
    result = bench_module.compare(exe, source, arrays, exe.loaded.threads, rounds)
    out.print(str(result), markup=False)
    if profile or roofline is not None:
        measured = exe.profile(arrays)
        if profile:
            out.print(f"\n{measured}", markup=False)
        if roofline is not None:
            out.print(f"\nwrote {mc.viz.roofline(measured).save(roofline)}", markup=False)
