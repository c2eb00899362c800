"""A graph → the list of kernel calls of one run, and where each operand lies.

    program = lower_graph(g, target, fast=True, max_bytes=8 << 30)
    for step in program.steps:                      # k0_conv(input 0, constant 0, arena 0)
        print(step)

Views (reshape, flatten, …) get no kernel: they are other names of the same bytes. Outputs are
arrays of the caller's, never part of the arena; an output that is an input, a constant, a view or
another output is copied. Treated in course chapter 05_codegen.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from minidlc.codegen.entry import Operand
from minidlc.expr.types import Array, TensorType
from minidlc.graph import Constant, Graph, Input, Node, TupleType, Value
from minidlc.lower.kernels import LoweredKernel, lower_copy, lower_node
from minidlc.lower.memory import BufferRequest, plan_memory
from minidlc.ops.movement import GetItem
from minidlc.runtime.memory import ALIGNMENT
from minidlc.runtime.plan import MemoryPlan
from minidlc.support.errors import LoweringError
from minidlc.support.names import Names, identifier
from minidlc.target import Target

Slot = tuple[Value, int]  # a buffer: a root value and which of its results


@dataclass(frozen=True)
class Step:
    """One kernel call: an operand per parameter, and where the kernel's workspace is."""

    kernel: LoweredKernel
    operands: tuple[Operand, ...]
    workspace: Operand

    def __str__(self) -> str:
        places = (f"{o.space} {o.index or o.offset}" for o in self.operands)
        return f"{self.kernel.name}({', '.join(places)})"


@dataclass(frozen=True)
class Program:
    """Everything code generation and the runtime need of a graph."""

    graph: Graph
    steps: tuple[Step, ...]
    plan: MemoryPlan
    constants: Array = field(repr=False)  # one block of bytes

    @property
    def kernels(self) -> tuple[LoweredKernel, ...]:
        """Kernels in execution order."""
        return tuple(step.kernel for step in self.steps)


def lower_graph(
    graph: Graph,
    target: Target,
    *,
    fast: bool,
    max_bytes: int,
    workspace_bytes: Callable[[LoweredKernel], int],
) -> Program:
    """Lower every node, plan the memory, place the operands.

    `workspace_bytes` says how much scratch a kernel needs (code generation knows). Raises
    LoweringError (MDLC0707) for symbolic dims, MemoryLimitError above `max_bytes`.
    """
    _require_static(graph)
    calls = _calls(graph, target, fast)
    places = _Places(graph)
    requests = _requests(calls, places, workspace_bytes)
    constants, at = _constant_block(calls, places)
    plan = plan_memory(tuple(requests.values()), max_bytes, constants.nbytes)
    offsets = {key: b.offset for key, b in zip(requests, plan.buffers, strict=True)}
    steps: list[Step] = []
    for index, (kernel, results) in enumerate(calls):
        slots = [places.root(v) for v in kernel.inputs] + list(results)
        operands = tuple(places.operand(s, offsets, at) for s in slots)
        workspace = Operand("arena", 0, offsets.get(("workspace", index), 0))
        steps.append(Step(kernel, operands, workspace))
    return Program(graph, tuple(steps), plan, constants)


def _require_static(graph: Graph) -> None:
    for value in (*graph.inputs, *graph.nodes):
        items = value.type.items if isinstance(value.type, TupleType) else (value.type,)
        if not all(t.is_static for t in items):
            raise LoweringError(
                f"{value.name}: {value.type} has symbolic dims; machine code needs numbers",
                loc=value.loc,
                hint='give them at import: shapes={"N": 1}',
                code="MDLC0707",
            )


def _calls(
    graph: Graph, target: Target, fast: bool
) -> list[tuple[LoweredKernel, tuple[Slot | int, ...]]]:
    """Kernels in order with the slots of their results; an int is an output to copy to."""
    names, calls = Names(), list[tuple[LoweredKernel, tuple[Slot | int, ...]]]()

    def fresh(name: str) -> str:
        return names.fresh(identifier(name))

    for node in graph.nodes:
        if node.op.is_view or isinstance(node.op, GetItem):
            continue
        kernel = lower_node(node, fresh(node.name), target, fast=fast)
        results = len(node.type.items) if isinstance(node.type, TupleType) else 1
        calls.append((kernel, tuple((node, i) for i in range(results))))
    places = _Places(graph)
    for k, value in enumerate(graph.outputs):
        if places.copied(k):
            kernel = lower_copy(value, fresh(f"copy_{value.name}"), target, fast=fast)
            calls.append((kernel, (k,)))
    return calls


class _Places:
    """Which values share bytes, and which of them are the caller's output arrays."""

    def __init__(self, graph: Graph) -> None:
        self._inputs = {i: k for k, i in enumerate(graph.inputs)}
        self._outputs: dict[Slot, int] = {}
        self._copied: set[int] = set()
        for k, value in enumerate(graph.outputs):
            slot = self.root(value)
            if isinstance(slot[0], Node) and slot not in self._outputs:
                self._outputs[slot] = k
            else:
                self._copied.add(k)

    def copied(self, output: int) -> bool:
        """True if output number `output` needs a copy: its bytes belong to something else."""
        return output in self._copied

    def root(self, value: Value) -> Slot:
        """The buffer `value` lies in, views and tuples looked through."""
        index = 0
        while isinstance(value, Node):
            if isinstance(value.op, GetItem):
                index = value.op.index
            elif not value.op.is_view:
                break
            source = value.inputs[0]
            assert source is not None
            value = source
        return value, index

    def in_arena(self, slot: Slot | int) -> bool:
        """True for intermediate results: neither inputs, constants nor outputs."""
        return not isinstance(slot, int) and isinstance(slot[0], Node) and slot not in self._outputs

    def operand(
        self, slot: Slot | int, offsets: dict[object, int], constants: dict[Value, int]
    ) -> Operand:
        """Where a kernel finds the bytes of `slot`."""
        if isinstance(slot, int):
            return Operand("output", slot, 0)
        value = slot[0]
        if isinstance(value, Input):
            return Operand("input", self._inputs[value], 0)
        if isinstance(value, Constant):
            return Operand("constant", 0, constants[value])
        if slot in self._outputs:
            return Operand("output", self._outputs[slot], 0)
        return Operand("arena", 0, offsets[slot])


def _requests(
    calls: list[tuple[LoweredKernel, tuple[Slot | int, ...]]],
    places: _Places,
    workspace_bytes: Callable[[LoweredKernel], int],
) -> dict[object, BufferRequest]:
    """Buffers of the arena, keyed by slot or ('workspace', step), with their live ranges."""
    requests: dict[object, BufferRequest] = {}
    for step, (kernel, results) in enumerate(calls):
        for slot in map(places.root, kernel.inputs):
            if slot in requests:
                old = requests[slot]
                requests[slot] = BufferRequest(old.name, old.nbytes, old.first, step)
        for slot, type in zip(results, kernel.results, strict=True):
            if places.in_arena(slot):
                requests[slot] = BufferRequest(kernel.name, type.nbytes, step, step)
        scratch = workspace_bytes(kernel)
        if scratch:
            name = f"{kernel.name}.workspace"
            requests["workspace", step] = BufferRequest(name, scratch, step, step)
    return requests


def _constant_block(
    calls: list[tuple[LoweredKernel, tuple[Slot | int, ...]]], places: _Places
) -> tuple[Array, dict[Value, int]]:
    """All constants that kernels read, in one array of bytes; equal ones stored once."""
    at: dict[Value, int] = {}
    by_content: dict[tuple[TensorType, bytes], int] = {}
    parts: list[bytes] = []
    size = 0
    for kernel, _ in calls:
        for value, _ in map(places.root, kernel.inputs):
            if not isinstance(value, Constant) or value in at:
                continue
            data = value.array.tobytes()
            key = (value.type, data)
            if key not in by_content:
                by_content[key] = size
                padding = -len(data) % ALIGNMENT
                parts += [data, bytes(padding)]
                size += len(data) + padding
            at[value] = by_content[key]
    return np.frombuffer(b"".join(parts), np.uint8), at
