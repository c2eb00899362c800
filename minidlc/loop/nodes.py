"""Loop IR: five statements over named buffers. What a schedule lowers to and codegen reads.

    for i in parallel(0, 4):
        for j in vectorized(0, 16):
            C[i, j] = A[i, j] + B[j]

All loops start at 0 and step by 1. Vectorised and unrolled loops stay loops here: code generation
turns the vectorised variable into lanes and replays unrolled bodies, so the text stays short and
runs as Python. Loop variables are compared by name; no name is bound twice on one path.
Treated in course chapter 04_lowering.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TypeAlias

from minidlc.expr.index import Cond, Index, Var
from minidlc.expr.nodes import Expr
from minidlc.expr.printing import print_expr
from minidlc.expr.types import DType, TensorType
from minidlc.expr.walk import values_in


class Kind(StrEnum):
    """How the iterations of a loop run."""

    SERIAL = "serial"
    PARALLEL = "parallel"
    VECTORIZED = "vectorized"
    UNROLLED = "unrolled"


class Scope(StrEnum):
    """Where a local buffer lives: the model's arena, the stack, or vector registers."""

    ARENA = "arena"
    STACK = "stack"
    REGISTER = "register"


@dataclass(frozen=True)
class For:
    """`for var in kind(0, extent): body`.

    `prefetch` names buffers, each with a distance: an iteration asks for what the one so much later
    reads of it, `for k in serial(0, 64, prefetch={"B": 8}):`.
    """

    var: Var
    extent: Index
    kind: Kind
    body: Stmt
    prefetch: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True)
class Store:
    """`buffer[index] = value`; `stage` names the tensor it computes (provenance, not compared).

    A position that is a value, `y[at(ids[i], 5)] = …`, makes it a scatter (expr/walk.py).
    """

    buffer: str
    index: tuple[Index, ...]
    value: Expr
    stage: str | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Alloc:
    """`buffer = alloc(type, scope)`, alive in `body`: the rest of the block."""

    buffer: str
    type: TensorType
    scope: Scope
    body: Stmt


@dataclass(frozen=True)
class If:
    """`if cond: body`; the test is of positions, or a bool value such as `x[i] > best[()]`."""

    cond: Cond | Expr
    body: Stmt


@dataclass(frozen=True)
class Block:
    """Statements one after another."""

    stmts: tuple[Stmt, ...]


Stmt: TypeAlias = For | Store | Alloc | If | Block


@dataclass(frozen=True)
class Param:
    """A buffer the caller passes: inputs, outputs and constants alike, dense and row-major."""

    name: str
    type: TensorType


@dataclass(frozen=True)
class LoopFunction:
    """A kernel: parameters and a body; which parameters are outputs is read off its stores."""

    name: str
    params: tuple[Param, ...]
    body: Stmt

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the parameters that are stored to, in parameter order."""
        written = {s.buffer for s in walk(self.body) if isinstance(s, Store)}
        return tuple(p.name for p in self.params if p.name in written)

    def buffers(self) -> dict[str, TensorType]:
        """Type of every buffer: parameters and allocations."""
        local = {s.buffer: s.type for s in walk(self.body) if isinstance(s, Alloc)}
        return {p.name: p.type for p in self.params} | local

    def __str__(self) -> str:
        params = ", ".join(f"{p.name}: {p.type}" for p in self.params)
        return "\n".join([f"def {self.name}({params}):", *_indented(self.body)]) + "\n"


def block(*stmts: Stmt) -> Stmt:
    """Statements in sequence, nested blocks flattened; one statement stays itself."""
    flat: list[Stmt] = []
    for s in stmts:
        flat += s.stmts if isinstance(s, Block) else (s,)
    return flat[0] if len(flat) == 1 else Block(tuple(flat))


def walk(s: Stmt) -> Iterator[Stmt]:
    """Every statement, parents first, in program order."""
    yield s
    match s:
        case For(body=body) | Alloc(body=body) | If(body=body):
            yield from walk(body)
        case Block(stmts):
            for child in stmts:
                yield from walk(child)
        case Store():
            pass


def rewrite(s: Stmt, f: Callable[[Stmt], Stmt]) -> Stmt:
    """Rebuild `s` bottom-up, `f` applied to each statement; untouched parts are shared."""
    match s:
        case For(body=body) | Alloc(body=body) | If(body=body):
            new = rewrite(body, f)
            s = s if new is body else replace(s, body=new)
        case Block(stmts):
            parts = tuple(rewrite(child, f) for child in stmts)
            same = all(x is y for x, y in zip(parts, stmts, strict=True))
            s = s if same else block(*parts)
        case Store():
            pass
    return f(s)


def values(s: Stmt) -> tuple[Expr, ...]:
    """The expressions in a statement itself: what it stores or tests, what its positions depend on.

    Those of a store are evaluated before it stores.
    """
    match s:
        case Store(_, index, value):
            return (*(inside for e in index for inside in values_in(e)), value)
        case If(cond) if not isinstance(cond, Cond):
            return (cond,)
        case _:
            return ()


def element(s: LoopFunction, buffer: str) -> DType:
    """Element type of a buffer of the function."""
    return s.buffers()[buffer].dtype


def lines(s: Stmt) -> list[str]:
    """The text of a statement, line by line; loop/text.py reads functions of such lines back."""
    match s:
        case For(var, extent, kind, body):
            named = ", ".join(f'"{name}": {n}' for name, n in s.prefetch)
            ahead = f", prefetch={{{named}}}" if named else ""
            return [f"for {var} in {kind}(0, {extent}{ahead}):", *_indented(body)]
        case If(cond, body):
            test = str(cond) if isinstance(cond, Cond) else print_expr(cond)
            return [f"if {test}:", *_indented(body)]
        case Store(buffer, index, value):
            where = ", ".join(map(str, index)) or "()"
            return [f"{buffer}[{where}] = {print_expr(value)}"]
        case Alloc(buffer, type, scope, body):
            return [f'{buffer} = alloc({type}, "{scope}")', *lines(body)]
        case Block(stmts):
            text: list[str] = []
            for n, child in enumerate(stmts):
                text += lines(child)
                if isinstance(child, Alloc) and n + 1 < len(stmts):
                    text.append(f"del {child.buffer}")  # an alloc lives to the end of its block
            return text or ["pass"]


def _indented(s: Stmt) -> list[str]:
    return ["    " + line for line in lines(s)]
