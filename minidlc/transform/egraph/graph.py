"""An e-graph: classes of equal values, so that one graph stands for every form of it.

    e = EGraph()
    a = e.add(x * 2); b = e.add(x + x)              # two classes, with x's class among the inputs
    e.union(a, b); e.rebuild()                      # now one, and so are relu(x * 2), relu(x + x)
    e.find(a) == e.find(b)

A class holds e-nodes: an op applied to classes. Two things keep it small: an e-node is stored once
(hash-consing), and of classes made equal (union-find) one is left. Equal inputs make equal results:
`rebuild` restores that, once after many unions. After Willsey et al., "egg: Fast and Extensible
Equality Saturation", POPL 2021. Treated in course chapter 02_frontend_opt.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from minidlc.graph.graph import Constant, Node, Value
from minidlc.graph.inline import nodes_made
from minidlc.graph.structure import constant_key, op_key
from minidlc.graph.types import Type

LEFT_OUT = -1  # in place of a class: an optional input that is not given


@dataclass(frozen=True)
class ENode:
    """An op applied to classes; or an input or constant, which has no children.

    `key` is the op with its attributes; `value` is where the e-node was first met.
    """

    key: str
    children: tuple[int, ...]
    value: Value = field(compare=False, repr=False)


@dataclass
class EClass:
    """Values known to be equal, of one type (egg: an e-class analysis that never joins)."""

    value: (
        Value  # stands for the class; a constant if one is known (the other half of the analysis)
    )
    nodes: dict[ENode, None]
    parents: list[tuple[ENode, int]] = field(default_factory=list[tuple[ENode, int]])

    @property
    def type(self) -> Type:
        """The type of every value in the class."""
        return self.value.type


@dataclass
class EGraph:
    """Classes by number; `count` is how many e-nodes were made."""

    classes: dict[int, EClass] = field(default_factory=dict[int, EClass])
    leader: list[int] = field(default_factory=list[int])  # union-find
    known: dict[ENode, int] = field(default_factory=dict[ENode, int])  # hash-consing
    ids: dict[Value, int] = field(default_factory=dict[Value, int])  # of values met
    changed: list[int] = field(default_factory=list[int])  # classes that `rebuild` looks at
    count: int = 0
    _holding: dict[str, list[int]] | None = None

    def find(self, id: int) -> int:
        """The class that stands for this one now."""
        while self.leader[id] != id:
            self.leader[id] = self.leader[self.leader[id]]  # halve the path
            id = self.leader[id]
        return id

    def holding(self, op: str) -> list[int]:
        """The classes that can be computed by an op, found once until something changes."""
        if self._holding is None:
            self._holding = {}
            for id, held in self.classes.items():
                for name in {n.value.op.name for n in held.nodes if isinstance(n.value, Node)}:
                    self._holding.setdefault(name, []).append(id)
        return self._holding.get(op, [])

    def add(self, value: Value) -> int:
        """The class of a value; what it is computed from is added too."""
        for node in nodes_made(value, self.ids):
            for v in (*node.inputs, node):
                if v is not None and v not in self.ids:
                    self.ids[v] = self._enter(v)
        if value not in self.ids:  # an input or a constant
            self.ids[value] = self._enter(value)
        return self.find(self.ids[value])

    def _enter(self, value: Value) -> int:
        node = self._canonical(_node_of(value, self.ids))
        if node in self.known:
            return self.known[node]
        id = len(self.leader)
        self.leader.append(id)
        self.classes[id] = EClass(value, {node: None})
        self.known[node] = id
        self._holding = None
        self.count += 1
        for child in set(node.children) - {LEFT_OUT}:
            self.classes[child].parents.append((node, id))
        return id

    def _canonical(self, node: ENode) -> ENode:
        children = tuple(c if c == LEFT_OUT else self.find(c) for c in node.children)
        return node if children == node.children else ENode(node.key, children, node.value)

    def union(self, a: int, b: int) -> bool:
        """Two classes hold equal values; False if that was known. Call `rebuild` afterwards."""
        a, b = self.find(a), self.find(b)
        if a == b:
            return False
        kept, gone = self.classes[a], self.classes[b]
        assert kept.type == gone.type, "values of different types are not equal"
        if len(kept.parents) < len(gone.parents):  # the shorter list moves
            a, b, kept, gone = b, a, gone, kept
        if isinstance(gone.value, Constant):
            kept.value = gone.value
        kept.nodes |= gone.nodes
        kept.parents += gone.parents
        self.leader[b] = a
        del self.classes[b]
        self._holding = None
        self.changed.append(a)
        return True

    def rebuild(self) -> None:
        """Equal inputs, equal results: unite what became equal, until nothing does."""
        while self.changed:
            todo, self.changed = dict.fromkeys(map(self.find, self.changed)), []
            for id in todo:
                self._repair(self.find(id))
        for held in self.classes.values():
            held.nodes = dict.fromkeys(map(self._canonical, held.nodes))

    def _repair(self, id: int) -> None:
        """Enter the e-nodes that read a class under its new number; two that are now one unite."""
        changed = self.classes[id]
        parents: dict[ENode, int] = {}
        for node, parent in changed.parents:
            self.known.pop(node, None)
            new = self._canonical(node)
            if new in parents:
                self.union(parent, parents[new])
            parents[new] = self.known[new] = self.find(parent)
        if self.find(id) == id:  # else its parents have gone where it went
            changed.parents = list(parents.items())


def _node_of(value: Value, ids: dict[Value, int]) -> ENode:
    """The e-node of a value whose inputs are in classes already."""
    match value:
        case Node():
            children = tuple(LEFT_OUT if v is None else ids[v] for v in value.inputs)
            own = "" if value.op.pure else f" {id(value)}"  # another result each time
            return ENode(op_key(value.op) + own, children, value)
        case Constant():
            return ENode(constant_key(value), (), value)
        case _:
            return ENode(f"input {id(value)}", (), value)
