"""Where the local buffers of a kernel live: registers, stack, or the kernel's workspace.

    where(alloc, spilled)                           # Scope.STACK, or ARENA if the stack is full
    workspace_bytes(fn, target, threads=2)          # what the caller must provide

Stack buffers beyond STACK_LIMIT move to the workspace, so a kernel can run on any thread's stack.
The workspace is laid out like a stack: a buffer lies behind those of the statements around it, and
buffers of statements one after another share memory. Buffers allocated inside a parallel loop get
one region per worker. Treated in course chapter 05_backend_opt.
"""

from __future__ import annotations

import math

from minidlc.expr.types import TensorType
from minidlc.loop.nodes import Alloc, Block, For, If, Kind, LoopFunction, Scope, Stmt, Store, walk
from minidlc.target import Target

ALIGNMENT = 64
STACK_LIMIT = 32 << 10


def align(n: int) -> int:
    """`n` rounded up to whole cache lines."""
    return -(-n // ALIGNMENT) * ALIGNMENT


def power_of_two(n: int) -> int:
    """The smallest power of two that is at least n."""
    return 1 << max(0, n - 1).bit_length()


def padded(last: int, lanes: int) -> int:
    """A row of `last` elements in whole vectors: 21 is 16 + 8 (5 of them used) at 16 lanes."""
    return last // lanes * lanes + (power_of_two(last % lanes) if last % lanes else 0)


def strides(dims: tuple[int, ...], lanes: int | None) -> tuple[int, ...]:
    """Elements between neighbours along each dim; rows of local buffers are whole vectors."""
    if not dims:
        return ()
    row = dims[-1] if lanes is None else padded(dims[-1], lanes)
    sizes = (*dims[1:-1], row) if len(dims) > 1 else ()
    return tuple(math.prod(sizes[d:]) for d in range(len(dims)))


def local_bytes(type: TensorType, lanes: int) -> int:
    """Bytes of a local buffer; a vector too much, so that whole vectors can be read anywhere."""
    dims = type.dims
    elements = strides(dims, lanes)[0] * dims[0] if len(dims) > 1 else 1
    if len(dims) == 1:
        elements = padded(dims[0], lanes)
    return align((elements + lanes) * type.dtype.itemsize)


def spilled(fn: LoopFunction, lanes: int) -> frozenset[tuple[str, TensorType]]:
    """The stack buffers that find no room on the stack and live in the workspace."""
    room, out = STACK_LIMIT, set[tuple[str, TensorType]]()
    stack = (s for s in walk(fn.body) if isinstance(s, Alloc) and s.scope is Scope.STACK)
    for key in dict.fromkeys((s.buffer, s.type) for s in stack):
        size = local_bytes(key[1], lanes)
        if size > room:
            out.add(key)
        else:
            room -= size
    return frozenset(out)


def where(alloc: Alloc, spilled: frozenset[tuple[str, TensorType]]) -> Scope:
    """The scope a buffer really gets."""
    return Scope.ARENA if (alloc.buffer, alloc.type) in spilled else alloc.scope


def workspace_bytes(fn: LoopFunction, target: Target, threads: int = 1) -> int:
    """Bytes of workspace (64-byte aligned) that a call of the kernel with `threads` needs."""
    lanes = target.lanes(32)
    return WorkspaceSize(lanes, spilled(fn, lanes)).end(fn.body, 0, threads)


class WorkspaceSize:
    """Computes where the workspace of a statement ends."""

    def __init__(self, lanes: int, spilled: frozenset[tuple[str, TensorType]]) -> None:
        self.lanes = lanes
        self.spilled = spilled

    def end(self, s: Stmt, offset: int, threads: int) -> int:
        """End of the workspace of `s` when it starts at `offset`; `threads` 0 inside parallel."""
        match s:
            case Alloc(type=type, body=body):
                if where(s, self.spilled) is Scope.ARENA:
                    offset += local_bytes(type, self.lanes)
                return max(offset, self.end(body, offset, threads))
            case For(kind=Kind.PARALLEL, body=body) if threads:
                return offset + threads * self.per_worker(body)
            case For(body=body) | If(body=body):
                return self.end(body, offset, threads)
            case Block(stmts):
                return max((self.end(x, offset, threads) for x in stmts), default=offset)
            case Store():
                return offset

    def per_worker(self, body: Stmt) -> int:
        """Bytes each worker needs inside a parallel loop."""
        return self.end(body, 0, 0)
