"""A toy accelerator for 8-bit integers: a back end for `legalise` and `partition`, simulated.

    from minidlc import npu
    g = npu.split(g)                                # the passes legalise, dce, partition
    outputs, report = npu.run(g, [x])
    print(report)                                   # transfers, bytes, cycles of each region

Reading order: machine, tiles, table, plan, simulate, run. Treated in course chapter
02_frontend_opt.
"""

from minidlc.graph.graph import Graph
from minidlc.npu.machine import Machine
from minidlc.npu.plan import Layer, Plan, plan_of
from minidlc.npu.run import Report, run
from minidlc.npu.simulate import Event, RegionReport, simulate
from minidlc.npu.table import back_end, back_end_of
from minidlc.transform.dataflow.dce import Dce
from minidlc.transform.partition.legalise import Legalise
from minidlc.transform.partition.partition import Partition

NPU = back_end(Machine())


def split(graph: Graph, machine: Machine | None = None) -> Graph:
    """The graph with regions for the accelerator: legalise, dce, partition."""
    name = NPU.name if machine is None else back_end(machine).name
    for step in (Legalise(backend=name), Dce(), Partition(backend=name)):
        graph = step(graph)
    return graph


__all__ = [
    "NPU",
    "Event",
    "Layer",
    "Machine",
    "Plan",
    "RegionReport",
    "Report",
    "back_end",
    "back_end_of",
    "plan_of",
    "run",
    "simulate",
    "split",
]
