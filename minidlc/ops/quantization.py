"""Numbers as integers times a scale: quantize, dequantize, products of 8-bit integers.

    apply("quantize_linear", x, scale, zero, to="u8")   # cast(round(x / scale) + zero), saturated
    apply("dequantize_linear", q, scale, zero)          # (q - zero) * scale
    apply("matmul_integer", a, b)                       # i8 or u8, summed in i32

A scale is one number, one for each index of `axis`, or one for each block of `block_size` along it;
the zero point has its shape. The arithmetic is that of f32. Treated in course chapter 01_graph_ir.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from minidlc.expr.types import DType, TensorType, dtype, f32, i32, u8
from minidlc.graph.graph import Value, apply, tensor_type
from minidlc.graph.op import Example, Op, OpKind, register_op
from minidlc.ops import rules, samples
from minidlc.ops.binary import convert
from minidlc.ops.composing import cast_to
from minidlc.ops.conv import Conv
from minidlc.ops.matmul import MatMul
from minidlc.ops.rules import Values
from minidlc.ops.windows import plain_fields

STORED = ("u8", "i8", "u16", "i16")
BYTES = ("u8", "i8")


@dataclass(frozen=True)
class Scaled(Op):
    """Base: where the scale that belongs to an element is found."""

    kind = OpKind.COMPOSITE
    optional = (2,)
    axis: int = 1
    block_size: int = 0

    def check_scale(self, x: TensorType, scale: TensorType, zero: TensorType | None) -> None:
        """The scale is a float of a shape that fits x; the zero point has that shape too."""
        rules.elements(self, "float", scale)
        if self.block_size < 0:
            text = f"block_size must be 0 (no blocks) or more, got {self.block_size}"
            rules.fail(self, text, rules.RANGE)
        if zero is not None and zero.shape != scale.shape:
            rules.fail(self, f"the zero point {zero} has not the shape of {scale}", rules.DIMS)
        if scale.rank == 0 or scale.dims == (1,):
            return
        axis = rules.axis(self, self.axis, x.rank)
        wanted = (x.dims[axis],)
        if self.block_size:
            blocks = -(-x.dims[axis] // self.block_size)
            wanted = (*x.dims[:axis], blocks, *x.dims[axis + 1 :])
        if scale.dims != wanted:
            rules.fail(self, f"the scale of {x} must be {wanted}, got {scale}", rules.DIMS)

    def of_each(self, x: Values, v: Values) -> Values:
        """NumPy: scale or zero point, shaped to broadcast to x."""
        if v.size == 1:
            return v.reshape(())
        axis = self.axis % x.ndim
        if self.block_size:
            return np.repeat(v, self.block_size, axis)[
                (slice(None),) * axis + (slice(x.shape[axis]),)
            ]
        return v.reshape([-1 if a == axis else 1 for a in range(x.ndim)])

    def of_each_value(self, x: Value, v: Value) -> Value:
        """Graph side of `of_each`."""
        dims, given = tensor_type(x).dims, tensor_type(v).dims
        if tensor_type(v).size == 1:
            return v if not given else apply("reshape", v, shape=())
        axis = self.axis % len(dims)
        if not self.block_size:
            return apply("reshape", v, shape=[n if a == axis else 1 for a, n in enumerate(dims)])
        blocks = apply("unsqueeze", v, axes=(axis + 1,))
        shape = (*given[: axis + 1], self.block_size, *given[axis + 1 :])
        repeated = apply("expand", blocks, shape=shape)
        whole = (*given[:axis], given[axis] * self.block_size, *given[axis + 1 :])
        every = apply("reshape", repeated, shape=whole)
        return apply("slice", every, starts=(0,), ends=(dims[axis],), axes=(axis,))


@register_op
@dataclass(frozen=True)
class QuantizeLinear(Scaled):
    """quantize_linear(x, scale, zero)[i] = round(x[i] / scale) + zero, saturated to type `to`.

    Halves are rounded to even, NaN gives 0. zero is of type `to`, 0 if omitted. The quotient is of
    the type of scale, before it is rounded: f16 may make it a half.
    """

    onnx = "QuantizeLinear"
    to: DType = u8

    def __post_init__(self) -> None:
        object.__setattr__(self, "to", dtype(self.to))

    def type_rule(
        self, x: TensorType, scale: TensorType, zero: TensorType | None = None
    ) -> TensorType:
        if not x.dtype.is_float and x.dtype != i32:
            rules.fail(self, f"takes float or i32 elements, got {x.dtype}", rules.ELEMENT)
        if self.to.name not in STORED:
            rules.fail(self, f"the result is {', '.join(STORED)}, not {self.to}", rules.ELEMENT)
        if zero is not None and zero.dtype != self.to:
            text = f"the zero point must be {self.to} as the result, got {zero}"
            rules.fail(self, text, rules.ELEMENT)
        self.check_scale(x, scale, zero)
        return x.with_dtype(self.to)

    def reference(self, x: Values, scale: Values, zero: Values | None = None) -> Values:
        y = x.astype(np.float32) / self.of_each(x, scale).astype(np.float32)
        y = np.rint(y.astype(scale.dtype).astype(np.float32))
        if zero is not None:
            y = y + self.of_each(x, zero).astype(np.float32)
        return convert(np.asarray(y), self.to.numpy)

    def decompose(self, x: Value, scale: Value, zero: Value | None = None) -> Value:
        y = cast_to(x, f32) / cast_to(self.of_each_value(x, scale), f32)
        y = apply("round", cast_to(cast_to(y, tensor_type(scale).dtype), f32))
        if zero is not None:
            y = y + cast_to(self.of_each_value(x, zero), f32)
        return apply("cast", y, to=self.to)

    @classmethod
    def examples(cls) -> Iterable[Example]:
        """One scale, axes, blocks; each type; halves, what saturates, infinities."""
        halves = np.array([0.5, 1.5, -0.5, 2.5, 1e9, -1e9, np.inf, -np.inf, 127, 128], np.float32)
        for to in STORED:
            zero = np.array(3, dtype(to).numpy)
            yield Example(cls(to=dtype(to)), (halves, np.array(1, np.float32), zero), 0, 0)
        yield Example(cls(), (halves, np.array([0.5], np.float32)), 0, 0)
        yield Example(cls(), (np.array([7, -300, 9000], np.int32), np.array(2, np.float32)), 0, 0)
        for axis, block_size, x, scale, zero in _scales("u8"):
            yield Example(cls(axis, block_size), (x * 50, scale, zero), 0, 0)
        x = samples.array((3, 5), "f16", -50, 50)
        yield Example(cls(), (x, np.array(2, np.float16)), 0, 0)
        close = np.array([1.5, 3.5, 3.832, 7.5], np.float16)  # in f16 the quotients are halves
        yield Example(cls(), (close, np.array(1 / 3, np.float16)), 0, 0)


@register_op
@dataclass(frozen=True)
class DequantizeLinear(Scaled):
    """dequantize_linear(x, scale, zero)[i] = (x[i] - zero) * scale, in the float type `to`.

    zero is of the type of x, 0 if omitted.
    """

    onnx = "DequantizeLinear"
    to: DType = f32

    def __post_init__(self) -> None:
        object.__setattr__(self, "to", dtype(self.to))

    def type_rule(
        self, x: TensorType, scale: TensorType, zero: TensorType | None = None
    ) -> TensorType:
        if x.dtype.name not in (*STORED, "i32"):
            text = f"takes elements of {', '.join(STORED)} or i32, got {x.dtype}"
            rules.fail(self, text, rules.ELEMENT)
        if self.to.name not in ("f32", "f16", "bf16"):
            rules.fail(self, f"the result is f32, f16 or bf16, not {self.to}", rules.ELEMENT)
        if zero is not None:
            rules.elements(self, rules.INTEGERS, x, zero)
        self.check_scale(x, scale, zero)
        return x.with_dtype(self.to)

    def reference(self, x: Values, scale: Values, zero: Values | None = None) -> Values:
        v = x.astype(np.int32)
        if zero is not None:
            v = v - self.of_each(x, zero).astype(np.int32)
        y = v.astype(np.float32) * self.of_each(x, scale).astype(np.float32)
        return np.asarray(y).astype(self.to.numpy)

    def decompose(self, x: Value, scale: Value, zero: Value | None = None) -> Value:
        v = cast_to(x, i32)
        if zero is not None:
            v = v - cast_to(self.of_each_value(x, zero), i32)
        y = cast_to(v, f32) * cast_to(self.of_each_value(x, scale), f32)
        return cast_to(y, self.to)

    @classmethod
    def examples(cls) -> Iterable[Example]:
        """One scale, axes, blocks; each type; no zero point."""
        for element in (*STORED, "i32"):
            x = samples.special(element)
            zero = None if element == "i32" else np.array(3, dtype(element).numpy)
            given = (x, np.array(0.5, np.float32), *(() if zero is None else (zero,)))
            yield Example(cls(), given)
        for axis, block_size, x, scale, zero in _scales("i8"):
            stored = np.rint(x * 50).astype(np.int8)
            yield Example(cls(axis, block_size), (stored, scale, zero))
        stored = samples.array((3, 5), "i8", -50, 50)
        yield Example(cls(to=dtype("f16")), (stored, np.array(0.3, np.float16)), 2e-3, 1e-3)


@register_op
@dataclass(frozen=True)
class MatMulInteger(Op):
    """matmul_integer(a, b, a_zero, b_zero) = matmul(a - a_zero, b - b_zero), summed in i32.

    A zero point, 0 if omitted, is one number, or one for each row of a, each column of b.
    """

    name = "matmul_integer"
    kind = OpKind.COMPOSITE
    onnx = "MatMulInteger"
    optional = (2, 3)

    def type_rule(
        self,
        a: TensorType,
        b: TensorType,
        a_zero: TensorType | None = None,
        b_zero: TensorType | None = None,
    ) -> TensorType:
        for name, t, zero in (("a", a, a_zero), ("b", b, b_zero)):
            _check_bytes(self, name, t, zero)
        product = MatMul().type_rule(a.with_dtype(i32), b.with_dtype(i32))
        self._check_zero("a_zero", a_zero, a, (*a.dims[:-1], 1))
        self._check_zero("b_zero", b_zero, b, (*b.dims[:-2], 1, *b.dims[1:][-1:]))
        return product

    def _check_zero(
        self, name: str, zero: TensorType | None, t: TensorType, full: tuple[int, ...]
    ) -> None:
        along = max(full[-2:])
        if zero is None or zero.dims in ((), (1,), (along,), full):
            return
        text = f"{name} of {t} must be one number, [{along}] or {full}, got {zero}"
        rules.fail(self, text, rules.DIMS)

    def reference(
        self, a: Values, b: Values, a_zero: Values | None = None, b_zero: Values | None = None
    ) -> Values:
        left, right = a.astype(np.int32), b.astype(np.int32)
        if a_zero is not None:
            rows = a_zero.astype(np.int32)
            left = left - (rows.reshape(-1, 1) if rows.ndim == 1 < left.ndim else rows)
        if b_zero is not None:
            right = right - b_zero.astype(np.int32)
        return np.asarray(left @ right)

    def decompose(
        self, a: Value, b: Value, a_zero: Value | None = None, b_zero: Value | None = None
    ) -> Value:
        left, right = cast_to(a, i32), cast_to(b, i32)
        if a_zero is not None:
            if tensor_type(a_zero).rank == 1 < tensor_type(a).rank:
                a_zero = apply("unsqueeze", a_zero, axes=(1,))
            left = left - cast_to(a_zero, i32)
        if b_zero is not None:
            right = right - cast_to(b_zero, i32)
        return left @ right

    @classmethod
    def examples(cls) -> Iterable[Example]:
        """u8 and i8, batches; zero points of all, of rows, of columns, none."""
        for left, right in (("u8", "i8"), ("i8", "i8"), ("u8", "u8")):
            a = samples.array((3, 5), left, -128, 255 if left == "u8" else 127)
            b = samples.array((5, 4), right, -128, 255 if right == "u8" else 127)
            zero = np.array(7, a.dtype), np.array(3, b.dtype)
            yield Example(cls(), (a, b), 0, 0)
            yield Example(cls(), (a, b, *zero), 0, 0)
            columns = np.arange(4).astype(b.dtype)
            yield Example(cls(), (a, b, np.arange(3).astype(a.dtype), columns), 0, 0)
        row, column = samples.array((5,), "u8", 0, 255), samples.array((5,), "i8", -9, 9)
        zeros = np.array([7], np.uint8), np.array([3], np.int8)
        for left, right in ((row, column), (row, b.astype("i1")), (a.astype("u1"), column)):
            yield Example(cls(), (left, right), 0, 0)
            yield Example(cls(), (left, right, *zeros), 0, 0)
        batch = samples.array((2, 3, 5), "u8", 0, 255), samples.array((2, 5, 4), "i8", -9, 9)
        yield Example(cls(), (*batch, np.array([7], np.uint8)), 0, 0)


@register_op
@dataclass(frozen=True)
class ConvInteger(Op):
    """conv_integer(x, w, x_zero, w_zero) = conv(x - x_zero, w - w_zero), summed in i32.

    The border is x_zero. A zero point, 0 if omitted, is one number; that of w may be one for each
    result channel.
    """

    kind = OpKind.COMPOSITE
    onnx = "ConvInteger"
    optional = (2, 3)
    strides: tuple[int, ...] = ()
    pads: tuple[int, ...] = ()
    dilations: tuple[int, ...] = ()
    group: int = 1

    def __post_init__(self) -> None:
        plain_fields(self)

    def type_rule(
        self,
        x: TensorType,
        w: TensorType,
        x_zero: TensorType | None = None,
        w_zero: TensorType | None = None,
    ) -> TensorType:
        _check_bytes(self, "x", x, x_zero)
        _check_bytes(self, "w", w, w_zero)
        if x_zero is not None and x_zero.dims not in ((), (1,)):
            rules.fail(self, f"x_zero must be one number, got {x_zero}", rules.DIMS)
        if w_zero is not None and w_zero.dims not in ((), (1,), w.dims[:1]):
            text = f"w_zero must be one number or [{w.dims[0]}], got {w_zero}"
            rules.fail(self, text, rules.DIMS)
        return self._conv().type_rule(x.with_dtype(i32), w.with_dtype(i32))

    def _conv(self) -> Conv:
        return Conv(self.strides, self.pads, self.dilations, self.group)

    def reference(
        self, x: Values, w: Values, x_zero: Values | None = None, w_zero: Values | None = None
    ) -> Values:
        value, weight = x.astype(np.int32), w.astype(np.int32)
        if x_zero is not None:
            value = value - x_zero.astype(np.int32).reshape(())
        if w_zero is not None:
            weight = weight - w_zero.astype(np.int32).reshape(-1, *[1] * (w.ndim - 1))
        return self._conv().reference(value, weight)

    def decompose(
        self, x: Value, w: Value, x_zero: Value | None = None, w_zero: Value | None = None
    ) -> Value:
        value, weight = cast_to(x, i32), cast_to(w, i32)
        if x_zero is not None:
            value = value - cast_to(apply("reshape", x_zero, shape=()), i32)
        if w_zero is not None:
            column = (-1, *[1] * (tensor_type(w).rank - 1))
            weight = weight - cast_to(apply("reshape", w_zero, shape=column), i32)
        return apply("conv", value, weight, **self.attributes())

    @classmethod
    def examples(cls) -> Iterable[Example]:
        """Borders, strides, groups; zero points of all and of channels, none."""
        x, w = samples.array((1, 2, 6, 5), "u8", 0, 255), samples.array((4, 2, 3, 3), "i8", -99, 99)
        zero = np.array(200, np.uint8)
        yield Example(cls(), (x, w), 0, 0)
        yield Example(cls(pads=(1, 1, 1, 1)), (x, w, zero), 0, 0)
        yield Example(cls(strides=(2, 1)), (x, w, zero, np.arange(4).astype(np.int8)), 0, 0)
        yield Example(cls(group=2), (x, w[:, :1].copy(), zero, np.array([3], np.int8)), 0, 0)


def _check_bytes(op: Op, name: str, t: TensorType, zero: TensorType | None) -> None:
    if t.dtype.name not in BYTES:
        rules.fail(op, f"{name} takes u8 or i8 elements, got {t.dtype}", rules.ELEMENT)
    if zero is not None and zero.dtype != t.dtype:
        text = f"the zero point of {name} must be {t.dtype}, got {zero}"
        rules.fail(op, text, rules.ELEMENT)


def _scales(element: str) -> Iterator[tuple[int, int, Values, Values, Values]]:
    """(axis, block_size, x, scale, zero point): each way a scale belongs to elements."""
    x = samples.array((2, 5, 3))
    for axis, block_size, shape in (
        (1, 0, (5,)), (-1, 0, (3,)), (0, 0, (2,)), (1, 2, (2, 3, 3)), (-1, 3, (2, 5, 1)),
        (0, 9, (1, 5, 3)),
    ):  # fmt: skip
        scale = samples.array(shape, low=0.1)
        yield axis, block_size, x, scale, samples.array(shape, element, 0, 9, seed=1)
