"""Commands that find what is wrong: bisect the pass and its rewrite, reduce the graph.

    minidlc bisect m.onnx --input x=digits.npy --expected y.npz
    minidlc reduce f.dlc --passes "canonicalize"    # while these passes change the answer, or fail
    minidlc reduce f.dlc --check "python check.py"  # while the command ends as it does now

Treated in course chapter 02_frontend_opt.
"""

from __future__ import annotations

import shlex
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

import minidlc as mc
from minidlc.cli.common import (
    Inputs,
    Model,
    Passes,
    Seed,
    Shapes,
    app,
    check_sizes,
    graph_with_arrays,
    load,
    out,
)
from minidlc.debug.trial import goes_wrong
from minidlc.expr.types import Array
from minidlc.graph import Graph, print_graph, save_text
from minidlc.support.errors import OptionError
from minidlc.transform import parse_pipeline


@app.command()
def bisect(
    model: Model,
    inputs: Inputs = None,
    passes: Passes = None,
    expected: Annotated[
        Path | None, typer.Option(help="an .npz of the right outputs (default: before any pass)")
    ] = None,
    tolerance: Annotated[
        float | None, typer.Option(min=0, help="of floats, times the largest expected value")
    ] = None,
    seed: Seed = 0,
    shape: Shapes = None,
    save: Annotated[Path | None, typer.Option(help="write the small graph as .dlc")] = None,
) -> None:
    """Find the pass, and its n-th rewrite, after which the answer is wrong; exits with 1 if one is.

    If every pass is right, the compiled kernels are run one by one.
    """
    graph, arrays = graph_with_arrays(model, inputs, seed, shape)
    right = None if expected is None else _outputs(expected)
    found = mc.debug.bisect(graph, arrays, passes, right, tolerance)
    out.print(str(found), markup=False)
    if save is not None and found.reduced is not None:
        save_text(found.reduced, save)
    raise typer.Exit(0 if found.guilty == "nobody" else 1)


@app.command()
def reduce(
    model: Model,
    passes: Passes = None,
    check: Annotated[
        str | None, typer.Option(help="a command; the path of a graph is put behind it")
    ] = None,
    seed: Seed = 0,
    shape: Shapes = None,
    save: Annotated[Path | None, typer.Option(help="write the small graph as .dlc")] = None,
    tests: Annotated[int, typer.Option(min=1, help="graphs to try at most")] = 2000,
) -> None:
    """Make a graph as small as it can be while it is still bad.

    Bad: the passes raise or change the answer on random inputs, or the command exits with 1, or is
    killed by a signal.
    """
    if (passes is None) == (check is None):
        hint = "--passes canonicalize, or --check 'python check.py'"
        raise OptionError("reduce: give --passes or --check", hint=hint, code="MDLC1046")
    graph = load(model, shape)
    if passes is not None:
        check_sizes(graph)  # random inputs need them
    with tempfile.TemporaryDirectory(prefix="minidlc-reduce-") as folder:
        if passes is not None:
            is_bad = goes_wrong(parse_pipeline(passes), graph, seed=seed)
        else:
            is_bad = _command_fails(str(check), graph, Path(folder) / "graph.dlc")
        found = mc.debug.reduce(graph, is_bad, max_tests=tests)
    out.print(print_graph(found.graph), markup=False)
    left = "" if found.complete else ", more would be possible: --tests"
    count = len(found.graph.nodes)
    out.print(f"# {len(graph.nodes)} nodes -> {count}, {found.tests} graphs tried{left}")
    if save is not None:
        save_text(found.graph, save)


def _outputs(path: Path) -> dict[str, Array]:
    """The arrays of an .npz by output, `out::NAME` for NAME where inputs lie in the file too."""
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name.removeprefix("out::"): file[name] for name in file.files}
    except (OSError, ValueError, EOFError, AttributeError) as e:
        raise OptionError(f"--expected {str(path)!r}: {e}", code="MDLC1008") from None
    return arrays


def _words(command: str) -> list[str]:
    """The program and its arguments; OptionError (MDLC1046) where there is none."""
    try:
        words = shlex.split(command)
    except ValueError as e:  # a quote that is not closed
        raise OptionError(f"--check {command!r}: {e}", code="MDLC1046") from None
    if not words:
        hint = "--check 'python check.py'"
        raise OptionError("--check: the command is empty", hint=hint, code="MDLC1046")
    return words


def _command_fails(command: str, graph: Graph, path: Path) -> Callable[[Graph], bool]:
    """Whether the command ends on a graph as it does on the first one: with 1, or by a signal."""
    words = _words(command)

    def code(graph: Graph) -> int:
        path.with_suffix(".npz").unlink(missing_ok=True)
        save_text(graph, path)
        done = subprocess.run([*words, str(path)], capture_output=True, check=False)
        return done.returncode

    try:
        first = code(graph)
    except OSError as e:
        raise OptionError(f"--check {command!r}: {e}", code="MDLC1046") from None
    if first != 1 and first >= 0:
        text = f"--check {command!r} exits with {first} on the graph as it is"
        raise OptionError(text, hint="exit code 1 says that a graph is bad", code="MDLC1046")
    return lambda smaller: code(smaller) == first
