"""Runs a partitioned graph: regions in the simulator, all else on the host.

    outputs, report = npu.run(g, [x])
    print(report)                                   # regions, transfers, bytes, cycles, peak
    outputs, report = npu.run(g, [x], host=mc.compile)

The host's nodes between two regions are one graph; `host` makes a function of it, by default one
that interprets. Treated in course chapter 02_frontend_opt.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from minidlc.expr.types import Array, TensorType, dtype
from minidlc.graph.graph import Graph, Node, Value
from minidlc.graph.interpret import interpret
from minidlc.graph.region import Region
from minidlc.npu.machine import Machine
from minidlc.npu.plan import Plan, plan_of
from minidlc.npu.simulate import RegionReport, simulate
from minidlc.support.errors import CallError
from minidlc.transform.partition.partition import part_of

Host = Callable[[Graph], Callable[..., Sequence[Array]]]


@dataclass(frozen=True)
class Report:
    """What a run took: the regions in order, and the ops that the host ran."""

    regions: tuple[RegionReport, ...]
    host_ops: tuple[str, ...]

    @property
    def cycles(self) -> int:
        """Of all regions."""
        return sum(r.cycles for r in self.regions)

    @property
    def nbytes(self) -> int:
        """Moved between host and chip."""
        return sum(r.bytes_in + r.bytes_out for r in self.regions)

    def __str__(self) -> str:
        rows: list[tuple[str, ...]] = [
            ("region", "layers", "transfers", "bytes in", "bytes out", "cycles", "busy", "peak")
        ]
        for r in self.regions:
            busy = f"{100 * r.macs_cycles // max(1, r.cycles)} %"
            numbers = len(r.layers), r.transfers, r.bytes_in, r.bytes_out, r.cycles
            rows.append((r.name, *(f"{n:,}" for n in numbers), busy, f"{r.peak:,}"))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [
            "  ".join(cell.rjust(w) if n else cell.ljust(w) for n, (cell, w) in enumerate(cells))
            for cells in (zip(row, widths, strict=True) for row in rows)
        ]
        counted = [f"{len(list(same))} {op}" for op, same in groupby(sorted(self.host_ops))]
        return "\n".join([*lines, f"host: {', '.join(counted) or 'nothing'}"])


def interpreted(graph: Graph) -> Callable[..., Sequence[Array]]:
    """The host by default: NumPy, node after node."""
    return lambda *arrays: interpret(graph, arrays)


def run(
    graph: Graph,
    inputs: Sequence[Array],
    machine: Machine | None = None,
    host: Host = interpreted,
) -> tuple[list[Array], Report]:
    """The outputs of a partitioned graph, and what it took.

    Raises CallError for inputs of another number (MDLC0911) or type (MDLC0913), PassError
    (MDLC0563) for a region that holds what the accelerator has not.
    """
    machine = machine or Machine()
    _check_inputs(graph, inputs)
    on_device = [n for n in graph.nodes if _runs_there(n, machine)]
    plans = {n: plan_of(n.op.body, machine) for n in on_device if isinstance(n.op, Region)}
    users, ends = graph.users(), set(graph.outputs)
    values: dict[Value, Any] = {c: c.array for c in graph.constants}
    values |= dict(zip(graph.inputs, inputs, strict=True))
    reports: list[RegionReport] = []
    host_ops: list[str] = []
    for there, group in groupby(_with_results(graph), lambda n: _runs_there(n, machine)):
        nodes = list(group)
        if there:
            for node in nodes:
                values[node] = _on_device(node, plans, values, machine, reports)
            continue
        part = part_of(f"host_{len(host_ops)}", nodes, users, ends)
        results = host(part.body)(*(values[v] for v in part.inputs))
        values |= dict(zip(part.outputs, results, strict=True))
        host_ops += [n.op.name for n in nodes]
    return [values[o] for o in graph.outputs], Report(tuple(reports), tuple(host_ops))


def _check_inputs(graph: Graph, inputs: Sequence[Array]) -> None:
    if len(inputs) != len(graph.inputs):
        text = f"{graph.name} takes {len(graph.inputs)} inputs, got {len(inputs)}"
        raise CallError(text, hint="one array for each input, in order", code="MDLC0911")
    for input, array in zip(graph.inputs, inputs, strict=True):
        got = TensorType(dtype(array.dtype), array.shape)
        if input.type.is_static and got != input.type:
            text = f"input {input.name!r} must be {input.type}, got {got}"
            raise CallError(text, loc=input.loc, code="MDLC0913")


def _runs_there(node: Node, machine: Machine) -> bool:
    """True for a region of this machine, and for a result taken out of one."""
    if node.op.name == "getitem":
        source = node.inputs[0]
        return isinstance(source, Node) and _runs_there(source, machine)
    return isinstance(node.op, Region) and node.op.backend == machine.name


def _on_device(
    node: Node,
    plans: Mapping[Node, Plan],
    values: Mapping[Value, Any],
    machine: Machine,
    reports: list[RegionReport],
) -> Any:
    """The array of a region, a tuple of several; or the one that a getitem takes of these."""
    given = [values[v] for v in node.inputs if v is not None]
    if node not in plans:
        return given[0][node.op.attributes()["index"]]
    results, report = simulate(plans[node], given, machine)
    reports.append(report)
    return results[0] if len(results) == 1 else tuple(results)


def _with_results(graph: Graph) -> Iterator[Node]:
    """The nodes in order, each followed by what takes one of its several results."""
    takers: dict[Value, list[Node]] = {}
    for node in graph.nodes:
        if node.op.name == "getitem" and node.inputs[0] is not None:
            takers.setdefault(node.inputs[0], []).append(node)
    for node in graph.nodes:
        if node.op.name != "getitem":
            yield node
            yield from takers.get(node, ())
