"""What looks wrong in a graph before it runs: `minidlc check` prints these findings.

    for finding in findings(g, {"image": Fact(0.0, 1.0)}): print(finding)
    # domain: log at h: an element may be 0 or below: it is in [-1.0, 5.0] (m.onnx: node 'h' (Log))

Inputs are taken to be any finite numbers unless told better. The analysis knows ranges of elements,
not how values depend on each other: what it reports as possible may be excluded by what it does not
see, what it does not report cannot happen. Reads a graph, changes nothing. Treated in course
chapter 02_frontend_opt.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from minidlc.expr.types import DType, TensorType
from minidlc.graph.graph import Constant, Graph, Node, Value, tensor_type
from minidlc.graph.op import Op
from minidlc.support.errors import OptionError, nearest
from minidlc.support.locations import Loc
from minidlc.transform.dataflow.analysis import Known, analyse
from minidlc.transform.dataflow.fact import Fact, largest, limits, numbers
from minidlc.transform.rebuild import bodies_of, live_nodes


@dataclass(frozen=True)
class Finding:
    """Something to look at: what kind, at which value, why."""

    kind: str  # domain, position, cast, constant, dead or unused
    value: str
    text: str
    loc: Loc | None = None

    def __str__(self) -> str:
        place = "" if self.loc is None else f" ({self.loc})"
        return f"{self.kind}: {self.value}: {self.text}{place}"


def findings(graph: Graph, inputs: Mapping[str, Fact] | None = None) -> list[Finding]:
    """Everything found in the graph and the bodies in it, in the order of execution.

    `inputs` says what is known of inputs, by name; OptionError (MDLC1008) for an unknown name.
    """
    given = dict(inputs or {})
    names = [i.name for i in graph.inputs]
    for name in given:
        if name not in names:
            text = f"{graph.name} has no input {name!r}"
            raise OptionError(text, hint=nearest(name, names), code="MDLC1008")
    any_number = {i.name: numbers(i.type.dtype) for i in graph.inputs}
    facts = analyse(graph, any_number | given)
    found = [*_unused(graph), *_dead(graph)]
    for node in graph.nodes:
        found += _of_node(node, facts)
        for body in bodies_of(node.op).values():
            found += findings(body)
    return [*found, *_constant(graph, facts)]


def _unused(graph: Graph) -> Iterator[Finding]:
    """Inputs that no result depends on."""
    read: set[Value] = set(graph.outputs)
    for node in live_nodes(graph.nodes, graph.outputs):
        read |= {v for v in node.inputs if v is not None}
    for i in graph.inputs:
        if i not in read:
            yield Finding("unused", i.name, "no result depends on this input", i.loc)


def _dead(graph: Graph) -> Iterator[Finding]:
    live = set(live_nodes(graph.nodes, graph.outputs))
    for node in graph.nodes:
        if node not in live:
            yield Finding("dead", node.name, f"no output needs this {node.op.name}", node.loc)


def _constant(graph: Graph, facts: Mapping[Value, Known]) -> Iterator[Finding]:
    """Outputs that are the same whatever the inputs are."""
    depends: set[Value] = set(graph.inputs)
    for node in graph.nodes:
        if not node.op.pure or any(v in depends for v in node.inputs):
            depends.add(node)
    for output in graph.outputs:
        fact = facts[output]
        number = fact.constant if isinstance(fact, Fact) else None
        if isinstance(output, Constant) or output not in depends:
            yield Finding("constant", output.name, "this output depends on no input", output.loc)
        elif number is not None:
            text = f"every element of this output is {number}"
            yield Finding("constant", output.name, text, output.loc)


def _of_node(node: Node, facts: Mapping[Value, Known]) -> Iterator[Finding]:
    """What one op may do with the values it gets."""
    given = [facts[v] if v is not None else None for v in node.inputs]
    known = [f if isinstance(f, Fact) else None for f in given]
    rule = DOMAINS.get(node.op.name)
    reason = None
    if node.op.name == "cast" and known[0] is not None:
        reason = _lost(node, known[0])
        if reason:
            yield Finding("cast", node.name, reason, node.loc)
    elif rule is not None and all(f is not None for f in known):
        reason = rule(node, *known)
        if reason:
            yield Finding("domain", node.name, f"{node.op.name}: {reason}", node.loc)
    yield from _positions(node, known)


def _positions(node: Node, known: list[Fact | None]) -> Iterator[Finding]:
    """Positions that may be outside what the op can reach: a call would raise CallError."""
    types = [None if v is None else v.type for v in node.inputs]
    if type(node.op).positions is Op.positions or not all(
        t is None or (isinstance(t, TensorType) and t.is_static) for t in types
    ):
        return
    for found in node.op.positions(*types):
        fact = known[found.input]
        low, high = int(np.min(found.low)), int(np.min(found.high)) - 1
        if fact is not None and not (low <= fact.low and fact.high <= high):
            text = f"a position {_range(fact)} may be outside [{low}, {high}]"
            yield Finding("position", node.name, f"{node.op.name}: {text}", node.loc)


def _range(fact: Fact) -> str:
    return f"in [{fact.low}, {fact.high}]"


def _lost(node: Node, x: Fact) -> str | None:
    """Why a cast may give other numbers, apart from rounding; None if it does not."""
    source = node.inputs[0]
    assert source is not None
    old, new = tensor_type(source).dtype, tensor_type(node).dtype
    if new.kind == "bool" or old.kind == "bool":
        return None
    if x.nan and not new.is_float:
        return f"NaN becomes 0 as {new}"
    least, most = _ends(new)
    if x.infinite and new.is_float:  # an infinity stays one
        return None
    inside = least <= x.low and x.high <= most
    how = "becomes infinite" if new.is_float else "saturates" if old.is_float else "wraps"
    return None if inside else f"an element {_range(x)} {how} as {new}"


def _ends(element: DType) -> tuple[float, float]:
    return (-largest(element), largest(element)) if element.is_float else limits(element)


# ---- where functions are defined: a reason, or None --------------------------------------------


def _below(bound: float, what: str) -> Callable[[Node, Fact], str | None]:
    def check(node: Node, x: Fact) -> str | None:
        return f"an element may be {what}: it is {_range(x)}" if x.low < bound else None

    return check


def _log(node: Node, x: Fact) -> str | None:
    return f"an element may be 0 or below: it is {_range(x)}" if x.low <= 0 else None


def _outside(node: Node, x: Fact) -> str | None:
    inside = x.low >= -1 and x.high <= 1
    return None if inside else f"an element may be outside [-1, 1]: it is {_range(x)}"


def _divisor(node: Node, *facts: Fact) -> str | None:
    """Of integers too: there x / 0 is 0 by definition here, and rarely meant."""
    divisor = facts[-1]
    return f"a divisor may be 0: it is {_range(divisor)}" if divisor.has_zero else None


def _power(node: Node, a: Fact, b: Fact) -> str | None:
    exponent = b.constant
    whole = exponent is not None and exponent == math.floor(exponent)
    if a.low < 0 and not whole:
        return f"a negative base {_range(a)} may have an exponent that is no integer"
    if a.has_zero and b.low < 0:
        return f"a base {_range(a)} may be 0, its exponent {_range(b)} negative"
    return None


DOMAINS: dict[str, Callable[..., str | None]] = {
    "log": _log,
    "sqrt": _below(0, "below 0"),
    "acosh": _below(1, "below 1"),
    "asin": _outside,
    "acos": _outside,
    "atanh": _outside,
    "div": _divisor,
    "reciprocal": _divisor,
    "mod": _divisor,
    "pow": _power,
}
