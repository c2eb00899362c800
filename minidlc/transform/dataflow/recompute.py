"""Values computed once more: when a value lives, and a graph in which some come again.

    lives = Lives(g)
    lives.gap(h)                                    # (3, 17): not read between these positions
    again(g, lives, {h}).graph                      # h_again, right before the node at 17

A copy reads what is alive then; what is not is computed again too. The first node of a copy reads
its input through `after`, behind a value that the reader waits for: so no pass may merge the copy
with the original, and none may compute it early. Draws of random numbers are functions of their
seed: a copy draws the same. Reads graphs, writes graphs. Treated in course chapter 03_autodiff.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import accumulate, pairwise

from minidlc.expr.types import TensorType
from minidlc.graph.fused import Fused
from minidlc.graph.graph import Constant, Graph, Node, Value, apply, located
from minidlc.graph.inline import nodes_made, with_inputs
from minidlc.graph.op import OpKind, Pattern
from minidlc.graph.types import Type, result_types
from minidlc.support.locations import Derived
from minidlc.transform.fusion.fusion_costs import is_free


class Lives:
    """Which bytes are alive between which nodes of a graph; views count as what they show.

    Outputs, inputs and constants lie elsewhere and do not count. A result is taken to lie over an
    input that dies if it is computed element by element; the final plan proves it or does not.
    """

    def __init__(self, graph: Graph) -> None:
        self.position = {n: i for i, n in enumerate(graph.nodes)}
        self.uses: dict[Node, list[int]] = {}  # of nodes that make bytes: who reads them
        self._root: dict[Value, Node] = {}
        for i, node in enumerate(graph.nodes):
            first = node.inputs[0] if node.inputs else None
            if not is_free(node):
                self._root[node] = node
                self.uses[node] = []
                for root in dict.fromkeys(map(self.root, node.inputs)):
                    if root is not None:
                        self.uses[root].append(i)
            elif (root := self.root(first)) is not None:
                self._root[node] = root
        self.outputs = {r for o in graph.outputs if (r := self.root(o)) is not None}

    def root(self, value: Value | None) -> Node | None:
        """The node that makes the bytes of a value; None for those of inputs and constants."""
        return None if value is None else self._root.get(value)

    def nbytes(self, node: Node) -> int:
        """Bytes in the arena."""
        return 0 if node in self.outputs else _nbytes(node)

    def last(self, node: Node) -> int:
        """The position at which a node is read for the last time."""
        return self.uses[node][-1] if self.uses[node] else self.position[node]

    def gap(self, node: Node) -> tuple[int, int]:
        """The positions around the longest time in which nobody reads it."""
        times = [self.position[node], *self.uses[node]]
        return max(pairwise([*times, times[-1]]), key=lambda p: p[1] - p[0])

    def alive(self) -> list[int]:
        """Bytes alive at each node: its result, what it reads and what is read later."""
        changes = [0] * (len(self.position) + 1)
        for node in self.uses:
            changes[self.position[node]] += self.nbytes(node)
            changes[self.last(node) + 1] -= self.nbytes(node)
        found = list(accumulate(changes[:-1]))
        for node, i in self.position.items():
            if node in self.uses and any(
                self._lies_over(node, i, k) for k in range(len(node.inputs))
            ):
                found[i] -= self.nbytes(node)
        return found

    def _lies_over(self, node: Node, i: int, k: int) -> bool:
        """True if the node, at position i, may write its result over its k-th input."""
        x = node.inputs[k]
        root = self.root(x)
        if root is None or root in self.outputs or self.last(root) != i or x is None:
            return False
        same = isinstance(node.type, TensorType) and _nbytes(x) == _nbytes(root) == _nbytes(node)
        alone = sum(self.root(v) is root for v in node.inputs) == 1
        return same and alone and _is_read_by_element(node, k)


@dataclass
class Copies:
    """A graph with copies: `made` of which nodes, `moved` says what has become of each value."""

    graph: Graph
    made: list[Node] = field(default_factory=list[Node])
    moved: dict[Value, Value] = field(default_factory=dict[Value, Value])


def again(graph: Graph, lives: Lives, dropped: Collection[Node]) -> Copies:
    """The graph in which each of `dropped` is forgotten in its gap, and computed again behind it.

    Copies stand right before the first node that reads them, and are made once.
    """
    work = _Copying(graph, lives, {n: lives.gap(n) for n in dropped})
    for i, node in enumerate(graph.nodes):
        late = [v for v in node.inputs if v is not None and work.is_forgotten(v, i)]
        late = [] if is_free(node) else late
        work.copy(late, node, i)
        read = {v: work.moved.get(v, v) for v in node.inputs if v is not None}
        new = with_inputs(node, read | {v: work.copies[v] for v in late})
        work.moved[node] = new
        work.placed.append(new)
    outputs = tuple(work.moved.get(o, o) for o in graph.outputs)
    needed: dict[Node, None] = {}
    for output in outputs:
        needed |= dict.fromkeys(nodes_made(output, needed))
    nodes = tuple(n for n in work.placed if n in needed)
    return Copies(replace(graph, nodes=nodes, outputs=outputs), work.made, work.moved)


@dataclass
class _Copying:
    """The nodes placed so far, and the copies among them by what they are copies of."""

    graph: Graph
    lives: Lives
    gaps: dict[Node, tuple[int, int]]
    placed: list[Node] = field(default_factory=list[Node])
    moved: dict[Value, Value] = field(default_factory=dict[Value, Value])
    copies: dict[Value, Value] = field(default_factory=dict[Value, Value])
    made: list[Node] = field(default_factory=list[Node])

    def is_forgotten(self, value: Value | None, i: int) -> bool:
        """True if the bytes of a value are not kept up to position i, and may be made again."""
        root = self.lives.root(value)
        if root is None or root in self.lives.outputs or not may_run_twice(root):
            return False
        end = self.gaps[root][0] if root in self.gaps else self.lives.last(root)
        return end < i

    def copy(self, values: list[Value], reader: Node, i: int) -> None:
        """Copies of values for the node at position i, what they need first."""
        if not values:
            return
        needed: set[Node] = set()
        stack: list[Value | None] = [*values]
        while stack:
            v = stack.pop()
            known = not isinstance(v, Node) or v in needed or v in self.copies
            if isinstance(v, Node) and not known and self.is_forgotten(v, i):
                needed.add(v)
                stack += v.inputs
        token = self.token(reader, i)
        for node in sorted(needed, key=self.lives.position.__getitem__):
            self.copies[node] = self.copy_of(node, token)

    def copy_of(self, node: Node, token: Value | None) -> Node:
        """A copy of one node, of which all inputs are there; behind the token."""
        inputs = [v for v in node.inputs if v is not None]
        known = {v: self.copies.get(v, self.moved.get(v, v)) for v in inputs}
        first = next((v for v in inputs if _is_tensor(v) and not isinstance(v, Constant)), None)
        if token is not None and first is not None and self.copies.keys().isdisjoint(inputs):
            with located(Derived("computed again", node.loc)):
                waiting = apply("after", known[first], token)
            self.placed.append(waiting)
            known[first] = waiting
        name = node.name if node.name == node.op.name else f"{node.name}_again"
        made = replace(with_inputs(node, known), name=name, loc=Derived("computed again", node.loc))
        self.placed.append(made)
        if not is_free(made):
            self.made.append(node)
        return made

    def token(self, reader: Node, i: int) -> Value | None:
        """What the reader waits for anyway, made as late as can be; else what was made last."""
        ready = [v for v in reader.inputs if isinstance(v, Node) and not self.is_forgotten(v, i)]
        roots = (self.lives.root(v) for v in reader.inputs)
        gap = max(self.gaps[r][0] for r in roots if r is not None and r in self.gaps)
        late = [v for v in ready if self.lives.position[v] > gap and _is_tensor(v)]
        if late:
            return self.moved[max(late, key=self.lives.position.__getitem__)]
        return next(filter(_is_tensor, reversed(self.placed)), None)


def _nbytes(value: Value) -> int:
    return _bytes_of(value.type)


@lru_cache(1 << 12)  # a search asks for the same few again and again
def _bytes_of(type: Type) -> int:
    return sum(t.nbytes for t in result_types(type))


def _is_read_by_element(node: Node, k: int) -> bool:
    """True if each element of the result needs of the k-th input the element at its place alone."""
    if not isinstance(node.op, Fused):
        return _is_pointwise(node, node.inputs[k])
    reached: set[Value | None] = {node.op.body.inputs[k]}
    for inner in node.op.body.nodes:
        read = [v for v in inner.inputs if v in reached]
        if read and not all(_is_pointwise(inner, v) for v in read):
            return False
        if read:
            reached.add(inner)
    return True


def _is_pointwise(node: Node, x: Value | None) -> bool:
    shapes = [v.type.shape for v in (node, x) if v is not None and isinstance(v.type, TensorType)]
    pattern = node.op.pattern in (Pattern.ELEMENTWISE, Pattern.BROADCAST)
    return pattern and len(shapes) == 2 and shapes[0] == shapes[1]


def may_run_twice(node: Node) -> bool:
    """True if a second run gives the same and costs what it says; branches and loops are kept."""
    return node.op.pure and node.op.kind in (OpKind.COMPILED, OpKind.COMPOSITE)


def _is_tensor(value: Value) -> bool:
    return isinstance(value.type, TensorType)
