"""Where the bytes of every value lie: buffers of the arena, constants, arrays of the caller.

    memory = Memory()
    places = Places(memory, g, inputs={x: Operand("input", 0)}, outputs=(Operand("output", 0),))
    places.of(value)                                # the operand; views are looked through

Buffers and constants have numbers until the plan is made (`resolved`); an offset is counted from
the start of the buffer. Every read is checked: the bytes there are still those of the value that is
asked for, whatever was written in between, over it or beside it. Times are those of kernel calls,
one number for each step of the whole program, bodies included. Treated in course chapter
05_backend_opt.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from minidlc.codegen.control import Operand
from minidlc.expr.types import Array, TensorType
from minidlc.graph import Constant, Graph, Input, Node, Value, result_types
from minidlc.lower.memory import BufferRequest
from minidlc.lower.sharing import Piece, Sharing, Slot
from minidlc.lower.updates import Updates
from minidlc.runtime.memory import ALIGNMENT, aligned
from minidlc.runtime.plan import Lying, MemoryPlan
from minidlc.support.errors import VerifyError

NOWHERE = Operand("arena", -1)  # the workspace of a kernel that needs none


@dataclass
class Memory:
    """Buffers with their live ranges, and constants, while a program is built."""

    time: int = 0
    requests: list[BufferRequest] = field(default_factory=list[BufferRequest])
    constants: dict[Constant, int] = field(default_factory=dict[Constant, int])
    values: list[Lying] = field(default_factory=list[Lying])  # what lies in the buffers
    steps: list[str] = field(default_factory=list[str])  # names, by time

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

    def pass_time(self, step: str) -> None:
        """The step of this time is done; `step` is its name."""
        self.steps.append(step)
        self.time += 1

    def lies(self, name: str, operand: Operand, nbytes: int, how: str) -> int | None:
        """Note that a value lies in a buffer from now on; returns the number of the note."""
        if operand.space != "arena":
            return None
        at = (operand.index, operand.offset, nbytes)
        self.values.append(Lying(name, *at, self.time, -1, how))
        return len(self.values) - 1

    def until_now(self, note: int | None) -> None:
        """Note that a value is read, or lost, in the step of this time."""
        if note is not None:
            self.values[note] = replace(self.values[note], last=self.time)

    def lying(self) -> tuple[Lying, ...]:
        """All notes; what was never lost lies there until the buffer dies."""
        ends = (v.last if v.last >= 0 else self.requests[v.buffer].last for v in self.values)
        return tuple(replace(v, last=e) for v, e in zip(self.values, ends, strict=True))

    def end_loop(self, begin: int) -> None:
        """A loop that began at `begin` ends now: what came from before it lives until here.

        The next run reads it again. Buffers made inside hold nothing from run to run.
        """
        for number, request in enumerate(self.requests):
            if request.first <= begin <= request.last:
                self.requests[number] = replace(request, last=self.time)
        self.pass_time("end of loop")

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
            start = plan.buffers[operand.index].offset
            return replace(operand, index=0, offset=start + operand.offset)
        case "constant":
            return replace(operand, index=0, offset=constants[operand.index] + operand.offset)
        case _:
            return operand


@dataclass(frozen=True)
class _Held:
    """Bytes start..end of a buffer hold a piece; `note` is its number in `Memory.values`."""

    start: int
    end: int
    piece: Piece
    note: int | None


class Places:
    """Places of the values of one graph, given those of its inputs and of its outputs.

    An output whose place is given is computed right there, unless its bytes belong to something
    else (`copied`): an input, a constant, another output. Place None: wherever it is computed.
    Outputs over inputs (`updates`) are copied too where they cannot be written at once.
    """

    def __init__(
        self,
        memory: Memory,
        graph: Graph,
        inputs: Mapping[Input, Operand],
        outputs: Sequence[Operand | None],
        updates: Updates | None = None,
    ) -> None:
        self._memory = memory
        self._updates = updates or Updates()
        placed = [v for v, place in zip(graph.outputs, outputs, strict=True) if place is not None]
        over = [graph.outputs[number] for number in self._updates.inputs]
        self.sharing = Sharing.of(graph, placed, over)
        self._at: dict[Slot, Operand] = {(i, 0): place for i, place in inputs.items()}
        self._held: dict[Operand, list[_Held]] = {}  # by buffer or array, offset 0
        self._views: dict[Value, int | None] = {}  # their notes
        self._given: dict[Slot, Operand] = {}
        self._others = {(p.space, p.index) for p in (*inputs.values(), *outputs) if p is not None}
        self.copied: list[tuple[Value, Operand]] = []
        self._over: dict[Slot, tuple[Value, Input]] = {}  # an output, and the input it goes over
        self.updated: dict[Input, str] = {}  # inputs that were written over, and by which kernel
        self.kept: dict[Input, str] = {}  # inputs that may not be yet, and why
        for x in self._updates.inputs.values():
            whole = Piece((x, 0), 0, x.type.nbytes)
            self._held[inputs[x]] = [_Held(0, x.type.nbytes, whole, None)]
        for number, (value, place) in enumerate(zip(graph.outputs, outputs, strict=True)):
            if place is None:
                continue
            slot = self.sharing.whole(value)
            if slot is not None and isinstance(slot[0], Node) and slot not in self._given:
                self._given[slot] = place
                if number in self._updates.inputs:
                    self._over[slot] = value, self._updates.inputs[number]
            else:
                self.copied.append((value, place))

    def of(self, value: Value) -> Operand:
        """Where the bytes of a value that is defined already lie, for a step that reads it now.

        Raises VerifyError (MDLC0482) if they hold something else by now.
        """
        slot, start = self.sharing.root(value)
        maker = slot[0]
        place = self._memory.constant(maker) if isinstance(maker, Constant) else self._at[slot]
        place = replace(place, offset=place.offset + start)
        if isinstance(maker, Node) or maker in self._updates.inputs.values():
            self._check(value, place)
        if isinstance(value, Node) and value in self.sharing.views:
            self._note_view(value, place)
        return place

    def define(
        self, node: Node, number: int, name: str, type: TensorType, over: Sequence[Value] = ()
    ) -> Operand:
        """The place for a result of a node: the output it is, part of a concat, or a buffer.

        A buffer is that of a value in `over`, which the node may overwrite, if nobody reads that
        value later, else a new one.
        """
        slot = (node, number)
        if slot in self._over:
            self._update(slot, name, over)
        if slot in self._given or slot in self.sharing.within:
            how = "part" if slot in self.sharing.within else ""
            place = self._place(slot)
        else:
            old = next((v for v in over if self._may_overwrite(v, node)), None)
            how = "" if old is None else "in place"
            place = self._memory.buffer(name, type.nbytes) if old is None else self.of(old)
        self._at[slot] = place
        self._write(slot, name, place, type.nbytes, how)
        return self._memory.use(place)

    def _update(self, slot: Slot, name: str, over: Sequence[Value]) -> None:
        """Let the node write over the input; if it may not, the result is copied there later."""
        value, x = self._over[slot]
        node = slot[0]
        assert isinstance(node, Node)
        reason = self._updates.refusal(x, node, over, self.sharing)
        if reason:
            self.kept[x] = reason
            self.copied.append((value, self._given.pop(slot)))
        else:
            self.updated[x] = name

    def _place(self, slot: Slot) -> Operand:
        """The place of an output or of a part; the concat gets its place with its first part."""
        if slot in self._at:
            return self._at[slot]
        node = slot[0]
        if slot in self._given:
            self._at[slot] = self._given[slot]
        elif slot in self.sharing.within:
            whole, start = self.sharing.within[slot]
            around = self._place((whole, 0))
            return replace(around, offset=around.offset + start)
        else:
            self._at[slot] = self._memory.buffer(node.name, _bytes(node))
        if node in self.sharing.joined:
            self._lies(node.name, self._at[slot], _bytes(node), "whole")
        return self._at[slot]

    def _may_overwrite(self, old: Value, node: Node) -> bool:
        """True if the node reads `old`, all of its buffer, as the last and under no other name."""
        sharing, slot = self.sharing, self.sharing.whole(old)
        if slot is None or not isinstance(slot[0], Node) or slot[0] in sharing.joined:
            return False
        place = self._at[slot]
        if place.space != "arena" or place.moves or slot in sharing.within:
            return False
        held = self._held.get(replace(place, offset=0), [])
        if not any(h.piece.slot == slot for h in held):
            return False  # another result of this node has taken the place
        others = [v for v in node.inputs if v is not None and v is not old]
        roots = [sharing.root(v)[0] for v in others]
        beside = [r for r in roots if not isinstance(r[0], Constant)]
        alone = all(
            (self._at[r].space, self._at[r].index) != ("arena", place.index) for r in beside
        )
        return alone and sharing.last[slot] == sharing.position[node]

    def _write(self, slot: Slot, name: str, place: Operand, nbytes: int, how: str) -> None:
        """The bytes at `place` are now those of the slot; what they were is lost."""
        start, end = place.offset, place.offset + nbytes
        held = self._held.setdefault(replace(place, offset=0), [])
        for old in held:
            if old.start < end and start < old.end:
                self._memory.until_now(old.note)
        kept = [old for old in held if old.end <= start or end <= old.start]
        note = self._lies(name, place, nbytes, how)
        if nbytes:
            kept.append(_Held(start, end, Piece(slot, 0, nbytes), note))
        held[:] = sorted(kept, key=lambda h: h.start)

    def _check(self, value: Value, place: Operand) -> None:
        """Refuse to read bytes that are not those of the value."""
        held = self._held.get(replace(place, offset=0), [])
        at = place.offset
        for piece in self.sharing.pieces(value):
            wanted = (piece.slot, at - piece.start)
            found = any(
                (h.piece.slot, h.start) == wanted and at + piece.nbytes <= h.end for h in held
            )
            if piece.nbytes and not found:
                there = [h for h in held if h.start < at + piece.nbytes and at < h.end]
                names = ", ".join(repr(h.piece.slot[0].name) for h in there) or "nothing"
                raise VerifyError(
                    f"memory plan: {value.name!r} is read where {names} lies",
                    notes=(f"bytes {at}..{at + piece.nbytes} of {place.space} {place.index}",),
                    code="MDLC0482",
                )
            at += piece.nbytes

    def _note_view(self, value: Value, place: Operand) -> None:
        """Note a view with the first and the last step that reads it."""
        if value not in self._views:
            self._views[value] = self._lies(value.name, place, _bytes(value), "view")
        self._memory.until_now(self._views[value])

    def _lies(self, name: str, place: Operand, nbytes: int, how: str) -> int | None:
        """Note a value, unless it lies in the place of one of a graph around."""
        given = (place.space, place.index) in self._others
        return None if given else self._memory.lies(name, place, nbytes, how)


def _bytes(value: Value) -> int:
    return sum(t.nbytes for t in result_types(value.type))
