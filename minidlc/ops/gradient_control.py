"""Ops that say something to differentiation, and nothing to a run.

    apply("stop_gradient", x)                       # x, of which no derivative is taken
    apply("custom_gradient", x, body=f, backward=b) # f(x); its gradient is b(x, dy)

To a run they are copies that cost nothing: fused into the kernel beside them, or else aliases of
their input (ops/aliases.py). `custom_gradient` is what `mc.custom_gradient` makes
(autodiff/custom.py). Opened by the pass decompose, it leaves `custom_result` behind, which refuses
to be differentiated: a compiled graph does not give another gradient than that of its author.
Treated in course chapter 03_autodiff.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from minidlc.expr.nodes import Expr
from minidlc.expr.types import Array, TensorType, f32
from minidlc.graph.fused import body_type
from minidlc.graph.graph import Graph, Input, Node, Value, apply, tensor_type
from minidlc.graph.inline import inlined
from minidlc.graph.interpret import interpret
from minidlc.graph.op import Example, Op, OpKind, register_op
from minidlc.graph.types import Type, result_types
from minidlc.ops import rules, samples
from minidlc.ops.control_flow import BODY, listed
from minidlc.ops.elementwise import Unary
from minidlc.ops.gradients import given, zeros_like
from minidlc.ops.rules import Values
from minidlc.support.errors import GradientError


@dataclass(frozen=True)
class Copy(Unary):
    """Base of y = x."""

    takes = rules.ANY

    def scalar(self, x: Expr) -> Expr:
        return x

    def numpy(self, x: Values) -> Values:
        return x.copy()

    @classmethod
    def examples(cls) -> Iterable[Example]:
        """Shapes and element types."""
        for shape, element in (((3, 5), "f32"), ((), "f64"), ((0, 2), "f32"), ((4,), "i32")):
            yield Example(cls(), (samples.array(shape, element),), 0, 0)


@register_op
@dataclass(frozen=True)
class StopGradient(Copy):
    """stop_gradient(x) = x; to differentiation it is a constant."""

    def gradient(self, y: Node, dy: Value) -> tuple[Value | None, ...]:
        return (None,)


@register_op
@dataclass(frozen=True)
class CustomResult(Copy):
    """custom_result(x) = x: a result of a custom_gradient that was opened.

    The function of the gradient is gone then, and that of x would be another one.
    """

    def gradient(self, y: Node, dy: Value) -> tuple[Value | None, ...]:
        raise GradientError(
            "custom_result has no gradient: what mc.custom_gradient said is gone after the passes",
            loc=y.loc,
            hint="differentiate the graph before it is compiled: mc.compile(mc.grad(g))",
            code="MDLC1201",
        )


@register_op
@dataclass(frozen=True)
class CustomGradient(Op):
    """custom_gradient(x, …) = body(x, …); its gradient is backward(x, …, dy, …), as somebody says.

    `backward` takes the inputs, then one dy for each result, and gives one result for each input.
    """

    kind = OpKind.COMPOSITE

    body: Graph
    backward: Graph

    def type_rule(self, *inputs: TensorType) -> Type:
        results = body_type(self.name, self.body, inputs)
        wanted = (*inputs, *result_types(results))
        if self.backward.input_types() != wanted or self.backward.output_types() != inputs:
            text = f"{self.backward.name} has the types {listed(self.backward.input_types())} → "
            text += (
                f"{listed(self.backward.output_types())}, not {listed(wanted)} → {listed(inputs)}"
            )
            rules.fail(self, text, BODY)
        return results

    def reference(self, *inputs: Array) -> Array | tuple[Array, ...]:
        results = interpret(self.body, inputs)
        return results[0] if len(results) == 1 else tuple(results)

    def decompose(self, *inputs: Value) -> Value | tuple[Value, ...]:
        results = inlined(self.body, dict(zip(self.body.inputs, inputs, strict=True)))
        marked = [
            apply("custom_result", r) if tensor_type(r).dtype.is_float else r for r in results
        ]
        return marked[0] if len(marked) == 1 else tuple(marked)

    def gradient(self, y: Node, dy: Value | tuple[Value | None, ...]) -> tuple[Value | None, ...]:
        dys = dy if isinstance(dy, tuple) else (dy,)
        outputs = self.body.outputs
        filled = [zeros_like(o) if d is None else d for o, d in zip(outputs, dys, strict=True)]
        values = (*given(y), *filled)
        return inlined(self.backward, dict(zip(self.backward.inputs, values, strict=True)))

    @classmethod
    def examples(cls) -> Iterable[Example]:
        """The true gradient of x * x, said by hand, and that of two results."""
        x, dy, dz = Input("x", f32[2, 3]), Input("dy", f32[2, 3]), Input("dz", f32[2, 3])
        square, twice = apply("mul", x, x), apply("mul", x, 2.0)
        back = apply("mul", dy, twice)
        one = cls(Graph.of("square", [x], [square]), Graph.of("back", [x, dy], [back]))
        both = apply("add", back, apply("mul", dz, 2.0))
        two = cls(Graph.of("f", [x], [square, twice]), Graph.of("back", [x, dy, dz], [both]))
        array = np.arange(6, dtype=np.float32).reshape(2, 3)
        yield Example(one, (array,))
        yield Example(two, (array,))
