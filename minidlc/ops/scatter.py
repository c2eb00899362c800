"""Ops that write at positions given as values: scatter_elements, scatter_nd, tensor_scatter.

    apply("scatter_nd", x, indices, updates)        # y = x; y[indices[i]] = updates[i] for each i
    apply("scatter_elements", x, indices, updates, axis=1, reduction="add")
    apply("tensor_scatter", cache, new, begins)     # new rows into a cache, at begins[b]

Updates are made one after another, in the order of `indices`: of several at one place the last
stays, or all are combined (`reduction`). A negative position counts from the end; one outside is a
CallError (MDLC0909). Reads values, writes tensors. Treated in course chapter 01_graph_ir.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from minidlc.expr.index import Cond, Index
from minidlc.expr.nodes import Expr, IndexValue, call, const, select
from minidlc.expr.types import DType, TensorType, i64
from minidlc.graph.graph import Constant, Node, Value, apply, build, tensor_type
from minidlc.graph.op import Example, Op, Pattern, Positions, register_op
from minidlc.loop.nodes import LoopFunction
from minidlc.ops import rules, samples
from minidlc.ops.composing import cast_to, reshaped
from minidlc.ops.elementwise import axis_names, to, wide
from minidlc.ops.gradients import Grads, given, zeros_like
from minidlc.ops.indexing import are_positions, places_along, tuples, within
from minidlc.ops.nests import function, in_vectors, nest, serial, shared
from minidlc.ops.rules import Values
from minidlc.ops.scatter_gradients import GRADIENTS, Places
from minidlc.te import functions
from minidlc.te.tensor import Tensor, compute

# reduction -> what of the old and the new value stays, as loop text and in NumPy
_TEXT = {
    "none": "{new}",
    "add": "{old} + {new}",
    "mul": "{old} * {new}",
    "max": "max({old}, {new})",
    "min": "min({old}, {new})",
}


def _new(old: Any, new: Any) -> Any:
    return new


_NUMPY: dict[str, Callable[..., Any]] = {
    "none": _new,
    "add": np.add,
    "mul": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
}


def copy_of(x: TensorType) -> list[str]:
    """The loops of y = x."""
    loops, at = in_vectors(axis_names(x.rank), x.dims)
    place = ", ".join(at)
    return nest(shared(loops, x.size), f"y[{place}] = x[{place}]")


def from_front(position: str, element: DType, size: int) -> str:
    """A position, which may count from the end, as a place on an axis of `size`."""
    value = position if element == i64 else f'cast("i64", {position})'
    return f"at(where({value} < 0, {value} + {size}, {value}), {size})"


def combined(reduction: str, element: DType, old: str, new: str) -> str:
    """What stays of two values; f16 and bf16 are computed in f32 and rounded each time."""
    kind = wide(element)
    if reduction == "none" or kind == element:
        return _TEXT[reduction].format(old=old, new=new)
    old, new = (f'cast("{kind}", {value})' for value in (old, new))
    return f'cast("{element}", {_TEXT[reduction].format(old=old, new=new)})'


@dataclass(frozen=True)
class Scatter(Op):
    """Base: y is a copy of x; then for each update, y[place] = combine(y[place], update)."""

    def check_updates(
        self, x: TensorType, updates: TensorType, shape: rules.Shape, reduction: str
    ) -> None:
        """Require updates of this shape, and a known reduction."""
        rules.elements(self, rules.ANY, x, updates)
        if reduction not in _TEXT:
            text = f"reduction {reduction!r} is none of {', '.join(_TEXT)}"
            rules.fail(self, text, rules.RANGE)
        same = updates.rank == len(shape) and all(map(rules.same_dim, updates.shape, shape))
        if not same:
            text = f"updates must be {x.with_shape(tuple(shape))}, got {updates}"
            rules.fail(self, text, rules.DIMS)

    def places(self, x: Values, indices: Values) -> Iterable[tuple[Any, Any]]:
        """(position in indices and updates, position in x), in the order of the updates."""
        raise NotImplementedError

    def scattered(self, x: Values, indices: Values, updates: Values, reduction: str) -> Values:
        """The reference."""
        y, combine = x.copy(), _NUMPY[reduction]
        for update, place in self.places(x, indices):
            y[place] = combine(y[place], updates[update])
        return y

    def function(self, updating: list[str], *types: TensorType) -> LoopFunction:
        """The loops: a copy, then `updating`, unless there is no place to update."""
        x, indices, updates = types
        params = {"x": x, "indices": indices, "updates": updates, "y": x}
        return function(self.name, params, [*copy_of(x), *updating] if x.size else [])


@register_op
@dataclass(frozen=True)
class ScatterElements(Scatter):
    """scatter_elements(x, indices, updates) = x, then y[i, indices[i, j]] = updates[i, j].

    Here for `axis` 1 of matrices; the updates in order, combined with what is there (`reduction`).
    """

    onnx = "ScatterElements"
    axis: int = 0
    reduction: str = "none"

    def type_rule(self, x: TensorType, indices: TensorType, updates: TensorType) -> TensorType:
        within(self, x, "indices", indices, self.axis)
        self.check_updates(x, updates, indices.shape, self.reduction)
        return x

    def positions(
        self, x: TensorType, indices: TensorType, updates: TensorType
    ) -> tuple[Positions, ...]:
        return places_along(x, self.axis)

    def places(self, x: Values, indices: Values) -> Iterable[tuple[Any, Any]]:
        axis = self.axis % x.ndim
        for at in np.ndindex(indices.shape):
            yield at, (*at[:axis], indices[at], *at[axis + 1 :])

    def reference(self, x: Values, indices: Values, updates: Values) -> Values:
        return self.scattered(x, indices, updates, self.reduction)

    def loops(self, x: TensorType, indices: TensorType, updates: TensorType) -> LoopFunction:
        """After the copy, for axis 0: `y[at(indices[i, j], 5), j] = updates[i, j]` for i, j."""
        axis, at = self.axis % x.rank, list(axis_names(x.rank))
        loops = serial(at, updates.dims)
        if any(n > 1 for n in updates.dims[:axis]):  # other rows of x: no two meet
            loops = shared(loops, updates.size)
        here = ", ".join(at)
        at[axis] = from_front(f"indices[{here}]", indices.dtype, x.dims[axis])
        y = f"y[{', '.join(at)}]"
        value = combined(self.reduction, x.dtype, y, f"updates[{here}]")
        return self.function(nest(loops, f"{y} = {value}"), x, indices, updates)

    def gradient(self, y: Node, dy: Value) -> Grads:
        x, indices, updates = given(y)
        at = Places(self.name, "gather_elements", {"axis": self.axis}, indices)
        dx, new = GRADIENTS[self.reduction](at, x, updates, y, dy)
        return dx, None, new

    @classmethod
    def examples(cls) -> Iterable[Example]:
        """Every axis and reduction, places written twice, from the end, none; all types."""
        x = samples.array((5, 4, 3))
        for axis, size in ((0, 5), (1, 4), (2, 3), (-2, 4)):
            for shape in ((5, 4, 3), (2, 3, 1), (1, 1, 1), (0, 2, 2)):
                updates = samples.array(shape, seed=1)
                for reduction in ("none", "add"):
                    at = samples.positions(shape, size)
                    yield Example(cls(axis, reduction), (x, at, updates), 0, 0)
        for reduction in _TEXT:
            for element in ("f32", "f64", "f16", "bf16", "i64", "i8", "u8", "bool"):
                line = samples.array((7,), element, -9, 9)
                updates = samples.array((40,), element, -9, 9)
                at = samples.positions((40,), 7).astype(np.int32)
                yield Example(cls(0, reduction), (line, at, updates), 0, 0)
        none = np.zeros((0, 2), np.int64)
        yield Example(cls(1), (samples.array((0, 3)), none, samples.array((0, 2))), 0, 0)


@register_op
@dataclass(frozen=True)
class ScatterNd(Scatter):
    """scatter_nd(x, indices, updates) = x, then y[*indices[i…, :], r…] = updates[i…, r…].

    The last axis of `indices` holds tuples of positions; the updates in order, combined with what
    is there (`reduction`).
    """

    onnx = "ScatterND"
    reduction: str = "none"

    def type_rule(self, x: TensorType, indices: TensorType, updates: TensorType) -> TensorType:
        count = tuples(self, x, indices, 0)
        shape = (*indices.shape[:-1], *x.shape[count:])
        self.check_updates(x, updates, shape, self.reduction)
        return x

    def positions(
        self, x: TensorType, indices: TensorType, updates: TensorType
    ) -> tuple[Positions, ...]:
        sizes = x.dims[: indices.dims[-1]]
        return (Positions(1, tuple(-n for n in sizes), sizes),)

    def places(self, x: Values, indices: Values) -> Iterable[tuple[Any, Any]]:
        for at in np.ndindex(indices.shape[:-1]):
            yield at, tuple(indices[at])

    def reference(self, x: Values, indices: Values, updates: Values) -> Values:
        return self.scattered(x, indices, updates, self.reduction)

    def loops(self, x: TensorType, indices: TensorType, updates: TensorType) -> LoopFunction:
        """After the copy: `y[at(indices[i, 0], 5), j] = updates[i, j]` for i, and j in vectors."""
        axes, rank = axis_names(updates.rank), indices.rank - 1
        tuple_at = list(axes[:rank])
        loops = serial(tuple_at, indices.dims)
        inner, slice_at = in_vectors(axes[rank:], updates.dims[rank:])
        places = [
            from_front(f"indices[{', '.join([*tuple_at, str(n)])}]", indices.dtype, size)
            for n, size in enumerate(x.dims[: indices.dims[-1]])
        ]
        y = f"y[{', '.join([*places, *slice_at])}]"
        new = f"updates[{', '.join([*tuple_at, *slice_at]) or '()'}]"
        value = combined(self.reduction, x.dtype, y, new)
        return self.function(nest([*loops, *inner], f"{y} = {value}"), x, indices, updates)

    def gradient(self, y: Node, dy: Value) -> Grads:
        x, indices, updates = given(y)
        at = Places(self.name, "gather_nd", {}, indices)
        dx, new = GRADIENTS[self.reduction](at, x, updates, y, dy)
        return dx, None, new

    @classmethod
    def examples(cls) -> Iterable[Example]:
        """Tuples of 1 to 3 positions, elements and slices, every reduction, none; all types."""
        x = samples.array((5, 4, 3))
        for reduction in _TEXT:
            for shape in ((1,), (7, 1), (2,), (2, 3, 2), (3,), (40, 3), (0, 2)):
                sizes = x.shape[: shape[-1]]
                at = [samples.positions(shape[:-1], n, seed=n) for n in sizes]
                updates = samples.array((*shape[:-1], *x.shape[shape[-1] :]), seed=1)
                yield Example(cls(reduction), (x, np.stack(at, -1), updates), 0, 0)
            for element in ("f64", "f16", "bf16", "i64", "u8", "bool"):
                table = samples.array((4, 35), element, -9, 9)
                at, updates = np.array([[1], [-1], [1]]), samples.array((3, 35), element, -9, 9, 1)
                yield Example(cls(reduction), (table, at, updates), 0, 0)
        none = np.zeros((0, 1), np.int64)
        yield Example(cls(), (samples.array((0, 3)), none, samples.array((0, 3))), 0, 0)
        yield Example(cls(), (samples.array((1,)), np.array([[-1]]), samples.array((1,))), 0, 0)


@register_op
@dataclass(frozen=True)
class TensorScatter(Op):
    """tensor_scatter(x, updates, begins)[b, s] = updates[b, s - begins[b]], or x[b, s] outside it.

    Here for `axis` 1. Without `begins` the updates begin at 0. In the mode circular they go on at
    the front of x where it ends; in the mode linear they have to fit.
    """

    onnx = "TensorScatter"
    pattern = Pattern.INJECTIVE
    optional = (2,)
    axis: int = -2
    mode: str = "linear"

    def type_rule(
        self, x: TensorType, updates: TensorType, begins: TensorType | None = None
    ) -> TensorType:
        axis = rules.axis(self, self.axis, x.rank)
        if axis == 0:
            rules.fail(self, "axis 0 is that of the batch", rules.RANGE)
        if self.mode not in ("linear", "circular"):
            rules.fail(self, f"mode {self.mode!r} is neither linear nor circular", rules.RANGE)
        rules.elements(self, rules.ANY, x, updates)
        rules.rank(self, "updates", updates, x.rank)
        for d, (n, m) in enumerate(zip(x.shape, updates.shape, strict=True)):
            fits = isinstance(n, int) and isinstance(m, int) and m <= n
            if not (rules.same_dim(n, m) or (d == axis and fits)):
                text = f"axis {d} of updates has size {m}, that of x {n}"
                rules.fail(self, text, rules.DIMS)
        if begins is not None:
            are_positions(self, "begins", begins)
            if begins.rank != 1 or not rules.same_dim(begins.shape[0], x.shape[0]):
                text = f"begins must have shape [{x.shape[0]}], one for each batch, got {begins}"
                rules.fail(self, text, rules.DIMS)
        return x

    def positions(
        self, x: TensorType, updates: TensorType, begins: TensorType | None = None
    ) -> tuple[Positions, ...]:
        if begins is None or self.mode == "circular":
            return ()
        return (Positions(2, 0, x.dims[self.axis] - updates.dims[self.axis] + 1),)

    def reference(self, x: Values, updates: Values, begins: Values | None = None) -> Values:
        y, axis = x.copy(), self.axis % x.ndim - 1  # of one batch
        size, count = x.shape[axis + 1], updates.shape[axis + 1]
        for b in range(len(x)):
            begin = 0 if begins is None else int(begins[b])  # Python's integers: no overflow
            rows, new = np.moveaxis(y[b], axis, 0), np.moveaxis(updates[b], axis, 0)
            for n in range(count):
                rows[(begin + n) % size] = new[n]
        return y

    def compute(self, x: Tensor, updates: Tensor, begins: Tensor | None = None) -> Tensor:
        axis = rules.axis(self, self.axis, len(x.shape))
        size, count = x.shape[axis], updates.shape[axis]

        def body(*index: Index) -> Expr:
            if begins is None:
                near = index[axis] < count
                assert isinstance(near, Cond)
                return select(near, updates[index], x[index])
            place, begin = IndexValue(index[axis]), to(i64, begins[index[0]])
            if self.mode == "circular":  # twice, so that the difference cannot leave i64
                begin = call("floormod", begin, const(size, i64))
                place = call("floormod", place - begin, const(size, i64))
            else:
                place = place - begin
            inside = functions.bitwise("&", place >= 0, place < count)
            new = functions.lookup(updates, *index[:axis], place, *index[axis + 1 :])
            return select(inside, new, x[index])

        if not updates.type.size:
            return compute(x.shape, lambda *i: x[i], self.name, axes=axis_names(len(x.shape)))
        return compute(x.shape, body, self.name, axes=axis_names(len(x.shape)))

    def gradient(self, y: Node, dy: Value) -> Grads:
        """The updates get the dy of the rows they were written to, x that of the others."""
        x, updates, begins = (*y.inputs, None)[:3]
        assert x is not None
        assert updates is not None
        dx = build(self, [dy, zeros_like(updates), *y.inputs[2:]])
        type, axis = tensor_type(updates), rules.axis(self, self.axis, tensor_type(x).rank)
        size, count = tensor_type(x).dims[axis], type.dims[axis]
        if begins is None:
            new = apply("slice", dy, starts=(0,), ends=(count,), axes=(axis,))
        else:
            step = Constant("step", np.arange(count).reshape(-1, *[1] * (type.rank - axis - 1)))
            begin = reshaped(cast_to(begins, i64), (type.dims[0], *[1] * (type.rank - 1)))
            place = apply("mod", apply("mod", begin, size) + step, size)
            places = apply("expand", place, shape=type.dims)
            new = apply("gather_elements", dy, places, axis=axis)
        return (dx, new, None)[: len(y.inputs)]

    @classmethod
    def examples(cls) -> Iterable[Example]:
        """Both modes, every axis, updates that fill x, one, none; far begins when circular."""
        x = samples.array((3, 4, 5))
        begins = np.array([0, 2, 1])
        for axis, shape in ((1, (3, 2, 5)), (-2, (3, 2, 5)), (2, (3, 4, 3)), (-1, (3, 4, 1))):
            updates = samples.array(shape, seed=1)
            yield Example(cls(axis), (x, updates), 0, 0)
            yield Example(cls(axis), (x, updates, begins), 0, 0)
            yield Example(cls(axis, "circular"), (x, updates, begins + 2), 0, 0)
        whole = samples.array((3, 4, 5), seed=1)
        yield Example(cls(), (x, whole, np.zeros(3, np.int64)), 0, 0)
        yield Example(cls(mode="circular"), (x, whole, begins + 1), 0, 0)
        yield Example(cls(), (x, samples.array((3, 0, 5)), np.array([4, 0, 1])), 0, 0)
        cache = samples.array((2, 3, 8, 17))
        yield Example(cls(), (cache, samples.array((2, 3, 1, 17), seed=2), np.array([7, 3])), 0, 0)
        for element in ("f16", "i64", "bool"):
            pair = (samples.array((2, 3, 4), element, -9, 9), samples.array((2, 1, 4), element))
            yield Example(cls(), (*pair, np.array([2, 0])), 0, 0)
