"""Another build: Kahn first, to find cycles; costs in a heap whose stale entries are skipped."""

import heapq
import math

from minidlc.graph import Node, result_types
from minidlc.support.errors import VerifyError


def bytes_of(value):
    """Bytes of a value's elements; a symbol counts as a size of 1."""
    total = 0
    for t in result_types(value.type):
        total += t.dtype.itemsize * math.prod(d for d in t.shape if isinstance(d, int))
    return total


def needed_nodes(outputs):
    """Every needed node, in any order."""
    found, queue = {}, [v for v in outputs if isinstance(v, Node)]
    while queue:
        node = queue.pop()
        if node not in found:
            found[node] = list(dict.fromkeys(v for v in node.inputs if isinstance(v, Node)))
            queue.extend(found[node])
    return found


def refuse_cycles(reads):
    """Takes away nodes whose inputs are gone; from what is left, walk back until a node repeats."""
    left, users = {node: len(values) for node, values in reads.items()}, {n: [] for n in reads}
    for node, values in reads.items():
        for value in values:
            users[value].append(node)
    free = [node for node, count in left.items() if count == 0]
    while free:
        node = free.pop()
        del left[node]
        for user in users[node]:
            left[user] -= 1
            if left[user] == 0:
                free.append(user)
    if left:
        node, seen = next(iter(left)), set()
        while node not in seen:
            seen.add(node)
            node = next(v for v in reads[node] if v in left)
        raise VerifyError(f"'{node.name}' needs its own result", code="MDLC0402")
    return users


def ranks(outputs, reads):
    """Node -> its place in the depth-first walk."""
    places, stack = {}, list(reversed(outputs))
    while stack:
        node = stack[-1]
        late = [v for v in reads.get(node, ()) if v not in places]
        if node in reads and late:
            stack.append(late[0])
            continue
        stack.pop()
        if node in reads and node not in places:
            places[node] = len(places)
    return places


def order_nodes(outputs):
    """A heap of (growth, rank); an entry whose growth has changed meanwhile is pushed again."""
    reads = needed_nodes(outputs)
    users = refuse_cycles(reads)
    places = ranks(outputs, reads)
    open_reads = {node: len(values) for node, values in reads.items()}
    holders = {node: set(users[node]) | ({"out"} if node in outputs else set()) for node in reads}

    def cost(node):
        return bytes_of(node) - sum(bytes_of(v) for v in reads[node] if holders[v] == {node})

    heap = [(cost(node), places[node], node) for node in reads if open_reads[node] == 0]
    heapq.heapify(heap)
    order, placed = [], set()
    while heap:
        growth, _, node = heapq.heappop(heap)
        if node in placed or growth != cost(node):
            continue
        placed.add(node)
        order.append(node)
        for value in reads[node]:
            holders[value].discard(node)
            for user in users[value]:  # it may be the last reader now: a second entry
                if user not in placed and open_reads[user] == 0:
                    heapq.heappush(heap, (cost(user), places[user], user))
        for user in users[node]:
            open_reads[user] -= 1
            if open_reads[user] == 0:
                heapq.heappush(heap, (cost(user), places[user], user))
    return order
