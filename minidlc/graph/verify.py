"""The invariants of a graph, one message and one code each; runs after every pass.

    verify(g)                                       # None, or a VerifyError (MDLC04xx)

Order: every value is defined before it is read. Types: every node has the type its rule gives.
Names: inputs are told apart. Reads a graph, changes nothing. Treated in course chapter
02_frontend_opt.
"""

from __future__ import annotations

import math

from minidlc.expr.index import Index
from minidlc.expr.types import TensorType
from minidlc.graph.graph import Constant, Graph, Input, Node, Value, bodies, toposort
from minidlc.graph.literals import is_attribute
from minidlc.graph.op import infer
from minidlc.graph.types import TupleType
from minidlc.support import extension
from minidlc.support.arguments import expect
from minidlc.support.errors import TypeRuleError, VerifyError
from minidlc.support.locations import Loc

MAX_NESTING = 50  # bodies inside bodies

extension.declare("verify", "(graph) -> None", "checks the invariants of a graph, raises")


def verify(graph: Graph) -> None:
    """Check every invariant (extension point `verify`).

    Raises VerifyError for the first that does not hold: MDLC0402 cycle, 0403 order, 0404 undefined
    value, 0405 node twice, 0406 type, 0407 output, 0408 input names, 0409 tuple, 0410 not finite,
    0411 body, 0412 attribute, 0413 constant, 0416 something that does not belong into a graph.
    """
    expect("verify", "graph", graph, Graph)
    extension.dispatch("verify", _verify)(graph)


def _verify(graph: Graph) -> None:
    _check(graph, 0)


def _check(graph: Graph, depth: int) -> None:
    if depth > MAX_NESTING:
        raise _error("0414", f"bodies nested deeper than {MAX_NESTING}")
    _check_kinds(graph)
    _check_inputs(graph)
    defined = {id(i) for i in graph.inputs}
    for node in graph.nodes:
        if id(node) in defined:
            raise _error("0405", f"node {node.name!r} stands twice in the graph", node.loc)
        for value in node.inputs:
            _check_read(graph, node, value, defined)
        _check_attributes(node)
        _check_type(node)
        for body in bodies(node):
            _check_body(node, body, depth)
        defined.add(id(node))
    for output in graph.outputs:
        _check_output(output, defined)


_HINTS = {
    "0403": "Graph.of puts nodes in order",
    "0404": "list it in the graph; Graph.of finds the nodes that the outputs need",
    "0405": "Graph.of lists each node once",
    "0406": "build nodes with apply or the op's function: they get their type from the rule",
    "0407": "an output is an input, a constant or a node of the graph",
    "0408": "give each input a name of its own",
    "0409": "getitem(value, index)",
    "0410": "give a finite number",
    "0412": "numbers, strings, booleans, types, arrays, graphs and tuples of them can be written",
    "0413": "array.flags.writeable = False, or make it anew with Constant(name, array)",
    "0416": 'values are Input, Constant and Node; a size that is not known is a symbol: f32["N"]',
}


def _error(code: str, message: str, loc: Loc | None = None, *notes: str) -> VerifyError:
    return VerifyError(message, loc=loc, notes=notes, hint=_HINTS.get(code), code=f"MDLC{code}")


def _check_kinds(graph: Graph) -> None:
    """Everything is of the class that the annotations of Graph and its values say."""
    parts: list[tuple[str, object, type | tuple[type, ...]]] = [("graph name", graph.name, str)]
    parts += [("input", i, Input) for i in graph.inputs]
    parts += [("node", n, Node) for n in graph.nodes]
    parts += [("output", o, (Input, Constant, Node)) for o in graph.outputs]
    values = (*graph.inputs, *graph.nodes, *graph.outputs)
    parts += [("name", getattr(v, "name", ""), str) for v in values]
    parts += [("input type", getattr(i, "type", None), TensorType) for i in graph.inputs]
    for what, thing, kinds in parts:
        if not isinstance(thing, kinds):
            names = kinds.__name__ if isinstance(kinds, type) else "value"
            text = f"{graph.name}: {what} {thing!r:.60} is a {type(thing).__name__}, no {names}"
            raise _error("0416", text)
    for i in graph.inputs:
        if not all(isinstance(d, Index) or (type(d) is int and d >= 0) for d in i.type.shape):
            raise _error("0416", f"input {i.name!r}: {i.type}: a dim is no size and no symbol")


def _check_inputs(graph: Graph) -> None:
    names: set[str] = set()
    for input in graph.inputs:
        if input.name in names:
            raise _error("0408", f"two inputs are named {input.name!r}", input.loc)
        names.add(input.name)


def _check_read(graph: Graph, node: Node, value: Value | None, defined: set[int]) -> None:
    match value:
        case None:
            return
        case Constant():
            _check_constant(value)
        case Input() | Node():
            if id(value) not in defined:
                raise _undefined(graph, node, value)
    if isinstance(value.type, TupleType) and not node.op.takes_tuple:
        text = f"{node.name!r} reads the tuple {value.name!r}: use getitem"
        raise _error("0409", text, node.loc, f"{value.name}: {value.type}")


def _undefined(graph: Graph, node: Node, value: Input | Node) -> VerifyError:
    if isinstance(value, Input):
        text = f"{node.name!r} reads the input {value.name!r}, which the graph does not list"
        return _error("0404", text, node.loc)
    if not any(value is other for other in graph.nodes):
        text = f"{node.name!r} reads {value.name!r}, which is not in the graph"
        return _error("0404", text, node.loc, f"{value.name} = {value.op.name}(…)")
    try:
        toposort((value,))
    except VerifyError as cycle:
        return cycle
    return _error("0403", f"{node.name!r} stands before {value.name!r}, which it reads", node.loc)


def _check_constant(constant: Constant) -> None:
    if constant.array.flags.writeable:
        raise _error("0413", f"the array of constant {constant.name!r} is writable", constant.loc)


def _check_attributes(node: Node) -> None:
    op = node.op
    for name, value in op.attributes().items():
        if not is_attribute(value):
            text = f"{op.name}: attribute {name!r} is {value!r:.60}, which text cannot write"
            raise _error("0412", text, node.loc)
        if name in op.finite and isinstance(value, float) and not math.isfinite(value):
            text = f"{op.name}: attribute {name!r} must be finite, got {value}"
            raise _error("0410", text, node.loc)


def _check_type(node: Node) -> None:
    try:
        wanted = infer(node.op, tuple(None if v is None else v.type for v in node.inputs))
    except TypeRuleError as e:
        raise _error("0406", f"{node.name!r}: {e.message}", node.loc, *e.notes) from None
    if wanted != node.type:
        text = f"{node.name!r} has type {node.type}, its type rule gives {wanted}"
        raise _error("0406", text, node.loc)


def _check_body(node: Node, body: Graph, depth: int) -> None:
    try:
        _check(body, depth + 1)
    except VerifyError as e:
        if e.code in ("MDLC0411", "MDLC0414"):
            raise
        text = f"body of {node.name!r}: {e.message}"
        raise _error("0411", text, e.place or node.loc, f"rule {e.code}", *e.notes) from None


def _check_output(output: Value, defined: set[int]) -> None:
    if isinstance(output, Constant):
        _check_constant(output)
    elif id(output) not in defined:
        raise _error("0407", f"output {output.name!r} is not defined in the graph", output.loc)
    if isinstance(output.type, TupleType):
        text = f"output {output.name!r} is the tuple {output.type}: use getitem"
        raise _error("0409", text, output.loc)
