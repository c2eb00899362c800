"""Outputs that take the place of an input: donated inputs, and when they may be written.

    step(w, dw) -> w_new                            # compile(step, donate={"w": "w_new"})
    g = updates_early(g, {0: 1})                    # output 0 goes over input 1, as soon as it can
    updates = Updates.of(g, {0: 1})
    updates.refusal(…)                              # "": this kernel may write over the input, here

A kernel may write over a donated input if nobody reads the input later, if the kernel itself reads
each element only right before it writes it there (loop/in_place.py), and if no position is checked
later: a call that finds a fault has changed nothing. What may not is computed elsewhere and copied
at the end of the call. Reads a graph, writes another order of its nodes. Treated in course chapter
03_autodiff.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from minidlc.graph import Graph, Input, Node, OpKind, Pattern, Value, bodies, result_types
from minidlc.graph.inline import nodes_made
from minidlc.lower.positions import checks_of
from minidlc.lower.sharing import Sharing, Slot
from minidlc.runtime.plan import Update

_SMALL = 64  # bytes: of a factor that updates share, nobody minds when it is computed


@dataclass(frozen=True)
class Updates:
    """What the outputs over inputs of one graph need to know of it."""

    inputs: Mapping[int, Input] = field(default_factory=dict[int, Input])  # by output number
    last_check: int = -1  # position of the last node whose positions are checked

    @staticmethod
    def of(graph: Graph, donated: Mapping[int, int]) -> Updates:
        """`donated`: number of an output → number of the input whose place it takes."""
        inputs = {o: graph.inputs[i] for o, i in donated.items()}
        checked = _checked(graph) if inputs else ()
        places = (n for n, node in enumerate(graph.nodes) if node in checked)
        return Updates(inputs, max(places, default=-1))

    def refusal(self, x: Input, node: Node, over: Collection[Value], sharing: Sharing) -> str:
        """Why `node` may not write its result over the input `x`; empty if it may.

        `over` are the inputs that its loops allow to be overwritten.
        """
        slot, position = (x, 0), sharing.position[node]
        if sharing.last.get(slot, -1) > position:
            return f"{x.name} is read later"
        if position < self.last_check + (node.op.kind is OpKind.CONTROL):
            return "positions are checked later"
        read = {v for v in node.inputs if v is not None and slot in sharing.slots(v)}
        if read and not (read == {x} and x in over):
            return f"{node.name} reads {x.name} while it writes"
        return ""

    def found(self, updated: Mapping[Input, str], kept: Mapping[Input, str]) -> Iterator[Update]:
        """What became of each input: `updated` by which kernel, or `kept` for which reason."""
        for x in self.inputs.values():
            why = kept.get(x, "the output is no kernel's own")
            how = f"in place by {updated[x]}" if x in updated else f"by a copy at the end: {why}"
            yield Update(x.name, how)


def _checked(graph: Graph) -> set[Node]:
    """The nodes that read positions which are checked there, or in a branch or body of theirs."""
    own = {node for node, checks in checks_of(graph).items() if checks}
    control = (n for n in graph.nodes if n.op.kind is OpKind.CONTROL)
    return own | {n for n in control if any(map(_checked, bodies(n)))}


def updates_early(graph: Graph, donated: Mapping[int, int]) -> Graph:
    """The graph in an order in which each update runs when nobody needs the old value any more.

    It runs where it stands, or behind the last other reader; or as soon as it can, or only when a
    turned copy of the old value is read too, and with it what it alone needs: the order in which
    least is alive at the worst moment. Other nodes keep their order.
    """
    makers = _makers(graph, donated)
    if not makers:
        return graph
    orders = (_Order(graph, makers, patient) for patient in (False, True))
    tried = [order.found(early=early) for order in orders for early in (False, True)]
    nodes = min(tried, key=lambda nodes: _peak(replace(graph, nodes=nodes)))
    return graph if nodes == graph.nodes else replace(graph, nodes=nodes)


def _peak(graph: Graph) -> int:
    """The most bytes alive between nodes; outputs do not count, they lie elsewhere."""
    sharing = Sharing.of(graph, graph.outputs)
    outputs = {sharing.root(o)[0] for o in graph.outputs}
    born, dying = [0] * (len(graph.nodes) + 1), [0] * (len(graph.nodes) + 1)
    for (value, number), end in sharing.last.items():
        if isinstance(value, Node) and (value, number) not in outputs:
            nbytes = result_types(value.type)[number].nbytes
            born[sharing.position[value]] += nbytes
            dying[end] += nbytes
    alive = most = 0
    for new, old in zip(born, dying, strict=True):
        alive += new
        most = max(most, alive)
        alive -= old
    return most


def _makers(graph: Graph, donated: Mapping[int, int]) -> dict[Node, set[Input]]:
    """The nodes that compute updates, and the inputs that each is to overwrite."""
    sharing = Sharing.of(graph, graph.outputs)
    makers: dict[Node, set[Input]] = {}
    for output, number in donated.items():
        node = sharing.root(graph.outputs[output])[0][0]
        if isinstance(node, Node):
            makers.setdefault(node, set()).add(graph.inputs[number])
    return makers


class _Order:
    """The nodes in order; each update waits for the readers of what it overwrites."""

    def __init__(self, graph: Graph, makers: Mapping[Node, set[Input]], patient: bool) -> None:
        self._graph = graph
        self._makers = makers
        self._own = _needed_by_updates(graph, makers)
        self._late = {*makers, *_views_of(graph, makers), *(self._own if patient else ())}
        checked, readers = _checked(graph), _readers(graph)
        self._awaited: dict[Node, set[Node]] = {}
        for maker, inputs in makers.items():
            others = {n for x in inputs for n in readers.get((x, 0), ())}
            if patient:
                turned = [n for n in others if n.op.pattern is Pattern.INJECTIVE]
                behind = {r for n in turned for r in readers.get((n, 0), ())}
                others |= behind - {maker} - self._own - makers.keys()
            self._awaited[maker] = checked.union(self._below(maker), others) - {maker}

    def found(self, *, early: bool) -> tuple[Node, ...]:
        """All nodes, inputs before readers; updates may come before their place if `early`."""
        self._placed: dict[Node, None] = {}
        reached = set(self._makers) if early else set[Node]()
        self._ready_updates(reached)
        for node in self._graph.nodes:
            reached.add(node)
            if node not in self._late:
                self._place([node])
            self._ready_updates(reached)
        self._place(self._graph.nodes)  # updates whose old value is needed after the new one
        return tuple(self._placed)

    def _below(self, maker: Node) -> set[Node]:
        """The first nodes below an update that do not come with it: it waits for them."""
        found: set[Node] = set()
        seen, stack = {maker}, [maker]
        while stack:
            for v in stack.pop().inputs:
                if isinstance(v, Node) and v not in seen:
                    seen.add(v)
                    (stack.append if v in self._own else found.add)(v)
        return found

    def _ready_updates(self, reached: Collection[Node]) -> None:
        waiting = [m for m in self._awaited if m in reached and m not in self._placed]
        for maker in waiting:
            if self._awaited[maker] <= self._placed.keys():
                self._place([maker])

    def _place(self, nodes: Iterable[Node]) -> None:
        for node in nodes:
            self._placed |= dict.fromkeys(nodes_made(node, self._placed))


def _views_of(graph: Graph, makers: Collection[Node]) -> set[Node]:
    """The nodes that only name what an update has made, such as one of its results."""
    sharing = Sharing.of(graph, ())
    free = (n for n in graph.nodes if sharing.is_free(n))
    return {n for n in free if sharing.root(n)[0][0] in makers}


def _readers(graph: Graph) -> dict[Slot, set[Node]]:
    """Who reads the bytes of a slot, under whatever name."""
    sharing = Sharing.of(graph, ())
    found: dict[Slot, set[Node]] = {}
    for node in graph.nodes:
        for v in node.inputs:
            for slot in () if v is None else sharing.slots(v):
                found.setdefault(slot, set()).add(node)
    return found


def _needed_by_updates(graph: Graph, makers: Collection[Node]) -> set[Node]:
    """The nodes that come with an update: others need them not, or they are a number or so.

    Updates that read each other, such as the three of Adam, count as one.
    """
    owners: dict[Node, set[Node | None]] = {n: set() for n in graph.nodes}
    for output in graph.outputs:
        if isinstance(output, Node) and output not in makers:
            owners[output].add(None)
    for node in reversed(graph.nodes):
        if node in makers:
            owners[node] = {next((o for o in owners[node] if o is not None), node)}
        for v in node.inputs:
            if isinstance(v, Node):
                owners[v] |= owners[node]

    def is_small(node: Node) -> bool:
        return None not in owners[node] and sum(t.nbytes for t in result_types(node.type)) <= _SMALL

    return {n for n, o in owners.items() if is_small(n) or (len(o) == 1 and None not in o)}
