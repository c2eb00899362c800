"""Which nodes become kernels, and the graph in which they are: what every style of fusion ends in.

    plan = FusionPlan((Kernel(members=(m, a, r), results=(r,)),), pairs)
    with_kernels(g, plan.kernels)                   # r = fused(x, w, b, body=matmul_add_relu, …)

A kernel has one result or several; of those with several each part is taken by `getitem`. A node
may be a member of many kernels: each computes it anew. Treated in course chapter 02_frontend_opt.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from minidlc.expr.types import TensorType
from minidlc.graph.fused import Fused
from minidlc.graph.graph import Constant, Graph, Input, Node, Value, build
from minidlc.graph.inline import with_inputs
from minidlc.graph.op import OpKind, Pattern
from minidlc.ops.movement import GetItem
from minidlc.support.locations import Derived
from minidlc.support.names import Names, identifier
from minidlc.transform.log import Pair, permitted
from minidlc.transform.rebuild import regraph

ANCHORS = (Pattern.OUT_FUSABLE, Pattern.REDUCTION)  # ops with a loop nest of their own
LIGHT = (Pattern.ELEMENTWISE, Pattern.BROADCAST)


@dataclass(frozen=True)
class Kernel:
    """Nodes that run together, in execution order, and those of them that others read."""

    members: tuple[Node, ...]
    results: tuple[Node, ...]


@dataclass(frozen=True)
class FusionPlan:
    """The kernels of two nodes or more, and the decision on every pair of neighbours."""

    kernels: tuple[Kernel, ...]
    pairs: tuple[Pair, ...]


def not_fusable(node: Node) -> str | None:
    """Why a node shares no kernel with any other, whatever the style; None if it may."""
    op = node.op
    if op.is_view:
        return f"{op.name} is a view: it has no kernel"
    if op.kind is not OpKind.COMPILED or op.pattern is Pattern.OPAQUE:
        return f"{op.name} is {op.pattern if op.kind is OpKind.COMPILED else op.kind}"
    if not op.pure:
        return f"{op.name} is not pure"
    return None if isinstance(node.type, TensorType) else f"{op.name} has several results"


def with_kernels(graph: Graph, kernels: Iterable[Kernel]) -> Graph:
    """The graph with each of these kernels as one `fused` node, as far as rewrites are permitted.

    A member that others read and that no kernel gives as a result stays a node of its own too.
    """
    made = [k for k in kernels if _permitted(k)]
    return _Builder(graph, made).graph() if made else graph


def _permitted(kernel: Kernel) -> bool:
    last = kernel.members[-1]
    return permitted(f"fuse {len(kernel.members)} ops", last.name, last.loc)


class _Builder:
    """Nodes and kernels in an order in which each stands behind what it reads."""

    def __init__(self, old: Graph, kernels: Sequence[Kernel]) -> None:
        self.old = old
        self.maker: dict[Node, Kernel] = {r: k for k in kernels for r in k.results}
        self.inside = {m for k in kernels for m in k.members}
        self.new: dict[Value, Value] = {}
        self.nodes: list[Node] = []

    def graph(self) -> Graph:
        """The new graph; nodes that nobody reads stay."""
        last = {kernel.members[-1]: kernel for kernel in self.maker.values()}
        for node in self.old.nodes:
            if node in last:
                self._place(last[node])
            elif node not in self.inside:
                self._place(node)
        return regraph(self.old, self.nodes, self.new)

    def _place(self, unit: Node | Kernel) -> None:
        """Place a unit, before it those that it reads; a stack in place of deep recursion."""
        stack: list[tuple[Node | Kernel, bool]] = [(unit, False)]
        while stack:
            unit, inputs_done = stack.pop()
            results = unit.results if isinstance(unit, Kernel) else (unit,)
            if results[0] in self.new:
                continue
            if inputs_done:
                self._make(unit)
                continue
            stack.append((unit, True))
            read = _outside(unit.members if isinstance(unit, Kernel) else (unit,))
            wanted = [v for v in read if isinstance(v, Node) and v not in self.new]
            stack += [(self.maker.get(v, v), False) for v in reversed(wanted)]

    def _make(self, unit: Node | Kernel) -> None:
        if isinstance(unit, Node):
            self.new[unit] = node = with_inputs(unit, self.new)
            self.nodes.append(node)
            return
        node = _fused(unit, self.new)
        self.nodes.append(node)
        if len(unit.results) == 1:
            self.new[unit.results[0]] = node
            return
        for number, result in enumerate(unit.results):
            part = build(GetItem(number), [node], name=result.name, loc=result.loc)
            self.new[result] = part
            self.nodes.append(part)


def _outside(members: Sequence[Node]) -> Iterator[Value]:
    """What the members read and do not compute, each value once, numbers left out."""
    own, seen = set(members), set[Value]()
    for value in (v for node in members for v in node.inputs if v is not None):
        if value not in own and value not in seen and not _is_number(value):
            seen.add(value)
            yield value


def _fused(kernel: Kernel, new: Mapping[Value, Value]) -> Node:
    """The `fused` node of a kernel: its body takes what the members read from outside."""
    names = Names()
    outside = {
        v: Input(names.fresh(identifier(v.name)), v.type, v.loc)
        for v in _outside(kernel.members)
        if isinstance(v.type, TensorType)
    }
    inner: dict[Value, Value] = dict(outside)
    body: list[Node] = []
    for node in kernel.members:
        inner[node] = made = with_inputs(node, inner)
        body.append(made)
    results = tuple(inner[r] for r in kernel.results)
    graph = Graph(_name(kernel.members), tuple(outside.values()), tuple(body), results)
    last = kernel.members[-1]
    anchor = next((n for n in kernel.members if n.op.pattern in ANCHORS), last)
    name = last.name if len(kernel.results) == 1 else graph.name
    op = Fused(graph, anchor.op.schedule)
    return build(op, [new.get(v, v) for v in outside], name=name, loc=Derived("fuse", anchor.loc))


def _is_number(value: Value) -> bool:
    """A constant of one element is written into the kernel; larger ones are its inputs."""
    return isinstance(value, Constant) and value.array.size == 1


def _name(members: Sequence[Node]) -> str:
    """matmul_add_relu; of many members the first and last ops."""
    ops = [node.op.name for node in members]
    return "_".join(ops if len(ops) <= 5 else [*ops[:3], "etc", ops[-1]])
