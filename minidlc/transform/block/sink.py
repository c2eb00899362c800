"""Movements go down past ops that do not mind, until two meet and cancel.

    t = transpose(x, perm=NHWC); y = relu(t); z = transpose(y, perm=NCHW)      ->      z = relu(x)

Models exported from a framework with channels last have such pairs around every convolution. The
pass sinks one kind of movement at a time (sink_kinds.py): casts to a wider type (what moves after
them, moves less), transposes, reshapes. For each kind:

1. down: a value may be left as it is *there*, before the movement, while every op can take it so;
   other operands must be free to have so (constants, axes of size 1, a transpose that is in the
   graph already), or, in a second try, are moved the other way;
2. trim: an op at the lower end whose result has to be moved after all, at no less than its inputs,
   stays after the movement;
3. regions: what is left, connected; a region is rewritten if that lowers the measure, bytes moved
   and then nodes that move. So nothing that another pass gained is undone, and nothing goes in
   circles: `hoist` takes slices up, which this pass lets through in the same direction.

Treated in course chapter 02_frontend_opt.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeAlias

from minidlc.graph.graph import Graph, Node, Value, build
from minidlc.graph.inline import with_inputs
from minidlc.support.errors import OptionError, nearest
from minidlc.support.locations import Derived, FileLoc, OnnxLoc, PyLoc, written
from minidlc.transform.block.sink_kinds import KINDS, Carried, Cost, Kind
from minidlc.transform.log import Refusal, permitted, report
from minidlc.transform.pass_ import Pass, register_pass
from minidlc.transform.rebuild import live_nodes

Places: TypeAlias = tuple[FileLoc | OnnxLoc | PyLoc, ...]


@register_pass
@dataclass(frozen=True)
class Sink(Pass):
    """Sink the movements of these kinds, each where that lowers what is moved."""

    name = "sink"
    level = 2
    kinds: tuple[str, ...] = tuple(KINDS)

    def run(self, graph: Graph) -> Graph:
        """The graph with fewer bytes moved, or as many and fewer nodes that move."""
        for name in self.kinds:
            if name not in KINDS:
                notes = (f"kinds: {', '.join(KINDS)}",)
                text = f"sink: unknown kind {name!r}"
                raise OptionError(text, notes=notes, hint=nearest(name, KINDS), code="MDLC1015")
            for kind in KINDS[name]:
                graph = sunk(graph, kind)
        return graph


def sunk(graph: Graph, kind: Kind[Any]) -> Graph:
    """The graph with one kind of movement sunk."""
    plan = Plan(graph, kind.of(graph))
    plan.down()
    plan.trim()
    taken: set[Value] = set()
    for region in plan.regions():
        before, after = plan.cost_before(region), plan.cost_after(region)
        moves = [n for n in region if n not in plan.carried]
        if after >= before:
            reason = f"{after.nbytes} bytes by {after.nodes} nodes would move, not less than "
            reason += f"{before.nbytes} by {before.nodes}"
            report(partial(Refusal, f"sink {kind.name}", moves[0].name, reason, moves[0].loc))
            continue
        what = f"sink {len(moves)} x {kind.name}: {before.nbytes} -> {after.nbytes} bytes moved"
        if permitted(what, moves[0].name, moves[0].loc):
            taken |= set(region)
    return _Rebuilt(plan, taken).graph() if taken else graph


@dataclass
class Plan:
    """What could be left unmoved, of one kind."""

    graph: Graph
    kind: Kind[Any]
    state: dict[Value, Any] = field(default_factory=dict[Value, Any])
    carried: dict[Value, Carried[Any]] = field(default_factory=dict[Value, Carried[Any]])
    done: set[Value] = field(default_factory=set[Value])  # what has to be moved after all
    staying: set[tuple[Value, Any]] = field(default_factory=set[tuple[Value, Any]])

    def down(self) -> None:
        """Give states to movements and to every op that can go before them."""
        for node in self.graph.nodes:
            states = [None if v is None else self.state.get(v) for v in node.inputs]
            moved = self.kind.moved(node, states[0] if states else None)
            if moved is not None:
                self.state[node] = moved
            elif node.op.pure and any(s is not None for s in states):
                carried = self.kind.carried(node, states)
                if carried is not None:
                    self.carried[node] = carried
                    self.state[node] = carried.state

    def trim(self) -> None:
        """Take the state from nodes at the lower end that gain nothing by it."""
        users = self.graph.users()
        minding = {v for v in self.state if any(u not in self.state for u in users.get(v, ()))}
        self.done = minding | self.state.keys() & set(self.graph.outputs)
        self._trim([n for n in self.graph.nodes if n not in self.carried], users)
        while self._trim(self.graph.nodes, users):
            pass
        self.done &= self.state.keys()

    def _trim(self, nodes: Sequence[Node], users: Mapping[Value, tuple[Node, ...]]) -> bool:
        """One look at these nodes, from below; True if one of them lost its state."""
        before = len(self.state)
        for node in reversed(nodes):
            if node not in self.state or any(u in self.state for u in users.get(node, ())):
                continue
            read = [v for v in node.inputs if v is not None]
            inputs = {v for v in read if v in self.state} - self.done
            stays = sum_of(self.kind.cost(v, self.state[v]) for v in inputs).plus(self._own(node))
            if self.kind.cost(node, self.state[node]).plus(self._entering([node])) >= stays:
                del self.state[node]
                self.carried.pop(node, None)
                self.done |= inputs
                given = self.kind.gives(node)
                self.staying |= set() if given is None else {given}
        return len(self.state) < before

    def _own(self, node: Node) -> Cost:
        """What a node costs where it stands now, more than it would before the movement."""
        if node in self.carried:
            return Cost(self.kind.saving(node, self.carried[node]), 0)
        return self.kind.cost(node, self.kind.moved(node, None))

    def regions(self) -> list[list[Node]]:
        """Nodes with a state, connected by values that are left unmoved; in execution order."""
        region: dict[Value, dict[Node, None]] = {}
        for node in self.graph.nodes:
            if node not in self.state:
                continue
            merged: dict[Node, None] = {node: None}
            for v in node.inputs:
                if v is not None and v in region:
                    merged = region[v] | merged
            for member in merged:
                region[member] = merged
        return [list(r) for r in {id(r): r for r in region.values()}.values()]

    def cost_before(self, region: Sequence[Node]) -> Cost:
        """What a region costs now."""
        return sum_of(map(self._own, region))

    def cost_after(self, region: Sequence[Node]) -> Cost:
        """What it costs to move what leaves the region, and operands that enter it."""
        leaving = sum_of(self.kind.cost(n, self.state[n]) for n in region if n in self.done)
        return leaving.plus(self._entering(region))

    def _entering(self, nodes: Sequence[Node]) -> Cost:
        """What operands of carried nodes cost, each once; one that stays in the graph is free."""
        costs: dict[tuple[Value, Any], Cost] = {}
        for n in nodes:
            carried = self.carried.get(n)
            if carried is None:
                continue
            for v in n.inputs:
                if v is not None and v not in self.state and (v, carried.state) not in self.staying:
                    costs[v, carried.state] = self.kind.entering(v, carried)
        return sum_of(costs.values())


def sum_of(costs: Any) -> Cost:
    """All costs together."""
    total = Cost(0, 0)
    for cost in costs:
        total = total.plus(cost)
    return total


@dataclass
class _Rebuilt:
    """The graph built again, `taken` nodes before their movements."""

    plan: Plan
    taken: set[Value]
    nodes: list[Node] = field(default_factory=list[Node])
    there: dict[Value, Value] = field(default_factory=dict[Value, Value])  # before the movement
    moved: dict[Value, Value] = field(default_factory=dict[Value, Value])  # as in the old graph
    entered: dict[tuple[Value, Any], Value] = field(default_factory=dict[tuple[Value, Any], Value])
    places: dict[Value, Places] = field(default_factory=dict[Value, Places])  # of the movements

    def graph(self) -> Graph:
        """All nodes in their order; what had to be moved, where it is first read."""
        old = self.plan.graph
        for node in old.nodes:
            if node not in self.taken:
                self.moved[node] = self._untouched(node)
            elif node in self.plan.carried:
                self.there[node] = self._place(self._carried(node))
                read = (self.places.get(v, ()) for v in node.inputs if v is not None)
                self.places[node] = tuple(dict.fromkeys(p for places in read for p in places))
            else:
                source = node.inputs[0]
                assert source is not None, "a movement moves its first input"
                there = self.there.get(source)
                self.there[node] = self._moved(source) if there is None else there
                self.places[node] = (*self.places.get(source, ()), *written(node.loc))
        outputs = tuple(map(self._moved, old.outputs))
        return replace(old, nodes=live_nodes(self.nodes, outputs), outputs=outputs)

    def _untouched(self, node: Node) -> Value:
        """A node that stays after the movement, or is one."""
        given = self.plan.kind.gives(node)
        if given is not None and given in self.entered:
            return self.entered[given]
        for v in node.inputs:
            if v is not None:
                self._moved(v)
        made = self._place(with_inputs(node, self.moved))
        if given is not None:
            self.entered[given] = made
        return made

    def _carried(self, node: Node) -> Node:
        """A node before the movement of its inputs."""
        carried = self.plan.carried[node]
        inputs: list[Value | None] = []
        for v in node.inputs:
            if v is None or v in self.there:
                inputs.append(None if v is None else self.there[v])
                continue
            operand = self.plan.kind.operand(v, carried)
            inputs.append(self._moved(v) if operand is v else self._entering(v, operand, carried))
        return build(carried.op, inputs, name=node.name, loc=Derived("sink", node.loc))

    def _entering(self, value: Value, operand: Value, carried: Carried[Any]) -> Value:
        """An operand made for the op, reading what is in the new graph; each is made once."""
        key = value, carried.state
        if key not in self.entered:
            self._moved(value)
            if isinstance(operand, Node):
                operand = self._place(with_inputs(operand, self.moved))
            self.entered[key] = operand
        return self.entered[key]

    def _moved(self, value: Value) -> Value:
        if value not in self.moved:
            there = self.there.get(value)
            if there is None:
                return self.moved.setdefault(value, value)  # an input or a constant
            made = self.plan.kind.done(value, there, self.plan.state[value])
            if made is not there and isinstance(made, Node):
                loc = Derived("sink", value.loc, self.places.get(value, ()))
                made = self._place(replace(made, loc=loc))
            self.moved[value] = made
        return self.moved[value]

    def _place(self, value: Any) -> Any:
        self.nodes.append(value)
        return value
