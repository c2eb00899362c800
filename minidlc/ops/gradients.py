"""Steps that gradients of many ops share: undoing a broadcast, zeros, masks.

    summed_to(dy, x)                                # dy of a broadcast x, back in the shape of x
    zeros_like(x)                                   # 0 in every place, as a value
    where_true(x > 0, dy)                           # dy where the condition holds, else 0

A rule `gradient(self, y, dy)` stands in the class of its op. `y` is the node, its inputs are
`y.inputs`; `dy` says how much the loss changes with each element of y. It returns one value of the
input's type for each input, None where the result does not depend on it smoothly (then 0 flows).
For an op with several results `dy` is a tuple, None for a result that the loss does not read.
A rule is linear in dy, and made of ops that have gradients: so forward mode and second derivatives
need no rules of their own.

At a kink a rule gives one of the slopes that there are: relu, clip, abs and norms 0, of equal
elements in max each an even share, in maximum(a, b) half. Jumps (round, sign) count as flat.
NaN: a rule that multiplies by a slope passes it on (exp, abs). One that compares finds no element
to send dy to and gives 0 (relu, clip, max, min); max_pool shares dy in the window; forward mode may
give NaN there. Whether a loss is NaN its value says, not its gradient.
Treated in course chapter 03_autodiff.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from minidlc.expr.types import TensorType
from minidlc.graph.graph import Constant, Node, Value, apply, tensor_type
from minidlc.ops.composing import in_wide, narrowed, scalar

Grads: TypeAlias = tuple[Value | None, ...]
"""What a rule returns: for each input how the loss changes with it; None: not at all."""


def given(y: Node) -> tuple[Value, ...]:
    """The inputs of a node, of which none is left out."""
    assert all(v is not None for v in y.inputs), f"{y.op.name} is applied without an input"
    return tuple(v for v in y.inputs if v is not None)


def chained(y: Node, dy: Value, rule: Callable[[Value, Value, Value], Value]) -> Grads:
    """Of an op of one input: `rule(dy, x, y)`, in the type that y is computed in (f16: in f32)."""
    (x,) = given(y)
    return (narrowed(rule(in_wide(dy), in_wide(x), in_wide(y)), x),)


def filled(number: float, like: TensorType) -> Value:
    """This number in every place of a tensor of this type."""
    number_ = scalar(number, like.dtype)
    return number_ if like.rank == 0 else apply("expand", number_, shape=like.dims)


def zeros_like(x: Value) -> Value:
    """Zeros in the type of `x`."""
    return filled(0, tensor_type(x))


def summed_to(dx: Value, x: Value) -> Value:
    """`dx`, which has the shape that `x` was broadcast to, summed back to the shape of `x`.

    An element that was read n times moves n results, so what it is due is the sum of their n dy.
    """
    wide, shape = tensor_type(dx).shape, tensor_type(x).shape
    if wide == shape:
        return dx
    ahead = len(wide) - len(shape)
    axes = [*range(ahead)]
    axes += [ahead + d for d, n in enumerate(shape) if n != wide[ahead + d]]
    if len(axes) == ahead:
        return apply("sum", dx, axes=tuple(axes), keepdims=False)
    total = apply("sum", dx, axes=tuple(axes), keepdims=True)
    return total if not ahead else apply("reshape", total, shape=tensor_type(x).dims)


def spread(dy: Value, x: Value, axes: Sequence[int], keepdims: bool) -> Value:
    """`dy` of a reduction of `x` over `axes`, repeated along them: the opposite of a sum."""
    dims = tensor_type(x).dims
    kept = tuple(1 if d in axes else n for d, n in enumerate(dims))
    as_it_is = keepdims or not axes or not tensor_type(dy).rank
    column = dy if as_it_is else apply("reshape", dy, shape=kept)
    return apply("expand", column, shape=dims)


def where_true(condition: Value, dy: Value) -> Value:
    """`dy` where the condition holds, 0 elsewhere, also where dy is NaN or infinite there."""
    return apply("where", condition, dy, 0)


def constant(array: object, like: Value) -> Constant:
    """An array known now, in the element type of a value."""
    return Constant("c", np.asarray(array, tensor_type(like).dtype.numpy))
