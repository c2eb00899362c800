"""The forms that a place takes while rules rewrite it: to see that they go in a circle.

    numbers = Numbering()
    numbers.of(a + b) == numbers.of(a + b)          # True: the same expression of the same values
    forms.add((root,), "y", steps)                  # PassError if "y" was the same before
    expression(root)                                # 'mul(relu(x), c)': a form as one line

Two values have the same number if they apply the same ops to values of the same numbers. Treated in
course chapter 02_frontend_opt.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import MISSING, dataclass, field, fields

from minidlc.graph.graph import Constant, Node, Value
from minidlc.graph.literals import write_attribute
from minidlc.graph.op import Op
from minidlc.graph.structure import constant_key, op_key
from minidlc.support.errors import PassError

_COMPARED_BYTES = 1 << 16  # larger constants are compared by identity
_SHOWN_STEPS = 6


@dataclass(frozen=True)
class Step:
    """One rewrite: by which rule, from what to what."""

    rule: str
    before: Node
    after: Value

    def __str__(self) -> str:
        return f"{self.rule}: {expression(self.before)} -> {expression(self.after)}"


@dataclass
class Numbering:
    """Numbers for values, equal for equal expressions (value numbering)."""

    numbers: dict[Value, int] = field(default_factory=dict[Value, int])
    known: dict[Hashable, int] = field(default_factory=dict[Hashable, int])

    def of(self, value: Value) -> int:
        """The number of a value; those of what it reads are given first."""
        stack = [value]
        while stack:
            top = stack[-1]
            inputs = [v for v in top.inputs if v is not None] if isinstance(top, Node) else []
            waiting = (
                [v for v in inputs if v not in self.numbers] if top not in self.numbers else []
            )
            if waiting:
                stack += waiting
                continue
            if stack.pop() not in self.numbers:
                self.numbers[top] = self.known.setdefault(self._key(top), len(self.known))
        return self.numbers[value]

    def _key(self, value: Value) -> Hashable:
        match value:
            case Node(op=op, inputs=inputs):
                return op_key(op), tuple(None if v is None else self.numbers[v] for v in inputs)
            case Constant(array=array) if array.nbytes <= _COMPARED_BYTES:
                return constant_key(value)
            case _:
                return value


@dataclass
class Forms:
    """The forms that a place has had; numbered once there are two, for most places have one."""

    numbers: Numbering = field(default_factory=Numbering)
    had: list[tuple[tuple[Value, ...], int]] = field(
        default_factory=list[tuple[tuple[Value, ...], int]]
    )
    seen: dict[tuple[int, ...], int] = field(default_factory=dict[tuple[int, ...], int])

    def add(self, form: tuple[Value, ...], place: str, steps: Sequence[Step]) -> None:
        """A form after these steps; PassError (MDLC0505) if the place had it before."""
        self.had.append((form, len(steps)))
        for values, count in self.had[len(self.seen) :] if len(self.had) > 1 else ():
            first = self.seen.setdefault(tuple(map(self.numbers.of, values)), count)
            if first < count:
                raise without_end(place, steps[first:count])


def expression(value: Value | None, depth: int = 3) -> str:
    """A value as a call of calls, names below `depth`."""
    if value is None:
        return "None"
    if isinstance(value, Constant) and value.array.ndim == 0:
        return str(value.array.item())
    if not isinstance(value, Node) or depth == 0:
        return value.name
    inputs = [expression(v, depth - 1) for v in value.inputs]
    return f"{value.op.name}({', '.join([*inputs, *_attributes(value.op)])})"


def _attributes(op: Op) -> list[str]:
    """Those that are not the default, as text."""
    texts: list[str] = []
    for f in fields(op):
        text = write_attribute(getattr(op, f.name), lambda g: g.name)
        if f.default is MISSING or text != write_attribute(f.default, lambda g: g.name):
            texts.append(f"{f.name}={text}")
    return texts


def without_end(place: str, steps: Sequence[Step], circle: bool = True) -> PassError:
    """The error for rules that never stop; `circle` if they come back to a form they had before."""
    names = ", ".join(dict.fromkeys(step.rule for step in steps))
    what = "undo each other" if circle else "fit again and again"
    notes = [str(step) for step in steps[:_SHOWN_STEPS]]
    if len(steps) > _SHOWN_STEPS:
        notes.append(f"… {len(steps) - _SHOWN_STEPS} more rewrites")
    return PassError(
        f"rules {what} without end at {place!r}: {names}",
        loc=steps[0].before.loc,
        notes=notes,
        hint="give one of them a condition that holds in one direction only",
        code="MDLC0505",
    )
