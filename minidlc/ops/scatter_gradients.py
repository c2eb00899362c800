"""The gradients of scatter: what was written gets the dy of its place, what was overwritten none.

    at = Places("scatter_nd", "gather_nd", {}, indices)
    dx, dupdates = GRADIENTS["add"](at, x, updates, y, dy)

One function for each reduction. All are written with gather and scatter at the same positions.
Treated in course chapter 03_autodiff.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from minidlc.graph.graph import Constant, Value, apply, tensor_type
from minidlc.ops.composing import cast_to, reshaped
from minidlc.ops.gradients import filled, where_true, zeros_like


@dataclass(frozen=True)
class Places:
    """The positions of one scatter: `writer` is its op, `reader` the op that reads there."""

    writer: str
    reader: str
    attributes: dict[str, Any]
    indices: Value

    def read(self, v: Value) -> Value:
        """For each update the element at its place."""
        return apply(self.reader, v, self.indices, **self.attributes)

    def write(self, x: Value, updates: Value, reduction: str) -> Value:
        """The updates combined with what is in x."""
        how = {**self.attributes, "reduction": reduction}
        return apply(self.writer, x, self.indices, updates, **how)

    def stays(self, x: Value, updates: Value) -> Value:
        """True for each update that no later one overwrites: its number is found at its place."""
        dims, rank = tensor_type(self.indices).dims, tensor_type(updates).rank
        table = tensor_type(x).dims
        if self.writer == "scatter_nd":  # one number for a slice
            table, dims = table[: dims[-1]], dims[:-1]
        numbers = Constant("number", np.arange(math.prod(dims)).reshape(dims))
        last = self.read(self.write(Constant("none", np.full(table, -1)), numbers, "none"))
        return reshaped(apply("equal", last, numbers), (*dims, *[1] * (rank - len(dims))))


def overwriting(at: Places, x: Value, updates: Value, y: Value, dy: Value) -> tuple[Value, Value]:
    """y[place] = the last update there: it alone gets the dy of its place, x that of the rest."""
    dx = at.write(dy, zeros_like(updates), "none")
    return dx, where_true(at.stays(x, updates), at.read(dy))


def adding(at: Places, x: Value, updates: Value, y: Value, dy: Value) -> tuple[Value, Value]:
    """y[place] = x[place] + updates: each term gets dy."""
    return dy, at.read(dy)


def multiplying(at: Places, x: Value, updates: Value, y: Value, dy: Value) -> tuple[Value, Value]:
    """y[place] = x[place] * updates: a factor gets dy times the others.

    The others are the product of all updates that are not 0, over this one; or 0 if another is 0.
    First derivatives are exact, also where updates are 0; second derivatives where none is.
    """
    is_zero = apply("equal", updates, 0.0)
    factors = apply("where", is_zero, 1.0, updates)
    zero, one = filled(0, tensor_type(x)), filled(1, tensor_type(x))
    product = at.read(dy * x * at.write(one, factors, "mul"))
    zeros = at.read(at.write(zero, cast_to(is_zero, tensor_type(x).dtype), "add"))
    alone = where_true(apply("equal", zeros, 1.0), product)  # the only 0 of its place
    others = where_true(apply("equal", zeros, 0.0), product / factors)
    dx = dy * at.write(one, updates, "mul")
    return dx, apply("where", is_zero, alone, others)


def choosing(at: Places, x: Value, updates: Value, y: Value, dy: Value) -> tuple[Value, Value]:
    """y[place] = the largest (or least) of x[place] and the updates: equal ones share dy evenly."""
    element = tensor_type(x).dtype
    kept, chosen = apply("equal", x, y), apply("equal", updates, at.read(y))
    count = at.write(cast_to(kept, element), cast_to(chosen, element), "add")
    share = dy / count
    return where_true(kept, share), where_true(chosen, at.read(share))


Gradient: TypeAlias = Callable[[Places, Value, Value, Value, Value], tuple[Value, Value]]

GRADIENTS: dict[str, Gradient] = {
    "none": overwriting,
    "add": adding,
    "mul": multiplying,
    "max": choosing,
    "min": choosing,
}
