"""Ops that pick elements by position: slice, tile, trilu.

    apply("slice", x, starts=(1,), ends=(-1,), axes=(0,))   # x[1:-1]
    apply("slice", x, starts=(-1,), ends=(-100,), steps=(-1,))      # x reversed along axis 0
    apply("tile", x, repeats=(2, 1))                # f32[3, 4] -> f32[6, 4]
    apply("trilu", x, upper=False)                  # the lower triangle, 0 above

Treated in course chapter 01_graph_ir.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from minidlc.expr.index import Cond, Index
from minidlc.expr.nodes import Expr, select
from minidlc.expr.types import TensorType
from minidlc.graph.graph import Node, Value, apply, tensor_type
from minidlc.graph.op import Example, Op, Pattern, register_op
from minidlc.ops import rules, samples
from minidlc.ops.elementwise import axis_names
from minidlc.ops.gradients import Grads, given
from minidlc.ops.rules import Shape, Values
from minidlc.te.tensor import Tensor, compute

INT64 = (-(2**63), 2**63 - 1)
WHOLE = INT64[1]  # an `ends` behind the last element of anything


def in_int64(values: Sequence[int]) -> tuple[int, ...]:
    """Values beyond int64 mean its limits: behind the last, or before the first element."""
    return tuple(min(max(v, INT64[0]), INT64[1]) for v in values)


@dataclass(frozen=True)
class Cut:
    """Elements start, start + step, … of one axis, `size` of them."""

    start: int
    step: int
    size: int

    @staticmethod
    def of(dim: int, start: int, end: int, step: int) -> Cut:
        """Resolve as ONNX does: from the end if negative, then clamped by the sign of the step."""
        low, high = (0, dim) if step > 0 else (-1, dim - 1)
        first, last = ((v + dim if v < 0 else v) for v in (start, end))
        first = min(max(first, 0), max(high, 0))  # a start before the first element is the first
        last = min(max(last, low), high)
        distance = last - first if step > 0 else first - last
        return Cut(first, step, max(0, -(-distance // abs(step))) if dim else 0)


@register_op
@dataclass(frozen=True)
class Slice(Op):
    """slice(x) = x[start:end:step] along each of `axes` (all from the first if ()).

    Negative starts and ends count from the end; what lies outside is clamped, so that nothing may
    be left. `steps` () is 1 everywhere. A negative step goes down to `end`, which is not taken.
    """

    pattern = Pattern.INJECTIVE
    starts: tuple[int, ...]
    ends: tuple[int, ...]
    axes: tuple[int, ...] = ()
    steps: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        for name in ("starts", "ends", "steps"):
            object.__setattr__(self, name, in_int64(getattr(self, name)))
        if self.axes == tuple(range(len(self.starts))):  # one text for one meaning
            object.__setattr__(self, "axes", ())
        if all(s == 1 for s in self.steps) and len(self.steps) == len(self.starts):
            object.__setattr__(self, "steps", ())

    def resolved_axes(self, rank: int) -> tuple[int, ...]:
        """The axis of each start, counted from the front; attributes are checked (MDLC0209)."""
        count = len(self.starts)
        given = self.axes or tuple(range(count))
        for name, values in (("ends", self.ends), ("axes", given), ("steps", self.steps or given)):
            if len(values) != count:
                text = f"{count} starts, but {name} has {len(values)} entries: {values}"
                rules.fail(self, text, rules.RANGE)
        rules.axes(self, given, rank)  # none is named twice
        if 0 in self.steps:
            rules.fail(self, f"a step of 0 in {self.steps} goes nowhere", rules.RANGE)
        return tuple(rules.axis(self, a, rank) for a in given)

    def cuts(self, shape: Shape) -> dict[int, Cut | None]:
        """What is taken of each sliced axis; None where a symbolic axis is taken whole."""
        cuts: dict[int, Cut | None] = {}
        for n, axis in enumerate(self.resolved_axes(len(shape))):
            start, end, dim = self.starts[n], self.ends[n], shape[axis]
            step = self.steps[n] if self.steps else 1
            if isinstance(dim, int):
                cuts[axis] = Cut.of(dim, start, end, step)
            elif (start, step) == (0, 1) and end >= 2**31 - 1:
                cuts[axis] = None
            else:
                text = f"axis {axis} has the symbolic size {dim}: what is left is not known"
                rules.fail(self, text, rules.SYMBOLIC, "give the sizes: shapes={…}")
        return cuts

    def type_rule(self, x: TensorType) -> TensorType:
        dims = list(x.shape)
        for axis, cut in self.cuts(x.shape).items():
            if cut is not None:
                dims[axis] = cut.size
        return x.with_shape(tuple(dims))

    def reference(self, x: Values) -> Values:
        y = x
        for axis, cut in self.cuts(x.shape).items():
            assert cut is not None
            y = np.take(y, cut.start + cut.step * np.arange(cut.size), axis)
        return y

    def compute(self, x: Tensor) -> Tensor:
        out, cuts = self.type_rule(x.type).dims, self.cuts(x.shape)

        def body(*index: Index) -> Expr:
            where = list(index)
            for axis, cut in cuts.items():
                assert cut is not None
                where[axis] = index[axis] * cut.step + cut.start
            return x[tuple(where)]

        return compute(out, body, self.name, axes=axis_names(len(out)))

    def gradient(self, y: Node, dy: Value) -> Grads:
        """dy goes back to the places it was taken from; what was left out gets 0."""
        (x,) = given(y)
        for axis, cut in self.cuts(tensor_type(x).shape).items():
            assert cut is not None
            dy = _put_back(dy, axis, cut, tensor_type(x).dims[axis])
        return (dy,)

    @classmethod
    def examples(cls) -> Iterable[Example]:
        """Every sign of start, end and step; clamping; nothing left; several axes."""
        ten = samples.array((10,))
        for start, end, step in (
            (2, 7, 1), (0, WHOLE, 1), (-3, WHOLE, 1), (1, -1, 2), (-100, 4, 1), (20, 30, 1),
            (7, 2, 1), (0, 5, -1), (-1, INT64[0], -1), (100, -100, -3), (8, 2, -2), (3, 3, 1),
            (9, -11, -1), (0, 10, 4), (0, 10, 100), (5, INT64[0], -2**40),
        ):  # fmt: skip
            yield Example(cls((start,), (end,), (), (step,)), (ten,), 0, 0)
        grid = samples.array((4, 5, 6))
        for starts, ends, axes, steps in (
            ((1, 0, 2), (3, 3, 5), (), ()), ((1,), (4,), (1,), ()), ((0, -1), (2, -9), (2, 1), ()),
            ((-1, 0), (-9, 9), (-1, 0), (-2, 3)), ((), (), (), ()), ((5,), (9,), (0,), (1,)),
        ):  # fmt: skip
            yield Example(cls(starts, ends, axes, steps), (grid,), 0, 0)
        yield Example(cls((0,), (5,)), (samples.array((0, 3)),), 0, 0)
        for element in ("i64", "u8", "bool", "f64", "f16"):
            yield Example(cls((1,), (9,), (), (3,)), (samples.array((11, 2), element),), 0, 0)


def _put_back(dy: Value, axis: int, cut: Cut, dim: int) -> Value:
    """Elements cut from an axis of size `dim` at their old places, zeros between and around."""
    type, start, step = tensor_type(dy), cut.start, abs(cut.step)
    if cut.step < 0:
        dy = apply("slice", dy, starts=(-1,), ends=(INT64[0],), axes=(axis,), steps=(-1,))
        start -= step * max(cut.size - 1, 0)
    if step > 1 and cut.size > 1:  # a new axis, zeros behind each element, one axis again
        before, behind = type.dims[:axis], type.dims[axis + 1 :]
        spaced = apply("reshape", dy, shape=(*before, cut.size, 1, *behind))
        spaced = apply("pad", spaced, pads=_pads(type.rank + 1, axis + 1, 0, step - 1))
        dy = apply("reshape", spaced, shape=(*before, cut.size * step, *behind))
    left = dim - start - tensor_type(dy).dims[axis]  # less than 0: zeros that are too many
    return apply("pad", dy, pads=_pads(type.rank, axis, start, left)) if start or left else dy


def _pads(rank: int, axis: int, begin: int, end: int) -> tuple[int, ...]:
    """The attribute of pad for one axis."""
    pads = [0] * (2 * rank)
    pads[axis], pads[rank + axis] = begin, end
    return tuple(pads)


@register_op
@dataclass(frozen=True)
class Tile(Op):
    """tile(x)[i, …] = x[i % d, …]: x laid `repeats[a]` times along each axis a."""

    pattern = Pattern.INJECTIVE
    repeats: tuple[int, ...]

    def type_rule(self, x: TensorType) -> TensorType:
        rules.count(self, "repeats", self.repeats, x.rank, 0)
        dims = [d * r for d, r in zip(x.shape, self.repeats, strict=True)]
        return x.with_shape(
            tuple(d.const if isinstance(d, Index) and d.is_const else d for d in dims)
        )

    def reference(self, x: Values) -> Values:
        return np.tile(x, self.repeats)

    def compute(self, x: Tensor) -> Tensor:
        out = self.type_rule(x.type).dims

        def body(*index: Index) -> Expr:
            where = (
                i if r == 1 or not d else i % d
                for i, r, d in zip(index, self.repeats, x.shape, strict=True)
            )
            return x[tuple(where)]

        return compute(out, body, self.name, axes=axis_names(len(out)))

    def gradient(self, y: Node, dy: Value) -> Grads:
        """The sum over the copies."""
        (x,) = given(y)
        pairs = zip(self.repeats, tensor_type(x).dims, strict=True)
        apart = apply("reshape", dy, shape=tuple(n for pair in pairs for n in pair))
        copies = tuple(range(0, 2 * len(self.repeats), 2))
        return (apply("sum", apart, axes=copies, keepdims=False) if copies else apart,)

    @classmethod
    def examples(cls) -> Iterable[Example]:
        """Every axis, none, ones, no copies at all, an axis of size 0, a scalar."""
        for shape, repeats in (
            ((3,), (4,)), ((2, 3), (2, 1)), ((2, 3), (1, 3)), ((2, 3), (2, 2)), ((2, 3), (1, 1)),
            ((1, 5), (7, 1)), ((2, 3), (0, 2)), ((0, 3), (2, 2)), ((), ()), ((2, 3, 4), (1, 3, 2)),
        ):  # fmt: skip
            yield Example(cls(repeats), (samples.array(shape),), 0, 0)
        yield Example(cls((2,)), (samples.array((5,), "i64"),), 0, 0)


@register_op
@dataclass(frozen=True)
class Trilu(Op):
    """trilu(x)[…, i, j] = x[…, i, j] where j >= i + k (upper) or j <= i + k (lower), else 0."""

    pattern = Pattern.INJECTIVE
    upper: bool = True
    k: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "k", in_int64((self.k,))[0])

    def type_rule(self, x: TensorType) -> TensorType:
        if x.rank < 2:
            rules.fail(self, f"takes matrices, got {x} of rank {x.rank}", rules.RANK)
        return x

    def _diagonal(self, rows: int, columns: int) -> int:
        """k, made small: the triangle is everything or nothing long before int64 ends."""
        return min(max(self.k, -rows), columns)

    def reference(self, x: Values) -> Values:
        k = self._diagonal(*x.shape[-2:])
        rows, columns = x.shape[-2:]
        kept = np.tri(rows, columns, k - 1 if self.upper else k, dtype=np.bool_)
        return np.where(kept != self.upper, x, np.zeros((), x.dtype))

    def compute(self, x: Tensor) -> Tensor:
        k = self._diagonal(*x.shape[-2:])

        def body(*index: Index) -> Expr:
            behind = index[-1] - index[-2] - k  # columns right of the diagonal
            inside = behind >= 0 if self.upper else behind <= 0
            assert isinstance(inside, Cond)
            return select(inside, x[index], False if x.dtype.kind == "bool" else 0)

        return compute(x.shape, body, self.name, axes=axis_names(len(x.shape)))

    def gradient(self, y: Node, dy: Value) -> Grads:
        return (apply("trilu", dy, upper=self.upper, k=self.k),)

    @classmethod
    def examples(cls) -> Iterable[Example]:
        """Both triangles, every diagonal, more rows or columns, batches; NaN is not multiplied."""
        for upper in (True, False):
            for k in (0, 1, -1, 3, -4, 9, -9):
                yield Example(cls(upper, k), (samples.array((4, 5)),), 0, 0)
            yield Example(cls(upper, 1), (samples.array((2, 4, 3)),), 0, 0)
            yield Example(cls(upper), (np.full((3, 3), np.nan, np.float32),), 0, 0)
            yield Example(cls(upper), (samples.array((0, 3)),), 0, 0)
        for element in ("i64", "bool", "f64"):
            yield Example(cls(), (samples.array((3, 3), element, 1, 9),), 0, 0)
