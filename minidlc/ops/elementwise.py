"""What elementwise ops share: one scalar formula, NumPy broadcasting, rounding of narrow floats.

    @register_op
    @dataclass(frozen=True)
    class Square(Unary):
        '''square(x)[i] = x[i] * x[i].'''
        def scalar(self, x: Expr) -> Expr: return x * x             # the loops
        def numpy(self, x: Values) -> Values: return x * x          # the meaning

f16 and bf16 are storage: they are computed in f32 and rounded once, in loops and meaning alike.
Treated in course chapter 01_graph_ir.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from minidlc.expr.functions import FUNCTIONS
from minidlc.expr.index import Index
from minidlc.expr.nodes import Cast, Expr, call
from minidlc.expr.types import DType, TensorType, bf16, dtype, f16, f32
from minidlc.graph.op import Example, Op, Pattern
from minidlc.ops import rules, samples
from minidlc.ops.rules import Values
from minidlc.te.tensor import Tensor, compute


def wide(element: DType) -> DType:
    """The type that values of `element` are computed in: f32 for f16 and bf16."""
    return f32 if element in (f16, bf16) else element


def to(element: DType, value: Expr) -> Expr:
    """`value` converted, or itself where it has that type."""
    return value if value.dtype == element else Cast(element, value)


def load(t: Tensor, index: Sequence[Index]) -> Expr:
    """The element at `index` in the type it is computed in."""
    value = t[tuple(index)]
    return to(wide(value.dtype), value)


def widened(array: Values) -> Values:
    """The array in the type it is computed in (NumPy side of `load`)."""
    return array.astype(wide(dtype(array.dtype)).numpy, copy=False)


def axis_names(rank: int) -> tuple[str, ...]:
    """i, j, k, … for the axes of a result."""
    return tuple("ijklmn"[:rank]) if rank <= 6 else tuple(f"i{d}" for d in range(rank))


def broadcast_index(
    shape: Sequence[int], index: Sequence[Index], out: Sequence[int]
) -> tuple[Index, ...]:
    """Where an input of `shape` is read for the element `index` of a result of shape `out`."""
    skip = len(out) - len(shape)
    return tuple(
        Index.of(0) if dim == 1 and out[skip + d] != 1 else index[skip + d]
        for d, dim in enumerate(shape)
    )


def broadcast_compute(
    name: str, shape: Sequence[int], element: DType, scalar: Callable[..., Expr], *inputs: Tensor
) -> Tensor:
    """`name[i, …] = scalar(a[i, …], b[i, …], …)`, inputs broadcast to `shape`."""

    def body(*index: Index) -> Expr:
        values = (load(t, broadcast_index(t.shape, index, shape)) for t in inputs)
        return to(element, scalar(*values))

    return compute(shape, body, name, axes=axis_names(len(shape)), element=element)


def rounded(t: Tensor, element: DType, name: str) -> Tensor:
    """`t` rounded to the element type of its graph value; `t` itself where it has that."""
    if t.dtype == element:
        return t
    return compute(t.shape, lambda *i: Cast(element, t[i]), name, axes=t.axes)


@dataclass(frozen=True)
class Elementwise(Op):
    """Base: the same `scalar` formula for every element. Subclasses say what kinds they take."""

    pattern = Pattern.BROADCAST
    arity: ClassVar[int] = 2
    takes: ClassVar[tuple[str, ...]] = rules.NUMBERS
    result: ClassVar[DType | None] = None  # the result's element type where it is not the inputs'
    domain: ClassVar[tuple[float, float]] = (-3.0, 3.0)  # where examples take their values from

    scalar: ClassVar[Callable[..., Expr]]  # (self, *values) -> value: one element
    numpy: ClassVar[Callable[..., Values]]  # (self, *arrays) -> array: all elements

    def type_rule(self, *inputs: TensorType) -> TensorType:
        rules.arity(self, inputs, self.arity)
        element = rules.elements(self, self.takes, *inputs)
        return TensorType(self.result or element, rules.broadcast(self, *inputs))

    def reference(self, *inputs: Values) -> Values:
        element = self.result or dtype(inputs[0].dtype)
        return np.asarray(self.numpy(*map(widened, inputs))).astype(element.numpy, copy=False)

    def compute(self, *inputs: Tensor) -> Tensor:
        out = self.type_rule(*(t.type for t in inputs))
        return broadcast_compute(self.name, out.dims, out.dtype, self.scalar, *inputs)

    @classmethod
    def examples(cls) -> Iterable[Example]:
        """Shapes, broadcasting, element types and special values, from `domain` and `takes`."""
        for element, arrays in samples.elementwise(cls.arity, cls.takes, cls.domain):
            yield Example(cls(), arrays, **samples.tolerance(element))


@dataclass(frozen=True)
class Unary(Elementwise):
    """Base of y[i] = f(x[i])."""

    pattern = Pattern.ELEMENTWISE
    arity = 1
    takes = ("float",)


@dataclass(frozen=True)
class ScalarFunction(Unary):
    """Base of the ops that are one entry, of their own name, in expr.functions.FUNCTIONS."""

    def scalar(self, x: Expr) -> Expr:
        return call(self.name, x)

    def numpy(self, x: Values) -> Values:
        return FUNCTIONS[self.name].numpy(x)
