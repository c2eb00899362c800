"""A schedule on its way: primitives are drawn and applied, those that are refused left out.

    d = Drawing(kernel, random.Random(7), lanes=8)
    d.take(plan(d)); d.anything(3)
    schedule, refused = d.schedule()

Only a ScheduleError counts as a refusal; whatever else a primitive or lowering raises is a bug.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import replace

from minidlc.support.errors import ScheduleError
from minidlc.te import Knob, Schedule
from minidlc.te.legality import RegisterError, check_nesting, check_registers
from minidlc.te.lower import cut, init_loops, lower_state
from minidlc.te.primitive import Primitive, apply_primitive
from minidlc.te.primitives import (
    CacheWrite,
    ComputeInline,
    Prefetch,
    Prepack,
    SetScope,
    Tensorize,
)
from minidlc.te.stage import State
from minidlc.tests.te.families import Kernel
from minidlc.tests.te.random_traces import random_step


class Drawing:
    """A trace on its way: the state so far, what was taken, how much was refused."""

    def __init__(self, kernel: Kernel, rng: random.Random, lanes: int) -> None:
        self.kernel, self.rng, self.lanes = kernel, rng, lanes
        self.state = Schedule(kernel.outputs, constants=kernel.constants).state
        self.trace: list[Primitive] = []
        self.refused = self.knobs = 0

    def chance(self, share: float) -> bool:
        return self.rng.random() < share

    def number(self, *values: int) -> int:
        """One of them, now and then as a knob."""
        value = self.rng.choice(values)
        if not self.chance(0.1):
            return value
        self.knobs += 1
        return Knob(f"n{self.knobs}", value, sorted({*values, value + 1}))

    def loops(self, stage: str) -> tuple[str, ...]:
        return self.state.stage(stage).leaves if self.has(stage) else ()

    def has(self, stage: str) -> bool:
        return any(s.name == stage and not s.inlined for s in self.state.stages)

    def take(self, steps: Iterable[Primitive]) -> None:
        """Apply what a plan says, one after another: later steps see what earlier ones did."""
        for step in steps:
            self.apply(step)

    def anything(self, count: int) -> None:
        """Primitives of any kind, at any place."""
        for _ in range(count):
            self.apply(self._hint() if self.chance(0.2) else random_step(self.state, self.rng))

    def apply(self, step: Primitive) -> None:
        """Take a step, unless it is refused at once."""
        try:
            self.state = apply_primitive(step, self.state)
            self.trace.append(step)
        except ScheduleError:
            self.refused += 1

    def _hint(self) -> Primitive:
        """A primitive for constants and instructions, on any stage."""
        rng, stage = self.rng, self.rng.choice([s for s in self.state.stages if not s.inlined])
        leaf = rng.choice(stage.leaves)
        read = rng.choice(sorted(stage.reads))
        return rng.choice(
            [
                Prepack(stage.name),
                Prefetch(stage.name, read, leaf, rng.randint(1, 4)),
                Tensorize(stage.name, leaf, "dot4"),
                ComputeInline(stage.name),
            ]
        )

    def schedule(self) -> tuple[Schedule, int]:
        """The schedule without the steps that lowering refuses."""
        known, outputs = self.kernel.constants, self.kernel.outputs
        start = Schedule(outputs, constants=known).state
        while True:
            states = [start]
            for step in tuple(self.trace):
                self._keep(step, states)
            error = refusal(states[-1])
            if error is None:
                return Schedule(outputs, self.trace, constants=known, checked=False), self.refused
            self.refused += 1
            if isinstance(error, RegisterError):
                self.trace = without_registers(self.trace, error.buffer)
            else:
                del self.trace[first_refused(states) - 1]

    def _keep(self, step: Primitive, states: list[State]) -> None:
        """Add the state after a step; forget a step that a missing one was needed for."""
        try:
            states.append(apply_primitive(step, states[-1]))
        except ScheduleError:
            self.refused += 1
            del self.trace[len(states) - 1]


def refusal(state: State) -> ScheduleError | None:
    """What lowering says against a state."""
    try:
        for fn in (lower_state(state), *init_loops(state)):
            check_nesting(fn)
            check_registers(cut(fn))
    except ScheduleError as error:
        return error
    return None


def first_refused(states: list[State]) -> int:
    """The first state that cannot be lowered, whatever is in registers; the last one cannot."""

    def is_refused(state: State) -> bool:
        error = refusal(state)
        return error is not None and not isinstance(error, RegisterError)

    good, bad = 0, len(states) - 1
    while bad - good > 1:
        middle = (good + bad) // 2
        good, bad = (good, middle) if is_refused(states[middle]) else (middle, bad)
    return bad


def without_registers(trace: list[Primitive], buffer: str) -> list[Primitive]:
    """The trace with "stack" in the step that put the buffer into registers."""
    at_fault = max(
        n
        for n, step in enumerate(trace)
        if isinstance(step, (SetScope, CacheWrite))
        and step.scope == "register"
        and (buffer == step.stage or buffer.startswith(f"{step.stage}_c"))
    )
    return [replace(step, scope="stack") if n == at_fault else step for n, step in enumerate(trace)]
