"""The op index_add: rows added up at positions given as values. It is the gradient of gather.

    apply("index_add", rows, ids, size=10)          # f32[2, 3, 4], i64[2, 3] -> f32[10, 4]
    apply("index_add", dy, places, axis=1, size=5)  # y[i, places[j]] += dy[i, j]

Of an embedding it makes the gradient of the table: each row of the result is the sum of the dy of
all tokens that read it, in the order in which they stand. Reads values, writes tensors. Treated in
course chapter 03_autodiff.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from minidlc.expr.types import TensorType, f32, f64, i32, i64
from minidlc.graph.graph import Node, Value, apply
from minidlc.graph.op import Example, Op, Positions, register_op
from minidlc.loop.nodes import LoopFunction
from minidlc.ops import rules, samples
from minidlc.ops.elementwise import axis_names
from minidlc.ops.gradients import Grads, given
from minidlc.ops.indexing import are_positions
from minidlc.ops.nests import LANES, Loops, function, in_vectors, nest, serial, shared
from minidlc.ops.rules import Values
from minidlc.ops.scatter import from_front

SUMS = (f32, f64, i32, i64)
BLOCKS = 4  # of columns: each adds all the rows by itself, so that several threads can


@register_op
@dataclass(frozen=True)
class IndexAdd(Op):
    """index_add(x, indices)[a…, r, b…] = sum of x[a…, i…, b…] over all i with indices[i…] = r.

    The axes a before `axis` and b behind those of `indices` stay; `axis` gets `size` rows. A
    negative position counts from the end. Terms are added in the order of `indices`, so that
    results do not depend on the number of threads. As np.add.at; JAX's segment_sum.
    """

    axis: int = 0
    size: int = 0

    def type_rule(self, x: TensorType, indices: TensorType) -> TensorType:
        if x.dtype not in SUMS:
            text = f"adds elements of {', '.join(map(str, SUMS))}, got {x.dtype}"
            rules.fail(self, text, rules.ELEMENT, "sum in f32: cast(x, to=f32)")
        are_positions(self, "indices", indices)
        rank = x.rank - indices.rank
        if rank < 0:
            text = f"x: {x} must have the axes of indices: {indices}"
            rules.fail(self, text, rules.RANK)
        axis = rules.axis(self, self.axis, rank + 1)
        rows = x.shape[axis : axis + indices.rank]
        if not all(map(rules.same_dim, rows, indices.shape)):
            text = f"x: {x} has no row for each of indices: {indices} at axis {axis}"
            rules.fail(self, text, rules.DIMS)
        if self.size < 0:
            rules.fail(self, f"size must be at least 0, got {self.size}", rules.RANGE)
        return x.with_shape((*x.shape[:axis], self.size, *x.shape[axis + indices.rank :]))

    def positions(self, x: TensorType, indices: TensorType) -> tuple[Positions, ...]:
        return (Positions(1, -self.size, self.size),)

    def reference(self, x: Values, indices: Values) -> Values:
        rank = x.ndim - indices.ndim
        axis = self.axis % (rank + 1)
        rows = x.reshape(*x.shape[:axis], indices.size, *x.shape[axis + indices.ndim :])
        y = np.zeros((self.size, *np.delete(rows.shape, axis)), x.dtype)
        np.add.at(y, indices.reshape(-1), np.moveaxis(rows, axis, 0))
        return np.moveaxis(y, 0, axis).copy()

    def loops(self, x: TensorType, indices: TensorType) -> LoopFunction:
        """Zeros, then `y[at(indices[i], 10), j] += x[i, j]` for each i, and j in vectors."""
        y = self.type_rule(x, indices)
        params = {"x": x, "indices": indices, "y": y}
        return function(self.name, params, self._lines(x, indices, y) if y.size else [])

    def _lines(self, x: TensorType, indices: TensorType, y: TensorType) -> list[str]:
        axis, names = rules.axis(self, self.axis, y.rank), axis_names(x.rank)
        behind = axis + indices.rank
        loops, at = in_vectors(axis_names(y.rank), y.dims)
        zeros = nest(shared(loops, y.size), f"y[{', '.join(at)}] = {x.dtype}(0)")
        rows = serial(names[axis:behind], indices.dims)
        before = serial(names[:axis], x.dims[:axis])
        inner, columns = in_vectors(names[behind:], x.dims[behind:])
        if any(n > 1 for n in x.dims[:axis]):
            loops = shared([*before, *rows, *inner], x.size)
        elif inner and x.dims[-1] > LANES:
            inner, columns = _blocks(names[behind:], x.dims[behind:])
            loops = shared([inner[0], *before, *rows, *inner[1:]], x.size)
        else:
            loops = [*before, *rows, *inner]
        place = from_front(
            f"indices[{', '.join(names[axis:behind]) or '()'}]", indices.dtype, self.size
        )
        row = f"y[{', '.join([*names[:axis], place, *columns])}]"
        term = f"x[{', '.join([*names[:behind], *columns]) or '()'}]"
        return [*zeros, *nest(loops, f"{row} = {row} + {term}")]

    def gradient(self, y: Node, dy: Value) -> Grads:
        """Each row gets the dy of the sum that it went into."""
        _, indices = given(y)
        return apply("gather", dy, indices, axis=self.axis), None

    @classmethod
    def examples(cls) -> Iterable[Example]:
        """Every axis, indices of rank 0 to 2, repeated, from the end, none; wide rows; types."""
        for axis, shape, found in (
            (0, (7, 3), (7,)), (0, (2, 3, 4), (2, 3)), (1, (3, 6, 2), (6,)), (1, (3, 6), (6,)),
            (-1, (2, 5, 3), (5, 3)), (0, (3,), ()), (1, (3, 4), ()), (0, (), ()), (0, (9,), (9,)),
            (0, (0, 3), (0,)), (1, (2, 0), (0,)), (2, (2, 3, 4, 2, 5), (4, 2)),
        ):  # fmt: skip
            places = samples.positions(found, 5)
            yield Example(cls(axis, 5), (samples.array(shape), places), 1e-6, 1e-6)
        for columns in (17, 64, 100):
            places = samples.positions((40,), 3).astype(np.int32)
            yield Example(cls(0, 3), (samples.array((40, columns)), places), 1e-5, 1e-5)
        for element in ("f64", "i32", "i64"):
            given = samples.array((8, 2), element, -9, 9)
            yield Example(cls(0, 4), (given, samples.positions((8,), 4)), 1e-12, 1e-12)
        yield Example(cls(0, 0), (samples.array((0, 3)), np.zeros(0, np.int64)), 0, 0)


def _blocks(axes: tuple[str, ...], dims: tuple[int, ...]) -> tuple[Loops, list[str]]:
    """Like `in_vectors`, the last axis cut into blocks of whole vectors first."""
    *outer, last = axes
    vectors = -(-dims[-1] // LANES)
    width = -(-vectors // BLOCKS)
    block, here = f"{last}b", f"{LANES * width}*{last}b + {LANES}*{last}o"
    loops: Loops = [
        (block, "serial", -(-vectors // width)),
        *serial(outer, dims),
        (f"{last}o", "serial", f"min({width}, {vectors} - {width}*{block})"),
        (f"{last}i", "vectorized", f"min({LANES}, {dims[-1]} - {here})"),
    ]
    return loops, [*outer, f"{here} + {last}i"]
