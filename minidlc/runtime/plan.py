"""The memory plan: where every intermediate buffer lies in the arena, and when it is alive.

    plan = MemoryPlan((PlannedBuffer("h", 1024, 0, first=0, last=2),), 1024, 1024)
    plan.check(); print(plan)
    print(plan.proof())                             # step by step: what lives, where, what shares

Times are positions in the order of kernel calls: a buffer is alive from the call that first writes
it to the last that uses it, both included. Several values may lie in a buffer: views of each other,
parts of a concat, a result in place of an input. Treated in course chapter 05_backend_opt.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate, combinations, pairwise

from minidlc.runtime.memory import ALIGNMENT
from minidlc.support.errors import VerifyError

ALIASES = ("view", "part", "whole", "in place")  # how a value shares bytes; "" if it does not


@dataclass(frozen=True)
class PlannedBuffer:
    """`nbytes` bytes at `offset` of the arena, alive during calls `first` to `last`."""

    name: str
    nbytes: int
    offset: int
    first: int
    last: int

    @property
    def end(self) -> int:
        """First byte behind the buffer."""
        return self.offset + self.nbytes


@dataclass(frozen=True)
class Lying:
    """A value in buffer number `buffer`: `nbytes` from `offset` on, in steps `first` to `last`.

    `how` it shares bytes: a "view" of what lies there, a "part" that its producer writes into the
    "whole" of a concat, "in place" of a value that is read for the last time in step `first`.
    """

    name: str
    buffer: int
    offset: int
    nbytes: int
    first: int
    last: int
    how: str = ""

    def meets(self, other: Lying) -> bool:
        """True if both have a byte in one step."""
        same = self.buffer == other.buffer
        bytes = (
            self.offset < other.offset + other.nbytes and other.offset < self.offset + self.nbytes
        )
        return same and bytes and self.first <= other.last and other.first <= self.last

    def may_meet(self, later: Lying) -> bool:
        """True if sharing bytes with a value that begins in the same step or later is meant."""
        handed_over = later.how == "in place" and self.last == later.first
        return handed_over or bool({self.how, later.how} & {"view", "whole"})


@dataclass(frozen=True)
class Update:
    """A donated input; `how` it is updated: "in place by k3", "copied at the end: …"."""

    input: str
    how: str

    def __str__(self) -> str:
        return f"input {self.input} updated {self.how}"


@dataclass(frozen=True)
class MemoryPlan:
    """All buffers of the arena; `naive_bytes` is what they need without sharing memory.

    `values` are what lies in them, `steps` the names of the steps, `updates` what lies over inputs
    instead; a plan made by hand has none of these.
    """

    buffers: tuple[PlannedBuffer, ...]
    arena_bytes: int
    naive_bytes: int
    values: tuple[Lying, ...] = ()
    steps: tuple[str, ...] = ()
    updates: tuple[Update, ...] = ()

    def check(self) -> None:
        """Prove that the plan is safe.

        Raises VerifyError: two buffers alive at the same time share bytes (MDLC0480); a buffer lies
        outside the arena, is not aligned or ends before it begins (MDLC0481); two values of a
        buffer share bytes and are not meant to (MDLC0483).
        """
        for b in self.buffers:
            if b.offset < 0 or b.end > self.arena_bytes or b.offset % ALIGNMENT:
                raise VerifyError(
                    f"memory plan: {b.name!r} at {b.offset}..{b.end} does not fit the arena",
                    notes=(f"arena: {self.arena_bytes} bytes, offsets in units of {ALIGNMENT}",),
                    code="MDLC0481",
                )
            if b.last < b.first:
                raise VerifyError(
                    f"memory plan: {b.name!r} dies at {b.last}, before its first use at {b.first}",
                    code="MDLC0481",
                )
        live: list[PlannedBuffer] = []
        for b in sorted(self.buffers, key=lambda x: (x.first, x.offset)):
            live = [x for x in live if x.last >= b.first]
            for x in live:
                if x.nbytes and b.nbytes and x.offset < b.end and b.offset < x.end:
                    raise VerifyError(
                        f"memory plan: {x.name!r} and {b.name!r} are alive together and overlap",
                        notes=(_row(x), _row(b)),
                        code="MDLC0480",
                    )
            live.append(b)
        self._check_values()

    def _check_values(self) -> None:
        inside: dict[int, list[Lying]] = {}
        for v in self.values:
            inside.setdefault(v.buffer, []).append(v)
            b = self.buffers[v.buffer]
            if v.offset < 0 or v.offset + v.nbytes > b.nbytes or not b.first <= v.first:
                raise self._fault(v, b.name, f"{v.name!r} does not lie in buffer {b.name!r}")
        for lying in inside.values():
            for a, b in combinations(sorted(lying, key=lambda v: v.first), 2):
                if a.meets(b) and not a.may_meet(b):
                    raise self._fault(a, b.name, f"{a.name!r} and {b.name!r} lie on the same bytes")

    def _fault(self, value: Lying, other: str, what: str) -> VerifyError:
        place = f"{value.name}: bytes {value.offset}..{value.offset + value.nbytes}"
        notes = (f"{place} of its buffer, steps {value.first}..{value.last}",)
        return VerifyError(f"memory plan: {what}", notes=notes, code="MDLC0483")

    @property
    def peak_bytes(self) -> int:
        """The most bytes alive at one time: no plan can have a smaller arena."""
        return self.live_bytes(self.peak_step)

    @property
    def peak_step(self) -> int:
        """The first step at which most bytes are alive."""
        changes: dict[int, int] = {}
        for b in self.buffers:
            changes[b.first] = changes.get(b.first, 0) + b.nbytes
            changes[b.last + 1] = changes.get(b.last + 1, 0) - b.nbytes
        times = sorted(changes)
        alive = dict(zip(times, accumulate(changes[t] for t in times), strict=True))
        return max({b.first for b in self.buffers}, key=lambda t: (alive[t], -t), default=0)

    def live_bytes(self, step: int) -> int:
        """Bytes of the buffers alive at a step."""
        return sum(b.nbytes for b in self.buffers if b.first <= step <= b.last)

    def proof(self) -> str:
        """The proof of `check`, step by step: what lives, where, what shares bytes and why.

        Raises what `check` raises.
        """
        self.check()
        peak = self.peak_bytes
        over = f"{100 * (self.arena_bytes / peak - 1):.1f} % over" if peak else "nothing is over"
        lines = [line for t in range(self._count) for line in self._step(t)]
        last = f"peak {peak} bytes at step {self.peak_step}; arena {self.arena_bytes}, {over} it"
        return "\n".join([*lines, *map(str, self.updates), last])

    def about(self, name: str) -> tuple[str, ...]:
        """What the plan says of a value or a buffer of this name: bytes, steps, what it shares."""
        lines = [
            f"{v.nbytes:,} bytes at {self.buffers[v.buffer].offset + v.offset}, "
            f"steps {v.first} to {v.last}{f', {how}' if (how := self._how(v)) else ''}"
            for v in self.values
            if v.name == name
        ]
        named = (b for b in self.buffers if b.name == f"{name}.workspace")
        lines += [f"{b.nbytes:,} bytes of workspace at {b.offset}, step {b.first}" for b in named]
        return tuple(lines)

    @property
    def _count(self) -> int:
        return 1 + max((b.last for b in self.buffers), default=-1)

    def _step(self, t: int) -> Iterator[str]:
        """The lines of one step: buffers by offset, in them what shares their bytes."""
        name = f" {self.steps[t]}" if t < len(self.steps) else ""
        live = [(b, n) for n, b in enumerate(self.buffers) if b.first <= t <= b.last]
        live.sort(key=lambda pair: pair[0].offset)
        apart = all(a.end <= b.offset for (a, _), (b, _) in pairwise(live) if a.nbytes and b.nbytes)
        assert apart, "check() has seen all pairs"
        alive = f"{len(live)} alive, {self.live_bytes(t)} bytes"
        yield f"step {t}{name}: {alive}, no two overlap"
        for b, number in live:
            yield f"    {b.offset:>10}..{b.end:<10} {b.name}"
            here = (v for v in self.values if v.buffer == number and v.first <= t <= v.last)
            yield from (f"        {self._alias(v, b)}" for v in here if v.how)

    def _alias(self, v: Lying, b: PlannedBuffer) -> str:
        """'        64..128        y, in place of x'."""
        start = b.offset + v.offset
        return f"{start:>10}..{start + v.nbytes:<10} {v.name}, {self._how(v)}"

    def _how(self, v: Lying) -> str:
        """'in place of x', 'part of y', 'view', ''."""
        beside = [x for x in self.values if x is not v and x.meets(v)]
        match v.how:
            case "in place":
                others = [x for x in beside if x.how != "view" and x.last == v.first]
            case "part":
                others = [x for x in beside if x.how == "whole"]
            case _:
                return v.how
        return f"{v.how} of {', '.join(x.name for x in others)}"

    def __str__(self) -> str:
        width = max([6, *(len(b.name) for b in self.buffers)])
        head = f"{'buffer':<{width}} {'bytes':>10} {'offset':>10}  alive"
        rows = [
            f"{b.name:<{width}} {b.nbytes:>10} {b.offset:>10}  {b.first}..{b.last}"
            for b in self.buffers
        ]
        shared = [f"{n} {how}" for how in ALIASES if (n := self._how_many(how))]
        total = f"arena {self.arena_bytes} bytes; without sharing {self.naive_bytes}"
        values = [f"values: {', '.join(shared)}"] if shared else []
        return "\n".join([head, *rows, *values, *map(str, self.updates), total])

    def _how_many(self, how: str) -> int:
        return sum(v.how == how for v in self.values)


def _row(b: PlannedBuffer) -> str:
    return f"{b.name}: bytes {b.offset}..{b.end}, alive {b.first}..{b.last}"
