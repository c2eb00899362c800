"""The proof that every buffer lives when a step uses it, through branches and loops.

    check_lifetimes(steps, requests, {"k0_conv": 2})    # k0_conv reads its first two operands

It goes through the steps as they run, with a clock of its own, and asks of each operand of the
arena: is this a time at which its buffer lives? Is it written on every way that leads here? Does
what one run of a loop leaves for the next live through the whole loop? A step for which the answer
is no is a VerifyError (MDLC0417). Together with the proof that buffers that live together do not
overlap (runtime/plan.py), no step can find another's bytes. Treated in course chapter
05_backend_opt.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from minidlc.codegen.control import Branch, Commit, Flag, KernelCall, Operand, Repeat, Steps
from minidlc.lower.memory import BufferRequest
from minidlc.lower.places import NOWHERE
from minidlc.support.errors import VerifyError


def check_lifetimes(
    steps: Steps, requests: Sequence[BufferRequest], inputs: Mapping[str, int]
) -> None:
    """Check all steps; operands of the arena hold the number of their request as `index`.

    `inputs` says how many operands of a kernel, the first ones, it only reads.
    """
    clock = _Clock(requests, inputs)
    clock.steps(steps, set())
    for number in clock.awaited:
        raise clock.fault(number, "is read before a step writes it")


@dataclass
class _Clock:
    """The time, and what the steps so far expect of those before them."""

    requests: Sequence[BufferRequest]
    inputs: Mapping[str, int]
    time: int = 0
    awaited: set[int] = field(default_factory=set[int])  # buffers read, but not written so far
    rows: set[tuple[int, int]] = field(default_factory=set[tuple[int, int]])  # loop and its stack

    def steps(self, steps: Steps, written: set[int]) -> None:
        """Go through steps; `written` are the buffers written before them, and grows."""
        for step in steps:
            match step:
                case KernelCall():
                    count = self.inputs[step.symbol]
                    for operand in step.operands[:count]:
                        self.read(operand, written)
                    for operand in (*step.operands[count:], step.workspace):
                        self.write(operand, written)
                    self.time += 1
                case Branch():
                    self.read(step.condition, written)
                    self.time += 1
                    yes, no = set(written), set(written)
                    self.steps(step.then_steps, yes)
                    self.steps(step.else_steps, no)
                    written |= yes & no
                case Repeat():
                    self.repeat(step, written)
                case Flag():
                    self.read(step.source, written)
                case Commit():
                    pass

    def repeat(self, step: Repeat, written: set[int]) -> None:
        """One run stands for all: what it reads and does not write comes from before."""
        for operand in (step.trips, step.start):
            if isinstance(operand, Operand):
                self.read(operand, written)
        begin, outer, self.awaited = self.time, self.awaited, set()
        inside: set[int] = set()
        self.write(step.counter, inside)
        self.write(step.flag, inside)
        self.time += 1
        self.steps(step.steps, inside)
        if step.proceed is not None:
            self.read(step.proceed, inside)
        stacks = {number for loop, number in self.rows if loop == step.loop}
        for number in self.awaited | stacks | {step.counter.index, step.flag.index}:
            self.lives(number, begin)
            self.lives(number, self.time)
        self.awaited = outer | (self.awaited - written)
        written |= stacks
        self.time += 1

    def read(self, operand: Operand, written: set[int]) -> None:
        """The buffer lives, and holds what a step before wrote, in this run or an earlier one."""
        if operand.space == "arena":
            self.lives(operand.index, self.time)
            if operand.index not in written:
                self.awaited.add(operand.index)

    def write(self, operand: Operand, written: set[int]) -> None:
        """The buffer lives."""
        if operand.space == "arena" and operand != NOWHERE:
            self.lives(operand.index, self.time)
            written.add(operand.index)
            self.rows.update((loop, operand.index) for loop, _ in operand.moves)

    def lives(self, number: int, time: int) -> None:
        """Refuse a time outside the buffer's life."""
        if not self.requests[number].first <= time <= self.requests[number].last:
            raise self.fault(number, f"is used at {time}")

    def fault(self, number: int, what: str) -> VerifyError:
        """The error for a buffer."""
        request = self.requests[number]
        return VerifyError(
            f"memory plan: {request.name!r} {what}",
            notes=(f"alive {request.first}..{request.last}, {request.nbytes} bytes",),
            code="MDLC0417",
        )
