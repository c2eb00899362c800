"""Other tensor expressions of the same results, which loops run through faster.

    with_flat_reductions(group)     # sum over h, w of x[h, w]  ->  sum over k of x[k // 7, k % 7]
    with_reciprocals(group)         # y[i, j] = e[i, j] / s[i]  ->  e[i, j] * r[i], r[i] = 1 / s[i]

What `Implementation.compute` may be. Readers of a tensor are rebuilt with it: tensors are
immutable. Treated in course chapter 04_lowering.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from minidlc.expr.index import Index, Var, substitute
from minidlc.expr.nodes import Binary, Expr, Load, Reduce, const
from minidlc.expr.types import TensorType
from minidlc.expr.walk import indices, map_indices, rewrite, walk
from minidlc.schedules.group import Group
from minidlc.schedules.offsets import goes_on
from minidlc.support.names import Names
from minidlc.te import Tensor, stages

Change = Callable[[Tensor, Names], Tensor]  # names that are taken, to add tensors of new ones


def rebuilt(group: Group, change: Change) -> Group:
    """The group with each computed tensor changed, inputs first."""
    order = stages(group.outputs)
    names = Names(t.name for t in order)
    new: dict[str, Tensor] = {}
    for old in order:
        inputs = tuple(new[t.name] for t in old.inputs)
        same = all(a is b for a, b in zip(inputs, old.inputs, strict=True))
        tensor = old if same else replace(old, inputs=inputs)
        new[old.name] = tensor if old.body is None else change(tensor, names)
    anchor = None if group.anchor is None else new[group.anchor.name]
    return replace(group, outputs=tuple(new[t.name] for t in group.outputs), anchor=anchor)


def with_flat_reductions(group: Group) -> Group:
    """Reductions over several axes that memory runs through as one, over one axis."""
    return rebuilt(group, lambda tensor, names: _flat(tensor))


def _flat(tensor: Tensor) -> Tensor:
    body = tensor.body
    if not isinstance(body, Reduce) or len(body.axes) < 2:
        return tensor
    dims = {t.name: t.shape for t in tensor.inputs}
    (outer, n), (inner, extent) = body.axes[-2:]
    if not n or not extent or not goes_on(body.body, dims, outer, inner, extent):
        return tensor
    both = Index.of(Var(Names((*tensor.axes, *dict(body.axes))).fresh(f"{outer}{inner}")))
    values = {Var(outer): both // extent, Var(inner): both % extent}
    element = map_indices(body.body, lambda e: substitute(e, values))
    axes = (*body.axes[:-2], (str(both), n * extent))
    return _flat(replace(tensor, body=Reduce(body.op, element, axes)))


def with_reciprocals(group: Group) -> Group:
    """Divisions of a row by one number, as products with its reciprocal: one division a row.

    The quotient is rounded twice: an error of at most 1.5 units in the last place.
    """
    return rebuilt(group, _multiplied)


def _multiplied(tensor: Tensor, names: Names) -> Tensor:
    assert tensor.body is not None
    made: list[Tensor] = []

    def step(e: Expr) -> Expr:
        if not (isinstance(e, Binary) and e.op == "/" and e.dtype.is_float):
            return e
        reciprocal = _reciprocal(tensor, e.b, names)
        if reciprocal is None:
            return e
        made.append(reciprocal)
        index = tuple(Index.of(Var(axis)) for axis in reciprocal.axes)
        return Binary("*", e.a, Load(reciprocal.name, index, e.dtype))

    body = rewrite(tensor.body, step)
    if not made:
        return tensor
    read = {e.buffer for e in walk(body) if isinstance(e, Load)}
    inputs = (*(t for t in tensor.inputs if t.name in read), *made)
    return replace(tensor, body=body, inputs=inputs)


def _reciprocal(tensor: Tensor, divisor: Expr, names: Names) -> Tensor | None:
    """1 / divisor as a tensor over the axes it depends on; None if that is no smaller tensor."""
    used = {v for e in walk(divisor) for index in indices(e) for v in index.vars()}
    read = {e.buffer for e in walk(divisor) if isinstance(e, Load)}
    computed = [t for t in tensor.inputs if t.name in read and t.body is not None]
    axes = [(a, n) for a, n in zip(tensor.axes, tensor.shape, strict=True) if Var(a) in used]
    if not computed or len(axes) == len(tensor.axes):
        return None
    if any(v not in {Var(a) for a, _ in axes} for v in used):
        return None  # also of a reduction axis: it is another number for each term
    one = const(1, divisor.dtype)
    return Tensor(
        names.fresh(f"{tensor.name}_factor"),
        TensorType(divisor.dtype, tuple(n for _, n in axes)),
        tuple(a for a, _ in axes),
        Binary("/", one, divisor),
        tuple(t for t in tensor.inputs if t.name in read),
    )
