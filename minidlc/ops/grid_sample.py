"""Images read at any positions: grid_sample, what warps and crops are made of.

    apply("grid_sample", x, grid)                   # x f32[n, c, h, w], grid f32[n, i, j, 2]
    apply("grid_sample", x, grid, mode="cubic", padding_mode="border", align_corners=True)

The last axis of the grid holds x, y (and z): -1 is one end of the image, 1 the other. The result
has the shape [n, c, i, j]. Treated in course chapter 01_graph_ir.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product

import numpy as np

from minidlc.expr.index import Index
from minidlc.expr.nodes import Expr, call, const
from minidlc.expr.types import TensorType, i64
from minidlc.graph.graph import Constant, Value, apply, tensor_type
from minidlc.graph.op import Example, Op, Pattern, register_op
from minidlc.ops import rules, samples
from minidlc.ops.composing import in_wide, narrowed
from minidlc.ops.elementwise import load, to, wide, widened
from minidlc.ops.gradients import filled
from minidlc.ops.rules import Values
from minidlc.ops.windows import spatial_names
from minidlc.te import functions
from minidlc.te.tensor import Tensor, compute

TAPS = {"nearest": (0,), "linear": (0, 1), "cubic": (-1, 0, 1, 2)}
PADDINGS = ("zeros", "border", "reflection")
A = -0.75  # the parameter of Keys' cubic, as everywhere
# weight of each tap as a polynomial of the distance r from the tap 0, the highest power first
WEIGHTS: dict[str, tuple[tuple[float, ...], ...]] = {
    "nearest": ((1.0,),),
    "linear": ((-1.0, 1.0), (1.0, 0.0)),
    "cubic": (
        (A, -2 * A, A, 0.0),
        (A + 2, -A - 3, 0.0, 1.0),
        (-A - 2, 2 * A + 3, -A, 0.0),
        (-A, A, 0.0, 0.0),
    ),
}


@register_op
@dataclass(frozen=True)
class GridSample(Op):
    """grid_sample(x, grid)[n, c, i, j] = x[n, c, y, x], interpolated, at (x, y) = grid[n, i, j].

    -1 and 1 are the centres of the first and last element (`align_corners`), or their outer edges.
    Outside there are zeros, the element at the border, or the image reflected, again and again.
    A nearest position halfway is rounded to the even one.
    """

    pattern = Pattern.OPAQUE
    mode: str = "linear"
    padding_mode: str = "zeros"
    align_corners: bool = False

    def type_rule(self, x: TensorType, grid: TensorType) -> TensorType:
        rules.elements(self, "float", x)
        rules.elements(self, "float", grid)
        for name, value, known in (
            ("mode", self.mode, tuple(TAPS)), ("padding_mode", self.padding_mode, PADDINGS),
        ):  # fmt: skip
            if value not in known:
                rules.fail(self, f"{name} {value!r} is none of {', '.join(known)}", rules.RANGE)
        rules.rank(self, "x", x, 3, 4, 5)
        rules.rank(self, "grid", grid, x.rank)
        if not rules.same_dim(grid.shape[-1], x.rank - 2):
            text = f"the last axis of grid must hold {x.rank - 2} coordinates, got {grid}"
            rules.fail(self, text, rules.DIMS)
        if not rules.same_dim(grid.shape[0], x.shape[0]):
            text = f"x has {x.shape[0]} images, grid is for {grid.shape[0]}"
            rules.fail(self, text, rules.DIMS)
        if 0 in x.shape[2:]:
            rules.fail(self, f"an image of {x} has no element to read", rules.DIMS)
        return x.with_shape((*x.shape[:2], *grid.shape[1:-1]))

    def _ends(self, size: int) -> tuple[float, float]:
        """Where reflection turns."""
        return (0.0, size - 1.0) if self.align_corners else (-0.5, size - 0.5)

    # --- NumPy ---

    def reference(self, x: Values, grid: Values) -> Values:
        images, dims = widened(x), x.shape[2:]
        n: Values = np.arange(x.shape[0], dtype=np.int64).reshape(-1, *[1] * len(dims))
        y: Values = np.zeros((*grid.shape[:-1], x.shape[1]), images.dtype)
        coordinates = [self._coordinate(widened(grid)[..., -1 - a], d) for a, d in enumerate(dims)]
        weights = [self._weights(c) for c in coordinates]
        for taps in product(range(len(TAPS[self.mode])), repeat=len(dims)):
            places = [
                self._place(np.floor(c).astype(np.int64) + TAPS[self.mode][t], d)
                for c, t, d in zip(coordinates, taps, dims, strict=True)
            ]
            inside = np.all([p >= 0 for p in places], axis=0)
            pixel: Values = images[(n, slice(None), *(np.maximum(p, 0) for p in places))]
            pixel = np.where(inside[..., None], pixel, images.dtype.type(0))
            weight = math.prod((w[t] for w, t in zip(weights, taps, strict=True)), start=1)
            y = y + np.asarray(weight, images.dtype)[..., None] * pixel
        return np.moveaxis(y, -1, 1).astype(x.dtype)

    def _coordinate(self, g: Values, size: int) -> Values:
        one, two = g.dtype.type(1), g.dtype.type(2)
        v: Values = (g + one) / two * (size - 1) if self.align_corners else ((g + one) * size - one)
        v = v if self.align_corners else v / two
        v = np.rint(v) if self.mode == "nearest" else v
        if self.mode == "cubic":
            return v  # its taps are turned, one by one
        low, high = self._ends(size)
        if self.padding_mode == "border":
            return np.where((v < low) | (v > high), np.clip(v, 0, size - 1), v)
        if self.padding_mode == "reflection":
            span = g.dtype.type(high - low)
            beyond = v - g.dtype.type(low)
            turned = beyond - np.floor(beyond / max(two * span, one)) * (two * span)
            turned = span - np.abs(turned - span) + g.dtype.type(low)
            return np.where((v < low) | (v > high), turned, v)
        return v

    def _weights(self, v: Values) -> list[Values]:
        r: Values = v - np.floor(v)
        return [np.asarray(np.polyval(p, r), v.dtype) for p in WEIGHTS[self.mode]]

    def _place(self, i: Values, size: int) -> Values:
        """The element that position i stands for; -1 where that is a zero."""
        if self.padding_mode == "zeros":
            return np.where((i >= 0) & (i < size), i, -1)
        if self.padding_mode == "border":
            return np.clip(i, 0, size - 1)
        period = 2 * (size - 1) if self.align_corners else 2 * size
        forth = i % max(period, 1)
        return np.where(forth < size, forth, period - forth - (not self.align_corners))

    # --- simpler ops: the same, for what must be differentiated ---

    def decompose(self, x: Value, grid: Value) -> Value:
        """What its gradient is made of; a run uses `compute`, which makes one kernel of it all."""
        type, rank = tensor_type(x), tensor_type(x).rank
        dims, count = type.dims[2:], tensor_type(grid).dims[1:-1]
        images = apply("transpose", in_wide(x), perm=(0, *range(2, rank), 1))  # channels last
        parts = [_column(in_wide(grid), rank - 3 - a) for a in range(len(dims))]
        at = [self._turned(g, size) for g, size in zip(parts, dims, strict=True)]
        batch = np.arange(type.dims[0]).reshape(-1, *[1] * (len(dims) + 1))
        image = apply("expand", Constant("n", batch), shape=(type.dims[0], *count, 1))
        y: Value | None = None
        for taps in product(range(len(TAPS[self.mode])), repeat=len(dims)):
            places: list[Value] = [image]
            weight: Value | None = None
            inside: Value | None = None
            for v, t, size in zip(at, taps, dims, strict=True):
                i = apply("cast", apply("floor", v), to=i64) + TAPS[self.mode][t]
                place, here = self._pixel(i, size)
                places.append(place)
                inside = here if inside is None else apply("logical_and", inside, here)
                factor = _polynomial(v - apply("floor", v), WEIGHTS[self.mode][t])
                weight = factor if weight is None else weight * factor
            assert weight is not None
            pixel = apply("gather_nd", images, apply("concat", *places, axis=-1))
            pixel = pixel if self.padding_mode != "zeros" else apply("where", inside, pixel, 0.0)
            term = narrowed(weight, images) * pixel
            y = term if y is None else y + term
        assert y is not None
        order = (0, rank - 1, *range(1, rank - 1))
        return narrowed(apply("transpose", y, perm=order), x)

    def _turned(self, g: Value, size: int) -> Value:
        """Graph side of `_coordinate`."""
        v = (g + 1.0) * ((size - 1) / 2) if self.align_corners else ((g + 1.0) * size - 1.0) / 2.0
        v = apply("round", v) if self.mode == "nearest" else v
        if self.mode == "cubic" or self.padding_mode == "zeros":
            return v
        low, high = self._ends(size)
        if self.padding_mode == "border":
            turned = apply("minimum", apply("maximum", v, 0.0), size - 1.0)
        else:
            span, beyond = high - low, v - low
            rounds = apply("floor", beyond / max(2 * span, 1.0)) * (2 * span)
            turned = span - apply("abs", beyond - rounds - span) + low
        outside = apply("logical_or", apply("less", v, low), apply("greater", v, high))
        return apply("where", outside, turned, v)

    def _pixel(self, i: Value, size: int) -> tuple[Value, Value]:
        """Graph side of `_place`: an element that exists, and whether it is meant."""
        least, most = apply("greater_or_equal", i, 0), apply("less", i, size)
        if self.padding_mode == "reflection":
            period = 2 * (size - 1) if self.align_corners else 2 * size
            forth = apply("mod", i, max(period, 1))
            back = (period - (not self.align_corners)) - forth
            i = apply("where", apply("less", forth, size), forth, back)
        near = apply("minimum", apply("maximum", i, 0), size - 1)
        return near, apply("logical_and", least, most)

    # --- tensor expressions: the same ---

    def compute(self, x: Tensor, grid: Tensor) -> Tensor:
        dims = x.shape[2:]
        names = spatial_names(len(dims))
        shape = (*x.shape[:2], *grid.shape[1:-1])
        axes = [self._axis(grid, a, d, names) for a, d in enumerate(dims)]

        def pixel(n: Index, c: Index, at: tuple[Index, ...], taps: tuple[int, ...]) -> Expr:
            places = [
                self._element(self._tap(axis[n, *at], t), d)
                for axis, t, d in zip(axes, taps, dims, strict=True)
            ]
            value = functions.lookup(x, n, c, *(p for p, _ in places))
            value = to(wide(x.dtype), value)
            for _, inside in places:
                if inside is not None:
                    value = functions.where(inside, value, const(0, value.dtype))
            return value

        def body(n: Index, c: Index, *at: Index) -> Expr:
            def along(a: int, taps: tuple[int, ...]) -> Expr:
                """The sum over the taps of axis `a` and of those behind it."""
                if a == len(dims):
                    return pixel(n, c, at, taps)
                weights = self._factors(axes[a][n, *at])
                terms = [
                    along(a + 1, (*taps, t)) if w is None
                    else to(wide(x.dtype), w) * along(a + 1, (*taps, t))
                    for t, w in zip(TAPS[self.mode], weights, strict=True)
                ]  # fmt: skip
                total = terms[0]
                for term in terms[1:]:
                    total = total + term
                return total

            return to(x.dtype, along(0, ()))

        return compute(shape, body, self.name, axes=("n", "c", *names))

    def _axis(self, grid: Tensor, a: int, size: int, names: tuple[str, ...]) -> Tensor:
        """The stage of the coordinates along spatial axis `a`."""

        def body(n: Index, *at: Index) -> Expr:
            g = load(grid, (n, *at, Index.of(grid.shape[-1] - 1 - a)))
            v = (g + 1.0) / 2.0 * (size - 1.0) if self.align_corners else (
                (g + 1.0) * float(size) - 1.0) / 2.0  # fmt: skip
            v = functions.round(v) if self.mode == "nearest" else v
            if self.mode == "cubic" or self.padding_mode == "zeros":
                return v
            low, high = self._ends(size)
            if self.padding_mode == "border":
                turned = functions.maximum(functions.minimum(v, size - 1.0), 0.0)
            else:
                span, beyond = high - low, v - low
                rounds = functions.floor(beyond / max(2 * span, 1.0)) * (2 * span)
                turned = span - functions.abs(beyond - rounds - span) + low
            return functions.where(functions.bitwise("|", v < low, v > high), turned, v)

        return compute(grid.shape[:-1], body, f"grid_{names[a]}", axes=("n", *names))

    def _tap(self, v: Expr, tap: int) -> Expr:
        place = functions.cast(i64, call("floor", v))
        return place + tap if tap else place

    def _factors(self, v: Expr) -> list[Expr | None]:
        """The weight of each tap; None where it is 1."""
        if self.mode == "nearest":
            return [None]
        r = v - call("floor", v)
        factors: list[Expr | None] = []
        for first, *rest in WEIGHTS[self.mode]:
            value: Expr = const(first, v.dtype)
            for coefficient in rest:
                value = value * r + coefficient
            factors.append(value)
        return factors

    def _element(self, i: Expr, size: int) -> tuple[Expr, Expr | None]:
        """The element that position i stands for, and (zeros) whether there is one."""
        if self.padding_mode == "zeros":
            return i, functions.bitwise("&", i >= 0, i < size)
        if self.padding_mode == "border":  # a lookup is clamped
            return i, None
        period = 2 * (size - 1) if self.align_corners else 2 * size
        forth = functions.floormod(i, max(period, 1))
        back = const(period - (not self.align_corners), i64) - forth
        return functions.where(forth < size, forth, back), None

    @classmethod
    def examples(cls) -> Iterable[Example]:
        """Every mode, padding and alignment; 1-D to 3-D; far outside; element types."""
        x, grid = samples.array((2, 2, 4, 5)), samples.array((2, 3, 5, 2), low=-1.4, high=1.4)
        line = samples.array((1, 2, 6)), samples.array((1, 9, 1), low=-6, high=6)
        for mode, padding, align in product(TAPS, PADDINGS, (False, True)):
            yield Example(cls(mode, padding, align), line, 1e-4, 1e-4)
            if mode != "cubic" or (padding, align) == ("reflection", False):
                yield Example(cls(mode, padding, align), (x, grid), 1e-4, 1e-4)
        volume = samples.array((1, 2, 3, 2, 4)), samples.array((1, 2, 3, 2, 3), low=-1.2, high=1.2)
        for mode in ("nearest", "linear"):
            yield Example(cls(mode), volume, 1e-5, 1e-5)
        yield Example(cls(padding_mode="reflection", align_corners=True),
                      (samples.array((1, 1, 1, 3)), grid[:1]), 1e-5, 1e-5)  # fmt: skip
        for element in ("f64", "f16", "bf16"):
            given = (
                samples.array((1, 1, 4, 4), element),
                samples.array((1, 2, 3, 2), element, -1, 1),
            )
            yield Example(cls(), given, **samples.tolerance(element))


def _column(grid: Value, number: int) -> Value:
    """One coordinate of every place, its axis kept."""
    return apply("slice", grid, starts=(number,), ends=(number + 1,), axes=(-1,))


def _polynomial(r: Value, coefficients: tuple[float, ...]) -> Value:
    """By Horner's rule, the highest power first."""
    value = filled(coefficients[0], tensor_type(r))
    for c in coefficients[1:]:
        value = value * r + c
    return value
