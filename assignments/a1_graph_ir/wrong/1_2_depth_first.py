"""Returns the depth-first walk itself, as the shipped order does."""

from minidlc.graph import Node
from minidlc.support.errors import VerifyError


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
            stack += [(v, False) for v in reversed(node.inputs)]

    return walk
