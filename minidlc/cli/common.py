"""What the commands share: their options, and how they read models and arrays.

    exe = known(compiled(Path("m.onnx"), ["N=1"], threads=None, level=3, passes=None))
    exe, arrays = with_inputs(exe, ["x=digits.npy"], seed=0)

Raises OptionError (MDLC1008) for what does not fit. Treated in course chapter 01_graph_ir.
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.console import Console

import minidlc as mc
import minidlc.npu  # pyright: ignore[reportUnusedImport]  passes may name its back end
from minidlc.debug.answers import feeds_for, prepared
from minidlc.expr.types import Array
from minidlc.graph import Graph, Input, load_text
from minidlc.graph.substitute import substitute
from minidlc.sources import GraphSource, Sizes, Source, is_static, open_source
from minidlc.support.errors import OptionError
from minidlc.template import Template

app = typer.Typer(
    help="A deep-learning compiler you can read. Start with: minidlc tour",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
out = Console(highlight=False, soft_wrap=True)

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
Tuned = Annotated[
    Path | None, typer.Option("--database", help="take schedules from this file of tuning records")
]
Passes = Annotated[str | None, typer.Option("--passes", help='such as "canonicalize,cse,fuse"')]


def load(model: Path, shape: list[str] | None) -> Graph:
    """The graph of a model file, not optimised."""
    if model.suffix == ".dlc":
        return graph_text(model, shape)
    return mc.load_onnx(model, shapes=shapes_of(shape))


def graph_text(model: Path, shape: list[str] | None) -> Graph:
    """The graph of a text, its symbols replaced by the sizes given.

    Raises OptionError (MDLC1008) where the text has no symbols.
    """
    source = GraphSource(load_text(model))
    sizes = shapes_of(shape)
    if sizes is None:
        return source.symbolic
    if is_static(source):
        text = f"--shape: all sizes of {source.name} are known"
        raise OptionError(text, hint="leave it out", code="MDLC1008")
    return substitute(source.symbolic, Sizes.of(source, sizes).sizes)


def check_sizes(graph: Graph) -> None:
    """OptionError (MDLC1008) if the graph leaves sizes open; the hint says how to give them."""
    source = GraphSource(graph)
    if not is_static(source):
        raise _sizes_open(source)


def compiled(
    model: Path,
    shape: list[str] | None,
    threads: int | None,
    level: int,
    passes: str | None,
    database: Path | None = None,
) -> mc.Executable:
    """A model file as an executable."""
    is_text = model.suffix == ".dlc"
    return mc.compile(
        load(model, shape) if is_text else model,
        shapes=None if is_text else shapes_of(shape),
        threads=threads,
        opt_level=level,
        pipeline=passes,
        database=database,
    )


def shapes_of(given: list[str] | None) -> dict[str, int | tuple[int, ...]] | None:
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


def known(exe: mc.Executable) -> mc.Executable:
    """It, if its sizes are known; OptionError (MDLC1008) says how to give them."""
    if not isinstance(exe, Template):
        return exe
    raise _sizes_open(exe.declared)


def _sizes_open(source: Source) -> OptionError:
    symbol = next(iter(source.symbols), None)
    return OptionError(
        f"{source.name} leaves sizes or values open",
        notes=[f"{i.name}: {i}" for i in source.inputs],
        hint=f"--shape {symbol}=4" if symbol else "`run` takes arrays, and compiles for them",
        code="MDLC1008",
    )


def with_inputs(
    exe: mc.Executable, files: list[str] | None, seed: int
) -> tuple[mc.Executable, dict[str, Array]]:
    """The model compiled for the arrays in files, and an array for every input."""
    declared = exe.declared if isinstance(exe, Template) else exe.source
    given = _given(files or [], {i.name for i in declared.inputs})
    if isinstance(exe, Template):
        exe = exe.specialize(given) if given else known(exe)
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


def graph_with_arrays(
    model: Path, files: list[str] | None, seed: int, shape: list[str] | None
) -> tuple[Graph, dict[str, Array]]:
    """The graph of a model for the arrays in files, and an array for every input.

    Random floats have both signs here: a fault may show with negative numbers only.
    """
    is_text = model.suffix == ".dlc"
    opened = graph_text(model, shape) if is_text else str(model)
    source = open_source(opened, None if is_text else shapes_of(shape))
    given = _given(files or [], {i.name for i in source.inputs})
    rest = [d for d in source.inputs if d.name not in given]
    for d in rest:
        if d.shape is None or not all(isinstance(n, int) for n in d.shape):
            text = f"the shape of input {d.name!r} is not known: {d}"
            symbol = next(iter(source.symbols), None)
            size = f"{symbol}=4" if symbol else f"{d.name}=1,3,…"
            hint = f"--shape {size}, or --input {d.name}=file.npy"
            raise OptionError(text, hint=hint, code="MDLC1008")
    types = [Input(d.name, d.with_shape(d.shape or ())) for d in rest]
    return prepared(opened, given | feeds_for(types, seed))


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
