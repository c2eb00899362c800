"""Text to graph: reads what graph/printer.py writes, checks every name and type on the way.

    g = parse('''
    def f(x: f32[4]):
        y: f32[4] = relu(x)
        return y
    ''')

A fault is a ParseError at its place in the text; inputs that do not fit an op are the op's own
TypeRuleError, also with the place. A type may be left away: the op's type rule gives it.
Treated in course chapter 01_graph_ir.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields

from minidlc.expr.types import Array, TensorType, bf16
from minidlc.graph.graph import Constant, Graph, Input, Node, Value, build
from minidlc.graph.literals import PRINTED, Reader
from minidlc.graph.op import Op, op_class
from minidlc.graph.types import TupleType, Type, result_types
from minidlc.support import extension
from minidlc.support.arguments import expect
from minidlc.support.errors import CompileError, OptionError, ParseError, nearest
from minidlc.support.locations import FileLoc
from minidlc.support.options import convert, hints
from minidlc.support.source import Source

MAX_NESTING = 50  # functions inside functions

extension.declare(
    "parse",
    "(text, weights, file) -> Graph",
    "reader of graph text",
    returns=extension.instance(Graph),
)


def parse(text: str, weights: Mapping[str, Array] | None = None, *, file: str = "<text>") -> Graph:
    """Read graph text (extension point `parse`); `weights` holds its large constants by name.

    Without `weights`, large constants are those of a graph printed in this process that still
    lives, found by their checksums: `parse(str(g)) == g`.
    Raises ParseError (MDLC03xx), and TypeRuleError where inputs do not fit an op.
    """
    weights = {} if weights is None else weights
    expect("parse", "text", text, str)
    expect("parse", "weights", weights, Mapping, hint="{name: array}, as weights_of(graph) gives")
    return extension.dispatch("parse", _parse)(text, weights, file)


def _parse(text: str, weights: Mapping[str, Array], file: str) -> Graph:
    source = Source(file, text)
    tree = source.parse()
    try:
        match tree.body:
            case [ast.FunctionDef() as function]:
                return _Function(source, weights, depth=0).read(function)
            case [first, *_] if not isinstance(first, ast.FunctionDef):
                raise source.error(first, "expected `def`", code="MDLC0302")
            case [_, second, *_]:
                raise source.error(second, "a graph is one function", code="MDLC0302")
            case _:
                raise ParseError("the text is empty", loc=FileLoc(file, 1), code="MDLC0302")
    except RecursionError:
        raise ParseError("the text is nested too deeply", loc=FileLoc(file, 1)) from None


@dataclass
class _Function:
    """Reads one `def`: its own values, and the nested functions it may name."""

    source: Source
    weights: Mapping[str, Array]
    depth: int
    values: dict[str, Value] = field(default_factory=dict[str, Value])
    graphs: dict[str, Graph] = field(default_factory=dict[str, Graph])
    declared: dict[str, tuple[ast.expr, TensorType]] = field(
        default_factory=dict[str, tuple[ast.expr, TensorType]]
    )
    nodes: list[Node] = field(default_factory=list[Node])

    def __post_init__(self) -> None:
        self.reader = Reader(self.source, self.graphs)
        self.used: set[str] = set()

    def read(self, function: ast.FunctionDef) -> Graph:
        """The graph of a `def`."""
        inputs = tuple(self._parameter(a) for a in self._parameters(function))
        *body, last = function.body
        for statement in body:
            self._statement(statement)
        if not isinstance(last, ast.Return):
            raise self._error(last, "the last line must be `return`", "0309")
        outputs = self._outputs(last)
        for nested in body:
            if isinstance(nested, ast.FunctionDef) and nested.name not in self.used:
                raise self._error(nested, f"function {nested.name!r} is never used", "0313")
        for name, (target, _) in self.declared.items():
            raise self._error(target, f"{name!r} is declared, but no line defines it", "0307")
        return Graph(function.name, inputs, tuple(self.nodes), outputs)

    def _parameters(self, function: ast.FunctionDef) -> Sequence[ast.arg]:
        a = function.args
        extra: list[ast.AST | None] = [*function.decorator_list, function.returns, *a.defaults]
        extra += [*a.posonlyargs, a.vararg, *a.kwonlyargs, a.kwarg]
        for thing in extra:
            if thing is not None:
                hint = "write def f(x: f32[4], y: f32[4]):"
                raise self._error(thing, "a `def` has parameters `name: type` only", "0303", hint)
        return a.args

    def _parameter(self, a: ast.arg) -> Input:
        if a.annotation is None:
            hint = f"write {a.arg}: f32[4, 8]"
            raise self._error(a, f"parameter {a.arg!r} has no type", "0303", hint)
        input = Input(a.arg, self.reader.tensor_type(a.annotation), self.source.loc(a))
        self._define(a, a.arg, input)
        return input

    def _statement(self, statement: ast.stmt) -> None:
        match statement:
            case ast.AnnAssign(target=ast.Name() as target, annotation=t, value=None):
                self._free(target, target.id)
                self.declared[target.id] = (target, self.reader.tensor_type(t))
            case ast.AnnAssign(target=ast.Name() as target, annotation=t, value=ast.expr() as v):
                self._assign(target, v, self.reader.type(t), t)
            case ast.Assign(targets=[ast.Name() as target], value=v):
                self._assign(target, v, None, target)
            case ast.Assign(targets=[ast.Tuple(elts=targets)], value=v):
                self._unpack(targets, v)
            case ast.FunctionDef():
                self._nested(statement)
            case ast.Return():
                raise self._error(statement, "lines after `return`", "0309")
            case _:
                hint = "lines are `name: type = op(…)`, nested `def`s and `return`"
                raise self._error(statement, "not a statement of graph text", "0302", hint)

    def _nested(self, function: ast.FunctionDef) -> None:
        if self.depth >= MAX_NESTING:
            text = f"more than {MAX_NESTING} functions inside each other"
            raise self._error(function, text, "0313")
        self._free(function, function.name)
        inner = _Function(self.source, self.weights, self.depth + 1)
        self.graphs[function.name] = inner.read(function)

    def _assign(
        self, target: ast.Name, value: ast.expr, declared: Type | None, place: ast.expr
    ) -> None:
        call = self._call(value)
        self._free(target, target.id)
        if _name(call.func) == "const":
            if not isinstance(declared, TensorType):
                hint = f"write {target.id}: f32[2] = const([1.0, 2.0])"
                raise self._error(place, "a constant needs the type of one tensor", "0311", hint)
            self._define(target, target.id, self._constant(target.id, call, declared))
            return
        node = self._node(target.id, call)
        if declared is not None:
            self._check_type(place, declared, node.type)
        self._define(target, target.id, node)

    def _unpack(self, targets: Sequence[ast.expr], value: ast.expr) -> None:
        names = [t.id for t in targets if isinstance(t, ast.Name)]
        call = self._call(value)
        if len(names) != len(targets) or _name(call.func) == "const":
            raise self._error(targets[0], "expected `a, b = op(…)`", "0302")
        node = self._node("_".join(names), call)
        count = len(result_types(node.type))
        if not isinstance(node.type, TupleType) or count != len(names):
            text = f"{node.op.name} has {count} result{'s' * (count != 1)}, not {len(names)}"
            raise self._error(targets[0], text, "0310")
        loc = self.source.loc(value)
        for i, (target, name) in enumerate(zip(targets, names, strict=True)):
            if name in self.declared:
                place, declared = self.declared.pop(name)
                self._check_type(place, declared, node.type.items[i])
            self._free(target, name)
            part = build(op_class("getitem")(index=i), (node,), name=name, loc=loc)  # pyright: ignore
            self.nodes.append(part)
            self._define(target, name, part)

    def _check_type(self, place: ast.AST, declared: Type, inferred: Type) -> None:
        if declared != inferred:
            error = self._error(place, f"type {declared} is declared, but it is {inferred}", "0310")
            error.notes = (f"declared: {declared}", f"type rule: {inferred}")
            raise error

    def _call(self, value: ast.expr) -> ast.Call:
        if isinstance(value, ast.Call) and isinstance(value.func, ast.Name):
            return value
        hint = "write add(x, y) for x + y, and c: f32[()] = const(2.0) for a number"
        raise self._error(value, "expected a call op(…)", "0314", hint)

    def _node(self, name: str, call: ast.Call) -> Node:
        op = self._op(call)
        inputs = [self._operand(a) for a in call.args]
        node = build(op, inputs, name=name, loc=self.source.loc(call))
        self.nodes.append(node)
        return node

    def _operand(self, a: ast.expr) -> Value | None:
        match a:
            case ast.Constant(value=None):
                return None
            case ast.Name(id=name):
                return self._value(a, name)
            case _:
                hint = "give it a name first: c: f32[()] = const(2.0)"
                raise self._error(a, "an input is the name of a value, or None", "0314", hint)

    def _value(self, place: ast.AST, name: str) -> Value:
        if name not in self.values:
            hint = nearest(name, self.values) if len(self.values) < 1000 else None
            raise self._error(place, f"{name!r} is not defined", "0307", hint)
        return self.values[name]

    def _op(self, call: ast.Call) -> Op:
        name = _name(call.func)
        try:
            cls, given = op_class(name), dict[str, object]()
        except OptionError as e:
            raise self._error(call.func, e.message, "0305", e.hint) from None
        for k in call.keywords:
            value = self._attribute(cls, k)
            if k.arg in given:
                raise self._error(k, f"attribute {k.arg!r} is given twice", "0306")
            given[k.arg or "**"] = value
        for f in fields(cls):
            if f.name not in given and f.default is MISSING and f.default_factory is MISSING:
                raise self._error(call, f"{name} needs the attribute {f.name!r}", "0306")
        try:
            return cls(**given)
        except CompileError as e:
            raise e.at(self.source.loc(call)) from None
        except (TypeError, ValueError) as e:
            raise self._error(call, f"{name}: {e}", "0306") from None

    def _attribute(self, cls: type[Op], k: ast.keyword) -> object:
        expected = hints(cls)
        if k.arg not in expected:
            hint = nearest(k.arg or "", expected) or f"{cls.name} has no attributes"
            raise self._error(k, f"{cls.name} has no attribute {k.arg!r}", "0306", hint)
        value = self.reader.attribute(k.value)
        if isinstance(value, Graph):
            self.used.update(n.id for n in ast.walk(k.value) if isinstance(n, ast.Name))
        try:
            return convert(value, expected[k.arg])
        except ValueError as e:
            text = f"{cls.name}: attribute {k.arg!r}: {e}, got {ast.unparse(k.value)[:60]}"
            raise self._error(k.value, text, "0306") from None

    def _constant(self, name: str, call: ast.Call, type: TensorType) -> Constant:
        loc = self.source.loc(call)
        match call:
            case ast.Call(args=[ast.Constant(value=str(key))], keywords=keywords):
                return Constant(name, self._weight(call, key, keywords, type), loc)
            case ast.Call(args=[elements], keywords=[]):
                return Constant(name, self.reader.array(elements, type), loc)
            case _:
                hint = 'write const([1.0, 2.0]) or const("w0", sha256="…")'
                raise self._error(call, "malformed constant", "0311", hint)

    def _weight(
        self, call: ast.Call, key: str, keywords: Sequence[ast.keyword], type: TensorType
    ) -> Array:
        checksum = ""
        for k in keywords:
            match k:
                case ast.keyword(arg="sha256", value=ast.Constant(value=str(text))):
                    checksum = text
                case _:
                    raise self._error(k, 'expected sha256="…"', "0311")
        printed = PRINTED.get(checksum)
        if key not in self.weights and printed is None:
            hint = nearest(key, self.weights) or "parse(text, weights={name: array})"
            raise self._error(call, f"no weights named {key!r}", "0312", hint)
        array = self.weights[key] if key in self.weights or printed is None else printed.array
        if type.dtype == bf16 and array.dtype.name == "uint16":
            array = array.view(bf16.numpy)  # .npz files do not know bf16
        constant = Constant(key, array)
        if constant.type != type:
            raise self._error(call, f"weights {key!r} are {constant.type}, not {type}", "0312")
        if not constant.sha256.startswith(checksum):
            text = f"weights {key!r} have checksum {constant.sha256[: len(checksum)]}"
            hint = "the text and the weights are not from the same graph"
            raise self._error(call, f"{text}, the text says {checksum}", "0312", hint)
        return constant.array

    def _outputs(self, statement: ast.Return) -> tuple[Value, ...]:
        match statement.value:
            case ast.Name(id=name) as place:
                return (self._value(place, name),)
            case ast.Tuple(elts=items) if all(isinstance(i, ast.Name) for i in items):
                return tuple(self._value(i, _name(i)) for i in items)
            case _:
                raise self._error(statement, "`return` lists names of values", "0309")

    def _free(self, place: ast.AST, name: str) -> None:
        if name in self.values or name in self.graphs or name in self.declared:
            raise self._error(place, f"{name!r} is defined twice", "0308")

    def _define(self, place: ast.AST, name: str, value: Value) -> None:
        self._free(place, name)
        self.values[name] = value

    def _error(
        self, place: ast.AST, message: str, code: str, hint: str | None = None
    ) -> ParseError:
        return self.source.error(place, message, code=f"MDLC{code}", hint=hint)


def _name(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else ""
