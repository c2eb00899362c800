"""The op that says when: a value that is not to be read before another is there.

    x2 = apply("after", x, token)                   # x, once token has been computed

It has no kernel: its bytes are those of `x`. What computes a value a second time reads its input
through it, so that passes neither merge the copy with the original nor compute it early. Treated in
course chapter 03_autodiff.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from minidlc.expr.types import TensorType
from minidlc.graph.graph import Node, Value
from minidlc.graph.op import Example, Op, Pattern, register_op
from minidlc.ops import samples
from minidlc.ops.gradients import Grads
from minidlc.ops.rules import Values


@register_op
@dataclass(frozen=True)
class After(Op):
    """after(x, token) = x, not before `token` is there; the elements of `token` are not read."""

    pattern = Pattern.INJECTIVE
    is_view = True

    def type_rule(self, x: TensorType, token: TensorType) -> TensorType:
        return x

    def reference(self, x: Values, token: Values) -> Values:
        return x

    def gradient(self, y: Node, dy: Value) -> Grads:
        return dy, None

    @classmethod
    def examples(cls) -> Iterable[Example]:
        """Shapes and element types; of the token none matters."""
        for shape, element in (((3, 5), "f32"), ((), "f64"), ((0, 2), "f32"), ((4,), "i32")):
            yield Example(cls(), (samples.array(shape, element), samples.array((2,))), 0, 0)
