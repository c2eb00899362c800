"""How a loss changes with the input of a pool: every element asks the windows that it lies in.

    apply("max_pool_gradient", x, y, dy, kernel_shape=(2, 2), strides=(2, 2))
    apply("spread_windows", dy, kernel_shape=(2, 2), strides=(2, 2), size=(28, 28))

    x f32[n, c, h, w], y and dy f32[n, c, h', w']  ->  dx f32[n, c, h, w]

Nothing is scattered: an element of dx is computed in one place, from the few windows over it, so
that loops may run in any order and in parallel. Treated in course chapter 03_autodiff.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from minidlc.expr.index import Cond, Index
from minidlc.expr.nodes import Expr, binary, compare, const, select
from minidlc.expr.types import TensorType, dtype
from minidlc.graph.graph import Node, Value, apply
from minidlc.graph.op import Example, Pattern, register_op
from minidlc.ops import rules, samples
from minidlc.ops.elementwise import load, rounded, widened
from minidlc.ops.gradients import Grads, constant, given
from minidlc.ops.pool import AveragePool, MaxPool, Pool
from minidlc.ops.rules import Values
from minidlc.ops.windows import Window, pad_array, spatial_names
from minidlc.te.tensor import ReduceAxis, Tensor, compute, reduce_axis, sum


@dataclass(frozen=True)
class Over:
    """The windows over an element: along each axis a few, of which some have a tap there.

    Element i lies at p = i + pad of the border. The last window that begins at or before p is
    p // s; the others begin s, 2*s, … before it, counted by `ahead`. A window that begins r before
    p has a tap there if r is a multiple of the dilation and no further than its last tap.
    """

    window: Window
    ahead: tuple[ReduceAxis, ...]
    out: tuple[int, ...]

    @staticmethod
    def of(window: Window, out: Sequence[int]) -> Over:
        """All windows; `out` says how many there are along each axis."""
        sizes = zip(window.extents, window.strides, spatial_names(window.rank), strict=True)
        return Over(window, tuple(reduce_axis(-(-e // s), f"a{a}") for e, s, a in sizes), (*out,))

    def at(self, index: Sequence[Index]) -> tuple[tuple[Index, ...], Cond]:
        """The window that is `ahead` over an element; whether there is one, with a tap on it."""
        where, inside = list[Index](), Cond(())
        for axis, i in enumerate(index):
            stride, dilation = self.window.strides[axis], self.window.dilations[axis]
            place, ahead = i + self.window.pads[axis], self.ahead[axis].index
            before = place % stride + ahead * stride
            where.append(place // stride - ahead)
            inside &= before < self.window.extents[axis]
            inside &= before % dilation < 1
            inside &= where[axis] >= 0
            inside &= where[axis] < self.out[axis]
        return tuple(where), inside


@dataclass(frozen=True)
class Maxima(Pool):
    """Base: between the elements of x and the windows whose maximum they are.

    Elements equal to the maximum share evenly; of a window with a NaN, whose maximum is NaN, all
    do. What lies outside x has no share.
    """

    pattern = Pattern.OUT_FUSABLE

    def pooled(self, x: TensorType, y: TensorType) -> None:
        """Refuse a y that is not of the type of max_pool(x)."""
        rules.elements(self, self.takes, x, y)
        wanted = super().type_rule(x)
        if y != wanted:
            rules.fail(self, f"the windows over {x} give {wanted}, got y {y}", rules.DIMS)

    def shares(self, x: Values, y: Values) -> Iterator[Values]:
        """NumPy: for each tap the share that it has in every window."""
        window = self.window
        reach = window.reach(x.shape[2:], y.shape[2:])
        inside = pad_array(np.ones(x.shape, np.bool_), reach, 0)
        pairs = zip(
            window.taps(inside, y.shape[2:]),
            window.taps(pad_array(x, reach, 0), y.shape[2:]),
            strict=True,
        )
        hits = [valid & ~(value < y) for (_, valid), (_, value) in pairs]
        ties = np.sum(hits, axis=0, dtype=widened(y).dtype)
        return (hit / np.maximum(ties, 1) for hit in hits)

    def ties(self, x: Tensor, y: Tensor) -> Tensor:
        """te: how many elements share each window."""

        def one(n: Index, c: Index, *at: Index) -> Expr:
            where, inside = self.tap(at, taps, x.shape[2:])
            extremum = load(y, (n, c, *at))
            hit = if_shares(load(x, (n, c, *where)), extremum, const(1, extremum.dtype))
            return sum(select(inside, hit, 0.0), *taps)

        taps = self.window.axes()
        return compute(y.shape, one, "ties", axes=("n", "c", *spatial_names(self.window.rank)))

    def tap(
        self, at: Sequence[Index], taps: Sequence[ReduceAxis], dims: Sequence[int]
    ) -> tuple[tuple[Index, ...], Cond]:
        """Where in x a tap of the window at `at` lies, and whether it lies in x."""
        places = self.window.position(at, taps)
        where = tuple(p - pad for p, pad in zip(places, self.window.pads, strict=False))
        inside = Cond(())
        for place, dim in zip(where, dims, strict=True):
            inside &= place >= 0
            inside &= place < dim
        return where, inside


def if_shares(x: Expr, y: Expr, value: Expr) -> Expr:
    """`value` if x is the maximum y or that is NaN, else 0; (x < y is false of NaN)."""
    return select(compare("<", x, y), 0.0, value)


@register_op
@dataclass(frozen=True)
class MaxPoolGradient(Maxima):
    """max_pool_gradient(x, y, dy)[n, c, i] = sum over v with y[v] = x[i] of dy[v] / ties[v].

    y is max_pool(x) with the same attributes; v runs over the windows that element i lies in, and
    ties[v] counts the elements that are the maximum of v.
    """

    schedule = "pool_gradient"

    def type_rule(self, x: TensorType, y: TensorType, dy: TensorType) -> TensorType:  # pyright: ignore[reportIncompatibleMethodOverride]
        self.pooled(x, y)
        if dy != y:
            rules.fail(self, f"dy must be {y} as y is, got {dy}", rules.DIMS)
        return x

    def reference(self, x: Values, y: Values, dy: Values) -> Values:
        window, out, dims = self.window, y.shape[2:], x.shape[2:]
        above = widened(dy)
        border = pad_array(np.zeros(x.shape, above.dtype), window.reach(dims, out), 0)
        for (_, place), share in zip(window.taps(border, out), self.shares(x, y), strict=True):
            place += np.where(share > 0, above * share, 0)
        inside = (slice(p, p + n) for p, n in zip(window.pads, dims, strict=False))
        return border[(..., *inside)].astype(x.dtype)

    def compute(self, x: Tensor, y: Tensor, dy: Tensor) -> Tensor:
        ties = self.ties(x, y)
        over = Over.of(self.window, y.shape[2:])

        def share(*index: Index) -> Expr:
            return load(dy, index) / ties[index]

        def element(n: Index, c: Index, *at: Index) -> Expr:
            where, inside = over.at(at)
            window = n, c, *where
            hit = if_shares(load(x, (n, c, *at)), load(y, window), shares[window])
            return sum(select(inside, hit, 0.0), *over.ahead)

        shares = compute(y.shape, share, "share", axes=ties.axes)
        dx = compute(x.shape, element, self.name, axes=ties.axes)
        return rounded(dx, x.dtype, "rounded")

    def gradient(self, y: Node, dy: Value) -> Grads:
        """Linear in dy; which elements are maxima does not change while x moves a little."""
        x, pooled, _ = given(y)
        return None, None, apply("max_pool_tangent", x, pooled, dy, **self.attributes())

    @classmethod
    def examples(cls) -> Iterable[Example]:
        """Those of max_pool, equal elements, windows of NaN."""
        yield from _of_maxima(cls, lambda x, y: y)


@register_op
@dataclass(frozen=True)
class MaxPoolTangent(Maxima):
    """max_pool_tangent(x, y, dx)[n, c, v] = sum over i with x[i] = y[v] of dx[i] / ties[v].

    How the maximum of each window v moves when x moves by dx: as the mean of the elements i of v
    that are the maximum. The transpose of max_pool_gradient.
    """

    def type_rule(self, x: TensorType, y: TensorType, dx: TensorType) -> TensorType:  # pyright: ignore[reportIncompatibleMethodOverride]
        self.pooled(x, y)
        if dx != x:
            rules.fail(self, f"dx must be {x} as x is, got {dx}", rules.DIMS)
        return y

    def reference(self, x: Values, y: Values, dx: Values) -> Values:
        window, out = self.window, y.shape[2:]
        border = pad_array(widened(dx), window.reach(x.shape[2:], out), 0)
        moved = np.zeros(y.shape, border.dtype)
        for (_, tap), share in zip(window.taps(border, out), self.shares(x, y), strict=True):
            moved += np.where(share > 0, tap * share, 0)
        return moved.astype(y.dtype)

    def compute(self, x: Tensor, y: Tensor, dx: Tensor) -> Tensor:
        ties = self.ties(x, y)
        taps = self.window.axes()

        def total(n: Index, c: Index, *at: Index) -> Expr:
            where, inside = self.tap(at, taps, x.shape[2:])
            place = n, c, *where
            hit = if_shares(load(x, place), load(y, (n, c, *at)), load(dx, place))
            return sum(select(inside, hit, 0.0), *taps)

        def mean(*index: Index) -> Expr:
            return totals[index] / binary("max", ties[index], const(1, ties.dtype))

        totals = compute(y.shape, total, "moved", axes=ties.axes)
        moved = compute(y.shape, mean, self.name, axes=ties.axes)
        return rounded(moved, y.dtype, "rounded")

    def gradient(self, y: Node, dy: Value) -> Grads:
        """Linear in dx, as max_pool_gradient is in dy."""
        x, pooled, _ = given(y)
        return None, None, apply("max_pool_gradient", x, pooled, dy, **self.attributes())

    @classmethod
    def examples(cls) -> Iterable[Example]:
        """Those of max_pool, equal elements, windows of NaN."""
        yield from _of_maxima(cls, lambda x, y: x)


def _of_maxima(
    cls: type[Maxima], shape_of: Callable[[Values, Values], Values]
) -> Iterator[Example]:
    for example in MaxPool.examples():
        (x,), pool = example.inputs, example.op
        assert isinstance(pool, MaxPool)
        assert x is not None
        if x.dtype.kind in "iu":
            continue
        whole = np.rint(widened(x)).astype(x.dtype)  # of few values: there are equal ones
        for values in (x, whole):
            y = pool.reference(values)
            moved = samples.array(shape_of(values, y).shape, dtype(x.dtype), seed=1)
            yield Example(cls(**pool.attributes()), (values, y, moved), example.rtol, example.atol)


@register_op
@dataclass(frozen=True)
class SpreadWindows(Pool):
    """spread_windows(dy)[n, c, i] = sum of dy[n, c, v] over the windows v that element i lies in.

    The transpose of a sum over windows: an average pool is one, divided by a number that depends on
    the window alone. `size` is that of the spatial axes of the result.
    """

    schedule = "pool_gradient"
    size: tuple[int, ...] = ()

    def type_rule(self, dy: TensorType) -> TensorType:  # pyright: ignore[reportIncompatibleMethodOverride]
        rules.count(self, "size", self.size, len(self.kernel_shape), 0)
        x = dy.with_shape((*dy.shape[:2], *self.size))
        wanted = super().type_rule(x)
        if dy != wanted:
            rules.fail(self, f"the windows over {x} give {wanted}, got dy {dy}", rules.DIMS)
        return x

    def reference(self, dy: Values) -> Values:
        window, out = self.window, dy.shape[2:]
        above = widened(dy)
        x = np.zeros((*dy.shape[:2], *self.size), above.dtype)
        border = pad_array(x, window.reach(self.size, out), 0)
        for _, place in window.taps(border, out):
            place += above
        inside = (slice(p, p + n) for p, n in zip(window.pads, self.size, strict=False))
        return border[(..., *inside)].astype(dy.dtype)

    def compute(self, dy: Tensor) -> Tensor:
        over = Over.of(self.window, dy.shape[2:])

        def element(n: Index, c: Index, *at: Index) -> Expr:
            where, inside = over.at(at)
            return sum(select(inside, load(dy, (n, c, *where)), 0.0), *over.ahead)

        shape = (*dy.shape[:2], *self.size)
        axes = ("n", "c", *spatial_names(self.window.rank))
        return rounded(compute(shape, element, self.name, axes=axes), dy.dtype, "rounded")

    def gradient(self, y: Node, dy: Value) -> Grads:
        """The sum over each window, which is its average times the number of its elements."""
        fields = self.attributes()
        del fields["size"]
        pool = AveragePool(**fields, count_include_pad=True)
        average = apply("average_pool", dy, **pool.attributes())
        return (average * constant(pool.counts(self.size), dy),)

    @classmethod
    def examples(cls) -> Iterable[Example]:
        """Those of every pool."""
        for example in MaxPool.examples():
            (x,), pool = example.inputs, example.op
            assert isinstance(pool, MaxPool)
            assert x is not None
            if x.dtype.kind not in "iu":
                op, dy = cls(**pool.attributes(), size=x.shape[2:]), pool.reference(x)
                yield Example(op, (dy,), example.rtol, example.atol)
