"""The graph built again, some nodes in blocks: a value has a plain form, a blocked one, or both.

    forms = Forms(g, block=8, blocked={conv, relu})
    forms.rewritten()

Forms are made when they are asked for and kept, so an image is packed or unpacked at most once, and
packing what was just unpacked gives the image itself. Treated in course chapter 02_frontend_opt.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from minidlc.expr.types import Array
from minidlc.graph.graph import Constant, Graph, Node, Value, build, tensor_type
from minidlc.graph.inline import with_inputs
from minidlc.graph.op import Op
from minidlc.ops.binary import Where
from minidlc.ops.blocked import Conv2dNchwc, DepthwiseNchwc, Pack, Unpack, pack_array
from minidlc.ops.conv import Conv
from minidlc.ops.elementwise import Elementwise
from minidlc.ops.movement import Concat
from minidlc.ops.shape import Reshape
from minidlc.support.locations import Derived
from minidlc.transform.layout.layout_ops import (
    filled_up,
    in_blocks,
    is_depthwise,
    is_stem,
    shape_of,
)
from minidlc.transform.log import Rewrite, report
from minidlc.transform.rebuild import regraph


@dataclass
class Forms:
    """The new graph as far as it is built, and the forms of the old graph's values in it."""

    graph: Graph
    block: int
    blocked: Container[Value]  # nodes that are computed in blocks
    nodes: list[Node] = field(default_factory=list[Node])
    plain: dict[Value, Value] = field(default_factory=dict[Value, Value])
    in_blocks: dict[Value, Value] = field(default_factory=dict[Value, Value])
    packed: dict[tuple[Value, str], Constant] = field(
        default_factory=dict[tuple[Value, str], Constant]
    )
    masks: dict[int, Constant] = field(default_factory=dict[int, Constant])  # of channels that are
    summed: set[Value] = field(default_factory=set[Value])  # convolutions sum over their channels

    def rewritten(self) -> Graph:
        """Build every node in the form it is to be computed in."""
        for node in self.graph.nodes:
            if node in self.blocked and _is_dense(node):
                self.summed |= {v for v in node.inputs[:1] if v is not None}
        for node in self.graph.nodes:
            if node in self.blocked:
                made = self._conv(node) if isinstance(node.op, Conv) else self._light(node)
                self.in_blocks[node] = self._with_zeros(node, made)
                report(partial(Rewrite, f"{node.op.name} in blocks", node.name, node.loc))
            else:
                for value in node.inputs:
                    if value is not None:
                        self._plain(value)
                self.plain[node] = with_inputs(node, self.plain)
                self.nodes.append(self.plain[node])  # pyright: ignore
        outputs = {o: self._plain(o) for o in self.graph.outputs}
        return regraph(self.graph, self.nodes, outputs)

    def _add(self, op: Op, inputs: tuple[Value | None, ...], like: Value, name: str = "") -> Node:
        """A new node that stands for `like`, or for a form of it."""
        made = build(op, inputs, name=name or like.name, loc=Derived("layout", like.loc))
        self.nodes.append(made)
        return made

    def _plain(self, value: Value) -> Value:
        """The value as it was in the old graph; a blocked image is unpacked once."""
        if value not in self.plain:
            image = self.in_blocks.get(value)
            if image is None:
                return self.plain.setdefault(value, value)  # an input or a constant
            name, channels = f"{value.name}_plain", shape_of(value)[1]
            if not self._is_vector(image, channels):
                image = self._add(Unpack(channels), (image,), value, name)
            if image.type != value.type:  # f32[n, c], the result of a mean
                image = self._add(Reshape(shape_of(value)), (image,), value, name)
            self.plain[value] = image
        return self.plain[value]

    def _blocked(self, value: Value) -> Value:
        """The value as [n, c / b, h, w, b]; a plain image is packed once."""
        if value not in self.in_blocks:
            plain, channels = self._plain(value), shape_of(value)[1]
            op = Pack(self.block)
            if self._is_vector(value, channels):
                op = Reshape((shape_of(value)[0], channels // self.block, 1, 1, self.block))
            self.in_blocks[value] = self._add(op, (plain,), value, f"{value.name}_blocked")
        return self.in_blocks[value]

    def _is_vector(self, image: Value, channels: int) -> bool:
        """True for one pixel whose bytes are the same in both layouts: a reshape is enough."""
        return shape_of(image)[2:4] == (1, 1) and channels % self.block == 0

    def _constant(self, value: Value, how: str, array: Array) -> Constant:
        """A packed constant: one for all that read it."""
        loc = Derived("layout", value.loc)
        return self.packed.setdefault((value, how), Constant(f"{value.name}_{how}", array, loc))

    def _conv(self, node: Node) -> Node:
        """A convolution in blocks, its weights packed."""
        conv, x, w = node.op, node.inputs[0], node.inputs[1]
        b = node.inputs[2] if len(node.inputs) > 2 else None
        assert isinstance(conv, Conv)
        assert isinstance(w, Constant)
        assert x is not None
        geometry = (conv.strides, conv.pads, conv.dilations)
        bias = None
        if isinstance(b, Constant):
            bias = self._constant(b, "blocks", pack_array(b.array, 0, self.block))
        if is_depthwise(conv, w):
            filters = pack_array(w.array[:, 0], 0, self.block)
            inputs = self._blocked(x), self._constant(w, "depthwise", filters)
            return self._add(DepthwiseNchwc(*geometry), _given(*inputs, bias), node)
        if self._reads_plain(x):
            filters = self._constant(w, "stem", pack_array(w.array, 0, self.block))
            return self._add(Conv2dNchwc(*geometry), _given(self._plain(x), filters, bias), node)
        filters = pack_array(pack_array(w.array, 1, self.block), 0, self.block)
        inputs = self._blocked(x), self._constant(w, "dense", filters)
        return self._add(Conv2dNchwc(*geometry), _given(*inputs, bias), node)

    def _reads_plain(self, x: Value) -> bool:
        return is_stem(x, self.block) and x not in self.in_blocks

    def _light(self, node: Node) -> Node:
        """An op that takes blocked images as they are."""
        op = in_blocks(node)
        assert op is not None
        if not isinstance(op, Elementwise):
            first, *rest = (v for v in node.inputs if v is not None)
            form = self._blocked if isinstance(op, Concat) else self._plain
            images = map(form, rest)
            return self._add(op, (self._blocked(first), *images), node)
        channels = shape_of(node)[1]
        operands = (None if v is None else self._operand(v, channels) for v in node.inputs)
        return self._add(op, tuple(operands), node)

    def _operand(self, value: Value, channels: int) -> Value:
        """An input of an elementwise op as it stands beside blocked images."""
        t = tensor_type(value)
        if value in self.in_blocks:
            return self.in_blocks[value]
        if t.size == 1:
            return self._plain(value)
        if t.rank < 3 or t.dims[-3] == 1:  # the same for all channels
            shape = (*t.dims, 1)
            if isinstance(value, Constant):
                return self._constant(value, "lane", value.array.reshape(shape))
            return self._add(Reshape(shape), (self._plain(value),), value, f"{value.name}_lane")
        assert t.dims[-3] == channels
        if isinstance(value, Constant):
            return self._constant(value, "blocks", pack_array(value.array, t.rank - 3, self.block))
        if t.rank == 4:
            return self._blocked(value)
        op = Pack(self.block, t.rank - 3)
        return self._add(op, (self._plain(value),), value, f"{value.name}_blocked")

    def _with_zeros(self, node: Node, made: Node) -> Node:
        """Zeros again in the channels that fill up the last block, where a sum would read them.

        Their weights are zeros, but 0 * inf and 0 * NaN are NaN, and an op may have made 0 such a
        number, as `log` does.
        """
        channels = shape_of(node)[1]
        element = tensor_type(node).dtype
        if channels % self.block == 0 or node not in self.summed or not element.is_float:
            return made
        real = np.arange(filled_up(channels, self.block)) < channels
        there = Constant("channels", real.reshape(-1, 1, 1, self.block), node.loc)
        mask = self.masks.setdefault(channels, there)
        zero = Constant("zero", np.zeros((), element.numpy), node.loc)
        return self._add(Where(), (mask, made, zero), node)


def _given(x: Value, w: Value, b: Value | None) -> tuple[Value | None, ...]:
    return (x, w) if b is None else (x, w, b)


def _is_dense(node: Node) -> bool:
    w = node.inputs[1] if len(node.inputs) > 1 else None
    return isinstance(node.op, Conv) and w is not None and not is_depthwise(node.op, w)
