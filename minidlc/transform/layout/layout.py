"""Images keep their channels in blocks from one convolution to the next: NCHW becomes NCHW[b].

    y = conv(x, w); z = relu(y); u = conv(z, v)
 -> y = conv2d_nchwc(x, w'); z = relu(y); t = conv2d_nchwc(z, v'); u = unpack(t, channels=…)

In plain NCHW the neighbours of an element in memory are other pixels; in blocks of as many channels
as a vector has lanes (`block`) they are the channels that one pixel of a result shares its loads
with, at any width and stride. Going from one layout to the other costs a pass over the image, so
whole regions change, and only those that gain more than that:

1. candidates: convolutions with constant weights, and ops that read such results only (elementwise
   ops, pools, means over pixels, concatenations of whole blocks: transform/layout/layout_ops.py);
2. regions: candidates connected by images; each is weighed by counts, work gained against elements
   moved at its borders (`GAIN`, `MOVE`);
3. every op of what is left is built again in blocks; weights are packed here and now.

Counts are an estimate. Who has measured (minidlc/tuning/neighbours.py) says which convolutions stay
plain, layout{block=16, plain=("conv_1",)}, and then nothing is weighed.

Channels are filled up with zeros. What ops make of the zeros does no harm until a convolution would
sum over it: 0 * inf is NaN. There, zeros are put back (transform/layout/layout_forms.py).
Sums run over blocks of channels, which is another order: precision="strict" leaves the pass out.
Treated in course chapter 02_frontend_opt.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import cast

from minidlc.graph.graph import Constant, Graph, Node, Value, tensor_type
from minidlc.graph.printer import value_names
from minidlc.ops.conv import Conv
from minidlc.ops.elementwise import Elementwise
from minidlc.ops.movement import Concat
from minidlc.support.errors import OptionError
from minidlc.transform.layout.layout_forms import Forms
from minidlc.transform.layout.layout_ops import (
    WASTE,
    blocked_work,
    filled_up,
    in_blocks,
    is_depthwise,
    is_image,
    is_stem,
    shape_of,
    work,
)
from minidlc.transform.log import Refusal, Rewrite, permitted, report
from minidlc.transform.pass_ import Pass, register_pass

# Measured with 8 lanes, in the time that a blocked convolution takes for a multiply-add.
GAIN = 1.5  # a multiply-add of a plain convolution
MOVE = 12  # an element taken from one layout to the other


@register_pass
@dataclass(frozen=True)
class Layout(Pass):
    """Blocks of `block` channels for the regions that gain by them.

    With `plain`, names of convolutions as the text of the graph gives them, nothing is weighed:
    these stay plain and all other candidates go into blocks. OptionError (MDLC1015) for a block
    below 1, or names that are none.
    """

    name = "layout"
    level = 2
    exact = False
    requires = ("decomposed",)
    block: int = 8
    plain: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.plain is not None and not _are_names(self.plain):
            text = f"layout: plain is a tuple of names, got {self.plain!r}"
            raise OptionError(text, hint='plain=("conv_1",), () for none', code="MDLC1015")

    def run(self, graph: Graph) -> Graph:
        """The graph with blocked images where they pay."""
        if self.block < 1:
            text = f"layout: block must be at least 1, got {self.block}"
            raise OptionError(text, hint="the f32 lanes of a vector: 4, 8 or 16", code="MDLC1015")
        blocked = self._weighed(graph) if self.plain is None else self._told(graph, self.plain)
        return Forms(graph, self.block, blocked).rewritten() if blocked else graph

    def _weighed(self, graph: Graph) -> set[Value]:
        """The nodes of the regions that pay."""
        users, outputs = graph.users(), set(graph.outputs)
        blocked: set[Value] = set()
        for region in find_regions(graph, self.block):
            read = [n for n in region.nodes if set(users.get(n, ())) - region.nodes.keys()]
            left = [*read, *(n for n in region.nodes if n in outputs and n not in read)]
            first = next(iter(region.nodes))
            what = (
                f"{len(region.nodes)} ops in blocks of channels: {region.costs(left, self.block)}"
            )
            if region.pays(left, self.block) and permitted(what, first.name, first.loc):
                blocked |= region.nodes.keys()
                for conv in region.convs:  # whoever asks about one of them reads it too
                    report(partial(Rewrite, what, conv.name, conv.loc))
        return blocked

    def _told(self, graph: Graph, plain: tuple[str, ...]) -> set[Value]:
        """All candidates but the plain ones, and the ops between them that take blocks."""
        names = value_names(graph)
        for name in sorted(set(plain) - {names[n] for n in graph.nodes if isinstance(n.op, Conv)}):
            report(partial(Refusal, "blocks of channels", name, "no convolution has this name"))
        what, convs = f"in blocks of {self.block} channels, as told", list[Node]()
        for conv in candidates(graph, self.block):
            if names[conv] in plain:
                reason = "it is to stay plain"
                report(partial(Refusal, "blocks of channels", conv.name, reason, conv.loc))
            elif permitted(what, conv.name, conv.loc):
                convs.append(conv)
        return connected(graph, self.block, convs)


def _are_names(given: object) -> bool:
    """True for a tuple of texts; a single text is none, though it has letters."""
    items = cast("tuple[object, ...]", given)
    return isinstance(given, tuple) and all(isinstance(name, str) for name in items)


@dataclass
class Region:
    """Nodes that blocked images connect, and the plain images that would be packed for them."""

    nodes: dict[Node, None] = field(default_factory=dict[Node, None])
    packed: dict[Value, None] = field(default_factory=dict[Value, None])

    def pays(self, left: list[Node], block: int) -> bool:
        """True if the convolutions gain more than the way into blocks, and back for `left`, costs.

        `left` are the nodes that others read, plain.
        """
        gained = sum(GAIN * work(n) - self._blocked_work(n, block) for n in self.convs)
        lost = MOVE * sum(moved(v, block) for v in (*self.packed, *left))
        if gained > lost:
            return True
        for conv in self.convs:
            reason = f"not worth it: {self.costs(left, block)}"
            report(partial(Refusal, "blocks of channels", conv.name, reason, conv.loc))
        return False

    def _blocked_work(self, conv: Node, block: int) -> int:
        """Multiply-adds in blocks; few channels that arrive in a block are read with its zeros."""
        return blocked_work(conv, block, reads_blocks=conv.inputs[0] in self.nodes)

    @property
    def convs(self) -> list[Node]:
        """The convolutions: what gains."""
        return [n for n in self.nodes if isinstance(n.op, Conv)]

    def costs(self, left: list[Node], block: int) -> str:
        """'115605504 multiply-adds, 802816 bytes moved into blocks, 0 out of them'."""
        ways = (
            sum(moved(v, block) * tensor_type(v).dtype.itemsize for v in images)
            for images in (self.packed, left)
        )
        into, out = ways
        adds = sum(map(work, self.convs))
        return f"{adds} multiply-adds, {into} bytes moved into blocks, {out} out of them"


def moved(image: Value, block: int) -> int:
    """Elements that change their place; of a vector for each image none do."""
    n, channels, *pixels = shape_of(image)
    return 0 if math.prod(pixels) == 1 else n * filled_up(channels, block) * math.prod(pixels)


def find_regions(graph: Graph, block: int) -> list[Region]:
    """The candidates, connected by the images that they read in blocks."""
    regions: dict[Value, Region] = {}  # of a candidate, or of an image packed for one
    for node in graph.nodes:
        if isinstance(node.op, Conv):
            if not _is_candidate(node, block):
                continue
            x = packed_for(node, block)
            if x is not None and x not in regions:
                regions[x] = Region(packed={x: None})
        elif not is_light(node, regions, block):
            continue
        _connect(regions, node)
    return list({id(r): r for r in regions.values()}.values())


def candidates(graph: Graph, block: int) -> list[Node]:
    """The convolutions that can be computed in blocks; why others cannot is reported."""
    return [n for n in graph.nodes if isinstance(n.op, Conv) and _is_candidate(n, block)]


def _is_candidate(conv: Node, block: int) -> bool:
    reason = _reason_against(conv, block)
    if reason is not None:
        report(partial(Refusal, "blocks of channels", conv.name, reason, conv.loc))
    return reason is None


def packed_for(conv: Node, block: int) -> Value | None:
    """The image that a blocked convolution needs in blocks; None if it can read it plain."""
    x, w = conv.inputs[:2]
    assert isinstance(conv.op, Conv)
    assert x is not None
    assert w is not None
    return None if is_stem(x, block) and not is_depthwise(conv.op, w) else x


def connected(graph: Graph, block: int, convs: Iterable[Node]) -> set[Value]:
    """The convolutions, and the ops all of whose images are there in blocks for them."""
    blocked = set[Value]()
    there = set[Value | None]()
    for conv in convs:
        blocked.add(conv)
        there |= {conv, packed_for(conv, block)}
    for node in graph.nodes:
        if not isinstance(node.op, Conv) and is_light(node, there, block):
            blocked.add(node)
            there.add(node)
    return blocked


def _connect(regions: dict[Value, Region], node: Node) -> None:
    """Put the node into one region with all images that it reads in blocks."""
    images = node.inputs[:1] if isinstance(node.op, Conv) else node.inputs
    read = [regions[v] for v in images if v is not None and v in regions]
    merged = Region(nodes={node: None})
    for region in {id(r): r for r in read}.values():
        merged.nodes |= region.nodes
        merged.packed |= region.packed
    for member in (*merged.nodes, *merged.packed):
        regions[member] = merged


def _reason_against(node: Node, block: int) -> str | None:
    """Why a convolution stays plain, by itself; None if it is a candidate."""
    x, w, *bias = node.inputs
    assert isinstance(node.op, Conv)
    if not isinstance(w, Constant) or not all(isinstance(b, Constant | None) for b in bias):
        return "its weights are not constants: they would be packed in every run"
    if not (is_image(x) and is_image(node)):
        return f"{node.type} is no image of known sizes"
    if node.op.group > 1 and not is_depthwise(node.op, w):
        return f"{node.op.group} groups cut through blocks"
    if blocked_work(node, block) > WASTE * work(node):
        return f"most of its blocks of {block} channels would be zeros"
    return None


def is_light(node: Node, blocked: Container[Value | None], block: int) -> bool:
    """True for an op that takes blocked images as they are, where all its images are blocked."""
    if not node.op.pure or in_blocks(node) is None:
        return False
    images = [v for v in node.inputs if v in blocked]
    others = [v for v in node.inputs if v is not None and v not in blocked]
    match node.op:
        case Concat():
            whole = all(shape_of(v)[1] % block == 0 for v in images[:-1] if v is not None)
            return not others and whole
        case Elementwise():
            if not is_image(node):
                return False
            channels = shape_of(node)[1]
            same = all(shape_of(v)[1] == channels for v in images if v is not None)
            return bool(images) and same and all(is_operand(v) for v in others)
        case _:
            return node.inputs[0] in blocked


def is_operand(value: Value) -> bool:
    """True for what is cheap beside a blocked image: numbers, constants, one value a channel."""
    t = tensor_type(value)
    if not t.is_static or t.rank > 4:
        return False
    return isinstance(value, Constant) or t.rank < 3 or t.dims[-3] == 1 or t.dims[-2:] == (1, 1)
