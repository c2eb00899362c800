"""Where an instruction came from, and where an ONNX node went.

    print(exe.where_from("conv_relu:37"))           # line 37 of that kernel's LLVM text
    print(exe.where_from("%t.9 = fadd float %t.7, %t.8"))
    print(exe.where_to("Conv_3"))                   # kernels, stages, lines; or what removed it

Every level keeps what it was made from: graph nodes a location, stores the stage they compute;
which statement an instruction belongs to is found by emitting the kernel once more. Reads graphs,
kernels and the records of passes. Treated in course chapter 05_backend_opt.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from minidlc.codegen.compile import Kernel
from minidlc.graph import Constant, Fused, Graph, Node, OpKind, Value, bodies
from minidlc.loop.nodes import Alloc, Block, For, If, Stmt, Store, lines, walk
from minidlc.lower import LoweredKernel
from minidlc.lower.express import stage_owners
from minidlc.support.errors import OptionError, nearest
from minidlc.support.locations import FileLoc, OnnxLoc, PyLoc, caller, steps, written
from minidlc.transform import Record

Place = FileLoc | OnnxLoc | PyLoc


@dataclass(frozen=True)
class Origin:
    """The way back from one line of LLVM text. What frames a function has no statement."""

    kernel: str
    line: int
    instruction: str
    statement: str | None = None
    loops: tuple[str, ...] = ()
    stage: str | None = None
    node: Node | None = field(default=None, repr=False)
    places: tuple[Place, ...] = ()

    def __str__(self) -> str:
        rows = [f"{self.kernel}:{self.line}: {self.instruction}"]
        if self.statement is None:
            return f"{rows[0]}\n  frame of the function, of no statement"
        for depth, text in enumerate((*self.loops, self.statement)):
            rows.append(f"  {'' if depth else 'loops':9}{'    ' * depth}{text}")
        if self.stage:
            rows.append(f"  stage    {self.stage}")
        if self.node is not None:
            rows.append(f"  node     {self.node.name}: {self.node.type} = {self.node.op.name}")
            rows += [f"  by       {step}" for step in steps(self.node.loc)]
        rows += [f"  from     {place}" for place in self.places]
        return "\n".join(rows)


@dataclass(frozen=True)
class Part:
    """What one kernel computes for a node: stages, lines of its loops and of its LLVM text."""

    kernel: str
    node: Node = field(repr=False)
    stages: tuple[str, ...]
    inlined: tuple[str, ...]  # computed inside the statements of other stages
    loop_lines: tuple[tuple[int, int], ...]
    llvm_lines: tuple[tuple[int, int], ...]

    def __str__(self) -> str:
        stages = ", ".join([*self.stages, *(f"{s} (inlined)" for s in self.inlined)])
        what = f"stages {stages}" if stages else "loops that the op writes itself"
        return (
            f"kernel {self.kernel}: {self.node.op.name}, {what}; "
            f"loops {_ranges(self.loop_lines)}; LLVM {_ranges(self.llvm_lines)}"
        )


@dataclass(frozen=True)
class Destination:
    """Where a node of the model went: parts of kernels, views, constants; and what passes did."""

    name: str
    places: tuple[Place, ...]
    parts: tuple[Part, ...]
    values: tuple[str, ...]
    events: tuple[str, ...]

    def __str__(self) -> str:
        rows = [", ".join(map(str, self.places))]
        rows += [f"  {line}" for line in (*self.events, *self.values, *map(str, self.parts))]
        return "\n".join(rows)


def _ranges(found: Sequence[tuple[int, int]]) -> str:
    text = ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in found)
    return f"lines {text}" if found else "no lines"


@dataclass(frozen=True)
class Lines:
    """One kernel: its statements by line, at both levels."""

    lowered: LoweredKernel
    native: Kernel

    @cached_property
    def owners(self) -> dict[str, Node]:
        """Stage → the graph node that it is part of."""
        origin = self.lowered.origin
        if self.lowered.is_copy or self.lowered.group is None or not isinstance(origin, Node):
            return {}
        return stage_owners(origin)

    @cached_property
    def around(self) -> dict[int, tuple[Stmt, ...]]:
        """The statement of this id → the loops and conditions around it, outermost first."""
        found: dict[int, tuple[Stmt, ...]] = {}

        def visit(s: Stmt, outer: tuple[Stmt, ...]) -> None:
            found.setdefault(id(s), outer)
            match s:
                case For(body=body) | If(body=body):
                    visit(body, (*outer, s))
                case Alloc(body=body):
                    visit(body, outer)
                case Block(stmts):
                    for child in stmts:
                        visit(child, outer)
                case Store():
                    pass

        visit(self.lowered.loops.body, ())
        return found

    @cached_property
    def line_of(self) -> dict[int, int]:
        """The statement of this id → its line in the text of the loops."""
        found: dict[int, int] = {}

        def visit(s: Stmt, line: int) -> int:
            found.setdefault(id(s), line)
            match s:
                case For(body=body) | If(body=body) | Alloc(body=body):
                    return visit(body, line + 1)
                case Store():
                    return line + 1
                case Block(stmts):
                    for n, child in enumerate(stmts):
                        line = visit(child, line)
                        line += isinstance(child, Alloc) and n + 1 < len(stmts)  # its `del`
                    return line if stmts else line + 1

        visit(self.lowered.loops.body, 2)
        return found

    def owner(self, stage: str | None) -> Node | None:
        """The graph node whose value a stage is; the kernel's own where no stage says more."""
        origin = self.lowered.origin
        if stage in self.owners:
            return self.owners[stage]
        return origin if isinstance(origin, Node) else None

    def origin(self, line: int) -> Origin:
        """The way back from a line of the LLVM text, counted from 1."""
        text = self.native.llvm.split("\n")[line - 1].strip()
        found = self.native.origins[line - 1]
        if found is None:
            return Origin(self.lowered.name, line, text)
        stages = {s.stage for s in walk(found) if isinstance(s, Store)}
        stage = next(iter(stages)) if len(stages) == 1 else None
        node = self.owner(stage)
        loops = tuple(lines(s)[0] for s in self.around.get(id(found), ()))
        places = written(self.lowered.loc if node is None else node.loc)
        if len(stages) > 1 and node is not None and isinstance(node.op, Fused):
            places = written(*(n.loc for n in node.op.body.nodes))  # a loop around all of them
        statement = lines(found)[0]
        return Origin(self.lowered.name, line, text, statement, loops, stage, node, places)

    def nodes(self) -> Iterator[Node]:
        """The graph nodes that this kernel computes."""
        origin = self.lowered.origin
        if isinstance(origin, Node) and not self.lowered.is_copy:
            yield from origin.op.body.nodes if isinstance(origin.op, Fused) else (origin,)

    def part(self, node: Node) -> Part:
        """What of the kernel computes a node."""
        mine = [stage for stage, owner in self.owners.items() if owner is node]
        stored = {s.stage for s in self._stores()}
        inlined = [stage for stage in mine if stage not in stored]
        wanted = {c for stage in mine for c in self._carriers(stage, stored)}
        whole = not self.owners  # loops that the op wrote itself
        chosen = {
            id(s)
            for s in walk(self.lowered.loops.body)
            if not isinstance(s, Block) and (whole or self._computes_only(s, wanted))
        }
        loops = _runs({self.line_of[s] for s in chosen}, set(self.line_of.values()))
        origins = enumerate(self.native.origins, 1)
        found = {n: None if s is None else id(s) for n, s in origins}
        of_a_statement = {n for n, s in found.items() if s is not None}
        llvm = _runs({n for n, s in found.items() if s in chosen}, of_a_statement)
        kept = tuple(stage for stage in mine if stage in stored)
        return Part(self.lowered.name, node, kept, tuple(inlined), loops, llvm)

    def _stores(self) -> list[Store]:
        return [s for s in walk(self.lowered.loops.body) if isinstance(s, Store)]

    @staticmethod
    def _computes_only(s: Stmt, stages: set[str]) -> bool:
        inside = {x.stage for x in walk(s) if isinstance(x, Store)}
        return bool(inside) and inside <= stages

    def _carriers(self, stage: str, stored: set[str | None]) -> set[str]:
        """The stages whose statements compute `stage`: itself, or those that it is inlined into."""
        if stage in stored or self.lowered.group is None:
            return {stage}
        found: set[str] = set()
        todo = [stage]
        readers = self._readers
        while todo:
            for reader in readers.get(todo.pop(), ()):
                if reader in stored:
                    found.add(reader)
                else:
                    todo.append(reader)
        return found

    @cached_property
    def _readers(self) -> dict[str, tuple[str, ...]]:
        """Stage → the stages of the kernel's tensor expressions that read it."""
        assert self.lowered.group is not None
        found: dict[str, tuple[str, ...]] = {}
        for tensor in self.lowered.group.stages():
            for read in tensor.inputs:
                found[read.name] = (*found.get(read.name, ()), tensor.name)
        return found


def _runs(lines: set[int], all_lines: set[int]) -> tuple[tuple[int, int], ...]:
    """{3, 4, 7} of {3, 4, 7, 8} → ((3, 7),): what lies between, such as labels, interrupts none."""
    found: list[tuple[int, int]] = []
    before = False
    for line in sorted(all_lines):
        if line in lines:
            first = found.pop()[0] if before else line
            found.append((first, line))
        before = line in lines
    return tuple(found)


@dataclass(frozen=True)
class Provenance:
    """The questions and their answers, for one compiled model."""

    source: Graph
    graph: Graph
    kernels: tuple[Lines, ...]
    passes: tuple[Record, ...]
    free: frozenset[Node] = frozenset()  # nodes whose bytes lie where others do

    def where_from(self, instruction: str) -> Origin:
        """The way back from "KERNEL:LINE" or from an instruction's text.

        Raises OptionError (MDLC1032) if there is no such line, or several.
        """
        named = re.fullmatch(r"\s*(\w+):(\d+)\s*", instruction)
        if named:
            kernel, line = self._kernel(named[1]), int(named[2])
            count = len(kernel.native.llvm.split("\n"))
            if not 1 <= line <= count:
                text = f"{named[1]} has no line {line}"
                hint = f"its LLVM text has the lines 1 to {count}"
                raise OptionError(text, loc=caller(), hint=hint, code="MDLC1032")
            return kernel.origin(line)
        found = [
            (kernel, line)
            for kernel in self.kernels
            for line, text in enumerate(kernel.native.llvm.split("\n"), 1)
            if text.strip() == instruction.strip()
        ]
        if len(found) == 1:
            return found[0][0].origin(found[0][1])
        known = ", ".join(f"{kernel.lowered.name}:{line}" for kernel, line in found[:8])
        text = f"{len(found)} lines are {instruction.strip()!r}" if found else "no such instruction"
        hint = f"say which: {known}" if found else "a line of exe.kernels[0].llvm, or 'KERNEL:LINE'"
        raise OptionError(text, loc=caller(), hint=hint, code="MDLC1032")

    def _kernel(self, name: str) -> Lines:
        for kernel in self.kernels:
            if kernel.lowered.name == name:
                return kernel
        known = [kernel.lowered.name for kernel in self.kernels]
        text = f"no kernel {name!r}"
        raise OptionError(text, loc=caller(), hint=nearest(name, known), code="MDLC1007")

    def where_to(self, name: str) -> Destination:
        """Where the node went that has this name in the ONNX model, or in the source graph.

        Raises OptionError (MDLC1031) if nothing of that name is in the source graph.
        """
        wanted = self._places(name)
        parts = tuple(
            kernel.part(node)
            for kernel in self.kernels
            for node in kernel.nodes()
            if wanted.intersection(written(node.loc))
        )
        events = tuple(
            f"{record.name}: {event}"
            for record in self.passes
            for event in record.rewrites
            if wanted.intersection(written(event.loc))
        )
        values = tuple(dict.fromkeys(self._values(self.graph, wanted)))
        return Destination(name, tuple(wanted), parts, values, events)

    def _places(self, name: str) -> set[Place]:
        """The places in the model that a name stands for."""
        named: dict[str, set[Place]] = {}
        for value in _values_of(self.source):
            for place in written(value.loc):
                if isinstance(place, OnnxLoc):
                    named.setdefault(place.node, set()).add(place)
        if name in named:
            return named[name]
        for value in _values_of(self.source):
            if value.name == name and (places := written(value.loc)):
                return set(places)
        text = f"no node {name!r} in {self.source.name}"
        notes = ["what is known at import, and what no output needs, is not in the graph"]
        known = dict.fromkeys([*named, *(v.name for v in _values_of(self.source))])
        hint = nearest(name, known, most=5)
        raise OptionError(text, loc=caller(), notes=notes, hint=hint, code="MDLC1031")

    def _values(self, graph: Graph, wanted: set[Place]) -> Iterator[str]:
        """What has no kernel: views, control flow, constants."""
        for value in _values_of(graph):
            if not wanted.intersection(written(value.loc)):
                continue
            match value:
                case Constant(name=name):
                    yield f"constant {name}: {value.type}"
                case Node(op=op, name=name) if value in self.free:
                    yield f"view {name}: {value.type} = {op.name}, the same bytes"
                case Node(op=op, name=name) if op.kind is OpKind.CONTROL:
                    yield f"{op.name} {name}: steps of the program"
                case _:
                    pass


def _values_of(graph: Graph) -> Iterator[Value]:
    """Constants and nodes of a graph and of the bodies in it."""
    yield from graph.constants
    for node in graph.nodes:
        yield node
        for body in bodies(node):
            yield from _values_of(body)
