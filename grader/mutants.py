"""Small faults put into a right solution: a good test suite notices nearly all of them.

    for mutant in sample(all_mutants(source), 12, seed=1):
        print(mutant.what)                          # 'line 4: < → <='
        mutant.source                               # the whole cell, with that one fault

Works on the syntax tree; docstrings, annotations, texts of errors and imports stay as they are.
Reads and writes text only; who is killed by which test is measured in `check.py`.
"""

from __future__ import annotations

import ast
import copy
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, cast

_COMPARE: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
_NAMES = {"min": "max", "max": "min", "any": "all", "all": "any"}
_SIGNS: dict[type, str] = {
    ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=",
    ast.In: "in", ast.NotIn: "not in", ast.Is: "is", ast.IsNot: "is not", ast.Add: "+",
    ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%", ast.BitAnd: "&",
    ast.BitOr: "|",
}  # fmt: skip


@dataclass(frozen=True)
class Mutant:
    """A cell with one fault."""

    kind: str  # of the fault
    what: str  # "line 4: < → <="
    source: str


Change = tuple[str, str, Callable[[Any], ast.AST | None]]  # kind, what, the node changed


def all_mutants(source: str) -> list[Mutant]:
    """Every mutant of a cell, in the order of its lines; none equal to another or to the source."""
    tree = ast.parse(source)
    plain = ast.unparse(tree)
    seen = {plain}
    found: list[Mutant] = []
    for number, node in enumerate(_open_to_change(tree)):
        for kind, what, change in _changes(node):
            text = _changed(tree, number, change)
            if text is not None and text not in seen:
                seen.add(text)
                found.append(Mutant(kind, f"line {getattr(node, 'lineno', 0)}: {what}", text))
    return found


def sample(mutants: list[Mutant], count: int, seed: int) -> list[Mutant]:
    """At most `count` of them, every kind in turn; the same ones for the same seed."""
    draw = random.Random(seed)
    kinds: dict[str, list[Mutant]] = {}
    for mutant in mutants:
        kinds.setdefault(mutant.kind, []).append(mutant)
    for group in kinds.values():
        draw.shuffle(group)
    chosen: list[Mutant] = []
    while len(chosen) < min(count, len(mutants)):
        for group in kinds.values():
            if group and len(chosen) < count:
                chosen.append(group.pop())
    return [mutant for mutant in mutants if mutant in chosen]


def _changed(tree: ast.Module, number: int, change: Callable[[Any], ast.AST | None]) -> str | None:
    """The text of the tree with that node changed, or None if it is no program any more."""
    whole = copy.deepcopy(tree)
    node = list(_open_to_change(whole))[number]
    new = change(node)
    if new is not None:
        _replace(whole, node, new)
    text = ast.unparse(ast.fix_missing_locations(whole))
    try:
        compile(text, "<mutant>", "exec")
    except SyntaxError:
        return None  # `return` where the tree has none, `continue` outside of a loop
    return text


def _replace(tree: ast.AST, old: ast.AST, new: ast.AST) -> None:
    for parent in ast.walk(tree):
        for name, value in ast.iter_fields(parent):
            if value is old:
                setattr(parent, name, new)
            elif isinstance(value, list):
                items = cast(list[Any], value)
                items[:] = [new if item is old else item for item in items]


def _open_to_change(tree: ast.Module) -> Iterator[ast.AST]:
    """The nodes inside functions at which a fault can be put, in the order of the text."""
    for statement in tree.body:
        if isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
            yield from _inner(statement)


def _inner(node: ast.AST) -> Iterator[ast.AST]:
    yield node
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "args", "type_params"):
            if isinstance(node, ast.Call):
                for argument in node.args:
                    yield from _inner(argument)
            continue
        parts = cast(list[Any], value if isinstance(value, list) else [value])
        for place, part in enumerate(parts):
            if isinstance(part, ast.AST) and not _left_alone(node, name, place, part):
                yield from _inner(part)


def _left_alone(parent: ast.AST, field: str, place: int, part: ast.AST) -> bool:
    """Docstrings, imports, and what an error says."""
    if isinstance(part, (ast.Import, ast.ImportFrom, ast.Raise, ast.Assert, ast.JoinedStr)):
        return not isinstance(part, ast.Raise)
    if isinstance(parent, ast.Raise):
        return True
    text = isinstance(part, ast.Expr) and isinstance(part.value, ast.Constant)
    return text and field == "body" and place == 0


def _changes(node: ast.AST) -> Iterator[Change]:
    """The faults that can be put at this node."""
    match node:
        case ast.Compare(ops=[op]) if type(op) in _COMPARE:
            new = _COMPARE[type(op)]
            yield "comparison", _swap(op, new), lambda n: setattr(n, "ops", [new()])
        case ast.BinOp(op=op) | ast.AugAssign(op=op) if type(op) in _ARITHMETIC:
            other = _ARITHMETIC[type(op)]
            yield "arithmetic", _swap(op, other), lambda n: setattr(n, "op", other())
        case ast.BoolOp(op=ast.And()):
            yield "logic", "and → or", lambda n: setattr(n, "op", ast.Or())
        case ast.BoolOp(op=ast.Or()):
            yield "logic", "or → and", lambda n: setattr(n, "op", ast.And())
        case ast.UnaryOp(op=ast.Not()):
            yield "logic", "without not", lambda n: n.operand
        case ast.UnaryOp(op=ast.USub()):
            yield "arithmetic", "without minus", lambda n: n.operand
        case ast.Constant(value=bool() as value):
            yield "constant", f"{value} → {not value}", lambda n: setattr(n, "value", not value)
        case ast.Constant(value=int() as number):
            yield "constant", f"{number} → {number + 1}", lambda n: setattr(n, "value", number + 1)
        case ast.Name(id=name) if name in _NAMES:
            yield "function", f"{name} → {_NAMES[name]}", lambda n: setattr(n, "id", _NAMES[name])
        case _:
            yield from _more_changes(node)


def _more_changes(node: ast.AST) -> Iterator[Change]:
    """Faults of calls and statements."""
    match node:
        case ast.If() | ast.IfExp():
            yield "branch", "condition always true", lambda n: setattr(n, "test", _constant(True))
            yield "branch", "condition never true", lambda n: setattr(n, "test", _constant(False))
        case ast.Call(func=ast.Name(id="reversed" | "sorted" as name), args=[_]):
            yield (
                "function",
                f"without {name}",
                lambda n: n.args[0] if name == "reversed" else _list(n),
            )
        case ast.Call(args=[_, _, *_]) if not any(isinstance(a, ast.Starred) for a in node.args):
            yield "arguments", "first two arguments swapped", _swap_arguments
        case ast.Return(value=ast.expr()):
            yield "return", "returns None", lambda n: setattr(n, "value", _constant(None))
        case ast.Raise():
            yield "raise", "raises nothing", lambda n: ast.Pass()
        case ast.Break():
            yield "jump", "break → continue", lambda n: ast.Continue()
        case ast.Continue():
            yield "jump", "continue → pass", lambda n: ast.Pass()
        case ast.Expr(value=ast.Call()) | ast.AugAssign():
            yield "statement", f"without {ast.unparse(node)[:40]!r}", lambda n: ast.Pass()
        case ast.For(iter=ast.expr()):
            yield "loop", "leaves out the first", _without_first
        case _:
            pass


def _swap(old: ast.AST, new: type[ast.AST]) -> str:
    return f"{_SIGNS[type(old)]} → {_SIGNS[new]}"


def _constant(value: bool | None) -> ast.Constant:
    return ast.Constant(value)


def _list(node: ast.Call) -> ast.AST:
    return ast.Call(ast.Name("list", ast.Load()), [node.args[0]], [])


def _swap_arguments(node: ast.Call) -> None:
    node.args[:2] = [node.args[1], node.args[0]]


def _without_first(node: ast.For) -> None:
    listed = ast.Call(ast.Name("list", ast.Load()), [node.iter], [])
    node.iter = ast.Subscript(listed, ast.Slice(ast.Constant(1)), ast.Load())
