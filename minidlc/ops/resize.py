"""Images made larger or smaller: resize, by nearest, linear or cubic interpolation.

    apply("resize", x, scales=(1.0, 1.0, 2.0, 2.0))
    apply("resize", x, sizes=(224, 224), axes=(2, 3), mode="linear")
    apply("resample", x, axis=3, size=8, divisor=2)         # x[…, i // 2]

Axis by axis each element of the result is a weighted sum of a few elements of x, at positions that
are known: ops/resampling.py makes the tables. Treated in course chapter 01_graph_ir.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from minidlc.expr.index import Index, maximum, minimum
from minidlc.expr.nodes import Expr, const
from minidlc.expr.types import Dim, DType, TensorType, dtype, f64
from minidlc.graph.graph import Node, Value, apply, tensor_type
from minidlc.graph.op import Example, Op, OpKind, Pattern, register_op
from minidlc.ops import rules, samples
from minidlc.ops.binary import convert
from minidlc.ops.composing import cast_to, in_wide, narrowed
from minidlc.ops.elementwise import axis_names, wide
from minidlc.ops.gradients import Grads, given
from minidlc.ops.resampling import (
    ROUNDINGS,
    TRANSFORMATIONS,
    Table,
    cubic_table,
    linear_table,
    nearest_table,
    source_positions,
)
from minidlc.ops.rules import Values
from minidlc.te.tensor import Tensor, compute

MODES = ("nearest", "linear", "cubic")
POLICIES = ("stretch", "not_larger", "not_smaller")
FEW_TAPS = 4  # sums of so many are written out: they fuse with what comes before and after
GRAIN = 1 / 4096  # of integers: far above the errors of a sum in f64, far below what anyone sees
CROP = "tf_crop_and_resize"


@register_op
@dataclass(frozen=True)
class Resample(Op):
    """resample(x)[…, i, …] = x[…, (i * step + shift) // divisor, …], along `axis`.

    i runs to `size`; positions outside stand for the first and the last element.
    """

    pattern = Pattern.INJECTIVE
    axis: int
    size: int
    step: int = 1
    shift: int = 0
    divisor: int = 1

    def type_rule(self, x: TensorType) -> TensorType:
        axis = rules.axis(self, self.axis, x.rank)
        rules.count(self, "size", (self.size,), 1, 0)
        rules.count(self, "divisor", (self.divisor,), 1, 1)
        if self.size and x.shape[axis] == 0:
            rules.fail(self, f"axis {axis} of {x} has no element to repeat", rules.DIMS)
        return x.with_shape((*x.shape[:axis], self.size, *x.shape[axis + 1 :]))

    def _places(self, size: int) -> Values:
        """The element of an axis of `size` that each element of the result is."""
        i = (np.arange(self.size) * self.step + self.shift) // self.divisor
        return np.clip(i, 0, max(size - 1, 0))

    def reference(self, x: Values) -> Values:
        return np.take(x, self._places(x.shape[self.axis]), self.axis)

    def compute(self, x: Tensor) -> Tensor:
        axis = rules.axis(self, self.axis, len(x.shape))
        out = self.type_rule(x.type).dims

        def body(*index: Index) -> Expr:
            if not math.prod(x.shape):
                return const(0, x.dtype)
            i = (index[axis] * self.step + self.shift) // self.divisor
            i = maximum(0, minimum(i, x.shape[axis] - 1))
            return x[(*index[:axis], i, *index[axis + 1 :])]

        return compute(out, body, self.name, axes=axis_names(len(out)))

    def gradient(self, y: Node, dy: Value) -> Grads:
        """An element gets the sum of the dy of all that repeat it: neighbours if x only grows."""
        (x,) = given(y)
        dims, axis = tensor_type(x).dims, rules.axis(self, self.axis, tensor_type(x).rank)
        size, times = dims[axis], self.divisor
        if (self.step, self.shift, self.size) == (1, 0, size * times):
            copies = apply("reshape", dy, shape=(*dims[: axis + 1], times, *dims[axis + 1 :]))
            return (apply("sum", copies, axes=(axis + 1,), keepdims=False),)
        places = self._places(size)
        return (narrowed(apply("index_add", in_wide(dy), places, axis=axis, size=size), x),)

    @classmethod
    def examples(cls) -> Iterable[Example]:
        """Larger, smaller, by fractions, backwards, beyond both ends; every axis; types."""
        x = samples.array((5, 4, 6))
        for axis, size in ((0, 5), (1, 4), (2, 6), (-1, 6)):
            for op in (
                cls(axis, 2 * size, 1, 0, 2), cls(axis, size // 2, 2, 1), cls(axis, 7, 5, -4, 3),
                cls(axis, 9, -1, 7), cls(axis, 3, 0, 2), cls(axis, 17, 1, -5), cls(axis, 0),
            ):  # fmt: skip
                yield Example(op, (x,), 0, 0)
        yield Example(cls(0, 40, 1, 0, 8), (samples.array((5,)),), 0, 0)
        yield Example(cls(1, 4, 1, 0, 2), (samples.array((0, 2)),), 0, 0)
        for element in ("f64", "f16", "i64", "u8", "bool"):
            yield Example(cls(0, 9, 2, 1, 3), (samples.array((7, 2), element, 0, 9),), 0, 0)


@register_op
@dataclass(frozen=True)
class Resize(Op):
    """resize(x) = x with `axes` (all if ()) stretched by `scales`, or to `sizes`: one is given.

    Attributes mean what they mean in ONNX. The size of a scaled axis is floor(size * scale).
    Interpolation is computed in f32 (f64 for f64 and integers); results that are integers are
    rounded, halves to even, and saturated. What lies within 1 / 8192 of a half is a half: weights
    such as 1 / 3 and the order of the sum leave errors that would decide otherwise. `roi` and
    `extrapolation_value` are used by tf_crop_and_resize alone.
    """

    kind = OpKind.COMPOSITE
    scales: tuple[float, ...] = ()
    sizes: tuple[int, ...] = ()
    mode: str = "nearest"
    axes: tuple[int, ...] = ()
    coordinate_transformation_mode: str = "half_pixel"
    nearest_mode: str = "round_prefer_floor"
    cubic_coeff_a: float = -0.75
    exclude_outside: bool = False
    antialias: bool = False
    keep_aspect_ratio_policy: str = "stretch"
    roi: tuple[float, ...] = ()
    extrapolation_value: float = 0.0

    def __post_init__(self) -> None:
        for name in ("scales", "roi"):  # ONNX keeps them as float32
            values = tuple(float(np.float32(v)) for v in getattr(self, name))
            object.__setattr__(self, name, values)

    def type_rule(self, x: TensorType) -> TensorType:
        self._check_words()
        kinds = rules.ANY if self.mode == "nearest" else rules.NUMBERS
        rules.elements(self, kinds, x)
        shape = list(x.shape)
        for axis, (out, _) in self.stretched(x.shape).items():
            if out and x.shape[axis] == 0:
                rules.fail(self, f"axis {axis} of {x} has no element to repeat", rules.DIMS)
            shape[axis] = out
        return x.with_shape(tuple(shape))

    def _check_words(self) -> None:
        for name, known in (
            ("mode", MODES),
            ("coordinate_transformation_mode", TRANSFORMATIONS),
            ("nearest_mode", tuple(ROUNDINGS)),
            ("keep_aspect_ratio_policy", POLICIES),
        ):
            value = getattr(self, name)
            if value not in known:
                text = f"{name} {value!r} is none of {', '.join(known)}"
                rules.fail(self, text, rules.RANGE)
        if self.antialias and self.mode == "nearest":
            rules.fail(self, "nearest elements cannot be antialiased", rules.RANGE)
        numbers = dict(enumerate((*self.scales, *self.roi, self.cubic_coeff_a)))
        rules.finite(self, **{f"attribute {n}": v for n, v in numbers.items()})

    def stretched(self, shape: rules.Shape) -> dict[int, tuple[Dim, float]]:
        """axis -> (its size in the result, scale), for every axis in `axes`."""
        rank = len(shape)
        rules.axes(self, self.axes, rank)  # none is named twice
        axes = [rules.axis(self, a, rank) for a in self.axes] or list(range(rank))
        if bool(self.scales) == bool(self.sizes) and rank:
            rules.fail(self, "takes scales or sizes, one of the two", rules.RANGE)
        if self.coordinate_transformation_mode == CROP and len(self.roi) != 2 * len(axes):
            text = f"roi must have {2 * len(axes)} entries, got {self.roi}"
            rules.fail(self, text, rules.RANGE, "all starts, then all ends")
        if self.sizes:
            rules.count(self, "sizes", self.sizes, len(axes), 0)
            return self._to_sizes(shape, axes)
        if len(self.scales) != len(axes) or any(s <= 0 for s in self.scales):
            text = f"scales must be {len(axes)} numbers above 0, got {self.scales}"
            rules.fail(self, text, rules.RANGE)
        return {a: (self._scaled(shape[a], s), s) for a, s in zip(axes, self.scales, strict=True)}

    def _scaled(self, dim: Dim, scale: float) -> Dim:
        if scale == int(scale):
            return dim * int(scale)
        if not isinstance(dim, int):
            text = f"the size {dim} times {scale} is not known"
            rules.fail(self, text, rules.SYMBOLIC, "give the sizes: shapes={…}")
        return math.floor(np.float32(dim) * np.float32(scale))  # as every engine rounds it

    def _to_sizes(self, shape: rules.Shape, axes: list[int]) -> dict[int, tuple[Dim, float]]:
        result: dict[int, tuple[Dim, float]] = {}
        for axis, size in zip(axes, self.sizes, strict=True):
            dim = shape[axis]
            result[axis] = (size, size / dim if isinstance(dim, int) and dim else 1.0)
        if self.keep_aspect_ratio_policy == "stretch" or not result:
            return result
        choose = min if self.keep_aspect_ratio_policy == "not_larger" else max
        scale = choose(s for _, s in result.values())
        for axis in axes:
            dim = shape[axis]
            if not isinstance(dim, int):
                text = f"a {self.keep_aspect_ratio_policy} size of {dim} is not known"
                rules.fail(self, text, rules.SYMBOLIC, "give the sizes: shapes={…}")
            result[axis] = (math.floor(scale * dim + 0.5), scale)
        return result

    def tables(self, shape: tuple[int, ...]) -> dict[int, tuple[Table, Values]]:
        """axis -> its table, and where results lie outside the region; those that change x.

        The axis that shrinks the most comes first: the others then have less to do.
        """
        plans: dict[int, tuple[Table, Values]] = {}
        stretched = self.stretched(shape)
        for n, (axis, (out, scale)) in enumerate(stretched.items()):
            size = shape[axis]
            assert isinstance(out, int)
            region = (self.roi[n], self.roi[n + len(stretched)]) if self._crops else (0.0, 1.0)
            x = source_positions(self.coordinate_transformation_mode, size, out, scale, region)
            outside = (x < 0) | (x > size - 1) if self._crops else np.zeros(out, np.bool_)
            table = self._table(x, size, scale)
            same = table.picks() and np.array_equal(table.first, np.arange(size))
            if not same or outside.any():
                plans[axis] = (table, outside)
        return dict(sorted(plans.items(), key=lambda p: p[1][1].size / max(shape[p[0]], 1)))

    @property
    def _crops(self) -> bool:
        return self.coordinate_transformation_mode == CROP

    def _table(self, x: Values, size: int, scale: float) -> Table:
        if self.mode == "nearest":
            return nearest_table(x, self.nearest_mode)
        if self.mode == "linear":
            return linear_table(
                x, size, scale, antialias=self.antialias, exclude_outside=self.exclude_outside
            )
        return cubic_table(
            x, size, scale, self.cubic_coeff_a,
            antialias=self.antialias, exclude_outside=self.exclude_outside,
        )  # fmt: skip

    def _element(self, element: DType) -> DType:
        """The type that is interpolated in."""
        return wide(element) if element.is_float else f64

    def reference(self, x: Values) -> Values:
        tables = self.tables(x.shape)
        picks = self.mode == "nearest" or not tables
        y: Values = x if picks else x.astype(self._element(dtype(x.dtype)).numpy)
        for axis, (table, outside) in tables.items():
            y = _weighted(np.moveaxis(y, axis, 0), table)
            y[outside] = self.extrapolation_value
            y = np.moveaxis(y, 0, axis)
        if y.dtype == x.dtype or dtype(x.dtype).is_float:
            return y.astype(x.dtype)
        return convert(np.rint(np.rint(y / GRAIN) * GRAIN), x.dtype)

    def decompose(self, x: Value) -> Value:
        type = tensor_type(x)
        element, tables = type.dtype, self.tables(type.dims)
        if not tables:
            return apply("identity", x)
        inner = element if self.mode == "nearest" else self._element(element)
        y = cast_to(x, inner)
        for axis, (table, outside) in tables.items():
            y = _interpolated(y, axis, table, inner)
            if outside.any():
                mask = _column(outside, type.rank - axis)
                value = np.asarray(self.extrapolation_value, inner.numpy)
                y = apply("where", mask, value, y)
        if inner == element:
            return y
        if not element.is_float:
            y = apply("round", apply("round", y * (1 / GRAIN)) * GRAIN)
        return apply("cast", y, to=element)

    @classmethod
    def examples(cls) -> Iterable[Example]:
        """Every mode with every transformation, larger and smaller; axes, policies, types."""
        x = samples.array((1, 2, 4, 5))
        for mode in MODES:
            for how in TRANSFORMATIONS:
                if how == "tf_half_pixel_for_nn" and mode != "nearest":
                    continue
                roi = (0, 0, 0.1, -0.3, 1, 1, 0.8, 1.2) if how == CROP else ()
                for sizes in ((1, 2, 9, 7), (1, 2, 2, 13)):
                    op = cls((), sizes, mode, (), how, roi=roi, extrapolation_value=1.5)
                    yield Example(op, (x,), 1e-5, 1e-5)
                yield Example(cls((1, 1, 1.6, 0.6), (), mode, (), how, roi=roi), (x,), 1e-5, 1e-5)
        for rounding in ROUNDINGS:
            for scale in (2.0, 3.0, 0.5, 1.5, 0.8):
                op = cls((scale,), (), "nearest", (-1,), "asymmetric", rounding)
                yield Example(op, (x,), 0, 0)
        for mode in ("linear", "cubic"):
            for antialias in (False, True):
                op = cls((0.4, 2.0), (), mode, (3, 1), "half_pixel", "floor", -0.5, not antialias)
                yield Example(replace(op, antialias=antialias), (x,), 1e-5, 1e-5)
            for policy in POLICIES:
                op = cls((), (7, 8), mode, (2, 3), keep_aspect_ratio_policy=policy)
                yield Example(op, (x,), 1e-5, 1e-5)
            for element in ("f64", "f16", "bf16", "u8", "i8", "i32"):
                given = samples.array((1, 1, 3, 4), element, -100, 120)
                op = cls((1, 1, 2.0, 0.7), (), mode, (), "align_corners")
                yield Example(op, (given,), **samples.tolerance(element))
        for element in ("i16", "u16", "i32"):  # with weights of 1 / 3 and many halves
            given = samples.array((7, 3, 7), element, -10, 10)
            yield Example(cls((2.0, 3.0, 2.0), (), "linear"), (given,), 0, 0)
        for element in ("i64", "u64", "i8"):  # the largest are no f64
            for scale in (2.0, 1.0):
                given = samples.special(element)[-3:]
                yield Example(cls((scale,), (), "cubic"), (given,), 0, 0)
        for element in ("i64", "u8", "bool", "f16"):
            yield Example(cls((2.0, 1.3)), (samples.array((3, 4), element, 0, 9),), 0, 0)
        yield Example(cls((1.0, 1.0)), (samples.array((3, 4)),), 0, 0)
        yield Example(cls((), (1, 1, 1), "linear"), (samples.array((2, 3, 4)),), 1e-5, 1e-5)
        yield Example(cls((2.0,), (), "cubic"), (samples.array((1,)),), 1e-5, 1e-5)


def _column(values: Values, rank: int) -> Values:
    """Values of one axis (or more), shaped to broadcast over `rank - 1` axes behind it."""
    return values.reshape(*values.shape, *[1] * (rank - 1))


def _weighted(x: Values, table: Table) -> Values:
    """NumPy: axis 0 of x resized by its table."""
    taps: Values = x[table.positions(x.shape[0])]  # [out, tap, …]
    if table.picks():
        return taps[:, 0]
    weights: Values = table.weights.astype(x.dtype)
    return np.asarray(np.sum(taps * _column(weights, x.ndim), axis=1, dtype=x.dtype))


def _interpolated(x: Value, axis: int, table: Table, element: DType) -> Value:
    """One axis of x resized by its table."""
    rank, size = tensor_type(x).rank, tensor_type(x).dims[axis]
    weights = table.weights.astype(element.numpy)
    taps = weights.shape[1]
    even = table.evenly()
    if even is None or taps > FEW_TAPS:
        places = table.positions(size)
        if table.picks():
            return apply("gather", x, places[:, 0], axis=axis)
        products = apply("gather", x, places, axis=axis) * _column(weights, rank - axis)
        return apply("sum", products, axes=(axis + 1,), keepdims=False)
    step, shift, divisor = even
    parts = [
        apply("resample", x, axis=axis, size=table.first.size, step=step,
              shift=shift + divisor * k, divisor=divisor)
        for k in range(taps)
    ]  # fmt: skip
    if table.picks():
        return parts[0]
    y = parts[0] * _column(weights[:, 0], rank - axis)
    for k in range(1, taps):
        y = y + parts[k] * _column(weights[:, k], rank - axis)
    return y
