"""From a function to its syntax tree: found, checked, and rewritten for tensors.

    program = read_source(fn)                       # TypeRuleError at the line of what is refused
    program.body, program.place(node)

In expressions, what Python decides by truth values becomes calls that may also build nodes:
`a and b` → `__and(lambda: a, lambda: b)`, `not a` → `__not(a)`, `a < b < c` and `a == b` →
`__compare(("<", "<"), lambda: a, …)`, `a if c else b` → `__choose(c, 0)`, where 0 numbers the pair
of expressions, and `f(x)` → `__call(f)(x)`. Treated in course chapter 01_graph_ir.
"""

from __future__ import annotations

import ast
import functools
import inspect
import textwrap
import types
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Never, cast

from minidlc.frontend.script.refusals import STATEMENTS, refuse
from minidlc.support.errors import TypeRuleError
from minidlc.support.locations import FileLoc, caller

Code = types.CodeType


@dataclass(frozen=True, eq=False)
class Program:
    """A function as statements. `codes` keeps what `compile` made of a statement or expression."""

    fn: types.FunctionType
    bound: tuple[object, ...]  # self of a method
    body: list[ast.stmt] = field(repr=False)
    pairs: list[tuple[ast.expr, ast.expr]] = field(repr=False)  # of `a if c else b`
    names: tuple[str, ...]  # parameters, and what the function assigns; sorted
    lines: list[str] = field(repr=False)
    first_line: int
    indent: int
    codes: dict[ast.AST, Code] = field(default_factory=dict[ast.AST, Code], repr=False)

    def place(self, node: ast.AST) -> FileLoc:
        """Line and columns of a node in the file, with the text of the line."""
        at = cast(ast.expr, node)
        text = self.lines[at.lineno - self.first_line].rstrip()
        one_line = at.end_lineno == at.lineno and at.end_col_offset is not None
        end = (at.end_col_offset or 0) if one_line else len(text) - self.indent
        file = self.fn.__code__.co_filename
        column = at.col_offset + self.indent + 1
        return FileLoc(file, at.lineno, column, end + self.indent + 1, text)

    def code(self, node: ast.stmt | ast.expr) -> Code:
        """The node compiled, under the file and lines of the source."""
        if node not in self.codes:
            file = self.fn.__code__.co_filename
            if isinstance(node, ast.stmt):
                tree, mode = ast.Module([node], []), "exec"
            else:
                tree, mode = ast.Expression(node), "eval"
            made: Any = compile(ast.fix_missing_locations(tree), file, mode, dont_inherit=True)
            self.codes[node] = made
        return self.codes[node]


def read_source(fn: Callable[..., object]) -> Program:
    """The program of a function or method; raises TypeRuleError (MDLC0225, MDLC0226)."""
    bound: tuple[object, ...] = ()
    function: object = fn
    if isinstance(function, types.MethodType):
        function, bound = function.__func__, (function.__self__,)
    if not isinstance(function, types.FunctionType) or hasattr(function, "__wrapped__"):
        what = "a decorated function" if hasattr(function, "__wrapped__") else type(fn).__name__
        _no_source(f"{what} has no source of its own", "give the Python function itself")
    program = _read(function)
    return Program(
        function, bound, program.body, program.pairs, program.names, program.lines,
        program.first_line, program.indent, program.codes,
    )  # fmt: skip


@functools.lru_cache(maxsize=256)
def _read(fn: types.FunctionType) -> Program:
    if fn.__name__ == "<lambda>":
        _no_source("a lambda is no statement that could be read", "write it with def")
    try:
        lines, first = inspect.getsourcelines(fn)
        text = textwrap.dedent("".join(lines))
        tree = ast.parse(text).body[0]
    except (OSError, TypeError, SyntaxError, IndexError) as e:
        _no_source(str(e), "write the function in a file or a notebook cell")
    if not isinstance(tree, (ast.FunctionDef, ast.AsyncFunctionDef)) or tree.name != fn.__name__:
        _no_source("the source found is another function's", "write the function in a file")
    ast.increment_lineno(tree, first - 1)
    indent = len(lines[0]) - len(lines[0].lstrip())
    program = Program(fn, (), tree.body, [], _local_names(tree), lines, first, indent)
    _check(program, tree)
    rewriter = _Rewriter(program.pairs, fn.__qualname__)
    program.body[:] = [cast(ast.stmt, rewriter.visit(statement)) for statement in tree.body]
    return program


def _local_names(tree: ast.FunctionDef | ast.AsyncFunctionDef) -> tuple[str, ...]:
    """Parameters and what is assigned; a comprehension's variables are its own."""
    nodes = list(ast.walk(tree))
    own = {
        id(name)
        for node in nodes
        if isinstance(node, ast.comprehension)
        for name in ast.walk(node.target)
    }
    names = {a.arg for a in ast.walk(tree.args) if isinstance(a, ast.arg)}
    for node in nodes:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and id(node) not in own:
            names.add(node.id)
        elif isinstance(node, ast.alias):
            names.add((node.asname or node.name).partition(".")[0])
    return tuple(sorted(names))


def _no_source(what: str, hint: str) -> Never:
    raise TypeRuleError(f"script: {what}", loc=caller(), hint=hint, code="MDLC0225")


def _check(program: Program, tree: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
    """Refuse what no condition can make possible."""
    if isinstance(tree, ast.AsyncFunctionDef):
        refuse(program.place(tree), "async", STATEMENTS["async"][1])
    eaten = {  # generators that the call they stand in consumes at once
        id(call.args[0])
        for call in ast.walk(tree)
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Name)
        and call.func.id in ("sum", "tuple", "list", "max", "min", "any", "all", "dict")
        and len(call.args) == 1
    }
    for statement in tree.body:
        for node in ast.walk(statement):
            for rule, (kinds, found, _) in STATEMENTS.items():
                if isinstance(node, kinds) and id(node) not in eaten:
                    refuse(program.place(node), rule, found)
            if isinstance(node, (ast.For, ast.While)) and node.orelse:
                refuse(program.place(node.orelse[0]), "loop-else", "`else` of a loop")


_COMPARISONS: dict[type[ast.cmpop], str] = {
    ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=",
    ast.In: "in", ast.NotIn: "not in", ast.Is: "is", ast.IsNot: "is not",
}  # fmt: skip


class _Rewriter(ast.NodeTransformer):
    """Calls in place of what asks for a truth value; see the module's docstring."""

    def __init__(self, pairs: list[tuple[ast.expr, ast.expr]], qualname: str) -> None:
        self.pairs = pairs
        self.owner = qualname.rpartition(".")[0].rpartition(".")[2].lstrip("_")
        self.inside = 0  # of comprehensions: their variables are not the function's

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        name = "__and" if isinstance(node.op, ast.And) else "__or"
        return _call(node, name, [_thunk(self.visit(v)) for v in node.values])

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        self.generic_visit(node)
        return _call(node, "__not", [node.operand]) if isinstance(node.op, ast.Not) else node

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        self.generic_visit(node)
        if len(node.ops) == 1 and not isinstance(node.ops[0], (ast.Eq, ast.NotEq)):
            return node
        symbols = ast.Tuple([ast.Constant(_COMPARISONS[type(op)]) for op in node.ops], ast.Load())
        thunks = [_thunk(v) for v in (node.left, *node.comparators)]
        return _call(node, "__compare", [symbols, *thunks])

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        self.generic_visit(node)
        if self.inside:
            return node
        self.pairs.append((node.body, node.orelse))
        return _call(node, "__choose", [node.test, ast.Constant(len(self.pairs) - 1)])

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id == "range":
            return node
        return ast.copy_location(
            ast.Call(_call(node.func, "__call", [node.func]), node.args, node.keywords), node
        )

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        self.generic_visit(node)
        if node.attr.startswith("__") and not node.attr.endswith("__"):
            node.attr = f"_{self.owner}{node.attr}"  # as Python does inside a class
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        self.generic_visit(node)
        if node.value is None:
            return ast.copy_location(ast.Pass(), node)
        return ast.copy_location(ast.Assign([node.target], node.value), node)

    def _comprehension(self, node: ast.AST) -> ast.AST:
        self.inside += 1
        self.generic_visit(node)
        self.inside -= 1
        return node

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = _comprehension


def _call(node: ast.AST, name: str, arguments: list[Any]) -> ast.expr:
    call = ast.Call(ast.Name(name, ast.Load()), arguments, [])
    return ast.copy_location(call, node)


def _thunk(value: Any) -> ast.Lambda:
    parameters = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
    return ast.copy_location(ast.Lambda(parameters, value), value)
