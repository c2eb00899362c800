"""Walks through the inputs from last to first."""

import math

from minidlc.graph import Node, result_types
from minidlc.support.errors import VerifyError


def bytes_of(value):
    """Bytes of a value's elements; a symbol counts as a size of 1."""
    total = 0
    for t in result_types(value.type):
        total += t.dtype.itemsize * math.prod(d for d in t.shape if isinstance(d, int))
    return total


def order_nodes(outputs):
    """All nodes that `outputs` need, inputs first, fewest live bytes first; a list."""
    walk, state, stack = [], {}, [(v, False) for v in reversed(outputs)]
    while stack:
        node, leaving = stack.pop()
        if leaving:
            state[node] = "done"
            walk.append(node)
        elif isinstance(node, Node) and state.get(node) == "open":
            raise VerifyError(f"cycle through {node.name!r}", code="MDLC0402")
        elif isinstance(node, Node) and node not in state:
            state[node] = "open"
            stack.append((node, True))
            stack += [(v, False) for v in node.inputs]

    reads = {node: {v for v in node.inputs if isinstance(v, Node)} for node in walk}
    readers = {node: [] for node in walk}
    for node in walk:
        for value in reads[node]:
            readers[value].append(node)
    missing = {node: len(reads[node]) for node in walk}  # not placed yet, of what it reads
    holders = {node: len(readers[node]) + (node in outputs) for node in walk}

    def growth(node):
        freed = [value for value in reads[node] if holders[value] == 1]
        return bytes_of(node) - sum(map(bytes_of, freed))

    order, rank = [], {node: i for i, node in enumerate(walk)}
    ready = [node for node in walk if not missing[node]]
    while ready:
        best = min(ready, key=lambda node: (growth(node), rank[node]))
        ready.remove(best)
        order.append(best)
        for value in reads[best]:
            holders[value] -= 1
        for reader in readers[best]:
            missing[reader] -= 1
            if not missing[reader]:
                ready.append(reader)
    return order
