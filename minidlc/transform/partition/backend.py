"""A back end as data: what it takes, alone or in chains, at what cost, and forms for the rest.

    toy = BackEnd("toy", (Takes("matmul", ("f32",)),), cycles=…, host_cycles=…, transfer_cycles=…)
    register_backend(toy)
    toy.reason_against(node)                        # None, or 'toy has no softmax'

`legalise` and `partition` look a back end up by its name. All costs are in one unit, cycles of the
same clock. Treated in course chapter 02_frontend_opt.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field

from minidlc.expr.types import TensorType
from minidlc.graph.graph import Graph, Node, Value
from minidlc.support.errors import PassError, nearest


@dataclass(frozen=True)
class Takes:
    """A row of the table: an op, the element types of its first input and of its result.

    No types: any. `when` returns None for a node that is taken, or the reason against it.
    """

    op: str
    elements: tuple[str, ...] = ()
    result: tuple[str, ...] = ()
    when: Callable[[Node], str | None] | None = None

    def reason_against(self, node: Node) -> str | None:
        """Why this node is not one of the row."""
        first = next((v.type for v in node.inputs if v is not None), node.type)
        for what, type, allowed in (
            ("takes", first, self.elements),
            ("gives", node.type, self.result),
        ):
            if allowed and isinstance(type, TensorType) and type.dtype.name not in allowed:
                return f"{node.op.name} {what} {' or '.join(allowed)} elements, not {type.dtype}"
        return None if self.when is None else self.when(node)


@dataclass(frozen=True)
class Chain:
    """Ops that are taken one after the other, though perhaps not alone: ("matmul", "add", "relu").

    Each is the only reader of the one before. `when` is asked with all of them.
    """

    ops: tuple[str, ...]
    when: Callable[[tuple[Node, ...]], str | None] | None = None

    def starting_at(
        self, node: Node, users: Mapping[Value, tuple[Node, ...]], ends: Container[Value]
    ) -> tuple[Node, ...]:
        """The nodes of the chain that begins here, none if there is no such chain."""
        found = [node]
        while len(found) < len(self.ops):
            readers = users.get(found[-1], ())
            if found[-1] in ends or len(readers) != 1:
                return ()
            found.append(readers[0])
        fits = tuple(n.op.name for n in found) == self.ops
        return tuple(found) if fits and (not self.when or self.when(tuple(found)) is None) else ()


@dataclass(frozen=True)
class Form:
    """How `legalise` says an op in others: `build` gives a value of the same type.

    It gives a text where the op looked right and something speaks against it.
    """

    name: str
    op: str
    build: Callable[[Node], Value | str]


def free(amount: object) -> float:
    """The cost of nothing."""
    return 0.0


@dataclass(frozen=True)
class BackEnd:
    """What a part of the graph may be given to. `cycles` of a node there, `host_cycles` here;
    `transfer_cycles` of bytes between the two, `launch_cycles` for each region."""

    name: str
    table: tuple[Takes, ...]
    forms: tuple[Form, ...] = ()
    chains: tuple[Chain, ...] = ()  # the longest first
    cycles: Callable[[Node], float] = field(default=free, repr=False)
    host_cycles: Callable[[Node], float] = field(default=free, repr=False)
    transfer_cycles: Callable[[int], float] = field(default=free, repr=False)
    launch_cycles: float = 0.0

    def reason_against(self, node: Node) -> str | None:
        """Why the back end cannot run this node alone; None if it can."""
        rows = [row for row in self.table if row.op == node.op.name]
        if not rows:
            return f"{self.name} has no {node.op.name}"
        if (reason := unfit(node)) is not None:
            return reason
        reasons = [row.reason_against(node) for row in rows]
        return None if None in reasons else reasons[0]

    def taken(self, graph: Graph) -> tuple[list[tuple[Node, ...]], dict[Node, str]]:
        """What the back end can run, chains and single nodes; and the other nodes, with reasons."""
        users, ends = graph.users(), set(graph.outputs)
        units: dict[Node, tuple[Node, ...]] = {}  # node -> the unit that it is part of
        for chain in self.chains:
            for node in graph.nodes:
                found = chain.starting_at(node, users, ends)
                if found and not any(n in units or unfit(n) for n in found):
                    units |= dict.fromkeys(found, found)
        reasons: dict[Node, str] = {}
        for node in graph.nodes:
            reason = None if node in units else self.reason_against(node)
            if reason is not None:
                reasons[node] = reason
            else:
                units.setdefault(node, (node,))
        return list({id(unit): unit for unit in units.values()}.values()), reasons


def unfit(node: Node) -> str | None:
    """Why no back end is given this node."""
    if not isinstance(node.type, TensorType):
        return f"{node.op.name} has several results"
    if not node.op.pure:
        return f"{node.op.name} is not pure"
    types = [v.type for v in (*node.inputs, node) if v is not None]
    known = all(isinstance(t, TensorType) and t.is_static for t in types)
    return None if known else "its sizes are not known"


_registry: dict[str, BackEnd] = {}


def register_backend(backend: BackEnd) -> BackEnd:
    """Make a back end known by its name; a later one of that name takes its place."""
    _registry[backend.name] = backend
    return backend


def unregister_backend(name: str) -> None:
    """Forget a back end again (tests and notebooks that register one of their own)."""
    _registry.pop(name, None)


def backend_of(name: str) -> BackEnd:
    """The back end of this name; raises PassError (MDLC0562) naming the known ones."""
    if name not in _registry:
        known = nearest(name, _registry)
        hint = known or "a back end is known once its module is imported: import minidlc.npu"
        raise PassError(f"unknown back end {name!r}", hint=hint, code="MDLC0562")
    return _registry[name]
