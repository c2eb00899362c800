"""The `minidlc` command: a thin shell over the Python API.

    minidlc tour                                    # a real net through every stage
    minidlc show model.onnx --level loops --kernel conv_relu
    minidlc opt graph.dlc --passes "canonicalize,cse,fuse{max_ops=8}"
    minidlc run model.onnx --input x=digits.npy
    minidlc bench model.onnx --profile              # against ONNX Runtime

Errors of the user's input are printed as reports and exit with 1, never as tracebacks.
"""

from __future__ import annotations

import io
import sys
import zipfile
import zlib
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, NoReturn

import numpy as np
import typer
from rich.console import Console

import minidlc as mc
from minidlc import bench as bench_module
from minidlc import doctor as doctor_module
from minidlc import tour as tour_module
from minidlc.expr.types import Array
from minidlc.graph import Graph, load_text, save_text
from minidlc.graph.text import print_graph
from minidlc.support.errors import CompileError, OptionError
from minidlc.support.locations import PyLoc
from minidlc.template import Template
from minidlc.transform import Pipeline, parse_pipeline
from minidlc.viz.picture import check_picture_path

app = typer.Typer(
    help="A deep-learning compiler you can read. Start with: minidlc tour",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
out = Console(highlight=False, soft_wrap=True)


class Level(StrEnum):
    """Levels that `show` prints."""

    GRAPH = "graph"
    TE = "te"
    TRACE = "trace"
    LOOPS = "loops"
    LLVM = "llvm"
    ASM = "asm"


Model = Annotated[Path, typer.Argument(help="an .onnx model or a .dlc graph text")]
Shapes = Annotated[
    list[str] | None, typer.Option("--shape", help="N=1 for a symbol, x=1,3,224,224 for an input")
]
Threads = Annotated[int | None, typer.Option(help="cores a call may use (default: all)")]
OptLevel = Annotated[int, typer.Option("--opt-level", "-O", help="0, 1, 2 or 3")]
Inputs = Annotated[
    list[str] | None, typer.Option("--input", help="x=file.npy, or an .npz with one array each")
]
Seed = Annotated[
    int, typer.Option(min=0, help="inputs that are not given are random, by this seed")
]
Passes = Annotated[str | None, typer.Option("--passes", help='such as "canonicalize,cse,fuse"')]


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
) -> None:
    """Compile a model and report its kernels and memory."""
    exe = _known(_compile(model, shape, threads, opt_level, passes))
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
) -> None:
    """Compile a model, run it once, print its outputs."""
    exe = _compile(model, shape, threads, opt_level, None)
    exe, arrays = _with_inputs(exe, inputs, seed)
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
    exe = _compile(model, shape, threads, opt_level, None)
    exe, arrays = _with_inputs(exe, inputs, seed)
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


@app.command()
def opt(
    model: Model,
    passes: Passes = None,
    dump: Annotated[
        Path | None, typer.Option("--dump-after-each", help="write the graph after each pass here")
    ] = None,
    save: Annotated[Path | None, typer.Option(help="write the result as .dlc and .npz")] = None,
    shape: Shapes = None,
) -> None:
    """Run passes over a graph and print the result as text."""
    pipeline = Pipeline.default() if passes is None else parse_pipeline(passes)
    graph, records = pipeline.run(_load(model, shape))
    if dump is not None:
        dump.mkdir(parents=True, exist_ok=True)
        for number, record in enumerate(records, 1):
            save_text(record.after, dump / f"{number:02}_{record.name}.dlc")
    if save is not None:
        save_text(graph, save)
    out.print(print_graph(graph), markup=False, end="")


@app.command()
def show(
    model: Model,
    level: Annotated[Level, typer.Option(help="which representation")] = Level.GRAPH,
    kernel: Annotated[str | None, typer.Option(help="one kernel (default: all)")] = None,
    shape: Shapes = None,
    threads: Threads = None,
    opt_level: OptLevel = 3,
    passes: Passes = None,
) -> None:
    """Print one level of the compiled model: graph, te, trace, loops, llvm or asm.

    Assembly is printed with the loops and the ONNX nodes that it came from.
    """
    exe = _known(_compile(model, shape, threads, opt_level, passes))
    if level is Level.GRAPH and kernel is None:
        out.print(print_graph(exe.graph), markup=False, end="")
        return
    kernels = exe.kernels if kernel is None else (exe.kernel(kernel),)
    for k in kernels:
        out.print(f"# {k.name}", markup=False)
        text = k.listing if level is Level.ASM else str(getattr(k, level.value))
        out.print(text.rstrip() + "\n", markup=False)


def _load(model: Path, shape: list[str] | None) -> Graph:
    if model.suffix == ".dlc":
        if shape:
            raise OptionError("--shape: a graph text has its shapes", code="MDLC1008")
        return load_text(model)
    return mc.load_onnx(model, shapes=_shapes(shape))


def _compile(
    model: Path, shape: list[str] | None, threads: int | None, level: int, passes: str | None
) -> mc.Executable:
    if model.suffix == ".dlc":
        return mc.compile(_load(model, shape), threads=threads, opt_level=level, pipeline=passes)
    shapes = _shapes(shape)
    return mc.compile(model, shapes=shapes, threads=threads, opt_level=level, pipeline=passes)


def _shapes(given: list[str] | None) -> dict[str, int | tuple[int, ...]] | None:
    """Read ['N=1', 'x=1,3,32,32']; raises OptionError (MDLC1008) for anything else."""
    shapes: dict[str, int | tuple[int, ...]] = {}
    for text in given or []:
        name, _, value = text.partition("=")
        try:
            dims = tuple(int(d) for d in value.split(","))
        except ValueError:
            raise OptionError(
                f"--shape {text!r}: expected NAME=NUMBER or NAME=N,N,…", code="MDLC1008"
            ) from None
        shapes[name] = dims[0] if len(dims) == 1 else dims
    return shapes or None


def _known(exe: mc.Executable) -> mc.Executable:
    """It, if its sizes are known; OptionError (MDLC1008) says how to give them."""
    if not isinstance(exe, Template):
        return exe
    symbol = next(iter(exe.declared.symbols), None)
    raise OptionError(
        f"{exe.declared.name} leaves sizes or values open",
        notes=[f"{i.name}: {i}" for i in exe.declared.inputs],
        hint=f"--shape {symbol}=4" if symbol else "`run` takes arrays, and compiles for them",
        code="MDLC1008",
    )


def _with_inputs(
    exe: mc.Executable, files: list[str] | None, seed: int
) -> tuple[mc.Executable, dict[str, Array]]:
    """The model compiled for the arrays in files, and an array for every input."""
    declared = exe.declared if isinstance(exe, Template) else exe.source
    given = _given(files or [], {i.name for i in declared.inputs})
    if isinstance(exe, Template):
        exe = exe.specialize(given) if given else _known(exe)
    return exe, _completed(given, exe.source, seed)


def _given(files: list[str], names: set[str]) -> dict[str, Array]:
    """The arrays in files, by input. Raises OptionError (MDLC1008)."""
    arrays: dict[str, Array] = {}
    for text in files:
        for name, array in _read_arrays(text, names).items():
            if name in arrays:
                raise OptionError(f"--input {text!r}: {name!r} is given twice", code="MDLC1008")
            arrays[name] = array
    return arrays


def _completed(given: Mapping[str, Array], graph: Graph, seed: int) -> dict[str, Array]:
    """An array for every input, random where none is given."""
    arrays = dict(given)
    rng = np.random.default_rng(seed)
    for i in graph.inputs:
        if i.name not in arrays:
            values = rng.random(i.type.dims) if i.type.dtype.is_float else np.zeros(i.type.dims)
            arrays[i.name] = values.astype(i.type.dtype.numpy)
    return arrays


def _read_arrays(text: str, names: set[str]) -> dict[str, Array]:
    """Name → array of 'x=file.npy', 'file.npy' for a model of one input, or 'file.npz'."""
    name, _, file = text.partition("=")
    try:
        loaded = np.load(file or name, allow_pickle=False)
        if isinstance(loaded, np.lib.npyio.NpzFile):
            with loaded:
                files: list[str] = loaded.files
                found: dict[str, Array] = {f.removeprefix("in::"): loaded[f] for f in files}
            return {k: v for k, v in found.items() if not k.startswith("out::") or k in names}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as e:
        raise OptionError(f"--input {text!r}: {e}", code="MDLC1008") from None
    if not file and len(names) != 1:
        hint = f"NAME=FILE.npy, of {', '.join(sorted(names)) or 'no input'}"
        raise OptionError(f"--input {text!r}: for which input?", hint=hint, code="MDLC1008")
    return {name if file else min(names): loaded}


def main() -> None:
    """Entry point of the `minidlc` command."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a Windows pipe cannot write an arrow
    try:
        app()
    except OSError as e:
        _fail(OptionError(f"{e.filename or 'output'}: {e.strerror}", code="MDLC1024"))
    except CompileError as e:
        _fail(e)


def _fail(error: CompileError) -> NoReturn:
    report = str(error)
    if isinstance(error.loc, PyLoc):  # a line of the command's own source helps nobody
        report = report.replace(f"\n  --> {error.loc}", "", 1)
    Console(stderr=True, highlight=False, soft_wrap=True).print(report, markup=False)
    sys.exit(1)
