"""Maximum pooling that says where the maxima were, and its inverse that puts them back.

    y, where = mc.max_pool_with_indices(x, kernel_shape=(2, 2), strides=(2, 2))
    apply("max_unpool", y, where, kernel_shape=(2, 2), strides=(2, 2))      # zeros elsewhere

Positions count the elements of the whole of x, i64[n, c, …]. Treated in course chapter
01_graph_ir.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from minidlc.expr.index import Cond, Index
from minidlc.expr.nodes import Expr, const, select
from minidlc.expr.types import Dim, TensorType, dtype, i64
from minidlc.graph.graph import Node, Value, apply, build, getitem, tensor_type
from minidlc.graph.op import Example, Op, OpKind, Pattern, Positions, register_op
from minidlc.graph.types import TupleType
from minidlc.ops import rules, samples
from minidlc.ops.arg_reduction import is_extremum
from minidlc.ops.composing import in_wide, narrowed
from minidlc.ops.elementwise import load
from minidlc.ops.gradients import Grads, given
from minidlc.ops.pool import MaxPool, Pool, lowest
from minidlc.ops.rules import Values
from minidlc.ops.shape import flattened
from minidlc.ops.windows import Window, pad_array, spatial_names
from minidlc.te import functions
from minidlc.te import tensor as te
from minidlc.te.tensor import Tensor, compute


@register_op
@dataclass(frozen=True)
class MaxPoolWithIndices(Pool):
    """max_pool_with_indices(x) = max_pool(x), and the position of each maximum in x.

    Of equal maxima, and of NaN, the first in the window counts. Positions are those of a dense
    array in row-major order; with `storage_order` 1 the spatial axes are taken in reverse. The
    position of a window that holds nothing of x is the size of x.
    """

    pattern = Pattern.OPAQUE
    schedule = "plain"
    takes = rules.NUMBERS
    storage_order: int = 0

    def type_rule(self, x: TensorType) -> TupleType:  # pyright: ignore[reportIncompatibleMethodOverride]
        if self.storage_order not in (0, 1):
            text = f"storage_order must be 0 or 1, got {self.storage_order}"
            rules.fail(self, text, rules.RANGE)
        y = super().type_rule(x)
        return TupleType((y, TensorType(i64, y.shape)))

    def _plain(self) -> MaxPool:
        return MaxPool(self.kernel_shape, self.strides, self.pads, self.dilations, self.ceil_mode)

    def reference(self, x: Values) -> tuple[Values, Values]:
        window, out = self.window, self.out_dims(x.shape[2:])
        reach = window.reach(x.shape[2:], out)
        y = self._plain().reference(x)
        order = "F" if self.storage_order else "C"
        count = math.prod(x.shape[2:])
        spatial: Values = np.arange(count).reshape(x.shape[2:], order=order)
        place: Values = np.arange(x.size).reshape(x.shape) // max(count, 1) * count + spatial
        place = pad_array(place, reach, x.size)
        border = pad_array(x, reach, lowest(dtype(x.dtype)))
        where = np.full(y.shape, x.size, np.int64)
        found = np.zeros(y.shape, np.bool_)
        for (_, value), (_, at) in zip(
            window.taps(border, out), window.taps(place, out), strict=True
        ):
            hit = ~found & (at < x.size) & ((value == y) | (value != value))
            where, found = np.where(hit, at, where), found | hit
        return y, where

    def compute(self, x: Tensor) -> tuple[Tensor, Tensor]:
        window, out = self.window, self.out_dims(x.shape[2:])
        y, taps = self._plain().compute(x), window.axes()
        names, shape = ("n", "c", *spatial_names(window.rank)), (*x.shape[:2], *out)
        nowhere = const(math.prod(x.shape), i64)

        def first(n: Index, c: Index, *at: Index) -> Expr:
            where = tuple(
                p - pad for p, pad in zip(window.position(at, taps), window.pads, strict=False)
            )
            inside = Cond(())
            for p, size in zip(where, x.shape[2:], strict=True):
                inside &= p >= 0
                inside &= p < size
            hit = is_extremum(load(x, (n, c, *where)), load(y, (n, c, *at)))
            flat = functions.index(flattened((n, c, *where), x.shape))
            return te.min(select(inside, select(hit, flat, nowhere), nowhere), *taps)

        if not self.storage_order:
            return y, compute(shape, first, f"{self.name}_at", axes=names)
        found = compute(shape, first, f"{self.name}_first", axes=names)

        def reordered(*index: Index) -> Expr:
            at = found[index]
            return select(functions.equal(at, nowhere), nowhere, _reversed(at, x.shape[2:]))

        return y, compute(shape, reordered, f"{self.name}_at", axes=names)

    def gradient(self, y: Node, dy: tuple[Value | None, ...]) -> Grads:
        """An element gets the dy of the windows in which it was the first maximum.

        A window that holds nothing of x says so by a position behind x: that row is dropped.
        """
        (x,) = given(y)
        if dy[0] is None:
            return (None,)
        dense = build(replace(self, storage_order=0), [x]) if self.storage_order else y
        count, windows = tensor_type(x).size, tensor_type(dy[0]).size
        places, given_dy = (
            apply("reshape", v, shape=(windows,)) for v in (getitem(dense, 1), in_wide(dy[0]))
        )
        total = apply("index_add", given_dy, places, size=count + 1)
        kept = apply("slice", total, starts=(0,), ends=(count,))
        return (narrowed(apply("reshape", kept, shape=tensor_type(x).dims), x),)

    @classmethod
    def examples(cls) -> Iterable[Example]:
        """Those of every pool, equal elements, and the other order."""
        yield from super().examples()
        equal = samples.array((2, 2, 6, 7), "i32", -2, 2).astype(np.float32)
        for order in (0, 1):
            op = cls((3, 2), (2, 1), (1, 0, 1, 1), (1, 2), storage_order=order)
            yield Example(op, (equal,), 0, 0)
            op = cls((2, 2, 3), (1, 2, 1), storage_order=order)
            yield Example(op, (samples.array((2, 1, 3, 4, 4)),), 0, 0)
        low = np.full((1, 1, 4, 4), -np.inf, np.float32)
        yield Example(cls((2, 2), (2, 2), (1, 1, 1, 1)), (low,), 0, 0)
        for element in ("i8", "u8"):
            x = samples.array((1, 2, 6, 6), element, -9, 9)
            yield Example(cls((2, 2), (2, 2)), (x,), 0, 0)


def _reversed(flat: Expr, dims: tuple[int, ...]) -> Expr:
    """A row-major position of an image as that of the spatial axes in reverse order."""
    size = math.prod(dims)
    image, rest = functions.truncdiv(flat, size), functions.floormod(flat, size)
    place, step = image * size, size
    for dim in reversed(dims):
        step //= dim
        place = place + functions.floormod(rest, dim) * step
        rest = functions.truncdiv(rest, dim)
    return place


@register_op
@dataclass(frozen=True)
class MaxUnpool(Op):
    """max_unpool(x, indices) = zeros, with the elements of x at the positions `indices`.

    The result has the shape that max_pool with these attributes takes x from; `output_shape`, if
    given, is larger, and the result stands in its corner of low indices.
    """

    kind = OpKind.COMPOSITE
    kernel_shape: tuple[int, ...]
    strides: tuple[int, ...] = ()
    pads: tuple[int, ...] = ()
    output_shape: tuple[int, ...] = ()

    def unpooled(self, x: TensorType) -> tuple[Dim, ...]:
        """Shape that the positions count in."""
        n = x.rank - 2
        if n < 1:
            rules.fail(self, f"x must have spatial axes after [n, c], got {x}", rules.RANK)
        rules.count(self, "kernel_shape", self.kernel_shape, n, 1)
        w = Window.resolve(self, self.kernel_shape, self.strides, self.pads, ())
        return (
            *x.shape[:2],
            *(
                (x.shape[a + 2] - 1) * w.strides[a] + w.kernel[a] - w.pads[a] - w.pads[a + n]
                for a in range(n)
            ),
        )

    def type_rule(self, x: TensorType, indices: TensorType) -> TensorType:
        rules.elements(self, "float", x)
        rules.elements(self, "int", indices.with_shape(()))
        if indices.dtype != i64:
            rules.fail(self, f"indices must be i64, got {indices.dtype}", rules.ELEMENT, "use cast")
        if indices.rank != x.rank or not all(map(rules.same_dim, x.shape, indices.shape)):
            text = f"one position for each element of {x}, got {indices}"
            rules.fail(self, text, rules.DIMS)
        shape = self.unpooled(x)
        if any(isinstance(d, int) and d < 0 for d in shape):
            rules.fail(self, f"the pads {self.pads} leave nothing of {shape}", rules.DIMS)
        if not self.output_shape:
            return x.with_shape(shape)
        pairs = zip(self.output_shape, shape, strict=False)
        if len(self.output_shape) != x.rank or any(isinstance(d, int) and o < d for o, d in pairs):
            text = f"output_shape {self.output_shape} does not hold {x.with_shape(shape)}"
            rules.fail(self, text, rules.RANGE)
        return x.with_shape(self.output_shape)

    def positions(self, x: TensorType, indices: TensorType) -> tuple[Positions, ...]:
        return (Positions(1, 0, math.prod(x.with_shape(self.unpooled(x)).dims)),)

    def reference(self, x: Values, indices: Values) -> Values:
        shape = TensorType(dtype(x.dtype), self.unpooled(TensorType(dtype(x.dtype), x.shape))).dims
        y = np.zeros(math.prod(shape), x.dtype)
        y[indices.reshape(-1)] = x.reshape(-1)
        larger = self.output_shape or shape
        return np.pad(y.reshape(shape), [(0, a - b) for a, b in zip(larger, shape, strict=True)])

    def decompose(self, x: Value, indices: Value) -> Value:
        type = tensor_type(x)
        shape = type.with_shape(self.unpooled(type)).dims
        zeros = np.zeros(math.prod(shape), type.dtype.numpy)
        flat = (apply("reshape", v, shape=(type.size,)) for v in (indices, x))
        y = apply("reshape", apply("scatter_elements", zeros, *flat, axis=0), shape=shape)
        more = (a - b for a, b in zip(self.output_shape, shape, strict=False))
        return apply("pad", y, pads=(*[0] * len(shape), *more)) if self.output_shape else y

    @classmethod
    def examples(cls) -> Iterable[Example]:
        """What max_pool_with_indices gives, 1-D to 3-D, pads, a larger result."""
        for shape, kernel, strides, pads in (
            ((1, 2, 6), (2,), (2,), ()), ((2, 2, 4, 6), (2, 3), (2, 3), ()),
            ((1, 1, 5, 5), (3, 3), (2, 2), (1, 1, 1, 1)),
            ((1, 2, 4, 2, 2), (2, 1, 2), (2, 1, 2), ()),
        ):  # fmt: skip
            pool = MaxPoolWithIndices(kernel, strides, pads)
            y, where = pool.reference(samples.array(shape, low=1, high=9))
            yield Example(cls(kernel, strides, pads), (y, where), 0, 0)
        y, where = MaxPoolWithIndices((2, 2), (2, 2)).reference(samples.array((1, 1, 4, 4), "f64"))
        yield Example(cls((2, 2), (2, 2), (), (1, 1, 5, 6)), (y, where), 0, 0)
