"""Checks that type rules share: each raises a TypeRuleError naming the op, values and the rule.

    rules.elements(self, "float", a, b)             # one element type, a float: f32
    rules.broadcast(self, a, b)                     # (4, 1) and (3,) -> (4, 3)
    rules.axis(self, -1, rank=2)                    # 1; outside [-2, 1] is an error
    rules.finite(self, epsilon=self.epsilon)

Reads types, writes nothing. Treated in course chapter 01_graph_ir.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn, TypeAlias

from numpy.typing import NDArray

from minidlc.expr.index import Index
from minidlc.expr.types import Dim, DType, TensorType, dtype
from minidlc.graph.op import Op
from minidlc.support.errors import TypeRuleError

Values: TypeAlias = NDArray[Any]  # an array whose element type only its op knows
Shape: TypeAlias = tuple[Dim, ...]

ELEMENT, DIMS, RANK, SYMBOLIC, RANGE, FINITE = (
    "MDLC0202",
    "MDLC0203",
    "MDLC0204",
    "MDLC0205",
    "MDLC0209",
    "MDLC0210",
)
NUMBERS = ("float", "int", "uint")
INTEGERS = ("int", "uint")
ANY = (*NUMBERS, "bool")


def fail(op: Op, message: str, code: str, hint: str | None = None) -> NoReturn:
    """Raise the TypeRuleError `op: message`."""
    raise TypeRuleError(f"{op.name}: {message}", code=code, hint=hint)


def arity(op: Op, inputs: Sequence[object], count: int) -> None:
    """Require `count` inputs (MDLC0201)."""
    if len(inputs) != count:
        plural = "" if count == 1 else "s"
        fail(op, f"takes {count} input{plural}, got {len(inputs)}", "MDLC0201")


def elements(op: Op, kinds: Iterable[str], *types: TensorType) -> DType:
    """The one element type of all inputs, of one of these kinds (MDLC0202)."""
    kinds = (kinds,) if isinstance(kinds, str) else tuple(kinds)
    first = types[0].dtype
    for t in types:
        if t.dtype.kind not in kinds:
            fail(op, f"takes {' or '.join(kinds)} elements, got {t.dtype}", ELEMENT, "use cast")
        if t.dtype != first:
            hint = f"cast(…, to={first}) makes them equal"
            fail(op, f"element types differ: {first} and {t.dtype}", ELEMENT, hint)
    return first


def same_dim(a: Dim, b: Dim) -> bool:
    """True if two dims are equal for every value of the symbols in them."""
    if isinstance(a, int) and isinstance(b, int):
        return a == b  # by far the most calls
    return Index.of(a) == Index.of(b)


def broadcast(op: Op, *types: TensorType) -> Shape:
    """NumPy's rule: shapes aligned at the right, a 1 (or a missing dim) repeats (MDLC0203)."""
    shape: list[Dim] = [1] * max(t.rank for t in types)
    for t in types:
        for d, dim in enumerate(t.shape, len(shape) - t.rank):
            if same_dim(shape[d], 1):
                shape[d] = dim
            elif not same_dim(dim, 1) and not same_dim(dim, shape[d]):
                symbolic = not (isinstance(dim, int) and isinstance(shape[d], int))
                hint = (
                    "give the sizes: shapes={…}" if symbolic else "dims must be equal, or one is 1"
                )
                text = f"shapes do not broadcast: axis {d - len(shape)}: {shape[d]} and {dim}"
                fail(op, text, SYMBOLIC if symbolic else DIMS, hint)
    return tuple(shape)


def rank(op: Op, name: str, t: TensorType, *allowed: int) -> None:
    """Require the rank of input `name` to be one of `allowed` (MDLC0204)."""
    if t.rank not in allowed:
        wanted = " or ".join(map(str, allowed))
        hint = "reshape, squeeze and unsqueeze change the rank"
        fail(op, f"{name} must have rank {wanted}, got {t} of rank {t.rank}", RANK, hint)


def axis(op: Op, axis: int, rank: int, *, end: bool = False) -> int:
    """The axis counted from the front; `end` allows `rank` itself (MDLC0209)."""
    last = rank if end else rank - 1
    if rank == 0 and not end:
        fail(op, f"axis {axis} of a scalar, which has no axes", RANGE)
    if not -rank <= axis <= last:
        fail(op, f"axis {axis} is outside [{-rank}, {last}]", RANGE, f"the input has rank {rank}")
    return axis if end and axis == rank else axis % max(rank, 1)


def axes(op: Op, given: tuple[int, ...] | None, rank: int) -> tuple[int, ...]:
    """Axes counted from the front, sorted; None means all of them; twice the same is an error."""
    if given is None:
        return tuple(range(rank))
    result = tuple(sorted(axis(op, a, rank) for a in given))
    if len(set(result)) != len(result):
        fail(op, f"an axis is named twice in {given}", RANGE)
    return result


def reduced(op: Op, x: TensorType, given: tuple[int, ...] | None, keepdims: bool) -> TensorType:
    """Type of a reduction of `x`: each of its axes becomes a 1, or is dropped."""
    found = axes(op, given, x.rank)
    kept = ((1 if d in found else n) for d, n in enumerate(x.shape) if keepdims or d not in found)
    return x.with_shape(tuple(kept))


def finite(op: Op, **attributes: float | None) -> None:
    """Require attributes to be finite numbers, where given (MDLC0210)."""
    for name, value in attributes.items():
        if value is not None and not math.isfinite(value):
            hint = f"give {name} a finite value"
            fail(op, f"{name} must be a finite number, got {value}", FINITE, hint)


def count(op: Op, what: str, given: Sequence[int], wanted: int, least: int) -> None:
    """Require `wanted` integers, each at least `least` (MDLC0209)."""
    if len(given) != wanted:
        fail(op, f"{what} must have {wanted} entries, got {tuple(given)}", RANGE)
    if any(v < least for v in given):
        fail(op, f"{what} must be at least {least}, got {tuple(given)}", RANGE)


def element_of(x: Values) -> DType:
    """Element type of an array."""
    return dtype(x.dtype)
