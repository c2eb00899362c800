"""Pixels in blocks become channels, and back: space_to_depth, depth_to_space.

    apply("space_to_depth", x, blocksize=2)         # f32[1, 3, 8, 8] -> f32[1, 12, 4, 4]
    apply("depth_to_space", y, blocksize=2)         # and back: each is the gradient of the other

Treated in course chapter 01_graph_ir.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from minidlc.expr.index import Index
from minidlc.expr.nodes import Expr
from minidlc.expr.types import Dim, TensorType
from minidlc.graph.graph import Node, Value, apply
from minidlc.graph.op import Example, Op, Pattern, register_op
from minidlc.ops import rules, samples
from minidlc.ops.gradients import Grads
from minidlc.ops.rules import Values
from minidlc.te.tensor import Tensor, compute


def _checked(op: Op, x: TensorType, blocksize: int) -> tuple[Dim, ...]:
    """The shape of a batch of images; the block must have a size."""
    rules.rank(op, "x", x, 4)
    if blocksize < 1:
        rules.fail(op, f"blocksize must be at least 1, got {blocksize}", rules.RANGE)
    return x.shape


def _check_mode(op: Op, mode: str) -> None:
    if mode not in ("DCR", "CRD"):
        rules.fail(op, f"mode {mode!r} is neither DCR nor CRD", rules.RANGE)


def _divided(op: Op, axis: str, dim: Dim, by: int) -> Dim:
    """dim / by, which has no remainder."""
    rest = dim % by
    if isinstance(rest, Index) and not rest.is_const:
        text = f"{axis} {dim} may not be a multiple of {by}"
        rules.fail(op, text, rules.SYMBOLIC, "give the sizes: shapes={…}")
    if not rules.same_dim(rest, 0):
        rules.fail(op, f"{axis} {dim} is no multiple of {by}", rules.DIMS)
    return dim // by


@register_op
@dataclass(frozen=True)
class DepthToSpace(Op):
    """depth_to_space(x)[n, c, h, w] = x[n, channel, h // b, w // b]: blocks of b x b elements.

    The channel is ((h % b) * b + w % b) * C + c in mode DCR (depth, column, row), for C channels
    of the result, and (c * b + h % b) * b + w % b in mode CRD.
    """

    onnx = "DepthToSpace"
    pattern = Pattern.INJECTIVE
    blocksize: int
    mode: str = "DCR"

    def type_rule(self, x: TensorType) -> TensorType:
        n, c, h, w = _checked(self, x, self.blocksize)
        _check_mode(self, self.mode)
        b = self.blocksize
        return x.with_shape((n, _divided(self, "the number of channels", c, b * b), h * b, w * b))

    def reference(self, x: Values) -> Values:
        n, c, h, w = x.shape
        b = self.blocksize
        deep = c // (b * b)
        if self.mode == "DCR":
            y = x.reshape(n, b, b, deep, h, w).transpose(0, 3, 4, 1, 5, 2)
        else:
            y = x.reshape(n, deep, b, b, h, w).transpose(0, 1, 4, 2, 5, 3)
        return y.reshape(n, deep, h * b, w * b)

    def compute(self, x: Tensor) -> Tensor:
        out, b = self.type_rule(x.type).dims, self.blocksize

        def body(n: Index, c: Index, h: Index, w: Index) -> Expr:
            inner = h % b * b + w % b
            channel = inner * out[1] + c if self.mode == "DCR" else c * (b * b) + inner
            return x[n, channel, h // b, w // b]

        return compute(out, body, self.name)

    def gradient(self, y: Node, dy: Value) -> Grads:
        return (apply("space_to_depth", dy, blocksize=self.blocksize, mode=self.mode),)

    @classmethod
    def examples(cls) -> Iterable[Example]:
        """Both modes, blocks of 1 to 3."""
        for mode in ("DCR", "CRD"):
            for b, shape in ((2, (1, 8, 2, 3)), (3, (2, 9, 1, 2)), (1, (1, 2, 3, 4))):
                yield Example(cls(b, mode), (samples.array(shape),), 0, 0)
        yield Example(cls(2), (samples.array((1, 4, 2, 2), "f64"),), 0, 0)


@register_op
@dataclass(frozen=True)
class SpaceToDepth(Op):
    """space_to_depth(x)[n, c, h, w] = x[n, d, h * b + i // b, w * b + i % b]: blocks of b x b.

    In mode DCR d = c % C, i = c // C, for C channels of x; in CRD d = c // b**2, i = c % b**2.
    """

    onnx = "SpaceToDepth"
    pattern = Pattern.INJECTIVE
    blocksize: int
    mode: str = "DCR"

    def type_rule(self, x: TensorType) -> TensorType:
        n, c, h, w = _checked(self, x, self.blocksize)
        _check_mode(self, self.mode)
        b = self.blocksize
        height, width = _divided(self, "height", h, b), _divided(self, "width", w, b)
        return x.with_shape((n, c * (b * b), height, width))

    def reference(self, x: Values) -> Values:
        n, c, h, w = x.shape
        b = self.blocksize
        order = (0, 3, 5, 1, 2, 4) if self.mode == "DCR" else (0, 1, 3, 5, 2, 4)
        y = x.reshape(n, c, h // b, b, w // b, b).transpose(order)
        return y.reshape(n, c * b * b, h // b, w // b)

    def compute(self, x: Tensor) -> Tensor:
        out, b, deep = self.type_rule(x.type).dims, self.blocksize, x.shape[1]

        def body(n: Index, c: Index, h: Index, w: Index) -> Expr:
            inner, channel = c // max(deep, 1), c % max(deep, 1)
            if self.mode == "CRD":
                inner, channel = c % (b * b), c // (b * b)
            return x[n, channel, h * b + inner // b, w * b + inner % b]

        return compute(out, body, self.name)

    def gradient(self, y: Node, dy: Value) -> Grads:
        return (apply("depth_to_space", dy, blocksize=self.blocksize, mode=self.mode),)

    @classmethod
    def examples(cls) -> Iterable[Example]:
        """Both modes, blocks of 1 to 3, one channel and several."""
        for mode in ("DCR", "CRD"):
            for b, shape in ((2, (1, 2, 4, 6)), (3, (2, 1, 3, 6)), (1, (1, 2, 3, 4))):
                yield Example(cls(b, mode), (samples.array(shape),), 0, 0)
        yield Example(cls(2), (samples.array((1, 3, 2, 2), "f64"),), 0, 0)
