"""Tensor expressions as text, one line a tensor: `print_te` writes it, `parse_te` reads it back.

    A = placeholder(f32[4, 8])
    B = placeholder(f32[8, 3])
    C = compute(f32[4, 3], lambda i, j: sum(A[i, k] * B[k, j], k=8))
    s = state(f32[4, 3])            # the steps of a scan so far
    s = scan(f32[4, 3], lambda t, j: select(t - 1 >= 0, s[t - 1, j], 0.0) + C[t, j])
    return s                        # left away when the outputs are the tensors nothing reads

Reads text, writes tensors; every malformed construct is a ParseError with its place.
Treated in course chapter 04_lowering.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from minidlc.expr.index import Index
from minidlc.expr.nodes import Expr, Reduce
from minidlc.expr.source import Source, parse_python
from minidlc.expr.text import ExprReader
from minidlc.expr.types import TensorType
from minidlc.expr.walk import walk
from minidlc.loop.regions import loads
from minidlc.support.arguments import expect, expect_each
from minidlc.support.errors import LoweringError, nearest
from minidlc.te.scan import Recurrent, scan_of
from minidlc.te.tensor import Tensor, stages


@dataclass(frozen=True)
class Program:
    """Tensors by name, each after those it reads, and which of them are the outputs."""

    tensors: Mapping[str, Tensor]
    outputs: tuple[Tensor, ...]

    def __str__(self) -> str:
        return _print(tuple(self.tensors.values()), self.outputs)


def print_te(outputs: Iterable[Tensor]) -> str:
    """The text of every tensor that the outputs need, ending in a newline."""
    wanted = expect_each("print_te", "outputs", outputs, Tensor)
    return _print(stages(wanted), wanted)


def _print(tensors: tuple[Tensor, ...], outputs: tuple[Tensor, ...]) -> str:
    lines: list[str] = []
    for tensor in tensors:
        states = (str(t) for t in tensor.inputs if isinstance(t, Recurrent))
        lines += [line for line in states if line not in lines]
        lines += [] if isinstance(tensor, Recurrent) else [str(tensor)]
    if outputs != _unread(tensors):
        lines.append(f"return {', '.join(t.name for t in outputs)}")
    return "\n".join(lines) + "\n"


def _unread(tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """The computed tensors that no other reads."""
    read = {id(source) for t in tensors for source in t.inputs}
    return tuple(t for t in tensors if t.body is not None and id(t) not in read)


def parse_te(text: str, file: str = "<te>") -> Program:
    """Read a program of tensor expressions.

    Raises ParseError: not Python (MDLC0301), no line of such a program (MDLC0350), a name bound
    twice or unknown (MDLC0351, MDLC0321), a body that does not fit its type (MDLC0352), and what
    minidlc.expr.text refuses inside bodies.
    """
    expect("parse_te", "text", text, str)
    module, source = parse_python(text, file)
    reader = _Reader(source, {})
    outputs: tuple[Tensor, ...] | None = None
    with source.reading():
        for node in module.body:
            if outputs is not None:
                raise source.error(node, "nothing follows `return`", "MDLC0350")
            match node:
                case ast.Return(value=value) if value is not None:
                    outputs = reader.outputs(value)
                case ast.Assign(targets=[ast.Name(name)], value=ast.Call() as call):
                    reader.define(node, name, call)
                case _:
                    raise _no_line(source, node)
    return Program(reader.tensors, outputs or _unread(tuple(reader.tensors.values())))


def _no_line(source: Source, node: ast.AST) -> Exception:
    return source.error(
        node,
        f"no tensor expression: {ast.unparse(node)}",
        "MDLC0350",
        "lines look like: C = compute(f32[4], lambda i: A[i] + 1.0)",
    )


def unknown(*_: Index) -> object:
    """What stands before the first step is written out wherever a text reads a state."""
    raise AssertionError("bodies in text are complete")


@dataclass
class _Reader:
    source: Source
    tensors: dict[str, Tensor]
    states: dict[str, Recurrent] = field(default_factory=dict[str, Recurrent])

    def outputs(self, node: ast.expr) -> tuple[Tensor, ...]:
        items = node.elts if isinstance(node, ast.Tuple) else [node]
        found: list[Tensor] = []
        for item in items:
            name = ast.unparse(item)
            if name not in self.tensors:
                hint = nearest(name, self.tensors)
                raise self.source.error(item, f"no tensor {name!r}", "MDLC0321", hint)
            found.append(self.tensors[name])
        return tuple(found)

    def define(self, node: ast.Assign, name: str, call: ast.Call) -> None:
        is_scan = isinstance(call.func, ast.Name) and call.func.id == "scan"
        if name in self.tensors or (name in self.states) != is_scan:
            what = f"no state {name!r}" if is_scan else f"two tensors named {name!r}"
            raise self.source.error(node, what, "MDLC0351")
        known = {**self.tensors, **self.states}
        types = {t.name: t.dtype for t in known.values()}
        match call:
            case ast.Call(ast.Name("placeholder"), [type_node], []):
                type = ExprReader(self.source, types).tensor_type(type_node)
                axes = tuple(f"i{d}" for d in range(type.rank))
                self.tensors[name] = Tensor(name, type, axes)
            case ast.Call(ast.Name("state"), [type_node], []):
                type = ExprReader(self.source, types).tensor_type(type_node)
                axes = tuple(f"i{d}" for d in range(type.rank))
                self.states[name] = Recurrent(name, type, axes, init=unknown)
            case ast.Call(ast.Name("compute" | "scan"), [type_node, ast.Lambda(args, body)], []):
                type = ExprReader(self.source, types).tensor_type(type_node)
                axes = tuple(a.arg for a in args.args)
                if len(axes) != type.rank:
                    message = f"{name}: {len(axes)} axes {list(axes)} for {type}"
                    raise self.source.error(call, message, "MDLC0352")
                value = ExprReader(self.source, types, set(axes)).value(body, type.dtype)
                self.check(body, name, type, axes, value)
                read = dict.fromkeys(load.buffer for load in loads(value))
                inputs = tuple(known[source] for source in read)
                made = Tensor(name, type, axes, value, inputs)
                if is_scan:
                    made = self.scan(node, made, self.states.pop(name))
                self.tensors[name] = made
            case _:
                raise _no_line(self.source, node)

    def scan(self, node: ast.AST, step: Tensor, before: Recurrent) -> Tensor:
        try:
            return scan_of(step, before)
        except LoweringError as error:
            raise self.source.error(node, error.message, "MDLC0352", error.hint) from None

    def check(
        self, node: ast.expr, name: str, type: TensorType, axes: tuple[str, ...], value: Expr
    ) -> None:
        """What `compute` checks as well, with the place in the text."""
        if value.dtype != type.dtype:
            message = f"{name}: the body is {value.dtype}, its type says {type}"
            raise self.source.error(node, message, "MDLC0352")
        inner = value.body if isinstance(value, Reduce) else value
        if any(isinstance(e, Reduce) for e in walk(inner)):
            message = f"{name}: a reduction stands inside a larger expression"
            hint = "compute the reduction as a tensor of its own"
            raise self.source.error(node, message, "MDLC0352", hint)
        bound = [*axes, *(axis for axis, _ in (value.axes if isinstance(value, Reduce) else ()))]
        if len(set(bound)) < len(bound):
            twice = next(axis for axis in bound if bound.count(axis) > 1)
            raise self.source.error(node, f"{name}: axis {twice!r} is bound twice", "MDLC0351")
        for load in loads(value):
            rank = {**self.tensors, **self.states}[load.buffer].type.rank
            if rank != len(load.index):
                message = f"{load.buffer} has {rank} axes, got {len(load.index)} indices"
                raise self.source.error(node, message, "MDLC0352")
