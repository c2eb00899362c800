"""The steps of a native entry: kernel calls, branches, loops, flags, commit; where bytes lie.

    KernelCall("k_1", (Operand("input", 0), Operand("arena", offset=64)))
    Branch(Operand("input", 0), then_steps, else_steps)
    Repeat(0, trips=5, steps=(…), counter=Operand("arena", offset=64), …)
    for call in kernel_calls(steps): …              # those in branches and loops too

Written by lower/program.py, read by codegen/entry.py. Treated in course chapter 05_backend_opt.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

Space: TypeAlias = Literal["arena", "input", "output", "constant"]


@dataclass(frozen=True)
class Operand:
    """A place in memory: byte `offset` of the arena, of the constant block, or of an array.

    `index` says which input or output; it means nothing for 'arena' and 'constant'. Each pair of
    `moves` adds a number of bytes for each run that a loop has finished.
    """

    space: Space
    index: int = 0
    offset: int = 0
    moves: tuple[tuple[int, int], ...] = ()

    def __str__(self) -> str:
        moves = "".join(f" + {nbytes}*i{loop}" for loop, nbytes in self.moves)
        if self.space in ("input", "output") and self.offset:
            return f"{self.space} {self.index} + {self.offset}{moves}"
        return f"{self.space} {self.index or self.offset}{moves}"


ARENA = Operand("arena")


@dataclass(frozen=True)
class KernelCall:
    """One kernel on its operands, in parameter order, and where its workspace is."""

    symbol: str
    operands: tuple[Operand, ...]
    workspace: Operand = ARENA

    def __str__(self) -> str:
        return f"{self.symbol}({', '.join(map(str, self.operands))})"


@dataclass(frozen=True)
class Branch:
    """The byte at `condition` decides which steps run."""

    condition: Operand
    then_steps: Steps
    else_steps: Steps

    def __str__(self) -> str:
        yes, no = _block(self.then_steps), _block(self.else_steps)
        return f"if {self.condition}:{yes}\nelse:{no}"


@dataclass(frozen=True)
class Repeat:
    """`steps` again and again: at most `trips` times, while the condition holds.

    `loop` is the number by which operands move. Before each run its number (i64) is stored at
    `counter` and the condition (one byte) at `flag`. `trips` None: no limit. The condition is read
    at `start` before the first run (None: true) and at `proceed` after each (None: ignored). Before
    each run the i64 at `stop` ends the loop if it is not 0: somebody has lost patience.
    """

    loop: int
    trips: Operand | int | None
    start: Operand | None
    proceed: Operand | None
    counter: Operand
    flag: Operand
    steps: Steps
    stop: Operand | None = None

    def __str__(self) -> str:
        limit = "" if self.trips is None else f" at most {self.trips} times"
        limit = f" {self.trips} times" if isinstance(self.trips, int) else limit
        until = "" if self.start is None else f" while {self.start}, then {self.proceed}"
        return f"repeat{limit}{until}:  # i{self.loop}{_block(self.steps)}"


@dataclass(frozen=True)
class Flag:
    """Output array number `output` (one i64 for each flag): element `number` |= i64 at `source`."""

    source: Operand
    output: int
    number: int

    def __str__(self) -> str:
        return f"flag {self.number} |= {self.source}"


@dataclass(frozen=True)
class Commit:
    """From here on steps write into inputs: all of them run, or none.

    The call ends here if one of the `flags` at the i64s of array `output` is set; later nobody can
    stop it.
    """

    output: int
    flags: int

    def __str__(self) -> str:
        return "commit" + (f" unless one of {self.flags} flags is set" if self.flags else "")


AnyStep: TypeAlias = KernelCall | Branch | Repeat | Flag | Commit
Steps: TypeAlias = tuple[AnyStep, ...]


def _block(steps: Steps) -> str:
    """The lines of steps inside something, indented."""
    text = "\n".join(map(str, steps)) or "pass"
    return "".join(f"\n    {line}" for line in text.splitlines())


def kernel_calls(steps: Steps) -> Iterator[KernelCall]:
    """The kernel calls in the order of the text, from all branches and loops."""
    for step in steps:
        match step:
            case KernelCall():
                yield step
            case Branch():
                yield from kernel_calls(step.then_steps)
                yield from kernel_calls(step.else_steps)
            case Repeat():
                yield from kernel_calls(step.steps)
            case Flag() | Commit():
                pass


def has_long_loops(steps: Steps) -> bool:
    """True if a loop asks whether to stop: nobody knows how long it takes."""
    for step in steps:
        match step:
            case Repeat(steps=inner, stop=stop):
                found = stop is not None or has_long_loops(inner)
            case Branch(then_steps=yes, else_steps=no):
                found = has_long_loops(yes) or has_long_loops(no)
            case _:
                found = False
        if found:
            return True
    return False


def placed(steps: Steps, place: Callable[[Operand], Operand]) -> Steps:
    """The same steps on other operands."""

    def some(operand: Operand | None) -> Operand | None:
        return None if operand is None else place(operand)

    def one(step: AnyStep) -> AnyStep:
        match step:
            case KernelCall():
                operands = tuple(map(place, step.operands))
                return replace(step, operands=operands, workspace=place(step.workspace))
            case Branch(condition, yes, no):
                return Branch(place(condition), placed(yes, place), placed(no, place))
            case Repeat(loop, trips, start, proceed, counter, flag, inner, stop):
                limit = place(trips) if isinstance(trips, Operand) else trips
                places = some(start), some(proceed), place(counter), place(flag)
                return Repeat(loop, limit, *places, placed(inner, place), some(stop))
            case Flag(source, output, number):
                return Flag(place(source), output, number)
            case Commit():
                return step

    return tuple(map(one, steps))


def renamed(steps: Steps, symbol: Callable[[str], str]) -> Steps:
    """The same steps with other names of the kernels."""

    def one(step: AnyStep) -> AnyStep:
        match step:
            case KernelCall():
                return KernelCall(symbol(step.symbol), step.operands, step.workspace)
            case Branch(condition, yes, no):
                return Branch(condition, renamed(yes, symbol), renamed(no, symbol))
            case Repeat():
                return replace(step, steps=renamed(step.steps, symbol))
            case Flag() | Commit():
                return step

    return tuple(map(one, steps))
