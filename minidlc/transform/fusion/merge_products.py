"""Horizontal fusion of products: siblings that read one value become one product.

    q = add(matmul(x, wq), bq); k = add(matmul(x, wk), bk); v = add(matmul(x, wv), bv)
 -> y = add(matmul(x, w), b)                        # w: the three stacked, f32[3, 1, 768, 768]
    q = squeeze(slice(y, 0, 1)); k = squeeze(slice(y, 1, 2)); v = squeeze(slice(y, 2, 3))

The input is read and packed once, and one kernel has all the work to share out to threads. The
weights are stacked, not put side by side: each part of the result is one piece of memory, so that
taking it apart need not move a byte. What follows each sibling alike, an op and constants, is
merged too. After Z. Jia et al., "TASO", SOSP 2019, and the dot merger of XLA.
Treated in course chapter 02_frontend_opt.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise

import numpy as np

from minidlc.expr.types import TensorType
from minidlc.graph.graph import Constant, Graph, Node, Value, apply, build, located, tensor_type
from minidlc.graph.inline import nodes_made, with_inputs
from minidlc.graph.structure import constant_key, op_key
from minidlc.ops.elementwise import Elementwise
from minidlc.ops.matmul import MatMul
from minidlc.support.locations import Derived
from minidlc.transform.log import Refusal, permitted, report
from minidlc.transform.pass_ import Pass, register_pass
from minidlc.transform.rebuild import regraph

RULE = "merge products"
Siblings = tuple[Node, ...]


@register_pass
@dataclass(frozen=True)
class MergeProducts(Pass):
    """Products of one value with constant matrices of one type become one product."""

    name = "merge_products"
    level = 2
    requires = ("decomposed",)

    def run(self, graph: Graph) -> Graph:
        """The graph with one chain for each family of siblings, and parts of its result."""
        families = [
            family
            for family in _families(graph)
            if permitted(f"{RULE} x{len(family)}", family[0].name, family[0].loc)
        ]
        return _merged(graph, families) if families else graph


def _families(graph: Graph) -> Iterator[Siblings]:
    """Two products or more of the same value with matrices of the same type."""
    found: dict[Value, dict[TensorType, list[Node]]] = {}
    for node in graph.nodes:
        match node:
            case Node(op=MatMul(), inputs=(x, Constant(type=t))) if x is not None:
                if t.rank == 2 and tensor_type(x).rank >= 2:
                    found.setdefault(x, {}).setdefault(t, []).append(node)
            case _:
                pass
    for alike in found.values():
        for t, nodes in alike.items():
            if len(nodes) > 1:
                yield tuple(nodes)
            elif len(alike) > 1:
                reason = f"its weights are {t}, those of its siblings are not"
                report(partial(Refusal, RULE, nodes[0].name, reason, nodes[0].loc))


def _merged(graph: Graph, families: list[Siblings]) -> Graph:
    """Each chain where the first of its siblings stood."""
    users, outputs = graph.users(), frozenset(graph.outputs)
    levels = {f[0]: [f, *_followers(f, users, outputs)] for f in families}
    gone = {n for chain in levels.values() for siblings in chain for n in siblings}
    new: dict[Value, Value] = {}
    nodes: dict[Node, None] = {}
    for node in graph.nodes:
        if node in levels:
            parts = _parts(levels[node], new)
            for part in parts:
                nodes |= dict.fromkeys(nodes_made(part, nodes))
            new |= dict(zip(levels[node][-1], parts, strict=True))
        elif node not in gone:
            moved = with_inputs(node, new)
            new[node] = moved
            nodes[moved] = None
    return regraph(graph, nodes, new)


def _followers(
    siblings: Siblings, users: Mapping[Value, Siblings], outputs: frozenset[Value]
) -> Iterator[Siblings]:
    """The readers of the siblings, then theirs, as long as each has one and all are alike."""
    while not outputs.intersection(siblings):
        readers = [users.get(s, ()) for s in siblings]
        if any(len(r) != 1 for r in readers):
            return
        following = tuple(r[0] for r in readers)
        forms = {_form(r, s) for r, s in zip(following, siblings, strict=True)}
        if None in forms or len(forms) > 1:
            return
        yield following
        siblings = following


def _form(reader: Node, sibling: Node) -> tuple[object, ...] | None:
    """What must be equal for readers to be merged; None if one cannot be."""
    if not isinstance(reader.op, Elementwise) or reader.type != sibling.type:
        return None
    if sum(v is sibling for v in reader.inputs) != 1:
        return None
    rank = tensor_type(sibling).rank
    places: list[object] = []
    for v in reader.inputs:
        if v is sibling:
            places.append("sibling")
        elif isinstance(v, Constant) and v.type.rank <= rank:
            places.append(v.type)
        elif v is None:
            places.append(None)
        else:
            return None
    return (op_key(reader.op), *places)


def _parts(levels: list[Siblings], new: Mapping[Value, Value]) -> list[Node]:
    """The merged chain, and of its result a part for each sibling of the last level."""
    first, last = levels[0], levels[-1]
    (x, _), rank = first[0].inputs, tensor_type(first[0]).rank
    assert x is not None
    whole = _merged_node(first, {x: new.get(x, x)}, rank)
    for before, siblings in pairwise(levels):
        whole = _merged_node(siblings, dict.fromkeys(before, whole), rank)
    parts: list[Node] = []
    for number, sibling in enumerate(last):
        with located(Derived("merge products", sibling.loc)):
            row = apply("slice", whole, starts=(number,), ends=(number + 1,), axes=(0,))
            parts.append(replace(apply("squeeze", row, axes=(0,)), name=sibling.name))
    return parts


def _merged_node(siblings: Siblings, new: Mapping[Value, Value], rank: int) -> Node:
    """One node for all siblings: the merged value in place of theirs, constants stacked."""
    first = siblings[0]
    inputs: list[Value | None] = []
    for place, value in enumerate(first.inputs):
        if isinstance(value, Constant):
            constants = [v for s in siblings if isinstance(v := s.inputs[place], Constant)]
            alike = len({constant_key(c) for c in constants}) == 1
            broadcasts = alike and not isinstance(first.op, MatMul)
            inputs.append(constants[0] if broadcasts else _stacked(constants, rank))
        else:
            inputs.append(None if value is None else new[value])
    loc = Derived("merge products", first.loc)
    return build(first.op, inputs, name=f"{first.name}_merged", loc=loc)


def _stacked(constants: list[Constant], rank: int) -> Constant:
    """Constants under a new first axis, in front of `rank` others."""
    first = constants[0]
    shape = (len(constants), *[1] * (rank - first.type.rank), *first.array.shape)
    array = np.stack([c.array for c in constants]).reshape(shape)
    return Constant(f"{first.name}_stacked", array, first.loc)
