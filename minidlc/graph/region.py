"""`region`: a part of the graph that another back end runs, held as a closed graph.

    def f(x: i8[4, 8], w: i8[8, 3]):
        def npu_0(x: i8[4, 8], w: i8[8, 3]):
            y: i32[4, 3] = matmul_integer(x, w)
            return y
        h: i32[4, 3] = region(x, w, body=npu_0, backend="npu")
        return h

The `partition` pass makes these. To everybody else a region is a composite op: `decompose` puts its
nodes back, so that the host can run what nobody took. Weights are constants of the body. Treated in
course chapter 02_frontend_opt.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from minidlc.expr.types import Array, TensorType, f32
from minidlc.graph.fused import body_type
from minidlc.graph.graph import Constant, Graph, Input, Value, apply
from minidlc.graph.inline import inlined
from minidlc.graph.interpret import interpret
from minidlc.graph.op import Example, Op, OpKind, register_op
from minidlc.graph.types import Type


@register_op
@dataclass(frozen=True)
class Region(Op):
    """region(x, …) = body(x, …) on the back end of this name; several outputs make a tuple."""

    kind = OpKind.COMPOSITE

    body: Graph
    backend: str

    def type_rule(self, *inputs: TensorType) -> Type:
        return body_type("region", self.body, inputs)

    def reference(self, *inputs: Array) -> Array | tuple[Array, ...]:
        results = interpret(self.body, inputs)
        return results[0] if len(results) == 1 else tuple(results)

    def decompose(self, *inputs: Value) -> Value | tuple[Value, ...]:
        results = inlined(self.body, dict(zip(self.body.inputs, inputs, strict=True)))
        return results[0] if len(results) == 1 else results

    @classmethod
    def examples(cls) -> Iterable[Example]:
        """A chain with a weight inside, and a region with two outputs."""
        x = Input("x", f32[3, 5])
        total = apply("matmul", x, Constant("w", np.eye(5, 2, dtype=np.float32)))
        chain = Graph.of("chain", [x], [apply("relu", total)])
        both = Graph.of("both", [x], [total, apply("mul", total, 2.0)])
        arrays = (np.random.default_rng(0).standard_normal((3, 5), np.float32),)
        yield Example(cls(chain, "npu"), arrays)
        yield Example(cls(both, "npu"), arrays)
