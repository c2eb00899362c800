"""Where the bytes of every value lie: buffers of the arena, constants, arrays of the caller.

    memory = Memory()
    places = Places(memory, g, inputs={x: Operand("input", 0)}, outputs=(Operand("output", 0),))
    places.of(value)                                # the operand; views are looked through

Buffers and constants have numbers until the plan is made (`resolved`). Times are those of
kernel calls, one number for each step of the whole program, bodies included. Treated in course
chapter 05_backend_opt.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from minidlc.codegen.control import Operand
from minidlc.expr.types import Array, TensorType
from minidlc.graph import Constant, Graph, Input, Node, Value
from minidlc.lower.memory import BufferRequest
from minidlc.ops.movement import GetItem
from minidlc.runtime.memory import ALIGNMENT, aligned
from minidlc.runtime.plan import MemoryPlan

Slot = tuple[Value, int]  # a root value and which of its results
NOWHERE = Operand("arena", -1)  # the workspace of a kernel that needs none


@dataclass
class Memory:
    """Buffers with their live ranges, and constants, while a program is built."""

    time: int = 0
    requests: list[BufferRequest] = field(default_factory=list[BufferRequest])
    constants: dict[Constant, int] = field(default_factory=dict[Constant, int])

    def buffer(self, name: str, nbytes: int) -> Operand:
        """A new buffer of the arena, alive from now on."""
        self.requests.append(BufferRequest(name, nbytes, self.time, self.time))
        return Operand("arena", len(self.requests) - 1)

    def constant(self, value: Constant) -> Operand:
        """The place of a constant in the block of all."""
        return Operand("constant", self.constants.setdefault(value, len(self.constants)))

    def use(self, operand: Operand) -> Operand:
        """Note that a step of this time reads or writes the operand; returns it."""
        if operand.space == "arena":
            request = self.requests[operand.index]
            self.requests[operand.index] = replace(request, last=self.time)
        return operand

    def end_loop(self, begin: int) -> None:
        """A loop that began at `begin` ends now: what came from before it lives until here.

        The next run reads it again. Buffers made inside hold nothing from run to run.
        """
        for number, request in enumerate(self.requests):
            if request.first <= begin <= request.last:
                self.requests[number] = replace(request, last=self.time)
        self.time += 1

    def block(self) -> tuple[Array, list[int]]:
        """All constants in one array of bytes, and where each begins; equal ones stored once."""
        by_content: dict[tuple[TensorType, str], int] = {}
        offsets: list[int] = []
        size = 0
        for constant in self.constants:
            key = (constant.type, constant.sha256)
            if key not in by_content:
                by_content[key] = size
                size += -(-constant.array.nbytes // ALIGNMENT) * ALIGNMENT
            offsets.append(by_content[key])
        whole = aligned(size, zero=True)
        block = whole[:size]
        for constant, start in zip(self.constants, offsets, strict=True):
            bytes = constant.array.reshape(-1).view(np.uint8)
            block[start : start + bytes.size] = bytes
        for array in (block, whole, whole.base):
            assert array is not None
            array.flags.writeable = False
        return block, offsets


def resolved(operand: Operand, plan: MemoryPlan, constants: Sequence[int]) -> Operand:
    """The operand with an offset in place of the number of its buffer or constant."""
    match operand.space:
        case "arena" if operand == NOWHERE:
            return Operand("arena")
        case "arena":
            return replace(operand, index=0, offset=plan.buffers[operand.index].offset)
        case "constant":
            return replace(operand, index=0, offset=constants[operand.index])
        case _:
            return operand


class Places:
    """Places of the values of one graph, given those of its inputs and of its outputs.

    An output whose place is given is computed right there, unless its bytes belong to something
    else (`copied`): an input, a constant, another output. Place None: wherever it is computed.
    """

    def __init__(
        self,
        memory: Memory,
        graph: Graph,
        inputs: Mapping[Input, Operand],
        outputs: Sequence[Operand | None],
    ) -> None:
        self._memory = memory
        self._at: dict[Slot, Operand] = {(i, 0): place for i, place in inputs.items()}
        self._given: dict[Slot, Operand] = {}
        self.copied: list[tuple[Value, Operand]] = []
        for value, place in zip(graph.outputs, outputs, strict=True):
            if place is None:
                continue
            slot = _root(value)
            if isinstance(slot[0], Node) and slot not in self._given:
                self._given[slot] = place
            else:
                self.copied.append((value, place))

    def of(self, value: Value) -> Operand:
        """Where the bytes of a value that is defined already lie."""
        slot = _root(value)
        if isinstance(slot[0], Constant):
            return self._memory.constant(slot[0])
        return self._at[slot]

    def define(self, node: Node, number: int, name: str, type: TensorType) -> Operand:
        """The place for a result of a node: the output it is, or a new buffer."""
        slot = (node, number)
        if slot in self._given:
            self._at[slot] = self._given[slot]
        else:
            self._at[slot] = self._memory.buffer(name, type.nbytes)
        return self._memory.use(self._at[slot])


def _root(value: Value) -> Slot:
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
