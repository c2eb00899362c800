"""Which boxes of two graphs are the same: the first half of comparing a graph before and after.

    old, new = Side.of(before), Side.of(after)
    recognised(old, new)                            # {'relu_1': 'relu_1', …}: box before -> after

Passes make graphs anew, so that a box is known by signs, the surest first: the same op object, name
and location; name and location; name; an equal op that reads the same. Names alone are not enough:
a graph numbers equal ones. Reads graphs, writes keys of boxes. Treated in course chapter
02_frontend_opt.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from minidlc.graph.graph import Constant, Graph, Node, Value
from minidlc.graph.structure import constant_key, op_key
from minidlc.support.locations import Derived, Loc, written
from minidlc.viz.boxes import key_of
from minidlc.viz.opening import Opened, Placed, opened


@dataclass(frozen=True)
class Side:
    """One graph, opened. `ops` are the boxes that stand for nodes, in order."""

    graph: Graph
    shown: Opened
    ops: dict[str, Placed]
    made_by: dict[Value, str]  # value -> its box; of an element of a tuple, that of the tuple

    @staticmethod
    def of(graph: Graph) -> Side:
        shown = opened(graph)
        made_by: dict[Value, str] = {i: f"in {n}" for n, i in enumerate(graph.inputs)}
        ops: dict[str, Placed] = {}
        for p in shown.placed:
            if isinstance(p.value, Node) and p.value.op.name == "getitem" and not p.role:
                made_by[p.value] = made_by.get(p.reads[0], "")
            else:
                made_by[p.value] = key_of(p)
                ops |= {key_of(p): p} if not p.role else {}
        return Side(graph, shown, ops, made_by)

    def node(self, key: str) -> Node:
        """The node of a box."""
        node = self.ops[key].value
        assert isinstance(node, Node)
        return node

    def readers(self) -> Iterator[tuple[str, Sequence[Value]]]:
        """Boxes (ops, values inside bodies, the outputs) and what they read."""
        for p in self.shown.placed:
            if self.made_by[p.value] == key_of(p):
                yield key_of(p), p.reads
        yield "out", self.shown.outputs


# which boxes are the same


def recognised(old: Side, new: Side) -> dict[str, str]:
    """Boxes of ops that stayed: before -> after. The surest signs come first."""
    kept: dict[str, str] = {}
    places = {old.node(key).loc for key in old.ops}
    made = {key for key in new.ops if _source(new.node(key)) in places}  # by the pass, from those

    def pair(sign: Callable[[Side, str], Hashable], but: set[str] = made) -> None:
        taken = set(kept.values()) | but
        waiting: dict[Hashable, list[str]] = {}
        for key in new.ops:
            if key not in taken:
                waiting.setdefault(sign(new, key), []).append(key)
        for key in old.ops:
            found = waiting.get(sign(old, key)) if key not in kept else None
            if found:
                kept[key] = found.pop(0)

    pair(lambda side, key: (id(side.node(key).op), side.node(key).name, side.node(key).loc), set())
    pair(lambda side, key: (_name(side.node(key)), side.node(key).loc), set())
    pair(lambda side, key: _name(side.node(key)))
    _pair_by_what_they_read(old, new, kept)
    return kept


def _name(node: Node) -> tuple[str, str]:
    return node.op.name, node.name


def _source(node: Node) -> Loc | str | None:
    """What a pass made the node from, if one did."""
    return node.loc.of if isinstance(node.loc, Derived) else "no pass"


def comes_from(node: Node, source: Node) -> bool:
    """True if a pass made the node from `source` or from the same place."""
    return isinstance(node.loc, Derived) and same_place(node.loc, source.loc)


def same_place(a: Loc | None, b: Loc | None) -> bool:
    """True if two locations go back to a common place of the reader's program."""
    return not set(written(a)).isdisjoint(written(b))


def _pair_by_what_they_read(old: Side, new: Side, kept: dict[str, str]) -> None:
    """Boxes of equal ops that read the same, in execution order: what they read is paired first."""

    def sign(side: Side, key: str, names: Mapping[str, str]) -> Hashable:
        tokens: list[str] = []
        inside = roles[side is new]
        for v in side.ops[key].reads:
            made = side.made_by.get(v, "")
            token = constant_key(v) if isinstance(v, Constant) else names.get(made, "")
            token = token or inside.get(made, "")
            if not token:
                return key, id(side)
            tokens.append(token)
        return (op_key(side.node(key).op), *tokens)

    roles = [_values_inside(side) for side in (old, new)]
    taken = set(kept.values())
    if len(kept) == len(old.ops) or len(taken) == len(new.ops):
        return
    inputs = {f"in {n}": f"in {n}" for n in range(len(new.graph.inputs))}
    itself = inputs | {key: key for key in new.ops}
    waiting: dict[Hashable, list[str]] = {}
    for key in new.ops:
        if key not in taken:
            waiting.setdefault(sign(new, key, itself), []).append(key)
    for key in old.ops:
        found = waiting.get(sign(old, key, inputs | kept)) if key not in kept else None
        if found:
            kept[key] = found.pop(0)


def _values_inside(side: Side) -> dict[str, str]:
    """Boxes of values that bodies are given or return -> role, and number within their frame."""
    count: dict[str, int] = {}
    found: dict[str, str] = {}
    for p in side.shown.placed:
        if p.role:
            count[p.frame] = count.get(p.frame, 0) + 1
            found[key_of(p)] = f"{p.role} {count[p.frame]}"
    return found


def same_frames(old: Side, new: Side, kept: Mapping[str, str]) -> dict[str, str]:
    """Bodies of the same op, and kernels of the same ops: frame before -> after."""
    found: dict[str, str] = {}
    kernels = {frozenset(m): f for f, m in members_of(new).items() if not new.shown.frames[f].op}
    inside = members_of(old)
    for name, frame in old.shown.frames.items():
        if frame.op:
            title = name.removeprefix(frame.op)
            same = f"{kept.get(frame.op, '')}{title}"
        else:
            same = kernels.get(frozenset(kept.get(key, "") for key in inside.get(name, ())), "")
        if same in new.shown.frames:
            found[name] = same
    return found


def members_of(side: Side) -> dict[str, list[str]]:
    """Frame -> the boxes of ops that lie in it directly."""
    found: dict[str, list[str]] = {}
    for key, p in side.ops.items():
        if p.frame:
            found.setdefault(p.frame, []).append(key)
    return found
