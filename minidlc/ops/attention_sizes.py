"""The sizes of one use of attention, read from the types of its inputs and checked.

    s = sizes_of(op, q, k, v, past_key)             # s.heads, s.keys, s.scores, …

TypeRuleErrors say which input does not fit. Treated in course chapter 01_graph_ir.
"""

from __future__ import annotations

from dataclasses import dataclass

from minidlc.expr.types import TensorType
from minidlc.graph.op import Op
from minidlc.ops import rules


@dataclass(frozen=True)
class Sizes:
    """The sizes of one use; `packed`: inputs are [batch, sequence, heads * depth]."""

    packed: bool
    batch: int
    heads: int
    kv_heads: int
    queries: int
    past: int
    keys: int  # with those of the past
    depth: int
    value_depth: int

    @property
    def scores(self) -> tuple[int, ...]:
        """Shape of q @ k.T."""
        return self.batch, self.heads, self.queries, self.keys

    @property
    def y(self) -> tuple[int, ...]:
        """Shape of the first result."""
        if self.packed:
            return self.batch, self.queries, self.heads * self.value_depth
        return self.batch, self.heads, self.queries, self.value_depth

    def grouped(self, depth: int) -> tuple[int, ...]:
        """Rows of all query heads that share a key head, under each other."""
        return self.batch, self.kv_heads, self.heads // self.kv_heads * self.queries, depth

    def cache(self, length: int, depth: int) -> tuple[int, ...]:
        """Shape of keys or values of that many positions."""
        return self.batch, self.kv_heads, length, depth


def sizes_of(
    op: Op,
    heads: tuple[int, int],
    q: TensorType,
    k: TensorType,
    v: TensorType,
    past_key: TensorType | None,
) -> Sizes:
    """Check q, k and v against each other; `heads` are those of q and of k, 0 if not stated."""
    rules.rank(op, "q", q, 3, 4)
    batch, own, queries, depth = _split(op, "q", q, q.rank, heads[0])
    key = _split(op, "k", k, q.rank, heads[1])
    value = _split(op, "v", v, q.rank, heads[1])
    shared = (batch, key[1], key[2])
    for name, got, wanted in (("k", key, (*shared, depth)), ("v", value, (*shared, value[3]))):
        if got != wanted:
            text = f"{name} is {got} as (batch, heads, sequence, depth), expected {wanted}"
            rules.fail(op, text, rules.DIMS)
    if own % key[1]:
        text = f"{own} query heads cannot share {key[1]} key heads evenly"
        rules.fail(op, text, rules.DIMS)
    past = 0
    if past_key is not None:
        rules.rank(op, "past_key", past_key, 4)
        past = past_key.dims[2]
    packed = q.rank == 3
    return Sizes(packed, batch, own, key[1], queries, past, past + key[2], depth, value[3])


def _split(op: Op, name: str, t: TensorType, rank: int, heads: int) -> tuple[int, int, int, int]:
    """(batch, heads, sequence, depth) of one of q, k, v."""
    rules.rank(op, name, t, rank)
    count = "q_num_heads" if name == "q" else "kv_num_heads"
    if rank == 4:
        batch, found, sequence, depth = t.dims
        if heads not in (0, found) or not found:
            text = f"{name} {t} has {found} heads, {count} says {heads}"
            rules.fail(op, text, rules.DIMS)
        return batch, found, sequence, depth
    batch, sequence, hidden = t.dims
    if heads < 1 or hidden % heads:
        text = f"{name} {t} cannot be split into heads: {count} is {heads}"
        rules.fail(op, text, rules.RANGE, f"{count} must divide the last dim")
    return batch, heads, sequence, hidden // heads


def check_optional(
    op: Op,
    s: Sizes,
    mask: TensorType | None,
    past: tuple[TensorType | None, TensorType | None],
    lengths: TensorType | None,
) -> None:
    """The inputs that may be omitted fit the others."""
    if (past[0] is None) != (past[1] is None):
        rules.fail(op, "past_key and past_value come together, one is missing", "MDLC0201")
    for name, t, depth in (("key", past[0], s.depth), ("value", past[1], s.value_depth)):
        wanted = s.cache(s.past, depth)
        if t is not None and t.dims != wanted:
            rules.fail(op, f"past_{name} must be {wanted}, got {t}", rules.DIMS)
    if lengths is not None and past[0] is not None:
        rules.fail(op, "takes lengths or a past, not both", "MDLC0201")
    if lengths is not None and (lengths.dims != (s.batch,) or lengths.dtype.name != "i64"):
        rules.fail(op, f"lengths must be i64[{s.batch}], got {lengths}", rules.DIMS)
    if mask is None:
        return
    rules.elements(op, ("float", "bool"), mask)
    rules.rank(op, "mask", mask, 1, 2, 3, 4)
    fits = zip(mask.dims[:-1], s.scores[4 - mask.rank : -1], strict=True)
    if any(n not in (1, wanted) for n, wanted in fits) or mask.dims[-1] > s.keys:
        rules.fail(op, f"mask {mask} does not broadcast to {s.scores}", rules.DIMS)
