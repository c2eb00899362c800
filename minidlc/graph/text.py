"""Graphs as files: text in `.dlc`, large constants beside it in `.npz`.

    save_text(g, "mlp.dlc")                         # writes mlp.dlc and mlp.npz
    load_text("mlp.dlc") == g                       # True
    parse(str(g), weights_of(g)) == g               # the same without files

Printer and parser stand in graph/printer.py and graph/parser.py, what is common to both in
graph/literals.py. Treated in course chapter 01_graph_ir.
"""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path
from typing import BinaryIO

import numpy as np

from minidlc.expr.types import Array, bf16
from minidlc.graph.graph import Graph
from minidlc.graph.parser import parse
from minidlc.graph.printer import print_graph, weights_of
from minidlc.support.errors import OptionError, ParseError
from minidlc.support.locations import FileLoc

__all__ = ["load_text", "parse", "print_graph", "save_text", "weights_of"]


def save_text(graph: Graph, path: str | Path) -> None:
    """Write the text to `path`, and its large constants, if any, to the `.npz` of the same name."""
    path = Path(path)
    if path.suffix == ".npz":
        raise OptionError(f"{path}: the name of the weights' file", hint=".dlc", code="MDLC1001")
    path.write_text(print_graph(graph) + "\n", encoding="utf-8", newline="\n")
    weights = {
        name: array.view(np.uint16) if array.dtype == bf16.numpy else array
        for name, array in weights_of(graph).items()
    }
    if weights:
        np.savez(path.with_suffix(".npz"), **weights)  # pyright: ignore[reportArgumentType]


def load_text(path: str | Path) -> Graph:
    """Read what `save_text` wrote. Raises ParseError (MDLC03xx) if it cannot be read."""
    path = Path(path)
    weights: dict[str, Array] = {}
    try:
        text = path.read_text(encoding="utf-8-sig")  # Notepad begins files with a mark
        beside = path.with_suffix(".npz")
        if beside.exists():
            with beside.open("rb") as raw:
                weights = _read_npz(raw, beside.name)
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as e:
        raise ParseError(
            f"cannot be read: {e}", loc=FileLoc(str(path), 1), code="MDLC0315"
        ) from None
    return parse(text, weights, file=path.name)


def _read_npz(raw: BinaryIO, name: str) -> dict[str, Array]:
    if not zipfile.is_zipfile(raw):
        raise ValueError(f"{name} is no .npz file, or truncated")
    raw.seek(0)
    with np.load(raw, allow_pickle=False) as file:
        return {name: file[name] for name in file.files}
