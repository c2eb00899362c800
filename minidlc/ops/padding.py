"""The op pad: a border around a tensor, or (negative pads) its edges cut off.

    apply("pad", x, pads=(0, 1, 0, 2))              # f32[3, 4] -> f32[3, 7], zeros around
    apply("pad", x, -np.inf, pads=(1, 1))           # another value, of x's element type
    apply("pad", x, pads=(2, 2), mode="reflect")    # 1 2 3 -> 3 2 1 2 3 2 1

Pads are given as in ONNX: all begins, then all ends. Treated in course chapter 01_graph_ir.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from minidlc.expr.index import Cond, Index, maximum, minimum
from minidlc.expr.nodes import Expr, const, select
from minidlc.expr.types import TensorType, bool_
from minidlc.graph.graph import Node, Value, apply, tensor_type
from minidlc.graph.op import Example, Op, Pattern, register_op
from minidlc.ops import rules, samples
from minidlc.ops.composing import in_wide, narrowed, scalar
from minidlc.ops.elementwise import axis_names
from minidlc.ops.gradients import Grads, where_true
from minidlc.ops.rules import Values
from minidlc.te.tensor import Tensor, compute

MODES = ("constant", "edge", "reflect", "wrap")


@register_op
@dataclass(frozen=True)
class Pad(Op):
    """pad(x, value)[i, …] = x[i - begin, …] inside x; outside, `value` (0 if left out), or by mode:

    edge repeats the first and last element, reflect mirrors at them (again and again), wrap
    continues at the other end. Negative pads are taken off first: that is what the mode sees.
    """

    pattern = Pattern.INJECTIVE
    optional = (1,)
    pads: tuple[int, ...]
    mode: str = "constant"

    def sides(self) -> list[tuple[int, int]]:
        """(begin, end) of every axis."""
        half = len(self.pads) // 2
        return list(zip(self.pads[:half], self.pads[half:], strict=True))

    def type_rule(self, x: TensorType, value: TensorType | None = None) -> TensorType:
        if self.mode not in MODES:
            rules.fail(self, f"mode {self.mode!r} is none of {', '.join(MODES)}", rules.RANGE)
        if len(self.pads) != 2 * x.rank:
            text = f"pads must have {2 * x.rank} entries, got {self.pads}"
            rules.fail(self, text, rules.RANGE, "all begins, then all ends")
        if value is not None:
            if self.mode != "constant":
                rules.fail(self, f"mode {self.mode} takes no value", "MDLC0201")
            rules.elements(self, rules.ANY, x, value)
            rules.rank(self, "value", value, 0)
        for axis, (dim, (begin, end)) in enumerate(zip(x.shape, self.sides(), strict=True)):
            if not isinstance(dim, int):
                continue  # looked at again when the size is given
            left = dim + min(begin, 0) + min(end, 0)
            if left < 0:
                text = f"axis {axis} of size {dim} cannot lose {dim - left} elements"
                rules.fail(self, text, rules.DIMS)
            if not left and max(begin, end) > 0 and self.mode != "constant":
                rules.fail(self, f"axis {axis} has no element to {self.mode}", rules.DIMS)
        return x.with_shape(
            tuple(d + (b + e) for d, (b, e) in zip(x.shape, self.sides(), strict=True))
        )

    def reference(self, x: Values, value: Values | None = None) -> Values:
        sides = self.sides()
        cut = (slice(max(-b, 0), d + min(e, 0)) for d, (b, e) in zip(x.shape, sides, strict=True))
        widths = [(max(b, 0), max(e, 0)) for b, e in sides]
        kept = x[tuple(cut)]
        if not sides:
            return x
        if self.mode == "edge":
            return np.pad(kept, widths, "edge")
        if self.mode == "reflect":
            return np.pad(kept, widths, "reflect")
        if self.mode == "wrap":
            return np.pad(kept, widths, "wrap")
        shape = tuple(d + b + e for d, (b, e) in zip(kept.shape, widths, strict=True))
        y = np.full(shape, 0 if value is None else value, x.dtype)
        y[tuple(slice(b, b + d) for d, (b, _) in zip(kept.shape, widths, strict=True))] = kept
        return y

    def compute(self, x: Tensor, value: Tensor | None = None) -> Tensor:
        out = self.type_rule(x.type, None if value is None else value.type).dims

        def body(*index: Index) -> Expr:
            if self.mode != "constant":
                return x[self._sources(x.shape, index)]
            zero = False if x.dtype.kind == "bool" else 0
            border = const(zero, x.dtype) if value is None else value[()]
            if not all(x.shape):
                return border
            where, inside = self._shifted(x.shape, index)
            return select(inside, x[where], border) if inside.ge else x[where]

        return compute(out, body, self.name, axes=axis_names(len(out)))

    def _shifted(
        self, shape: Sequence[int], index: Sequence[Index]
    ) -> tuple[tuple[Index, ...], Cond]:
        """Where in x each position lies, and whether that is inside x."""
        where, inside = list(index), Cond(())
        for axis, (begin, end) in enumerate(self.sides()):
            where[axis] = index[axis] - begin
            if begin > 0:
                inside &= where[axis] >= 0
            if end > 0:
                inside &= where[axis] < shape[axis]
        return tuple(where), inside

    def _sources(self, shape: Sequence[int], index: Sequence[Index]) -> tuple[Index, ...]:
        """The element of x that each position repeats (edge, reflect, wrap)."""
        where: list[Index] = []
        for i, dim, (begin, end) in zip(index, shape, self.sides(), strict=True):
            first = max(-begin, 0)  # of what negative pads leave
            size = dim - first + min(end, 0)
            position = i - max(begin, 0)
            if begin > 0 or end > 0:
                position = self._inside(position, size)
            where.append(position + first)
        return tuple(where)

    def _inside(self, position: Index, size: int) -> Index:
        if self.mode == "edge":
            return maximum(0, minimum(position, size - 1))
        if self.mode == "wrap":
            return position % size
        period = 2 * (size - 1)  # there and back
        if not period:
            return Index.of(0)
        forth = position % period
        # the second minimum changes nothing; by it alone the ranges show that the load is inside
        return minimum(minimum(forth, period - forth), size - 1)

    def gradient(self, y: Node, dy: Value) -> Grads:
        """x gets the dy of every place that repeats it, the value the sum of those outside x."""
        x, *values = y.inputs
        assert x is not None
        type = tensor_type(x)
        if self.mode != "constant":
            return narrowed(self._folded(type, in_wide(dy)), x), *(None for _ in values)
        dx = apply("pad", dy, pads=tuple(-n for n in self.pads))
        if all(value is None for value in values):
            return dx, *values
        inside = apply("expand", scalar(False, bool_), shape=type.dims)
        outside = apply("pad", inside, scalar(True, bool_), pads=self.pads)
        every = tuple(range(type.rank))
        return dx, apply("sum", where_true(outside, dy), axes=every, keepdims=False)

    def _folded(self, x: TensorType, dy: Value) -> Value:
        """Axis by axis, the dy of the border added to that of the element it repeats."""
        for axis, (dim, (begin, end)) in enumerate(zip(x.dims, self.sides(), strict=True)):
            if begin or end:
                places = Pad((begin, end), self.mode).reference(np.arange(dim))
                dy = apply("index_add", dy, places, axis=axis, size=dim)
        return dy

    @classmethod
    def examples(cls) -> Iterable[Example]:
        """Every mode; one side, both, none; larger than x; cut off; values that are not numbers."""
        for mode in MODES:
            for shape, pads in (
                ((5,), (2, 3)), ((5,), (0, 0)), ((5,), (-1, 2)), ((5,), (3, -2)), ((5,), (-1, -2)),
                ((3, 4), (0, 1, 2, 0)), ((2, 3, 4), (1, 2, 0, 0, -1, 3)), ((4,), (3, 3)),
                ((1, 1, 5, 5), (0, 0, 1, 1, 0, 0, 1, 1)),
            ):  # fmt: skip
                yield Example(cls(pads, mode), (samples.array(shape),), 0, 0)
        for element in ("i64", "i8", "bool", "f64"):
            yield Example(cls((1, 2)), (samples.array((4,), element, 1, 9),), 0, 0)
        for value in (2.5, -np.inf, np.nan):
            yield Example(cls((1, 0, 2, 3)), (samples.array((2, 3)), np.array(value, np.float32)))
        yield Example(cls((2, 1)), (samples.array((3,), "i64"), np.array(-7)), 0, 0)
        yield Example(cls((2, 1)), (samples.array((0,)),), 0, 0)
        yield Example(cls((0, 1, 0, 0)), (samples.array((2, 0)), np.array(3, np.float32)), 0, 0)
        yield Example(cls((2, 1), "edge"), (samples.array((1,)),), 0, 0)
        yield Example(cls((-2, -3)), (samples.array((5,)),), 0, 0)
