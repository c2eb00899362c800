"""Ops that only change shape or element type: the bytes stay, so no kernel runs (`is_view`).

    apply("reshape", x, shape=(2, -1))              # f32[4, 8] -> f32[2, 16]
    apply("unsqueeze", x, axes=(0,))                # f32[8] -> f32[1, 8]
    apply("bit_cast", x, to=i32)                    # f32[8] -> i32[8]: 1.0 -> 0x3f800000

Inside a fused kernel a view is a change of indices, which is what `compute` gives. Treated in
course chapter 01_graph_ir.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from minidlc.expr.index import Index
from minidlc.expr.types import DType, TensorType, dtype
from minidlc.graph.graph import Node, Value, apply, tensor_type
from minidlc.graph.op import Example, Op, Pattern, register_op
from minidlc.ops import rules, samples
from minidlc.ops.elementwise import axis_names
from minidlc.ops.gradients import Grads, given
from minidlc.ops.rules import Shape, Values
from minidlc.te.tensor import Tensor, compute


def reindexed(x: Tensor, shape: Sequence[int], name: str) -> Tensor:
    """The elements of `x` in row-major order under another shape."""
    groups = _groups(x.shape, shape)

    def body(*index: Index) -> object:
        where: list[Index] = []
        for source, target in groups:
            flat = flattened([index[d] for d in target], [shape[d] for d in target])
            where += _unflatten(flat, [x.shape[d] for d in source])
        return x[tuple(where)]

    return compute(shape, body, name, axes=axis_names(len(shape)))


def _groups(old: Sequence[int], new: Sequence[int]) -> list[tuple[list[int], list[int]]]:
    """Runs of old and of new axes with equal products, as short as possible."""
    groups: list[tuple[list[int], list[int]]] = []
    i = j = 0
    while i < len(old) or j < len(new):
        source, target = [i] if i < len(old) else [], [j] if j < len(new) else []
        i, j = i + len(source), j + len(target)
        while (a := _size(old, source)) != (b := _size(new, target)):
            if a < b and i < len(old):
                source.append(i)
                i += 1
            elif j < len(new):
                target.append(j)
                j += 1
            else:
                source += range(i, len(old))
                i = len(old)
        groups.append((source, target))
    return groups


def _size(shape: Sequence[int], axes: Sequence[int]) -> int:
    return math.prod(shape[d] for d in axes)


def flattened(index: Sequence[Index], dims: Sequence[int]) -> Index:
    """The number of an element in row-major order."""
    flat = Index.of(0)
    for i, size in zip(index, dims, strict=True):
        flat = flat * size + i
    return flat


def _unflatten(flat: Index, dims: Sequence[int]) -> list[Index]:
    """Positions along `dims` of element number `flat`."""
    where: list[Index] = []
    for n, dim in enumerate(dims):
        inner = math.prod(dims[n + 1 :])
        position = flat // inner if inner > 1 else flat
        where.append(position if n == 0 else position % dim if dim > 1 else Index.of(0))
    return [Index.of(0) if d == 1 else w for w, d in zip(where, dims, strict=True)]


@dataclass(frozen=True)
class View(Op):
    """Base: `new_shape` says all."""

    pattern = Pattern.INJECTIVE
    is_view = True

    def new_shape(self, x: TensorType) -> Shape:
        """The shape of the result."""
        return x.shape

    def type_rule(self, x: TensorType) -> TensorType:
        return x.with_shape(self.new_shape(x))

    def reference(self, x: Values) -> Values:
        shape = self.new_shape(TensorType(rules.element_of(x), x.shape))
        return x.reshape(tuple(d for d in shape if isinstance(d, int)))

    def compute(self, x: Tensor) -> Tensor:
        return reindexed(x, self.type_rule(x.type).dims, self.name)


@register_op
@dataclass(frozen=True)
class Identity(View):
    """identity(x) = x."""

    onnx = "Identity"
    pattern = Pattern.ELEMENTWISE

    def gradient(self, y: Node, dy: Value) -> Grads:
        return (dy,)

    @classmethod
    def examples(cls) -> Iterable[Example]:
        """Shapes and element types."""
        for element in ("f32", "f64", "i8", "bool"):
            yield Example(cls(), (samples.array((2, 3), element),), 0, 0)
        yield Example(cls(), (samples.array(()),), 0, 0)


@register_op
@dataclass(frozen=True)
class Reshape(View):
    """reshape(x) has the elements of x in row-major order under `shape`; one -1 takes the rest.

    A 0 in `shape` is a dim of size 0 (ONNX's "copy this dim" is resolved on import).
    """

    shape: tuple[int, ...]

    def new_shape(self, x: TensorType) -> Shape:
        if any(d < -1 for d in self.shape) or self.shape.count(-1) > 1:
            rules.fail(self, f"shape {self.shape}: dims are >= 0, one may be -1", rules.RANGE)
        if x.is_static:
            return self._static(x.dims)
        symbols = [d for d in x.shape if not isinstance(d, int)]
        numbers = math.prod(d for d in x.shape if isinstance(d, int))
        known = math.prod(d for d in self.shape if d != -1)
        if len(symbols) == 1 and -1 in self.shape and known:
            total = Index.of(symbols[0]) * numbers
            if total % known == Index.of(0):
                return tuple(total // known if d == -1 else d for d in self.shape)
        text = f"{x} to {self.shape}: the sizes cannot be compared"
        return rules.fail(self, text, rules.SYMBOLIC, "give the sizes: shapes={…}")

    def _static(self, dims: Sequence[int]) -> Shape:
        known, size = math.prod(d for d in self.shape if d != -1), math.prod(dims)
        if -1 in self.shape:
            if known == 0 or size % known:
                text = f"{size} elements do not fill {self.shape}"
                rules.fail(self, text, rules.DIMS, "-1 takes what is left, a whole number")
            return tuple(size // known if d == -1 else d for d in self.shape)
        if known != size:
            rules.fail(self, f"{size} elements do not fill {self.shape}", rules.DIMS)
        return self.shape

    def gradient(self, y: Node, dy: Value) -> Grads:
        (x,) = given(y)
        return (apply("reshape", dy, shape=tensor_type(x).dims),)

    @classmethod
    def examples(cls) -> Iterable[Example]:
        """Merging, splitting, regrouping, ones, -1, no elements, scalars."""
        table: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = (
            ((4, 6), (24,)), ((24,), (2, 3, 4)), ((4, 6), (6, 4)), ((4, 6), (3, -1)),
            ((2, 3, 4), (2, 12)), ((2, 3, 4), (6, 4)), ((2, 3, 4), (4, 3, 2)), ((1, 5, 1), (5,)),
            ((5,), (1, 5, 1)), ((), (1, 1)), ((1,), ()), ((2, 0), (0, 7)), ((2, 3), (2, 3)),
            ((3, 1, 4), (1, 12, 1)), ((16, 4, 4), (1, 256)),
        )  # fmt: skip
        for old, new in table:
            yield Example(cls(new), (samples.array(old),), 0, 0)
        yield Example(cls((3, 2)), (samples.array((2, 3), "i64", -9, 9),), 0, 0)


@register_op
@dataclass(frozen=True)
class Flatten(View):
    """flatten(x) has rank 2: the axes before `axis` as one, the others as one."""

    onnx = "Flatten"
    axis: int = 1

    def new_shape(self, x: TensorType) -> Shape:
        axis = rules.axis(self, self.axis, x.rank, end=True)
        return (_product(self, x.shape[:axis]), _product(self, x.shape[axis:]))

    def gradient(self, y: Node, dy: Value) -> Grads:
        (x,) = given(y)
        return (apply("reshape", dy, shape=tensor_type(x).dims),)

    @classmethod
    def examples(cls) -> Iterable[Example]:
        """Every axis, from the end too; rank 0 and 1."""
        for axis in (0, 1, 2, 3, -1, -3):
            yield Example(cls(axis), (samples.array((2, 3, 4)),), 0, 0)
        yield Example(cls(0), (samples.array(()),), 0, 0)
        yield Example(cls(), (samples.array((5,)),), 0, 0)


def _product(op: Op, dims: Shape) -> int | Index:
    symbols = [d for d in dims if not isinstance(d, int)]
    numbers = math.prod(d for d in dims if isinstance(d, int))
    if len(symbols) > 1:
        rules.fail(op, "the product of two symbolic dims has no form", rules.SYMBOLIC)
    return symbols[0] * numbers if symbols else numbers


@register_op
@dataclass(frozen=True)
class Squeeze(View):
    """squeeze(x) drops axes of size 1: those of `axes`, or all of them if it is None."""

    axes: tuple[int, ...] | None = None

    def new_shape(self, x: TensorType) -> Shape:
        if self.axes is None:
            return tuple(d for d in x.shape if not rules.same_dim(d, 1))
        axes = rules.axes(self, self.axes, x.rank)
        for a in axes:
            if not rules.same_dim(x.shape[a], 1):
                rules.fail(self, f"axis {a} of {x} has size {x.shape[a]}, not 1", rules.DIMS)
        return tuple(d for a, d in enumerate(x.shape) if a not in axes)

    def gradient(self, y: Node, dy: Value) -> Grads:
        (x,) = given(y)
        return (apply("reshape", dy, shape=tensor_type(x).dims),)

    @classmethod
    def examples(cls) -> Iterable[Example]:
        """Some axes, all, from the end."""
        for axes in (None, (0,), (2,), (-2, 0)):
            yield Example(cls(axes), (samples.array((1, 3, 1, 5)),), 0, 0)
        yield Example(cls(), (samples.array((1, 1)),), 0, 0)


@register_op
@dataclass(frozen=True)
class Unsqueeze(View):
    """unsqueeze(x) has a new axis of size 1 at each of `axes`, counted in the result."""

    axes: tuple[int, ...]

    def new_shape(self, x: TensorType) -> Shape:
        axes = rules.axes(self, self.axes, x.rank + len(self.axes))
        dims = iter(x.shape)
        return tuple(1 if a in axes else next(dims) for a in range(x.rank + len(axes)))

    def gradient(self, y: Node, dy: Value) -> Grads:
        (x,) = given(y)
        return (apply("reshape", dy, shape=tensor_type(x).dims),)

    @classmethod
    def examples(cls) -> Iterable[Example]:
        """Front, middle, end, several, a scalar."""
        for axes in ((0,), (1,), (-1,), (0, 3), (4, 0, -2)):
            yield Example(cls(axes), (samples.array((2, 3)),), 0, 0)
        yield Example(cls((0,)), (samples.array(()),), 0, 0)


@register_op
@dataclass(frozen=True)
class BitCast(Op):
    """bit_cast(x)[i] = the bits of x[i] read as an element of type `to`, which has as many."""

    is_view = True
    to: DType

    def __post_init__(self) -> None:
        object.__setattr__(self, "to", dtype(self.to))  # also 'i32', 'int32', np.int32

    def type_rule(self, x: TensorType) -> TensorType:
        if x.dtype.bits != self.to.bits:
            text = f"{x.dtype} has {x.dtype.bits} bits, {self.to} has {self.to.bits}"
            rules.fail(self, text, rules.ELEMENT, "cast converts between sizes")
        if self.to.kind == "bool" and x.dtype.kind != "bool":
            text = f"a byte of {x.dtype} may be no bool: 0 or 1"
            rules.fail(self, text, rules.ELEMENT, "compare it with 0")
        return x.with_dtype(self.to)

    def reference(self, x: Values) -> Values:
        return x.view(self.to.numpy)

    @classmethod
    def examples(cls) -> Iterable[Example]:
        """Special values of each type as each other type of its size."""
        sizes = (("f16", "bf16", "i16", "u16"), ("f32", "i32", "u32"), ("f64", "i64", "u64"))
        for names in (*sizes, ("i8", "u8")):
            for source in names:
                for target in names:
                    yield Example(cls(dtype(target)), (samples.special(source),), 0, 0)
        yield Example(cls(dtype("u8")), (samples.array((2, 3), "bool"),), 0, 0)
        yield Example(cls(dtype("i32")), (samples.array(()),), 0, 0)
        yield Example(cls(dtype("i32")), (samples.array((3, 0)),), 0, 0)
