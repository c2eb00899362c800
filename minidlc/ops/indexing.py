"""Ops that read at positions given as values: gather, gather_elements, gather_nd, one_hot, …

    apply("gather", x, indices, axis=0)             # f32[10, 4], i64[2, 3] -> f32[2, 3, 4]
    apply("gather_nd", x, indices)                  # f32[4, 5, 6], i64[7, 2] -> f32[7, 6]
    apply("one_hot", indices, values, depth=10)     # i64[3], f32[2] -> f32[3, 10]

A negative position counts from the end; one outside the axis is a CallError (MDLC0909). Reads
values, writes tensors. Treated in course chapter 01_graph_ir.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from minidlc.expr.index import Index
from minidlc.expr.nodes import Expr, IndexValue, binary, compare, const, select
from minidlc.expr.types import Dim, TensorType, dtype, i32, i64, u64
from minidlc.graph.graph import Constant, Node, Value, apply, tensor_type
from minidlc.graph.op import Example, Op, Pattern, Positions, register_op
from minidlc.ops import rules, samples
from minidlc.ops.binary import convert
from minidlc.ops.composing import in_wide, narrowed
from minidlc.ops.elementwise import axis_names, load, to
from minidlc.ops.gradients import Grads, given, where_true, zeros_like
from minidlc.ops.rules import Values
from minidlc.te import functions
from minidlc.te.tensor import Tensor, compute

LARGEST = 2**63 - 1  # i64


def are_positions(op: Op, name: str, t: TensorType) -> None:
    """Require the elements of an input to be i32 or i64 (MDLC0202)."""
    if t.dtype not in (i32, i64):
        hint = f"cast({name}, to=i64)"
        rules.fail(op, f"{name} must hold i32 or i64, got {t.dtype}", rules.ELEMENT, hint)


def from_front(position: Expr, size: int) -> Expr:
    """A position, which may count from the end, as an i64 that counts from the front."""
    place = to(i64, position)
    return select(place < 0, place + size, place)


def picked(x: Tensor, shape: Sequence[int], body: Callable[..., Expr], name: str) -> Tensor:
    """The tensor of `body(i, …)`; of an x without elements nothing can be read."""
    if 0 in x.shape:
        zero = const(0, x.dtype)
        return compute(shape, lambda *_: zero, name, axes=axis_names(len(shape)))
    return compute(shape, body, name, axes=axis_names(len(shape)))


def places_along(x: TensorType, axis: int) -> tuple[Positions, ...]:
    """What `positions` of an op is whose input 1 holds places along `axis`, from either end."""
    size = x.dims[axis]
    return (Positions(1, -size, size),)


def number(op: Op, name: str, dim: Dim) -> int:
    """A dim that has to be known (MDLC0205)."""
    if not isinstance(dim, int):
        rules.fail(op, f"{name} has the symbolic size {dim}", rules.SYMBOLIC, "give it: shapes={…}")
    return dim


@register_op
@dataclass(frozen=True)
class Gather(Op):
    """gather(x, indices)[a…, i…, b…] = x[a…, indices[i…], b…]: rows of x along `axis`."""

    onnx = "Gather"
    pattern = Pattern.INJECTIVE
    axis: int = 0

    def type_rule(self, x: TensorType, indices: TensorType) -> TensorType:
        axis = rules.axis(self, self.axis, x.rank)
        are_positions(self, "indices", indices)
        return x.with_shape((*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]))

    def positions(self, x: TensorType, indices: TensorType) -> tuple[Positions, ...]:
        return places_along(x, self.axis)

    def reference(self, x: Values, indices: Values) -> Values:
        return np.take(x, indices, self.axis)

    def compute(self, x: Tensor, indices: Tensor) -> Tensor:
        axis, rank = rules.axis(self, self.axis, len(x.shape)), len(indices.shape)

        def body(*index: Index) -> Expr:
            row = indices[index[axis : axis + rank]]
            place = from_front(row, x.shape[axis])
            return functions.lookup(x, *index[:axis], place, *index[axis + rank :])

        out = self.type_rule(x.type, indices.type)
        return picked(x, out.dims, body, self.name)

    def gradient(self, y: Node, dy: Value) -> Grads:
        """A row gets the sum of all dy of places that read it; f16 is summed in f32."""
        x, indices = given(y)
        type = tensor_type(x)
        axis = rules.axis(self, self.axis, type.rank)
        total = apply("index_add", in_wide(dy), indices, axis=axis, size=type.dims[axis])
        return narrowed(total, x), None

    @classmethod
    def examples(cls) -> Iterable[Example]:
        """Every axis, indices of rank 0 to 3, from the end, repeated, none; both index types."""
        x = samples.array((5, 4, 3))
        for axis, size in ((0, 5), (1, 4), (2, 3), (-1, 3), (-3, 5)):
            for shape in ((), (1,), (7,), (2, 3), (0,), (2, 1, 2)):
                yield Example(cls(axis), (x, samples.positions(shape, size)), 0, 0)
        yield Example(cls(), (samples.array((1,)), np.array([0, -1, 0])), 0, 0)
        yield Example(cls(), (samples.array((0, 3)), np.zeros((0, 2), np.int64)), 0, 0)
        yield Example(cls(1), (samples.array((0, 3)), np.array([2])), 0, 0)
        yield Example(cls(1), (samples.array((3, 33)), np.arange(32, -1, -1)), 0, 0)
        wide = samples.array((40, 19))
        yield Example(cls(), (wide, samples.positions((3,), 40).astype(np.int32)), 0, 0)
        for element in ("f64", "f16", "bf16", "i64", "i8", "u8", "bool"):
            table = samples.special(element)
            yield Example(cls(), (table, samples.positions((9,), table.size)), 0, 0)


@register_op
@dataclass(frozen=True)
class GatherElements(Op):
    """gather_elements(x, indices)[i, j, k] = x[i, indices[i, j, k], k], here for `axis` 1."""

    onnx = "GatherElements"
    pattern = Pattern.INJECTIVE
    axis: int = 0

    def type_rule(self, x: TensorType, indices: TensorType) -> TensorType:
        within(self, x, "indices", indices, self.axis)
        return x.with_shape(indices.shape)

    def positions(self, x: TensorType, indices: TensorType) -> tuple[Positions, ...]:
        return places_along(x, self.axis)

    def reference(self, x: Values, indices: Values) -> Values:
        axis = self.axis % x.ndim
        part = (slice(None if d == axis else n) for d, n in enumerate(indices.shape))
        return np.take_along_axis(x[tuple(part)], indices, axis)

    def compute(self, x: Tensor, indices: Tensor) -> Tensor:
        axis = rules.axis(self, self.axis, len(x.shape))

        def body(*index: Index) -> Expr:
            place = from_front(indices[index], x.shape[axis])
            return functions.lookup(x, *index[:axis], place, *index[axis + 1 :])

        return picked(x, indices.shape, body, self.name)

    def gradient(self, y: Node, dy: Value) -> Grads:
        """An element gets the sum of all dy of places that read it; f16 is summed in f32."""
        x, indices = given(y)
        how = {"axis": self.axis, "reduction": "add"}
        total = apply("scatter_elements", in_wide(zeros_like(x)), indices, in_wide(dy), **how)
        return narrowed(total, x), None

    @classmethod
    def examples(cls) -> Iterable[Example]:
        """Every axis, fewer indices than x has places or more, from the end, none."""
        x = samples.array((5, 4, 3))
        for axis, size in ((0, 5), (1, 4), (2, 3), (-2, 4)):
            for shape in ((5, 4, 3), (2, 3, 1), (1, 1, 1), (0, 2, 2)):
                yield Example(cls(axis), (x, samples.positions(shape, size)), 0, 0)
        yield Example(cls(), (samples.array((7,)), samples.positions((17,), 7)), 0, 0)
        yield Example(cls(1), (samples.array((0, 3)), np.zeros((0, 2), np.int64)), 0, 0)
        for element in ("f16", "i64", "u8", "bool"):
            table = samples.array((3, 5), element, -9, 9)
            at = samples.positions((3, 4), 5).astype(np.int32)
            yield Example(cls(-1), (table, at), 0, 0)


def within(op: Op, x: TensorType, name: str, indices: TensorType, axis: int) -> int:
    """Require positions of the rank of x, and not beyond x on the other axes; returns the axis."""
    axis = rules.axis(op, axis, x.rank)
    are_positions(op, name, indices)
    rules.rank(op, name, indices, x.rank)
    for d, (most, n) in enumerate(zip(x.shape, indices.shape, strict=True)):
        if d == axis or rules.same_dim(n, most):
            continue
        text = f"axis {d} of {name} has size {n}, that of x {most}"
        if not (isinstance(most, int) and isinstance(n, int)):
            rules.fail(op, text, rules.SYMBOLIC, "give the sizes: shapes={…}")
        if n > most:
            rules.fail(op, text, rules.DIMS, "it may be smaller, not larger")
    return axis


@register_op
@dataclass(frozen=True)
class GatherNd(Op):
    """gather_nd(x, indices)[b…, i…, r…] = x[b…, *indices[b…, i…, :], r…].

    The last axis of `indices` holds tuples of positions, the first `batch_dims` are those of x.
    """

    onnx = "GatherND"
    pattern = Pattern.INJECTIVE
    batch_dims: int = 0

    def type_rule(self, x: TensorType, indices: TensorType) -> TensorType:
        count = tuples(self, x, indices, self.batch_dims)
        for d in range(self.batch_dims):
            if not rules.same_dim(x.shape[d], indices.shape[d]):
                text = f"batch axis {d} differs: {x.shape[d]} and {indices.shape[d]}"
                rules.fail(self, text, rules.DIMS)
        return x.with_shape((*indices.shape[:-1], *x.shape[self.batch_dims + count :]))

    def positions(self, x: TensorType, indices: TensorType) -> tuple[Positions, ...]:
        sizes = x.dims[self.batch_dims : self.batch_dims + indices.dims[-1]]
        return (Positions(1, tuple(-n for n in sizes), sizes),)

    def reference(self, x: Values, indices: Values) -> Values:
        batch = np.ix_(*map(np.arange, indices.shape[:-1]))[: self.batch_dims]
        return x[(*batch, *np.moveaxis(indices, -1, 0))]

    def compute(self, x: Tensor, indices: Tensor) -> Tensor:
        rank, batch = len(indices.shape) - 1, self.batch_dims

        def body(*index: Index) -> Expr:
            sizes = x.shape[batch : batch + indices.shape[-1]]
            columns = (indices[(*index[:rank], n)] for n in range(len(sizes)))
            places = map(from_front, columns, sizes)
            return functions.lookup(x, *index[:batch], *places, *index[rank:])

        out = self.type_rule(x.type, indices.type)
        return picked(x, out.dims, body, self.name)

    def gradient(self, y: Node, dy: Value) -> Grads:
        """An element gets the sum of all dy of places that read it; f16 is summed in f32."""
        x, indices = given(y)
        places = with_batches(indices, self.batch_dims)
        zeros = in_wide(zeros_like(x))
        total = apply("scatter_nd", zeros, places, in_wide(dy), reduction="add")
        return narrowed(total, x), None

    @classmethod
    def examples(cls) -> Iterable[Example]:
        """Tuples of 1 to 3 positions, one tuple or many, slices behind, batches, none."""
        x = samples.array((5, 4, 3))
        for shape in ((1,), (7, 1), (2,), (2, 3, 2), (3,), (4, 3), (2, 2, 3), (0, 2)):
            columns = [samples.positions(shape[:-1], n, seed=n) for n in x.shape[: shape[-1]]]
            yield Example(cls(), (x, np.stack(columns, -1)), 0, 0)
        for batch, shape in ((1, (5, 1)), (1, (5, 6, 2)), (2, (5, 4, 1)), (2, (5, 4, 2, 1))):
            sizes = x.shape[batch : batch + shape[-1]]
            columns = [samples.positions(shape[:-1], n, seed=n) for n in sizes]
            yield Example(cls(batch), (x, np.stack(columns, -1)), 0, 0)
        yield Example(cls(), (samples.array((2, 2), "i32"), np.array([[0, 0], [1, -2]])), 0, 0)
        yield Example(cls(), (samples.array((0, 2)), np.zeros((0, 1), np.int64)), 0, 0)


def with_batches(indices: Value, batch_dims: int) -> Value:
    """Tuples of positions that begin with those of their batch: what needs no batch_dims."""
    if not batch_dims:
        return indices
    type = tensor_type(indices)
    grid = np.moveaxis(np.indices(type.dims[:-1])[:batch_dims], 0, -1)
    return apply("concat", Constant("batch", grid.astype(type.dtype.numpy)), indices, axis=-1)


def tuples(op: Op, x: TensorType, indices: TensorType, batch: int) -> int:
    """How many positions each tuple of `indices` has; shapes are checked."""
    are_positions(op, "indices", indices)
    if not x.rank or not indices.rank:
        rules.fail(op, f"takes no scalars, got {x} and {indices}", rules.RANK)
    if not 0 <= batch < min(x.rank, indices.rank):
        text = f"batch_dims {batch} is outside [0, {min(x.rank, indices.rank) - 1}]"
        rules.fail(op, text, rules.RANGE)
    count = number(op, "the last axis of indices", indices.shape[-1])
    if not 1 <= count <= x.rank - batch:
        text = f"{count} positions a tuple, x: {x} has {x.rank - batch} axes for them"
        rules.fail(op, text, rules.DIMS, "the last axis of indices holds the tuples")
    return count


@register_op
@dataclass(frozen=True)
class OneHot(Op):
    """one_hot(indices, values)[i…, d] = values[1] if indices[i…] is d, else values[0].

    The new axis of size `depth` becomes axis `axis` of the result. A negative index counts from
    the end; one outside the depth is nowhere. Floats are truncated.
    """

    onnx = "OneHot"
    pattern = Pattern.INJECTIVE
    depth: int
    axis: int = -1

    def type_rule(self, indices: TensorType, values: TensorType) -> TensorType:
        rules.elements(self, rules.NUMBERS, indices)
        if not indices.rank:
            rules.fail(self, f"takes no scalar, got {indices}", rules.RANK, "unsqueeze it")
        axis = rules.axis(self, self.axis, indices.rank + 1)
        if values.rank != 1 or not rules.same_dim(values.shape[0], 2):
            text = f"values must hold what is off and what is on, got {values}"
            rules.fail(self, text, rules.DIMS, "a tensor of shape [2]")
        if not 0 <= self.depth <= LARGEST:
            rules.fail(self, f"depth must be at least 0, got {self.depth}", rules.RANGE)
        shape = (*indices.shape[:axis], self.depth, *indices.shape[axis:])
        return values.with_shape(shape)

    def reference(self, indices: Values, values: Values) -> Values:
        axis = self.axis % (indices.ndim + 1)
        if indices.dtype == np.uint64:
            indices = np.minimum(indices, np.uint64(LARGEST))
        place = np.expand_dims(convert(indices, np.dtype(np.int64)), axis)
        place = np.where(place < 0, place + self.depth, place)
        along = np.arange(self.depth).reshape((-1,) + (1,) * (indices.ndim - axis))
        return values[np.equal(place, along).astype(np.int64)]

    def compute(self, indices: Tensor, values: Tensor) -> Tensor:
        axis = self.axis % (len(indices.shape) + 1)

        def body(*index: Index) -> Expr:
            given = load(indices, (*index[:axis], *index[axis + 1 :]))
            if given.dtype == u64:  # what is beyond i64 must not become negative
                given = binary("min", given, LARGEST)
            hit = compare("==", from_front(given, self.depth), IndexValue(index[axis]))
            return select(hit, values[1], values[0])

        out = self.type_rule(indices.type, values.type).dims
        return compute(out, body, self.name, axes=axis_names(len(out)))

    def gradient(self, y: Node, dy: Value) -> Grads:
        """Each of the two values gets the sum of dy where it stands; a position has no slope."""
        indices, _ = given(y)
        on = apply("one_hot", indices, np.array([False, True]), depth=self.depth, axis=self.axis)
        off = apply("logical_not", on)
        sums = [apply("sum", where_true(side, dy), keepdims=False) for side in (off, on)]
        parts = [apply("reshape", total, shape=(1,)) for total in sums]
        return None, apply("concat", *parts, axis=0)

    @classmethod
    def examples(cls) -> Iterable[Example]:
        """The new axis everywhere, indices outside and from the end, all types, depth 0 and 1."""
        values = np.array([-1.5, 3], np.float32)
        grid = np.array([[0, 2, -1], [9, -4, 1]])
        for axis in (0, 1, 2, -1, -2, -3):
            yield Example(cls(3, axis), (grid, values), 0, 0)
        for depth in (0, 1, 17):
            yield Example(cls(depth), (np.arange(-3, 20), values), 0, 0)
        yield Example(cls(4), (np.zeros((0, 2), np.int64), values), 0, 0)
        for element in ("f32", "f64", "f16"):  # fractions: tests/ops/test_faults_indexing.py
            yield Example(cls(5), (np.arange(-7, 7).astype(dtype(element).numpy), values), 0, 0)
        for element in ("i8", "u8", "i32", "u64"):
            yield Example(cls(5), (samples.special(element), values), 0, 0)
        for element in ("i64", "bool", "f16", "u8"):
            yield Example(cls(3), (grid, samples.special(element)[:2]), 0, 0)
