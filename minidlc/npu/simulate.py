"""Runs a region on the simulated accelerator: results, bytes moved, cycles, a timeline.

    results, report = simulate(plan_of(region.body, machine), arrays, machine)
    [e for e in report.timeline if e.queue == "dma"]    # Event("in", 0, 0, 0, 448, nbytes=3072), …

Two queues run side by side, each in order: transfers and arithmetic. While a tile is computed the
operands of the next one come in, into the other half of the tile memory. An operand that the tile
before had too is not moved again. Results are those of the interpreter, to the bit: each tile comes
from the ops' own references. Treated in course chapter 02_frontend_opt.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from minidlc.expr.types import Array
from minidlc.graph.graph import Node, Value, tensor_type
from minidlc.npu.machine import VIEWS, Machine
from minidlc.npu.plan import Layer, Plan
from minidlc.npu.tiles import Box, boxes, nbytes, operand_box, part_of, taken, whole


@dataclass(frozen=True)
class Event:
    """A span of one queue, in cycles from the start of the region.

    `what` is "in" or "out" (the queue of transfers), or "work" (that of arithmetic).
    """

    what: str
    layer: int
    tile: int
    start: int
    end: int
    nbytes: int = 0

    @property
    def queue(self) -> str:
        """The queue that it stands in."""
        return "compute" if self.what == "work" else "dma"


@dataclass(frozen=True)
class RegionReport:
    """What one run of a region took; `peak` is in bytes on the chip."""

    name: str
    layers: tuple[str, ...]
    timeline: tuple[Event, ...]
    peak: int
    macs_cycles: int  # the compute queue at work

    @property
    def cycles(self) -> int:
        """From the start to the last event."""
        return max((e.end for e in self.timeline), default=0)

    @property
    def transfers(self) -> int:
        """How often something was moved."""
        return sum(e.queue == "dma" for e in self.timeline)

    @property
    def bytes_in(self) -> int:
        """From the host to the chip."""
        return sum(e.nbytes for e in self.timeline if e.what == "in")

    @property
    def bytes_out(self) -> int:
        """From the chip to the host."""
        return sum(e.nbytes for e in self.timeline if e.what == "out")


@dataclass
class _Queues:
    """When each queue is free, and what it did."""

    machine: Machine
    dma: int = 0
    compute: int = 0
    events: list[Event] = field(default_factory=list[Event])

    def move(self, what: str, tile: tuple[int, int], sizes: Sequence[int], after: int) -> int:
        """Transfers of these sizes, one after the other; returns when the last one is done."""
        for size in sizes:
            start = max(self.dma, after)
            self.dma = start + self.machine.transfer_cycles(size)
            self.events.append(Event(what, *tile, start, self.dma, size))
        return self.dma if sizes else after

    def work(self, tile: tuple[int, int], cycles: int, after: int) -> int:
        """Arithmetic; returns when it is done."""
        start = max(self.compute, after)
        self.compute = start + cycles
        self.events.append(Event("work", *tile, start, self.compute))
        return self.compute


def simulate(
    plan: Plan, inputs: Sequence[Array], machine: Machine
) -> tuple[list[Array], RegionReport]:
    """The results of the region's body on these arrays, and what it took."""
    arrays: dict[Value, Array] = {c: c.array for c in plan.body.constants}
    arrays |= dict(zip(plan.body.inputs, inputs, strict=True))
    queues = _Queues(machine)
    on_chip: set[Value] = set()
    layers = iter(plan.layers)
    left = {node: layer for layer in plan.layers for node in layer.nodes}
    for node in plan.order:
        if node.op.name in VIEWS:
            given = [None if v is None else arrays[v] for v in node.inputs]
            arrays[node] = part_of(node, whole(node), given)
        elif left[node].nodes[0] is node:
            layer = next(layers)
            _run(layer, arrays, plan, on_chip, queues)
            if layer.kept:
                on_chip.add(layer.result)
    texts = tuple(map(str, plan.layers))
    busy = sum(e.end - e.start for e in queues.events if e.queue == "compute")
    report = RegionReport(plan.body.name, texts, tuple(queues.events), plan.peak, busy)
    return [np.array(arrays[o]) for o in plan.body.outputs], report


def _run(
    layer: Layer, arrays: dict[Value, Array], plan: Plan, on_chip: set[Value], queues: _Queues
) -> None:
    """All tiles of a layer: operands in, arithmetic, result out; the next operands before that."""
    type = tensor_type(layer.result)
    result = np.empty(type.dims, type.dtype.numpy)
    arrays[layer.result] = result
    tiles = list(boxes(type.dims, layer.axes, layer.steps))
    latest: dict[tuple[Node, int], Box] = {}

    number = plan.layers.index(layer)

    def bring(n: int, after: int) -> int:
        sizes = list(_moved(layer, tiles[n], plan, on_chip, latest))
        return queues.move("in", (number, n), sizes, after)

    free = [queues.compute] * 2  # when each half of the tile memory is free; tiles take turns
    ready = bring(0, free[0]) if tiles else 0
    for n, box in enumerate(tiles):
        coming = bring(n + 1, free[1 - n % 2]) if n + 1 < len(tiles) else 0
        result[tuple(slice(*side) for side in box)] = _tile(layer, box, arrays)
        dims = tuple(high - low for low, high in box)
        cycles = sum(queues.machine.work_cycles(node, dims) for node in layer.nodes)
        done = queues.work((number, n), cycles, max(ready, free[n % 2]))
        if layer.written:
            done = queues.move("out", (number, n), [nbytes(layer.result, box)], done)
        free[n % 2] = done
        ready = coming


def _moved(
    layer: Layer,
    box: Box,
    plan: Plan,
    on_chip: set[Value],
    latest: dict[tuple[Node, int], Box],
) -> Iterator[int]:
    """Bytes of each operand that comes in for a tile."""
    for node in layer.nodes:
        for place, value in enumerate(node.inputs):
            if value is None or value in layer.nodes or plan.home[value] in on_chip:
                continue
            part = operand_box(node, place, box)
            if latest.get((node, place)) != part:
                latest[node, place] = part
                yield nbytes(value, part)


def _tile(layer: Layer, box: Box, arrays: dict[Value, Array]) -> Array:
    parts: dict[Value, Array] = {}
    for node in layer.nodes:
        given = [
            None
            if v is None
            else parts[v]
            if v in parts
            else taken(arrays[v], operand_box(node, place, box))
            for place, v in enumerate(node.inputs)
        ]
        parts[node] = part_of(node, box, given)
    return parts[layer.result]
