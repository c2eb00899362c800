"""How much a kernel does: arithmetic operations, and the bytes it must move.

    flops(fn)                       # 2 * 64**3 for a product of 64 x 64 matrices
    compulsory_bytes(fn)            # every parameter read or written once

What the loops say is counted, not what the machine does: a function such as `exp` is one operation,
a fused multiply-add two. Where an extent is a minimum, its largest value counts. Reads loop IR.
Treated in course chapter 04_lowering.
"""

from __future__ import annotations

from minidlc.expr.index import Ranges, value_range
from minidlc.expr.nodes import Binary, Call, Expr
from minidlc.expr.walk import children
from minidlc.loop.nodes import Alloc, Block, For, If, LoopFunction, Stmt, Store, values


def flops(fn: LoopFunction) -> int:
    """Operations of one call: sums, products, quotients, minima and functions."""
    return _count(fn.body, {})


def compulsory_bytes(fn: LoopFunction) -> int:
    """Bytes of the parameters: what must move between memory and the cores at least."""
    return sum(p.type.nbytes for p in fn.params)


def _count(s: Stmt, ranges: Ranges) -> int:
    match s:
        case For(var, extent, _, body):
            span = value_range(extent, ranges)
            trips = max(span[1], 0) if span else 0
            inside = {**ranges, var: (0, max(trips - 1, 0))}
            return trips * _count(body, inside) if trips else 0
        case Alloc(body=body):
            return _count(body, ranges)
        case If(body=body):
            return _count(body, ranges) + sum(map(operations, values(s)))
        case Block(stmts):
            return sum(_count(child, ranges) for child in stmts)
        case Store():
            return sum(map(operations, values(s)))


def operations(e: Expr) -> int:
    """Arithmetic nodes; one that several others use is computed once."""
    found, seen, todo = 0, set[int](), [e]
    while todo:
        x = todo.pop()
        if id(x) not in seen:
            seen.add(id(x))
            found += isinstance(x, Binary | Call)
            todo += children(x)
    return found
