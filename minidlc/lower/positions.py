"""Checks that positions are in range, as nodes of their own before the node that uses them.

    for check in range_checks(node):                # node: gather(x, i)
        check.node                                  # outside_range(i, low=(0,), high=(10,))
    checks_of(g)[node]                              # of a graph: none is made twice

Machine code clamps every position, so that none leaves its buffer; these checks make an error of it
instead of a wrong number. Treated in course chapter 05_backend_opt.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from minidlc.expr.types import TensorType
from minidlc.graph import Constant, Fused, Graph, Node, Value
from minidlc.graph.graph import build
from minidlc.graph.op import Op, Positions, out_of_range
from minidlc.ops.checks import OutsideRange
from minidlc.ops.shape import View
from minidlc.runtime.module import PositionCheck


@dataclass(frozen=True)
class RangeCheck:
    """`node` computes 1 if a position is outside, on the inputs of the node that is checked."""

    node: Node
    fault: PositionCheck


def checks_of(graph: Graph) -> dict[Node, tuple[RangeCheck, ...]]:
    """The checks of the nodes of a graph; what was found to be in a range is not asked again.

    A lookup and its gradient read the same positions. Raises what `range_checks` raises.
    """
    found: dict[Node, tuple[RangeCheck, ...]] = {}
    asked: set[tuple[Op, tuple[Value | None, ...]]] = set()
    for node in graph.nodes:
        new: list[RangeCheck] = []
        for check in range_checks(node):
            question = _question(check.node)
            if question not in asked:
                asked.add(question)
                new.append(check)
        found[node] = tuple(new)
    return found


def _question(check: Node) -> tuple[Op, tuple[Value | None, ...]]:
    """What a check asks; where all elements have one range, their shape does not matter."""
    value = check.inputs[0]
    if isinstance(check.op, OutsideRange) and len(check.op.low) == 1:
        while isinstance(value, Node) and isinstance(value.op, View):
            value = value.inputs[0]
        return check.op, (value,)
    return check.op, check.inputs


def range_checks(node: Node) -> Iterator[RangeCheck]:
    """The checks of a node, or of the nodes in a fused group.

    Raises CallError (MDLC0909) for constants that are outside.
    """
    if not isinstance(node.op, Fused):
        for found, value in _positions(node):
            yield RangeCheck(_outside(found, value, node), _fault(node, found, value))
        return
    body = node.op.body
    outer: Mapping[Value, Value | None] = dict(zip(body.inputs, node.inputs, strict=True))
    for inner in body.nodes:
        for found, value in _positions(inner):
            given = outer.get(value)
            if isinstance(given, Constant):
                _check_constant(inner.op, found, given, inner)
            elif given is not None:
                yield RangeCheck(_outside(found, given, inner), _fault(inner, found, given))
            else:  # computed inside the group: the check computes it once more
                check = Graph.of("positions", body.inputs, [_outside(found, value, inner)])
                op, name = Fused(check, "reduction"), f"check_{value.name}"
                group = build(op, node.inputs, name=name, loc=inner.loc)
                yield RangeCheck(group, _fault(inner, found, value))


def _positions(node: Node) -> Iterator[tuple[Positions, Value]]:
    """What the op says of inputs that are not constants, and not empty; constants are checked."""
    if type(node.op).positions is Op.positions:
        return
    types = [v.type if v is not None else None for v in node.inputs]
    for found in node.op.positions(*types):  # pyright: ignore[reportArgumentType]
        value = node.inputs[found.input]
        assert value is not None, "an omitted input holds no positions"
        if isinstance(value, Constant):
            _check_constant(node.op, found, value, node)
        elif isinstance(value.type, TensorType) and value.type.nbytes:
            yield found, value


def _check_constant(op: Op, found: Positions, value: Constant, node: Node) -> None:
    array = value.array
    wrong = np.argwhere((array < np.asarray(found.low)) | (array >= np.asarray(found.high)))
    if len(wrong):
        raise out_of_range(op, found, str(array[tuple(wrong[0])])).at(node.loc)


def _outside(found: Positions, value: Value, node: Node) -> Node:
    low, high = (b if isinstance(b, tuple) else (b,) for b in (found.low, found.high))
    return build(OutsideRange(low, high), [value], name=f"check_{value.name}", loc=node.loc)


def _fault(node: Node, found: Positions, value: Value) -> PositionCheck:
    error = out_of_range(node.op, found, f"a position of {value.name!r}")
    name = "" if node.name == node.op.name else f"{node.name!r}: "
    return PositionCheck(f"{name}{error.message}", error.hint, node.loc)
