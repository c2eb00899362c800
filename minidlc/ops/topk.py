"""The k largest or smallest elements along an axis, and where they were: topk.

    values, places = mc.topk(x, k=5)                # f32[4, 100] -> f32[4, 5], i64[4, 5]
    apply("topk", x, k=1, axis=0, largest=False)

Insertion into a sorted list of k: an element that does not beat the last of the list costs one
comparison. Of n elements in random order about k * log(n / k) are inserted. Treated in course
chapter 04_lowering.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from minidlc.expr.types import DType, TensorType, i64
from minidlc.graph.graph import Node, Value, apply, getitem
from minidlc.graph.op import Example, Op, register_op
from minidlc.graph.types import TupleType
from minidlc.loop.nodes import LoopFunction
from minidlc.ops import rules, samples
from minidlc.ops.elementwise import wide, widened
from minidlc.ops.gradients import Grads, given, zeros_like
from minidlc.ops.nests import function, nest, serial, shared
from minidlc.ops.rules import Values

_ROW = """
kept = alloc({element}[1], "stack")
place = alloc(i64[1], "stack")
for i in serial(0, {k}):
    y[{y_i}] = x[{x_i}]
    p[{y_i}] = index(i)
    {rise_i}
for i in serial(0, {rest}):
    if {beats_last}:
        y[{y_last}] = x[{x_rest}]
        p[{y_last}] = index(i + {k})
        {rise_last}
"""

# the new element, at the end of the list, moves forward past every one that it beats
_RISE = """for b in serial(0, {end}):
    if {beats}:
        kept[0] = y[{here}]
        place[0] = p[{here}]
        y[{here}] = y[{before}]
        p[{here}] = p[{before}]
        y[{before}] = kept[0]
        p[{before}] = place[0]"""


def _indented(text: str, depth: int) -> str:
    """Lines behind the first moved in: for text that is put behind a tabulated name."""
    return text.replace("\n", "\n" + "    " * depth)


@register_op
@dataclass(frozen=True)
class TopK(Op):
    """topk(x) = the `k` largest (or smallest) elements along `axis`, the best first; their places.

    Of equal elements the one with the lowest position comes first. NaN counts as larger than any
    number, as in np.sort.
    """

    name = "topk"
    k: int
    axis: int = -1
    largest: bool = True

    def type_rule(self, x: TensorType) -> TupleType:
        rules.elements(self, rules.NUMBERS, x)
        axis = rules.axis(self, self.axis, x.rank)
        size = x.shape[axis]
        if self.k < 1:
            rules.fail(self, f"k must be at least 1, got {self.k}", rules.RANGE)
        if isinstance(size, int) and self.k > size:
            text = f"k is {self.k}, but axis {axis} of {x} has {size} elements"
            rules.fail(self, text, rules.RANGE)
        shape = (*x.shape[:axis], self.k, *x.shape[axis + 1 :])
        return TupleType((x.with_shape(shape), TensorType(i64, shape)))

    def reference(self, x: Values) -> tuple[Values, Values]:
        v = np.flip(widened(x), self.axis) if self.largest else widened(x)
        order = np.argsort(v, self.axis, kind="stable")
        if self.largest:
            order = np.flip(x.shape[self.axis] - 1 - order, self.axis)
        first = np.take(order, np.arange(self.k), self.axis).astype(np.int64)
        return np.take_along_axis(x, first, self.axis), first

    def loops(self, x: TensorType) -> LoopFunction:
        y, p = self.type_rule(x).items
        axis = rules.axis(self, self.axis, x.rank)
        others = [d for d in range(x.rank) if d != axis]
        rows = serial((f"r{d}" for d in others), (x.dims[d] for d in others))
        row = self._row(x, axis).splitlines() if x.size else []
        lines = nest(shared(rows, x.size), *row) if row else []
        return function(self.name, {"x": x, "y": y, "p": p}, lines)

    def _row(self, x: TensorType, axis: int) -> str:
        """The text for one row of x."""
        k, last = self.k, str(self.k - 1)

        def at(position: str) -> str:
            where = [f"r{d}" for d in range(x.rank)]
            where[axis] = position
            return ", ".join(where)

        def rise(end: str) -> str:
            here, before = at(f"{end} - b"), at(f"{end} - b - 1")
            beats = self._beats(x.dtype, f"y[{here}]", f"y[{before}]")
            return _RISE.format(end=end, beats=beats, here=here, before=before)

        return _ROW.format(
            element=x.dtype, k=k, rest=x.dims[axis] - k,
            y_i=at("i"), x_i=at("i"), y_last=at(last), x_rest=at(f"i + {k}"),
            beats_last=self._beats(x.dtype, f"x[{at(f'i + {k}')}]", f"y[{at(last)}]"),
            rise_i=_indented(rise("i"), 1), rise_last=_indented(rise(last), 2),
        ).strip()  # fmt: skip

    def _beats(self, element: DType, a: str, b: str) -> str:
        """Whether element `a` comes before `b`, which stands before it in x, as text."""
        if wide(element) != element:
            a, b = (f'cast("{wide(element)}", {v})' for v in (a, b))
        if not self.largest:
            a, b = b, a
        if not element.is_float:
            return f"{a} > {b}"
        return f"({a} > {b}) | isnan({a}) & invert(isnan({b}))"

    def gradient(self, y: Node, dy: tuple[Value | None, ...]) -> Grads:
        """The chosen elements get the dy of the places that they went to."""
        (x,) = given(y)
        if dy[0] is None:
            return (None,)
        how = {"axis": self.axis, "reduction": "add"}
        return (apply("scatter_elements", zeros_like(x), getitem(y, 1), dy[0], **how),)

    @classmethod
    def examples(cls) -> Iterable[Example]:
        """Each axis and both ends, k from 1 to all, equal elements, NaN, infinities, types."""
        equal = samples.array((3, 7, 4), "i32", -2, 2).astype(np.float32)
        for axis in (0, 1, 2, -1, -3):
            for largest in (True, False):
                yield Example(cls(3, axis, largest), (equal,), 0, 0)
        for k in (1, 2, 19, 37):
            yield Example(cls(k), (samples.array((2, 37)),), 0, 0)
        yield Example(cls(1, 0), (samples.array((1,)),), 0, 0)
        yield Example(cls(2, 0), (samples.array((5, 0)),), 0, 0)
        for largest in (True, False):
            nan, inf = np.nan, np.inf
            rows = [[nan, 1, nan, 2], [2, nan, 9, inf], [-inf, -inf, inf, -inf], [-0.0, 0, 0, -0.0]]
            yield Example(cls(3, 1, largest), (np.array(rows, np.float32),), 0, 0)
            for element in ("f64", "f16", "bf16", "i64", "i8", "u8", "u32"):
                given = samples.array((2, 9), element, -3, 3)
                yield Example(cls(4, largest=largest), (given,), 0, 0)
