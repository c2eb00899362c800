"""What belongs together across the levels of a compiled model: the data of the page `where`.

    levels = Levels.of(exe, ["relu_1"], places)     # of these kernels, and these nodes of the model
    levels.entries                                  # every line of every column, with its links

An entry is a line of a column. Its links are numbers: of statements (lines of the loops), of nodes
(of the graph after the passes) and of places (nodes of the model). A statement belongs to the nodes
that it computes, a node to the places that it was made from. Reads an Executable. Treated in course
chapter 05_backend_opt.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from minidlc.graph.graph import Constant, Graph, Node, Value, bodies
from minidlc.loop.nodes import Alloc, Block, For, If, Stmt, Store
from minidlc.support.locations import FileLoc, OnnxLoc, PyLoc, written
from minidlc.transform.pipeline import Record
from minidlc.viz.boxes import type_text

if TYPE_CHECKING:
    from minidlc.executable import Executable
    from minidlc.levels import CompiledKernel
    from minidlc.provenance import Lines

Place = FileLoc | OnnxLoc | PyLoc

COLUMNS = ("model", "graph after each pass", "kernels", "loops", "LLVM", "assembly")
MODEL, GRAPH, KERNELS, LOOPS, LLVM, ASSEMBLY = range(len(COLUMNS))


@dataclass(frozen=True)
class Entry:
    """One line of a column. A `head` has no links: the name of a pass, or of a kernel."""

    column: int
    text: str
    places: tuple[int, ...] = ()
    nodes: tuple[int, ...] = ()
    statement: int | None = None
    head: bool = False
    line: str = ""  # of LLVM: the name that `where_from` takes


@dataclass
class Levels:
    """The lines of all columns for some kernels."""

    places: list[Place]
    entries: list[Entry] = field(default_factory=list[Entry])
    places_of: list[tuple[int, ...]] = field(default_factory=list[tuple[int, ...]])  # by node
    nodes_of: list[tuple[int, ...]] = field(default_factory=list[tuple[int, ...]])  # by statement
    statement_at: dict[tuple[str, int], int | None] = field(
        default_factory=dict[tuple[str, int], "int | None"]
    )  # kernel and line of its LLVM text -> statement

    @staticmethod
    def of(exe: Executable, kernels: Iterable[str], wanted: Sequence[Place]) -> Levels:
        """The levels of these kernels; `wanted` are nodes of the model, in a kernel or not."""
        made = [exe.kernel(name) for name in dict.fromkeys(kernels)]
        found = dict.fromkeys(wanted)
        for kernel in made:
            for node in kernel.provenance.nodes():
                found |= dict.fromkeys(written(node.loc))
        levels = Levels(list(found))
        levels.entries += [
            Entry(MODEL, place_text(place), places=(n,)) for n, place in enumerate(found)
        ]
        levels._graphs(exe.source, exe.passes)
        for kernel in made:
            levels._kernel(kernel)
        return levels

    def _graphs(self, source: Graph, passes: Sequence[Record]) -> None:
        """What the places are at import, and after each pass that made something else of them."""
        before: list[Entry] = []
        for title, graph in (("import", source), *((f"after {r.name}", r.after) for r in passes)):
            now = list(self._values(graph))
            if now != before:
                self.entries += [Entry(GRAPH, title, head=True), *now]
                before = now

    def _values(self, graph: Graph) -> Iterator[Entry]:
        for value in values_of(graph):
            mine = self._numbers(value)
            what = value.op.name if isinstance(value, Node) else "constant"
            if mine and what not in ("fused", "getitem"):  # their parts are there
                yield Entry(GRAPH, f"{what} {value.name}: {type_text(value.type)}", places=mine)

    def _numbers(self, value: Value) -> tuple[int, ...]:
        """The numbers of the places that a value was made from."""
        mine = set(written(value.loc))
        return tuple(n for n, place in enumerate(self.places) if place in mine)

    def _kernel(self, kernel: CompiledKernel) -> None:
        """The stages, the loops, the LLVM and the assembly of one kernel."""
        lines = kernel.provenance
        self.entries.append(Entry(KERNELS, str(kernel), head=True))
        owners: dict[int, list[int]] = {}  # line of the loops -> nodes that it computes
        for node in lines.nodes():
            part, number = lines.part(node), len(self.places_of)
            self.places_of.append(self._numbers(node))
            stages = [*part.stages, *(f"{s} (inlined)" for s in part.inlined)]
            text = f"{node.op.name} {node.name}: {', '.join(stages) or 'the whole kernel'}"
            self.entries.append(Entry(KERNELS, text, self.places_of[-1], (number,)))
            for first, last in part.loop_lines:
                for line in range(first, last + 1):
                    owners.setdefault(line, []).append(number)
        self._texts(kernel, lines, owners)

    def _texts(self, kernel: CompiledKernel, lines: Lines, owners: Mapping[int, list[int]]) -> None:
        """The columns of loops, LLVM and assembly; `owners` are the nodes of a line of the loops.

        A statement may stand in the loops several times: it has one number.
        """
        numbers: dict[int, int] = {}  # id of a statement -> its number
        at: dict[int, int] = {}  # line of the loops -> number
        for line, s in _by_line(kernel.loops.body, 2)[0]:
            if id(s) not in numbers:
                numbers[id(s)] = len(self.nodes_of)
                self.nodes_of.append(tuple(owners.get(line, ())))
            at[line] = numbers[id(s)]

        def number(s: Stmt | None) -> int | None:
            return None if s is None else numbers.get(id(s))

        loops = str(kernel.loops).rstrip("\n").split("\n")
        llvm = kernel.llvm.rstrip("\n").split("\n")
        found = [number(s) for s in lines.native.origins][: len(llvm)]
        self.statement_at |= {(kernel.name, n): s for n, s in enumerate(found, 1)}
        columns = (
            (LOOPS, [(text, at.get(n)) for n, text in enumerate(loops, 1)]),
            (LLVM, list(zip(llvm, found, strict=True))),
            (ASSEMBLY, [(row.text, number(row.statement)) for row in _assembly(lines)]),
        )
        for column, rows in columns:
            self.entries.append(Entry(column, kernel.name, head=True))
            self.entries += [
                Entry(column, text, statement=s, line=f"{kernel.name}:{n}" * (column == LLVM))
                for n, (text, s) in enumerate(rows, 1)
            ]


def _by_line(s: Stmt, line: int) -> tuple[list[tuple[int, Stmt]], int]:
    """The statements with their lines in the text of the loops, and the line behind the last."""
    found: list[tuple[int, Stmt]] = []
    match s:
        case Block(stmts):
            for n, child in enumerate(stmts):
                inner, line = _by_line(child, line)
                found += inner
                line += isinstance(child, Alloc) and n + 1 < len(stmts)  # its `del`
            return found, line if stmts else line + 1
        case Store():
            return [(line, s)], line + 1
        case For(body=body) | If(body=body) | Alloc(body=body):
            found, after = _by_line(body, line + 1)
            return [(line, s), *found], after


def _assembly(lines: Lines):
    from minidlc.codegen.debug_lines import asm_origins  # needs LLVM, as what was compiled does

    return asm_origins(lines.native)


def values_of(graph: Graph) -> Iterator[Constant | Node]:
    """Constants and nodes of a graph and of the bodies in it."""
    yield from graph.constants
    for node in graph.nodes:
        yield node
        for body in bodies(node):
            yield from values_of(body)


def place_text(place: Place) -> str:
    """'Conv conv1', of what is no ONNX node its file and line."""
    if isinstance(place, OnnxLoc):
        return f"{place.op_type} {place.node}".strip() or place.model
    return str(place)
