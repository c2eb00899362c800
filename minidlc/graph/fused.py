"""`fused`: a group of ops that runs as one kernel, held as a closed graph.

    def f(x: f32[4, 8], w: f32[8, 3]):
        def matmul_relu(x: f32[4, 8], w: f32[8, 3]):
            y: f32[4, 3] = matmul(x, w)
            z: f32[4, 3] = relu(y)
            return z
        h: f32[4, 3] = fused(x, w, body=matmul_relu, anchor="gemm")
        return h

The `fuse` pass makes these; lowering gives each one schedule. Treated in course chapter
02_frontend_opt.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from minidlc.expr.types import Array, TensorType, f32
from minidlc.graph.graph import Constant, Graph, Input, Node, Value, apply
from minidlc.graph.interpret import interpret
from minidlc.graph.op import Example, Op, Pattern, express, register_op
from minidlc.graph.types import TupleType, Type
from minidlc.support.errors import LoweringError, TypeRuleError
from minidlc.te.tensor import Tensor, filled


@register_op
@dataclass(frozen=True)
class Fused(Op):
    """fused(x, …) = body(x, …); several outputs of the body make a tuple.

    `anchor` is the KIND of schedule that the group takes: that of its heaviest op.
    """

    pattern = Pattern.OPAQUE

    body: Graph
    anchor: str = "injective"

    def type_rule(self, *inputs: TensorType) -> Type:
        return body_type("fused", self.body, inputs)

    def reference(self, *inputs: Array) -> Array | tuple[Array, ...]:
        results = interpret(self.body, inputs)
        return results[0] if len(results) == 1 else tuple(results)

    def compute(self, *inputs: Tensor) -> Tensor:
        """The one output as a tensor expression over the group's stages."""
        outputs = self.outputs(*inputs)
        if len(outputs) != 1:
            text = f"fused: {self.body.name} has {len(outputs)} outputs, not one tensor expression"
            raise LoweringError(text, hint="Fused.outputs gives all", code="MDLC0720")
        return outputs[0]

    def outputs(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """Every output as a tensor expression; each node of the body is a stage or several."""
        tensors = self.tensors(*inputs)
        return tuple(
            _scalar(o) if isinstance(o, Constant) else tensors[o] for o in self.body.outputs
        )

    def tensors(self, *inputs: Tensor) -> dict[Value, Tensor]:
        """Every value of the body as a tensor expression: inputs, then nodes in order."""
        tensors: dict[Value, Tensor] = dict(zip(self.body.inputs, inputs, strict=True))

        def tensor(value: Value) -> Tensor:
            return _scalar(value) if isinstance(value, Constant) else tensors[value]

        for node in self.body.nodes:
            arguments = [None if v is None else tensor(v) for v in node.inputs]
            (tensors[node],) = express(node.op, arguments)  # `fuse` takes no op with several
        return tensors

    @property
    def anchor_node(self) -> Node:
        """The node that the schedule is built around: the heaviest, or the last of light ones."""
        heavy = (Pattern.OUT_FUSABLE, Pattern.REDUCTION)
        anchors = [n for n in self.body.nodes if n.op.pattern in heavy]
        return anchors[0] if anchors else self.body.nodes[-1]

    @classmethod
    def examples(cls) -> Iterable[Example]:
        """An elementwise chain, and a group with two outputs."""
        x, y = Input("x", f32[3, 5]), Input("y", f32[5])
        total = apply("add", x, y)
        chain = Graph.of("add_relu", [x, y], [apply("relu", total)])
        both = Graph.of("both", [x, y], [total, apply("mul", total, 2.0)])
        rng = np.random.default_rng(0)
        arrays = rng.standard_normal((3, 5), np.float32), rng.standard_normal(5, np.float32)
        yield Example(cls(chain), arrays)
        yield Example(cls(both), arrays)


def body_type(name: str, body: Graph, inputs: tuple[TensorType, ...]) -> Type:
    """The type of an op that is a body applied to inputs of these types."""
    wanted = body.input_types()
    if inputs != wanted:
        expected = ", ".join(map(str, wanted))
        got = ", ".join(map(str, inputs))
        text = f"{name}: {body.name} takes ({expected}), got ({got})"
        raise TypeRuleError(text, code="MDLC0211")
    types = tuple(t for t in body.output_types() if isinstance(t, TensorType))
    if len(types) != len(body.outputs) or not types:
        text = f"{name}: {body.name} must have tensors as outputs, and at least one"
        raise TypeRuleError(text, code="MDLC0211")
    return types[0] if len(types) == 1 else TupleType(types)


def _scalar(constant: Constant) -> Tensor:
    if constant.array.size != 1:
        text = f"constant {constant.name!r} inside a fused body has {constant.array.size} elements"
        hint = "make it an input of the body"
        raise LoweringError(text, loc=constant.loc, hint=hint, code="MDLC0721")
    return filled(constant.type, constant.array.reshape(-1)[0].item(), constant.name)
