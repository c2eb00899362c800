"""Fusion that stitches kernels together: several results, siblings, rows of several reductions.

    m = max(x); d = sub(x, m); e = exp(d); s = sum(e); y = div(e, s)        # five ops over rows
 -> y = fused(x, body=max_sub_exp_etc_div)
    a = exp(x); b = relu(x)   ->   a, b = fused(x, body=exp_relu)           # siblings, one pass

Starts from the groups of the style `tvm`, and joins two of them, a producer and a reader or two
readers of one value, while the whole is of a form that one pass over memory computes:

    pointwise   light ops of one shape
    tiles       one product, and what is light and computed from its result
    rows        reductions along the last axes of one shape, what is light over it or has one
                element a row, and ops that work on rows (softmax, layer_norm)

A value that others read as well becomes one more result of the kernel; it does not stop the fusion.
What saves most bytes comes first; nothing is computed twice. After Z. Zheng et al.,
"FusionStitching", arXiv:2009.10924, 2020, and "AStitch", ASPLOS 2022; siblings as in A. Li et al.,
"HFUSE: Automatic Horizontal Fusion for GPU Kernels", arXiv:2007.01277, 2020.
Reads a graph, changes nothing. Treated in course chapter 02_frontend_opt.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

from minidlc.expr.types import TensorType
from minidlc.graph.graph import Graph, Node, Value
from minidlc.graph.op import Pattern
from minidlc.ops import rules
from minidlc.ops.normalization import LayerNorm, RmsNorm
from minidlc.ops.reduction import AlongAxis, Reduction
from minidlc.transform.fusion.fusion_costs import nbytes
from minidlc.transform.fusion.fusion_groups import find_groups
from minidlc.transform.fusion.fusion_plan import ANCHORS, LIGHT, FusionPlan, Kernel, not_fusable
from minidlc.transform.log import Pair

MAX_RESULTS = 4  # arrays written side by side: more, and they push each other out of the cache
LEAST_ROW = 32  # elements: shorter rows are a few vectors, and each costs a loop for every result


@dataclass
class _Stitching:
    """Disjoint groups of nodes (shared lists), joined while forms allow it."""

    graph: Graph
    max_ops: int
    group: dict[Node, list[Node]]

    def __post_init__(self) -> None:
        self.users = self.graph.users()
        self.outputs = frozenset(self.graph.outputs)
        self.position = {n: i for i, n in enumerate(self.graph.nodes)}

    def run(self) -> Iterator[Pair]:
        """Join by bytes saved; yields what was decided on siblings, readers of one value."""
        todo = sorted(self.candidates(), key=lambda c: -c[0])
        again = True
        while again:  # what is joined now may make room for what was refused
            again = False
            for saved, a, b in todo:
                if self.group[a] is self.group[b]:
                    continue
                reason = self.against(a, b)
                if reason is None:
                    self.join(a, b)
                    again = True
                    if not self.is_read_by(a, b):
                        yield Pair(a.name, b.name, True, "both read the same value", saved, 0)
        for saved, a, b in todo:
            reason = None if self.is_read_by(a, b) else self.against(a, b)
            if reason and self.group[a] is not self.group[b]:
                yield Pair(a.name, b.name, False, f"siblings: {reason}", saved, 0)

    def candidates(self) -> Iterator[tuple[int, Node, Node]]:
        """(bytes saved, node, node): each node with its readers, and readers of one value."""
        values = (*self.graph.inputs, *self.graph.nodes)
        for value in values:
            readers = [n for n in self.users.get(value, ()) if not_fusable(n) is None]
            size = nbytes(value) or 0
            if isinstance(value, Node) and not_fusable(value) is None:
                yield from ((size, value, reader) for reader in readers)
            yield from ((size, a, b) for a, b in pairwise(readers))

    def is_read_by(self, a: Node, b: Node) -> bool:
        """True if `b` reads `a`."""
        return any(v is a for v in b.inputs)

    def against(self, a: Node, b: Node) -> str | None:
        """Why the groups of two nodes cannot be one; None if they can."""
        merged = self.merged(a, b)
        if len(merged) > self.max_ops:
            return f"the group would have {len(merged)} ops, max_ops is {self.max_ops}"
        results = self.results(merged)
        if len(results) > MAX_RESULTS:
            return f"the group would have {len(results)} results, more than {MAX_RESULTS}"
        return form_against(merged, results) or self.cycle(merged)

    def merged(self, a: Node, b: Node) -> list[Node]:
        """The members of both groups, in execution order."""
        return sorted({*self.group[a], *self.group[b]}, key=self.position.__getitem__)

    def join(self, a: Node, b: Node) -> None:
        """Make one group of two."""
        merged = self.merged(a, b)
        for node in merged:
            self.group[node] = merged

    def results(self, members: Iterable[Node]) -> tuple[Node, ...]:
        """The members that somebody outside reads, or nobody at all, in execution order."""
        inside = set(members)

        def leaves(node: Node) -> bool:
            readers = self.users.get(node, ())
            return node in self.outputs or not readers or not inside.issuperset(readers)

        return tuple(filter(leaves, members))

    def cycle(self, members: list[Node]) -> str | None:
        """The node outside that needs a member and is needed by another; None if there is none.

        Groups run as a whole: whoever needs one member needs them all.
        """
        inside = set(members)
        stack = [r for n in members for r in self.users.get(n, ()) if r not in inside]
        seen = {id(self.group[node]) for node in stack}
        while stack:
            node = stack.pop()
            for reader in (r for n in self.group[node] for r in self.users.get(n, ())):
                if reader in inside:
                    return f"{node.name} lies between: it would have to run in the midst"
                if id(self.group[reader]) not in seen:
                    seen.add(id(self.group[reader]))
                    stack.append(reader)
        return None


def form_against(members: list[Node], results: tuple[Node, ...]) -> str | None:
    """Why members are of none of the forms that run in one pass; None if they are."""
    heavy = [n for n in members if n.op.pattern in ANCHORS]
    reason = next(filter(None, map(_op_against, members)), None)
    if reason is not None:
        return reason
    if any(n.op.pattern is Pattern.OUT_FUSABLE for n in heavy):
        return _against_tiles(members, heavy, len(results))
    shape = next(map(_rows_of, heavy), _shape(results[-1]))
    if not shape or not all(isinstance(d, int) for d in shape):
        return "sizes are not known, or there is no axis"
    axes = next(map(_reduced, heavy), None)
    row = shape if axes is None else tuple(1 if a in axes else d for a, d in enumerate(shape))
    for n in members:
        if n in heavy and (_rows_of(n), _reduced(n)) != (shape, axes):
            return f"{n.name} has other rows than {heavy[0].name}"
        if n not in heavy and _shape(n) not in (shape, row):
            return f"{n.name} has another shape, {n.type}"
    sizes = [d for d in row if isinstance(d, int)]
    if len(results) > 1 and not heavy and sizes[-1] < LEAST_ROW:
        return f"rows of {sizes[-1]} are too short for several results"
    if len(results) > 1 and heavy and math.prod(sizes) == 1:
        return "one row: threads share it, in one reduction after another"
    return None


def _against_tiles(members: list[Node], heavy: list[Node], results: int) -> str | None:
    """Why members are not one anchor, and what is computed from the tiles of its result."""
    if len(heavy) > 1:
        return f"{heavy[0].name} and {heavy[1].name} both need a loop nest of their own"
    (anchor,) = heavy
    if results > 1 and anchor.op.schedule != "matmul":
        return f"the schedules of {anchor.op.name} store one result"
    after = {anchor}
    for n in members:
        if n not in after and after.isdisjoint(n.inputs):
            return f"{n.name} does not follow {anchor.name}"
        after.add(n)
        if _shape(n) != _shape(anchor):
            return f"{n.name} has another shape, {n.type}"
    return None


def _op_against(node: Node) -> str | None:
    """Why an op is in no stitched kernel; None if it may be."""
    reason = not_fusable(node)
    if reason is not None:
        return reason
    if node.op.pattern is Pattern.OUT_FUSABLE:
        return None
    if node.op.pattern in ANCHORS:
        return None if _reduced(node) else f"{node.name} has loops of its own, not one over rows"
    light = node.op.pattern in LIGHT
    return None if light else f"{node.op.name} is {node.op.pattern}: it moves elements"


def _reduced(node: Node) -> tuple[int, ...] | None:
    """The axes over which an op works on rows: the last ones of its first input; else None."""
    x, op = node.inputs[0], node.op
    rank = len(_shape(x))
    match op:
        case Reduction(keepdims=True):
            axes = rules.axes(op, op.axes, rank)
        case AlongAxis(axis=axis):
            axes = (axis % rank,)
        case LayerNorm(axis=axis) | RmsNorm(axis=axis):
            axes = tuple(range(axis % rank, rank))
        case _:
            return None
    return axes if axes and axes == tuple(range(rank - len(axes), rank)) else None


def _rows_of(node: Node) -> tuple[object, ...]:
    return _shape(node.inputs[0])


def _shape(value: Value | None) -> tuple[object, ...]:
    return value.type.shape if value is not None and isinstance(value.type, TensorType) else ()


def stitch_plan(graph: Graph, max_ops: int) -> FusionPlan:
    """The groups of the style `tvm`, stitched."""
    groups = find_groups(graph, max_ops)
    stitching = _Stitching(graph, max_ops, {n: list(groups.of(n)) for n in graph.nodes})
    for node in graph.nodes:
        shared = stitching.group[groups.of(node)[0]]
        stitching.group[node] = shared
    siblings = list(stitching.run())
    kept = {id(g): g for g in stitching.group.values() if len(g) > 1}
    kernels = tuple(Kernel(tuple(g), stitching.results(g)) for g in kept.values())
    return FusionPlan(kernels, (*_decided(groups.pairs(), stitching), *siblings))


def _decided(pairs: Iterable[Pair], stitching: _Stitching) -> Iterator[Pair]:
    """The pairs of the style `tvm`, with what stitching made of those refused."""
    nodes = ((n, r) for n in stitching.graph.nodes for r in stitching.users.get(n, ()))
    for pair, (node, reader) in zip(pairs, nodes, strict=True):
        if pair.fused:
            yield pair
        elif stitching.group[node] is stitching.group[reader]:
            yield replace(pair, fused=True, reason="stitched: one pass stores what others read")
        else:
            reason = stitching.against(node, reader)
            yield replace(pair, reason=f"{pair.reason}; {reason}" if reason else pair.reason)
