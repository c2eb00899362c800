"""The layers of a region: which nodes run together, how they are cut, what stays on the chip.

    plan = plan_of(region.body, Machine())
    [str(layer) for layer in plan.layers]           # ['conv_integer +3: 16x14 of 32x14, kept', …]

A product and the steps that follow it element by element are one layer; a layer is cut along two
axes until its tiles fit. A result that later layers read stays on the chip if it takes at most half
of it together with all that lies there. Views move nothing. Treated in course chapter
02_frontend_opt.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from minidlc.graph.graph import Graph, Node, Value, tensor_type
from minidlc.npu.machine import VIEWS, Machine
from minidlc.npu.table import back_end_of
from minidlc.npu.tiles import TILED, footprint, smallest_tile, tiled_axes
from minidlc.support.errors import PassError


@dataclass(frozen=True)
class Layer:
    """Nodes that run tile by tile. `steps`: the sizes of a tile along `axes` of the result.

    `held`: bytes of other results on the chip meanwhile; `kept`: the result stays there;
    `written`: it goes to the host's memory.
    """

    nodes: tuple[Node, ...]
    axes: tuple[int, ...]
    steps: tuple[int, ...]
    footprint: int
    held: int
    kept: bool
    written: bool

    @property
    def result(self) -> Node:
        """What the layer gives."""
        return self.nodes[-1]

    def __str__(self) -> str:
        first, *rest = self.nodes
        more = f" +{len(rest)}" if rest else ""
        dims = tensor_type(self.result).dims
        of = "x".join(str(dims[a]) for a in self.axes)
        where = ", kept" if self.kept else ""
        return f"{first.op.name}{more}: {'x'.join(map(str, self.steps))} of {of}{where}"


@dataclass(frozen=True)
class Plan:
    """Layers in order. `order`: the nodes as they run; `home`: a view -> what it is a view of."""

    body: Graph
    order: tuple[Node, ...]
    layers: tuple[Layer, ...]
    home: Mapping[Value, Value]

    @property
    def peak(self) -> int:
        """Bytes on the chip at the worst moment."""
        return max((layer.held + layer.footprint for layer in self.layers), default=0)


def plan_of(body: Graph, machine: Machine) -> Plan:
    """Group, place and cut. Raises PassError (MDLC0563) for a node that the accelerator has not."""
    _check(body, machine)
    home = _homes(body)
    order = _order(body)
    groups = _groups(body, order, machine)
    last = _last_readers(body, groups, home)
    ends = {home.get(o, o) for o in body.outputs}
    layers: list[Layer] = []
    on_chip: dict[Value, int] = {}  # results that lie there, with their bytes
    for n, group in enumerate(groups):
        result = group[-1]
        on_chip = {v: size for v, size in on_chip.items() if last[v] >= n}
        layers.append(_layer(group, on_chip, home, machine, last[result] > n, ends))
        if layers[-1].kept:
            on_chip[result] = tensor_type(result).nbytes
    return Plan(body, tuple(order), tuple(layers), home)


def _check(body: Graph, machine: Machine) -> None:
    backend = back_end_of(machine)
    for node in body.nodes:
        reason = backend.reason_against(node)
        if reason is not None:
            text = f"{body.name}: {node.name} cannot run on {machine.name}: {reason}"
            hint = f'partition{{backend="{machine.name}"}} takes only what can'
            raise PassError(text, loc=node.loc, hint=hint, code="MDLC0563")


def _last_readers(
    body: Graph, groups: Sequence[Sequence[Node]], home: Mapping[Value, Value]
) -> dict[Value, int]:
    """The result of each layer -> the last layer that reads it, itself or a view of it."""
    place = {node: n for n, group in enumerate(groups) for node in group}
    last: dict[Value, int] = {group[-1]: 0 for group in groups}
    for node in body.nodes:
        for value in node.inputs:
            if value is not None and node in place and home[value] in last:
                last[home[value]] = max(last[home[value]], place[node])
    return last


def _homes(body: Graph) -> dict[Value, Value]:
    """Each value -> itself, a view -> what it is a view of."""
    home: dict[Value, Value] = {v: v for v in (*body.inputs, *body.constants)}
    for node in body.nodes:
        source = node.inputs[0] if node.op.name in VIEWS else None
        home[node] = node if source is None else home[source]
    return home


def _order(body: Graph) -> list[Node]:
    """The nodes, each that only prepares an operand moved to the one that reads it.

    relu, dequantize_linear, add: what the residual branch brings is computed tile by tile with the
    sum, not as a result of its own.
    """
    users, ends = body.users(), set(body.outputs)
    place = {node: n for n, node in enumerate(body.nodes)}
    before: dict[Node, list[Node]] = {}  # reader -> what is moved to it
    for node in body.nodes:
        readers = users.get(node, ())
        if len(readers) != 1 or node in ends or not _pointwise(node) or not _pointwise(readers[0]):
            continue
        feeds = (v for v in node.inputs if isinstance(v, Node))
        others = (v for v in readers[0].inputs if isinstance(v, Node) and v is not node)
        starts = not any(users[v] == (node,) and _pointwise(v) for v in feeds)
        if starts and any(place[v] > place[node] for v in others):
            before.setdefault(readers[0], []).append(node)
    moved = {node for nodes in before.values() for node in nodes}
    return [n for node in body.nodes if node not in moved for n in (*before.get(node, ()), node)]


def _pointwise(node: Node) -> bool:
    return node.op.name not in TILED and node.op.name not in VIEWS


def _groups(body: Graph, order: Sequence[Node], machine: Machine) -> list[list[Node]]:
    """The nodes of each layer; views belong to none."""
    users, ends = body.users(), set(body.outputs)
    groups: list[list[Node]] = []
    waiting: list[Node] = []  # what prepares an operand of the node to come

    def follows(before: Node, node: Node) -> bool:
        same = (tensor_type(n).dims == tensor_type(node).dims for n in (before, *waiting))
        alone = users.get(before) == (node,) and before not in ends
        return alone and _pointwise(node) and all(same)

    def prepares(node: Node, after: Node | None, before: Node) -> bool:
        if after is None or before not in after.inputs or node in ends:
            return False
        return users.get(node) == (after,) and _pointwise(node)

    for node, after in zip(order, [*order[1:], None], strict=True):
        if node.op.name in VIEWS:
            continue
        if groups and not waiting and prepares(node, after, groups[-1][-1]):
            waiting = [node]
            continue
        together = [*groups[-1], *waiting, node] if groups else []
        if groups and follows(groups[-1][-1], node) and _fits(together, machine):
            groups[-1] = together
        else:
            groups += [[n] for n in (*waiting, node)]
        waiting = []
    return groups


def _fits(group: Sequence[Node], machine: Machine) -> bool:
    return footprint(group, smallest_tile(group[-1])) <= machine.sram // 2


def _layer(
    group: Sequence[Node],
    on_chip: Mapping[Value, int],
    home: Mapping[Value, Value],
    machine: Machine,
    read_later: bool,
    ends: set[Value],
) -> Layer:
    """Place the result, then cut until the tiles fit beside all that lies on the chip."""
    result = group[-1]
    size, held = tensor_type(result).nbytes, sum(on_chip.values())
    kept = read_later and held + size <= machine.sram // 2
    held += size if kept else 0
    read = (v for node in group for v in node.inputs if v is not None)
    there = {v: None for v in read if v in home and home[v] in on_chip}
    dims, axes = tensor_type(result).dims, tiled_axes(group[0])
    steps = [max(1, dims[a]) for a in axes]

    def needed() -> int:
        cut = dict(zip(axes, steps, strict=True))
        return footprint(
            group, tuple((0, min(n, cut.get(a, n))) for a, n in enumerate(dims)), there
        )

    while needed() > machine.sram - held and max(steps, default=1) > 1:
        largest = steps.index(max(steps))
        steps[largest] = -(-steps[largest] // 2)
        if len(set(axes)) == 1:  # of one axis both are the same
            steps = [steps[largest]] * len(axes)
    assert needed() <= machine.sram - held, "the table takes only what fits into half of the chip"
    written = result in ends or not kept
    return Layer(tuple(group), axes, tuple(steps), needed(), held, kept, written)
