"""Pooling: a maximum or an average over windows, or over all positions.

    apply("max_pool", x, kernel_shape=(2, 2), strides=(2, 2))
    apply("global_average_pool", x)                 # decomposes into mean

x has shape [n, c, …]; any number of spatial axes from 1 to 3. Treated in course chapter
01_graph_ir.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from minidlc.expr.index import Index, maximum, minimum
from minidlc.expr.nodes import Cast, Expr, IndexValue, call
from minidlc.expr.types import DType, TensorType, dtype
from minidlc.graph.graph import Node, Value, apply, tensor_type
from minidlc.graph.op import Example, Op, OpKind, Pattern, register_op
from minidlc.ops import rules, samples
from minidlc.ops.composing import in_wide, narrowed
from minidlc.ops.elementwise import load, to, wide, widened
from minidlc.ops.gradients import Grads, constant, given
from minidlc.ops.rules import Values
from minidlc.ops.windows import Window, pad_array, padded, plain_fields, spatial_names
from minidlc.te import functions
from minidlc.te import tensor as te
from minidlc.te.tensor import Tensor, compute


def lowest(element: DType) -> float | int:
    """What a maximum starts from."""
    return -np.inf if element.is_float else int(np.iinfo(element.numpy.name).min)


@dataclass(frozen=True)
class Pool(Op):
    """Base: attributes and type rule; () means ones (strides, dilations) or zeros (pads)."""

    pattern = Pattern.OUT_FUSABLE
    schedule = "pool"
    takes: ClassVar[tuple[str, ...]] = ("float",)
    kernel_shape: tuple[int, ...]
    strides: tuple[int, ...] = ()
    pads: tuple[int, ...] = ()
    dilations: tuple[int, ...] = ()
    ceil_mode: bool = False

    def __post_init__(self) -> None:
        plain_fields(self)

    @property
    def window(self) -> Window:
        """The geometry."""
        return Window.resolve(
            self, self.kernel_shape, self.strides, self.pads, self.dilations, self.ceil_mode
        )

    def type_rule(self, x: TensorType) -> TensorType:
        rules.elements(self, self.takes, x)
        rules.rank(self, "x", x, 3, 4, 5)
        if len(self.kernel_shape) != x.rank - 2:
            text = (
                f"kernel_shape {self.kernel_shape} has not one entry for each spatial axis of {x}"
            )
            rules.fail(self, text, rules.RANGE)
        window = self.window
        for pad, extent in zip(window.pads, window.extents * 2, strict=True):
            if pad >= extent:
                text = f"a pad of {pad} leaves windows of {extent} without an element"
                rules.fail(self, text, rules.RANGE)
        return x.with_shape((*x.shape[:2], *window.out_dims(self, x.shape[2:])))

    def out_dims(self, dims: tuple[int, ...]) -> tuple[int, ...]:
        """Static spatial result."""
        return tuple(d for d in self.window.out_dims(self, dims) if isinstance(d, int))

    @classmethod
    def examples(cls) -> Iterable[Example]:
        """1-D to 3-D, overlapping, pads on one side, ceil_mode over the edge, dilations."""
        table = (
            ((1, 1, 8, 8), cls((2, 2), (2, 2))),
            ((2, 3, 9, 7), cls((3, 3), (2, 2), (1, 1, 1, 1))),
            ((1, 2, 7, 8), cls((3, 2), (1, 3), (0, 1, 2, 0))),
            ((1, 1, 4, 4), cls((3, 3), (2, 2), ceil_mode=True)),
            ((1, 1, 4, 4), cls((3, 3), (2, 2), (1, 1, 1, 1), ceil_mode=True)),
            ((1, 1, 3, 3), cls((1, 1), (2, 2), ceil_mode=True)),
            ((1, 2, 9, 9), cls((2, 3), (1, 1), (1, 2, 1, 2), (3, 2))),
            ((1, 2, 11), cls((3,), (2,), (1, 1))),
            ((1, 2, 4, 5, 6), cls((2, 2, 2), (2, 2, 2), (0, 1, 0, 0, 1, 0))),
            ((1, 1, 1, 1), cls((1, 1))),
        )
        for shape, op in table:
            yield Example(op, (samples.array(shape),))
        special = np.resize(samples.special("f32"), (1, 1, 6, 6))
        yield Example(cls((2, 2), (1, 1), (1, 1, 0, 0)), (special,))
        for element in ("f64", "f16", "bf16"):
            x = samples.array((1, 2, 5, 6), element)
            yield Example(cls((2, 3), (2, 1), (1, 0, 0, 2)), (x,), **samples.tolerance(element))


@register_op
@dataclass(frozen=True)
class MaxPool(Pool):
    """max_pool(x)[n, c, h, w] = max over kh, kw of x[n, c, s*h + d*kh - p, …]; NaN if any is NaN.

    The border counts as the lowest value.
    """

    onnx = "MaxPool"
    takes = rules.NUMBERS

    def reference(self, x: Values) -> Values:
        out = self.out_dims(x.shape[2:])
        least = lowest(dtype(x.dtype))
        border = pad_array(x, self.window.reach(x.shape[2:], out), least)
        y = np.full((*x.shape[:2], *out), least, x.dtype)
        for _, tap in self.window.taps(border, out):
            y = np.maximum(y, tap)
        return y

    def compute(self, x: Tensor) -> Tensor:
        window, out = self.window, self.out_dims(x.shape[2:])
        border = padded(x, window.reach(x.shape[2:], out), lowest(x.dtype))
        taps = window.axes()

        def body(n: Index, c: Index, *at: Index) -> Expr:
            return te.max(border[(n, c, *window.position(at, taps))], *taps)

        axes = ("n", "c", *spatial_names(window.rank))
        return compute((*x.shape[:2], *out), body, self.name, axes=axes)

    def gradient(self, y: Node, dy: Value) -> Grads:
        """dy of a window goes to its maximum; equal elements share it evenly.

        If the maximum is NaN all elements of the window do.
        """
        (x,) = given(y)
        return (apply("max_pool_gradient", x, y, dy, **self.attributes()),)

    @classmethod
    def examples(cls) -> Iterable[Example]:
        """Those of every pool, and integers."""
        yield from super().examples()
        for element in ("i8", "u8"):
            yield Example(
                cls((2, 2), (2, 2), (1, 1, 1, 1)), (samples.array((1, 1, 6, 6), element, -9, 9),)
            )


@register_op
@dataclass(frozen=True)
class AveragePool(Pool):
    """average_pool(x)[n, c, h, w] = mean over kh, kw of x[n, c, s*h + d*kh - p, …].

    Elements outside x do not count; with count_include_pad those of the pads count, as zeros, but
    never those beyond the pads, where ceil_mode lets a window hang over.
    """

    onnx = "AveragePool"
    count_include_pad: bool = False

    def reference(self, x: Values) -> Values:
        window, out = self.window, self.out_dims(x.shape[2:])
        border = pad_array(widened(x), window.reach(x.shape[2:], out), 0)
        total = np.zeros((*x.shape[:2], *out), border.dtype)
        for _, tap in window.taps(border, out):
            total += tap
        return (total / self.counts(x.shape[2:]).astype(total.dtype)).astype(x.dtype)

    def counts(self, dims: tuple[int, ...]) -> Values:
        """NumPy: how many elements count in each window over an image of this size."""
        window, out = self.window, self.out_dims(dims)
        pads = window.pads if self.count_include_pad else (0,) * len(window.pads)
        inside = pad_array(np.ones(dims), pads, 1)
        reach = window.reach(dims, out)
        inside = pad_array(inside, tuple(r - p for r, p in zip(reach, pads, strict=True)), 0)
        return np.asarray(sum(one for _, one in window.taps(inside, out)))

    def compute(self, x: Tensor) -> Tensor:
        window, out = self.window, self.out_dims(x.shape[2:])
        border = padded(x, window.reach(x.shape[2:], out), 0.0)
        taps = window.axes()
        axes = ("n", "c", *spatial_names(window.rank))
        shape = (*x.shape[:2], *out)
        element = wide(x.dtype)

        def total(n: Index, c: Index, *at: Index) -> Expr:
            return te.sum(load(border, (n, c, *window.position(at, taps))), *taps)

        def mean(n: Index, c: Index, *at: Index) -> Expr:
            return to(x.dtype, sums[(n, c, *at)] / self._number(at, x.shape[2:], element))

        sums = compute(shape, total, "pool_sum", axes=axes)
        return compute(shape, mean, self.name, axes=axes)

    def _number(self, at: tuple[Index, ...], dims: tuple[int, ...], element: DType) -> Expr | float:
        """How many elements count in the window at `at`: a number, or a product over the axes."""
        window, fixed = self.window, 1
        factors: list[Expr] = []
        for a, index in enumerate(at):
            begin, end = window.pads[a], window.pads[a + window.rank]
            dilation, taps = window.dilations[a], window.kernel[a]
            start = index * window.strides[a] - begin
            first, stop = (-begin, dims[a] + end) if self.count_include_pad else (0, dims[a])
            low = maximum(0, (first - start + dilation - 1) // dilation)
            high = minimum(taps - 1, (stop - 1 - start) // dilation)
            reach = window.reach(dims, self.out_dims(dims))
            if first <= -begin and stop >= dims[a] + reach[a + window.rank]:
                fixed *= taps
            else:
                factors.append(Cast(element, IndexValue(high - low + 1)))
        number: Expr | float = float(fixed)
        for factor in factors:
            number = factor * number
        return number

    def gradient(self, y: Node, dy: Value) -> Grads:
        """dy of a window, divided by the number of its elements, goes to each of them."""
        (x,) = given(y)
        fields, size = self.attributes(), tensor_type(x).dims[2:]
        del fields["count_include_pad"]
        with np.errstate(divide="ignore"):  # a dilated window may have nothing but pads
            factor = constant(1 / self.counts(size), dy)
        return (apply("spread_windows", dy * factor, size=size, **fields),)

    @classmethod
    def examples(cls) -> Iterable[Example]:
        """Those of every pool, with the pads counted and not."""
        for example in super().examples():
            yield example
            op = example.op
            assert isinstance(op, AveragePool)
            counted = cls(op.kernel_shape, op.strides, op.pads, op.dilations, op.ceil_mode, True)
            yield Example(counted, example.inputs, example.rtol, example.atol)


@register_op
@dataclass(frozen=True)
class LpPool(Pool):
    """lp_pool(x)[n, c, h, w] = (sum over kh, kw of |x[n, c, s*h + d*kh - p, …]|**p) ** (1/p)."""

    onnx = "LpPool"
    p: int = 2

    def type_rule(self, x: TensorType) -> TensorType:
        if self.p < 1:
            rules.fail(self, f"p must be at least 1, got {self.p}", rules.RANGE)
        return super().type_rule(x)

    def reference(self, x: Values) -> Values:
        window, out = self.window, self.out_dims(x.shape[2:])
        border = np.abs(pad_array(widened(x), window.reach(x.shape[2:], out), 0))
        total = np.zeros((*x.shape[:2], *out), border.dtype)
        for _, tap in window.taps(border, out):
            total += tap**self.p
        root = total.dtype.type(1 / self.p)
        return np.asarray(total if self.p == 1 else total**root).astype(x.dtype)

    def compute(self, x: Tensor) -> Tensor:
        window, out = self.window, self.out_dims(x.shape[2:])
        border = padded(x, window.reach(x.shape[2:], out), 0.0)
        taps = window.axes()
        axes, shape = ("n", "c", *spatial_names(window.rank)), (*x.shape[:2], *out)

        def total(n: Index, c: Index, *at: Index) -> Expr:
            value = load(border, (n, c, *window.position(at, taps)))
            power = value * value if self.p == 2 else functions.pow(functions.abs(value), self.p)
            return te.sum(power, *taps)

        def root(*index: Index) -> Expr:
            total = sums[index]
            return to(
                x.dtype, call("sqrt", total) if self.p == 2 else functions.pow(total, 1 / self.p)
            )

        sums = compute(shape, total, "pool_sum", axes=axes)
        return compute(shape, root, self.name, axes=axes)

    def gradient(self, y: Node, dy: Value) -> Grads:
        """dy * (|x| / y)**(p-1) * sign(x), summed over the windows; 0 where y, the norm, is 0."""
        (x,), fields = given(y), self.attributes()
        del fields["p"]
        size, wide_x, norm, above = tensor_type(x).dims[2:], in_wide(x), in_wide(y), in_wide(dy)
        if self.p == 1:
            spread = apply("spread_windows", above, size=size, **fields)
            return (narrowed(apply("sign", wide_x) * spread, x),)
        nothing = apply("equal", norm, 0)
        divisor = apply("pow", apply("where", nothing, 1, norm), float(self.p - 1))
        scaled = apply("where", nothing, 0, above / divisor)
        spread = apply("spread_windows", scaled, size=size, **fields)
        powers = (
            wide_x if self.p == 2 else wide_x * apply("pow", apply("abs", wide_x), self.p - 2.0)
        )
        return (narrowed(powers * spread, x),)

    @classmethod
    def examples(cls) -> Iterable[Example]:
        """Those of every pool, and other norms."""
        yield from super().examples()
        for p in (1, 3):
            op = cls((3, 2), (2, 1), (1, 0, 0, 1), (1, 2), p=p)
            yield Example(op, (samples.array((1, 2, 6, 5)),))


@dataclass(frozen=True)
class GlobalPool(Op):
    """Base: one number for each channel, the spatial axes kept with size 1."""

    kind = OpKind.COMPOSITE
    reduction: ClassVar[str]

    def type_rule(self, x: TensorType) -> TensorType:
        rules.elements(self, "float", x)
        if x.rank < 3:
            rules.fail(self, f"x must have spatial axes after [n, c], got {x}", rules.RANK)
        return x.with_shape((*x.shape[:2], *[1] * (x.rank - 2)))

    def decompose(self, x: Value) -> Value:
        return apply(self.reduction, x, axes=tuple(range(2, tensor_type(x).rank)), keepdims=True)

    @classmethod
    def examples(cls) -> Iterable[Example]:
        """1-D to 3-D, one position, a wide type."""
        for shape in ((2, 3, 4, 5), (1, 2, 7), (1, 2, 3, 2, 2), (1, 3, 1, 1)):
            yield Example(cls(), (samples.array(shape),), 1e-5, 1e-6)
        yield Example(cls(), (samples.array((1, 2, 3, 3), "f64"),), 1e-11, 1e-12)


@register_op
@dataclass(frozen=True)
class GlobalAveragePool(GlobalPool):
    """global_average_pool(x)[n, c, 0, 0] = mean over h, w of x[n, c, h, w]."""

    onnx = "GlobalAveragePool"
    reduction = "mean"

    def reference(self, x: Values) -> Values:
        total = np.sum(widened(x), axis=tuple(range(2, x.ndim)), keepdims=True)
        return (total / total.dtype.type(np.prod(x.shape[2:]))).astype(x.dtype)


@register_op
@dataclass(frozen=True)
class GlobalMaxPool(GlobalPool):
    """global_max_pool(x)[n, c, 0, 0] = max over h, w of x[n, c, h, w]; NaN if any is NaN."""

    onnx = "GlobalMaxPool"
    reduction = "max"

    def reference(self, x: Values) -> Values:
        least = x.dtype.type(-np.inf)  # of no elements, as in `max`
        return np.max(x, axis=tuple(range(2, x.ndim)), keepdims=True, initial=least)


@register_op
@dataclass(frozen=True)
class GlobalLpPool(GlobalPool):
    """global_lp_pool(x)[n, c, 0, 0] = (sum over h, w of |x[n, c, h, w]|**p) ** (1/p)."""

    onnx = "GlobalLpPool"
    p: int = 2

    def type_rule(self, x: TensorType) -> TensorType:
        if self.p < 1:
            rules.fail(self, f"p must be at least 1, got {self.p}", rules.RANGE)
        return super().type_rule(x)

    def reference(self, x: Values) -> Values:
        powers = np.abs(widened(x)) ** self.p
        total = np.sum(powers, axis=tuple(range(2, x.ndim)), keepdims=True)
        return np.asarray(total ** total.dtype.type(1 / self.p)).astype(x.dtype)

    def decompose(self, x: Value) -> Value:
        axes = tuple(range(2, tensor_type(x).rank))
        if self.p <= 2:
            return apply(f"reduce_l{self.p}", x, axes=axes)
        total = apply("sum", apply("pow", apply("abs", in_wide(x)), float(self.p)), axes=axes)
        return narrowed(apply("pow", total, 1 / self.p), x)

    @classmethod
    def examples(cls) -> Iterable[Example]:
        """Those of every global pool, and other norms."""
        yield from super().examples()
        for p in (1, 3):
            yield Example(cls(p), (samples.array((2, 3, 4, 5)),), 1e-5, 1e-6)
        yield Example(cls(3), (samples.array((1, 2, 9), "f16"),), 2e-3, 1e-3)
