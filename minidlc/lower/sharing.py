"""Which values of a graph need no bytes of their own, before any place is known.

    sharing = Sharing.of(g, outputs=(y,))           # y: an output that is computed where it goes
    sharing.root(part)                              # ((x, 0), 128): from byte 128 of what x made
    sharing.pieces(whole)                           # a concat: who wrote which of its bytes

Views and cuts in one piece lie in their input (`ops/aliases.py`). Inputs of a concat lie in its
result, if all of them can: each is made by a step of this graph, whole, for no output and no other
concat. Bytes of a slot, which is one result of a node, may be given to another value after its
`last` use, aliases counted. Reads a graph, writes nothing. Treated in course chapter
05_backend_opt.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from minidlc.expr.types import TensorType
from minidlc.graph import Graph, Node, Value, result_types
from minidlc.ops.aliases import parts_at, starts_at
from minidlc.ops.movement import GetItem

Slot: TypeAlias = tuple[Value, int]  # a root value and which of its results


@dataclass(frozen=True)
class Piece:
    """`nbytes` bytes from `start` on of what a step writes as `slot`."""

    slot: Slot
    start: int
    nbytes: int


@dataclass(frozen=True)
class Sharing:
    """What shares bytes in one graph; bodies of its branches and loops have their own."""

    views: Mapping[Node, int]  # first byte, in the first input
    joined: Mapping[Node, tuple[int, ...]] = field(default_factory=dict[Node, tuple[int, ...]])
    within: Mapping[Slot, tuple[Node, int]] = field(default_factory=dict[Slot, tuple[Node, int]])
    position: Mapping[Node, int] = field(default_factory=dict[Node, int])
    last: Mapping[Slot, int] = field(default_factory=dict[Slot, int])

    @staticmethod
    def of(
        graph: Graph, outputs: Collection[Value], over_inputs: Collection[Value] = ()
    ) -> Sharing:
        """`outputs` are those that have a place of their own, outside the arena.

        Those `over_inputs` are written by one step: no concat of several.
        """
        views = {n: start for n in graph.nodes if (start := _view(n, graph)) is not None}
        only_views = Sharing(views)
        taken = {only_views.root(o)[0] for o in outputs}
        at_once = {only_views.root(o)[0] for o in over_inputs}
        joined, within = _concats(graph, only_views, taken, at_once)
        position = {n: i for i, n in enumerate(graph.nodes)}
        found = Sharing(views, joined, within, position)
        return Sharing(views, joined, within, position, found._last_uses(graph))

    def is_free(self, node: Node) -> bool:
        """True if the node has no kernel: its bytes are there."""
        return node in self.views or node in self.joined or isinstance(node.op, GetItem)

    def root(self, value: Value) -> tuple[Slot, int]:
        """The slot in which the value lies, and from which byte on; views are looked through."""
        index = offset = 0
        while isinstance(value, Node) and (isinstance(value.op, GetItem) or value in self.views):
            if isinstance(value.op, GetItem):
                index = value.op.index
            else:
                offset += self.views[value]
            source = value.inputs[0]
            assert source is not None
            value = source
        return (value, index), offset

    def pieces(self, value: Value) -> tuple[Piece, ...]:
        """Where each byte of the value comes from, in order."""
        slot, start = self.root(value)
        return tuple(self._cut(slot, start, start + _nbytes(value)))

    def whole(self, value: Value) -> Slot | None:
        """The slot, if the value is all of it."""
        slot, start = self.root(value)
        size = result_types(slot[0].type)[slot[1]].nbytes
        return slot if start == 0 and size == _nbytes(value) else None

    def _cut(self, slot: Slot, start: int, end: int) -> list[Piece]:
        """Bytes start..end of a slot; those of a joined concat are those of its parts."""
        if slot[0] not in self.joined:
            return [Piece(slot, start, end - start)]
        node = slot[0]
        assert isinstance(node, Node)
        found: list[Piece] = []
        for value, begin in zip(node.inputs, self.joined[node], strict=True):
            assert value is not None
            first, last = max(start, begin), min(end, begin + _nbytes(value))
            if first < last:
                found += self._cut(self.root(value)[0], first - begin, last - begin)
        return found

    def _last_uses(self, graph: Graph) -> dict[Slot, int]:
        """Position of the last node with steps that reads a slot; outputs are read behind all."""
        last: dict[Slot, int] = {}
        for position, node in enumerate(graph.nodes):
            if not self.is_free(node):
                for value in node.inputs:
                    if value is not None:
                        last |= dict.fromkeys(self.slots(value), position)
        for value in graph.outputs:
            last |= dict.fromkeys(self.slots(value), len(graph.nodes))
        return last

    def slots(self, value: Value) -> list[Slot]:
        """The slots that a value reads bytes of."""
        if not isinstance(value.type, TensorType):
            return [(value, n) for n in range(len(result_types(value.type)))]
        return [piece.slot for piece in self.pieces(value)]


def _view(node: Node, graph: Graph) -> int | None:
    """The first byte of a view. A cut that is an output is computed where the output goes."""
    start = starts_at(node)
    return None if start is not None and not node.op.is_view and node in graph.outputs else start


def _concats(
    graph: Graph, views: Sharing, taken: Collection[Slot], at_once: Collection[Slot]
) -> tuple[dict[Node, tuple[int, ...]], dict[Slot, tuple[Node, int]]]:
    """Concats that their producers write, and in which one each of these slots lies.

    Slots `taken` lie elsewhere, those `at_once` are no such concats.
    """
    joined: dict[Node, tuple[int, ...]] = {}
    within: dict[Slot, tuple[Node, int]] = {}
    for node in graph.nodes:
        starts = parts_at(node)
        if starts is None or (node, 0) in at_once:
            continue
        parts = _parts(node, starts, views)
        if parts and not any(s is None or s in taken or s in within for s, _ in parts):
            joined[node] = starts
            within |= {s: (node, start) for s, start in parts if s is not None}
    return joined, within


def _parts(node: Node, starts: Sequence[int], views: Sharing) -> list[tuple[Slot | None, int]]:
    """The slot of each input with bytes; None where it is no step's, not whole, or there twice."""
    parts: dict[Slot | None, int] = {}
    for value, start in zip(node.inputs, starts, strict=True):
        assert value is not None
        if _nbytes(value):
            slot = views.whole(value)
            made = slot is not None and isinstance(slot[0], Node) and slot not in parts
            parts[slot if made else None] = start
    return list(parts.items())


def _nbytes(value: Value) -> int:
    return sum(t.nbytes for t in result_types(value.type))
