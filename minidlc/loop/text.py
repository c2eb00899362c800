"""Loop IR as text, a subset of Python: `str(function)` prints it, `parse_function` reads it back.

    def scale(A: f32[4, 8], C: f32[4, 8]):
        for i in parallel(0, 4):
            T = alloc(f32[8], "stack")              # alive to the end of its block, or to `del T`
            for j in vectorized(0, 8):
                T[j] = A[i, j] * 2.0
                if j - 1 >= 0:
                    C[i, j] = T[j]

Reads text, writes a LoopFunction; every malformed construct is a ParseError with its place.
Treated in course chapter 04_lowering.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from minidlc.expr.index import Cond, Index, Var
from minidlc.expr.nodes import Expr
from minidlc.expr.source import Source, parse_python
from minidlc.expr.text import ExprReader
from minidlc.expr.types import TensorType, bool_
from minidlc.loop.nodes import (
    Alloc,
    For,
    If,
    Kind,
    LoopFunction,
    Param,
    Scope,
    Stmt,
    Store,
    block,
    lines,
)
from minidlc.support.errors import nearest

_KINDS = {kind.value: kind for kind in Kind}
_SCOPES = {scope.value: scope for scope in Scope}


def print_function(fn: LoopFunction) -> str:
    """The text of a function, ending in a newline."""
    return str(fn)


def print_stmt(s: Stmt) -> str:
    """The text of a statement alone, such as the nest that a schedule has so far."""
    return "\n".join(lines(s))


def parse_function(text: str, file: str = "<text>") -> LoopFunction:
    """Read the text of one function.

    Raises ParseError: not Python (MDLC0301), no statement of loop IR (MDLC0330), names (MDLC0321,
    MDLC0331) and what minidlc.expr.text refuses inside expressions.
    """
    module, source = parse_python(text, file)
    match module.body:
        case [ast.FunctionDef() as function]:
            pass
        case other:
            where = other[1] if len(other) > 1 else other[0] if other else None
            message = "expected one function: def name(A: f32[4], …): …"
            raise source.error(where, message, "MDLC0330")
    with source.reading():
        return _function(source, function)


def _function(source: Source, node: ast.FunctionDef) -> LoopFunction:
    args = node.args
    extra = [*args.posonlyargs, *args.kwonlyargs, *args.defaults, args.vararg, args.kwarg]
    odd = next((a for a in extra if a is not None), None)
    if odd is not None or node.decorator_list or node.returns:
        message = "a loop function has plain parameters `name: type` only"
        raise source.error(odd or node, message, "MDLC0330")
    reader = ExprReader(source, {})
    params: list[Param] = []
    for arg in args.args:
        if any(p.name == arg.arg for p in params):
            raise source.error(arg, f"two parameters named {arg.arg!r}", "MDLC0331")
        params.append(Param(arg.arg, reader.tensor_type(arg.annotation, arg)))
    types = {p.name: p.type for p in params}
    sizes = {v for t in types.values() for d in t.shape if isinstance(d, Index) for v in d.vars()}
    names = _Names(types, frozenset(v.name for v in sizes))
    return LoopFunction(node.name, tuple(params), _Statements(source).block(node.body, names))


@dataclass(frozen=True)
class _Names:
    """What may be named at a place: buffers with their types, and variables."""

    buffers: dict[str, TensorType]
    variables: frozenset[str]

    def __contains__(self, name: str) -> bool:
        return name in self.buffers or name in self.variables


@dataclass(frozen=True)
class _Statements:
    source: Source

    def reader(self, names: _Names) -> ExprReader:
        types = {name: t.dtype for name, t in names.buffers.items()}
        return ExprReader(self.source, types, names.variables)

    def block(self, nodes: list[ast.stmt], names: _Names) -> Stmt:
        """Statements in sequence; an allocation takes those up to its `del`, or all the rest."""
        stmts: list[Stmt] = []
        while nodes:
            node, nodes = nodes[0], nodes[1:]
            match node:
                case ast.Assign([ast.Name(buffer)], value):
                    end = next((n for n, s in enumerate(nodes) if _deletes(s, buffer)), len(nodes))
                    stmts.append(self.alloc(node, buffer, value, nodes[:end], names))
                    nodes = nodes[end + 1 :]
                case ast.Pass():
                    pass
                case ast.Expr(ast.Constant(str())):  # a docstring
                    pass
                case _:
                    stmts.append(self.statement(node, names))
        return block(*stmts)

    def statement(self, node: ast.stmt, names: _Names) -> Stmt:
        match node:
            case ast.For(target, iterator, body, []):
                return self.loop(target, iterator, body, names)
            case ast.If(test, body, []):
                return If(self.test(test, names), self.block(body, names))
            case ast.Assign([ast.Subscript(ast.Name(buffer), index) as target], value):
                return self.store(target, buffer, index, value, names)
            case ast.Delete():
                message = f"nothing allocated in this block to end by: {ast.unparse(node)}"
                raise self.source.error(node, message, "MDLC0330")
            case _:
                raise self.source.error(
                    node,
                    f"not a statement of loop IR: {ast.unparse(node).splitlines()[0]}",
                    "MDLC0330",
                    "for v in serial(0, n):, if cond:, A[i] = value, A = alloc(type, scope), pass",
                )

    def test(self, node: ast.expr, names: _Names) -> Cond | Expr:
        """A test of positions, or of values if it loads or calls something."""
        if not any(_is_value(part) for part in ast.walk(node)):
            return self.reader(names).cond(node)
        value = self.reader(names).value(node, bool_)
        if value.dtype != bool_:
            raise self.source.error(node, f"if tests a {value.dtype}", "MDLC0325")
        return value

    def loop(
        self, target: ast.expr, iterator: ast.expr, body: list[ast.stmt], names: _Names
    ) -> For:
        match target, iterator:
            case (
                ast.Name(var),
                ast.Call(ast.Name(kind), [ast.Constant(0), extent], keywords),
            ) if kind in _KINDS and all(k.arg == "prefetch" for k in keywords):
                self.fresh(target, var, names)
                count = self.reader(names).index(extent)
                inner = _Names(names.buffers, names.variables | {var})
                ahead = tuple(pair for k in keywords for pair in self.prefetch(k.value, names))
                return For(Var(var), count, _KINDS[kind], self.block(body, inner), ahead)
            case _, ast.Call(ast.Name(kind)) if kind not in _KINDS:
                hint = nearest(kind, _KINDS)
                raise self.source.error(iterator, f"no kind of loop {kind!r}", "MDLC0330", hint)
            case _:
                message = f"expected for NAME in KIND(0, extent), got {ast.unparse(iterator)}"
                raise self.source.error(iterator, message, "MDLC0330", "loops start at 0")

    def prefetch(self, node: ast.expr, names: _Names) -> Iterator[tuple[str, int]]:
        """The buffers and distances of `prefetch={"B": 8}`."""
        pairs = zip(node.keys, node.values, strict=True) if isinstance(node, ast.Dict) else [()]
        for pair in pairs:
            match pair:
                case ast.Constant(str() as buffer), ast.Constant(int() as distance) if (
                    buffer in names.buffers and distance > 0
                ):
                    yield buffer, distance
                case _:
                    message = f"no buffer and distance: {ast.unparse(node)}"
                    raise self.source.error(node, message, "MDLC0330", 'prefetch={"B": 8}')

    def store(
        self, target: ast.expr, buffer: str, index: ast.expr, value: ast.expr, names: _Names
    ) -> Store:
        reader = self.reader(names)
        if buffer not in names.buffers:
            hint = nearest(buffer, names.buffers)
            raise self.source.error(target, f"unknown buffer {buffer!r}", "MDLC0321", hint)
        type = names.buffers[buffer].dtype
        new = reader.value(value, type)
        if new.dtype != type:
            message = f"{buffer} holds {type}, the value is {new.dtype}"
            raise self.source.error(value, message, "MDLC0325", f'cast("{type}", …)')
        return Store(buffer, reader.indices(index), new)

    def alloc(
        self, node: ast.stmt, buffer: str, value: ast.expr, rest: list[ast.stmt], names: _Names
    ) -> Alloc:
        match value:
            case ast.Call(ast.Name("alloc"), [type, ast.Constant(str() as scope)], []):
                if scope not in _SCOPES:
                    hint = nearest(scope, _SCOPES)
                    message = f"no scope {scope!r}"
                    raise self.source.error(value.args[1], message, "MDLC0330", hint)
                self.fresh(node, buffer, names)
                parsed = self.reader(names).tensor_type(type)
                inner = _Names({**names.buffers, buffer: parsed}, names.variables)
                return Alloc(buffer, parsed, _SCOPES[scope], self.block(rest, inner))
            case _:
                message = f'a bare name holds a buffer: {buffer} = alloc(f32[4], "stack")'
                raise self.source.error(node, message, "MDLC0330", f"or {buffer}[…] = value")

    def fresh(self, node: ast.AST, name: str, names: _Names) -> None:
        if name in names:
            kind = "loop variable" if name in names.variables else "buffer"
            message = f"{name!r} is already a {kind} here"
            raise self.source.error(node, message, "MDLC0331", "give it another name")


def _is_value(node: ast.AST) -> bool:
    match node:
        case ast.Subscript():
            return True
        case ast.Call(ast.Name(name)):
            return name not in ("min", "max")
        case _:
            return False


def _deletes(node: ast.stmt, buffer: str) -> bool:
    match node:
        case ast.Delete([ast.Name(name)]):
            return name == buffer
        case _:
            return False
