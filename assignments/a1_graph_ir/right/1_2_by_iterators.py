"""Another build: an iterator for each open node; the set of live nodes is simulated."""

import math

from minidlc.graph import Node, result_types
from minidlc.support.errors import VerifyError


def bytes_of(value):
    """Bytes of a value's elements; a symbol counts as a size of 1."""
    total = 0
    for t in result_types(value.type):
        total += t.dtype.itemsize * math.prod(d for d in t.shape if isinstance(d, int))
    return total


def depth_first(outputs):
    """The needed nodes in the order of the plain walk."""
    done, path, open_nodes = {}, [], {}
    for output in outputs:
        path.append((None, iter([output])))
        while path:
            node, rest = path[-1]
            value = next(rest, "end")
            if isinstance(value, str):
                path.pop()
                open_nodes.pop(node, None)
                if node is not None:
                    done[node] = len(done)
            elif value in open_nodes:
                around = list(open_nodes)
                around = around[around.index(value) :]
                names = " <- ".join(repr(n.name) for n in around)
                raise VerifyError("a cycle: " + names, code="MDLC0402")
            elif isinstance(value, Node) and value not in done:
                open_nodes[value] = True
                path.append((value, iter(value.inputs)))
    return list(done)


def order_nodes(outputs):
    """Simulates each ready node on the set of live nodes."""
    walk = depth_first(outputs)
    after = {node: set() for node in walk}
    for node in walk:
        for value in node.inputs:
            if isinstance(value, Node):
                after[value].add(node)
    ends, alive, order, placed = set(outputs), set(), [], set()
    waiting = {node: {v for v in node.inputs if isinstance(v, Node)} for node in walk}

    def alive_with(node):
        extra = {node} if node in ends or after[node] else set()
        gone = {v for v in waiting[node] if v not in ends and after[v] <= placed | {node}}
        return sum(map(bytes_of, (alive | extra) - gone))

    ready = {node for node in walk if not waiting[node]}
    place = {node: n for n, node in enumerate(walk)}
    while ready:
        sizes = sorted((alive_with(n), place[n]) for n in ready) if len(ready) > 1 else [(0, -1)]
        best = walk[sizes[0][1]] if len(ready) > 1 else next(iter(ready))
        ready.discard(best)
        placed.add(best)
        order.append(best)
        alive.add(best)
        alive -= {v for v in waiting[best] if v not in ends and after[v] <= placed}
        ready |= {node for node in after[best] if waiting[node] <= placed}
    return order
