"""Numbers of a schedule that are left open: a value now, and the others it may have.

    nr = sch.knob("NR", 16, candidates=(8, 16, 32))
    sch[C].split("j", nr)                           # an int, and the trace remembers which
    str(sch.trace)                                  # knob("NR", 16, candidates=[8, 16, 32])
                                                    # split("C", "j", knob("NR"), ["jo", "ji"], …)
    sch.trace.with_knobs(NR=8)                      # the same steps with 8 in every such place

Two primitives that take the same knob stay tied: a split and the layout that goes with it.
Treated in course chapter 06_autotune.
"""

from __future__ import annotations

import reprlib
from collections.abc import Iterable, Mapping

from minidlc.support.arguments import expect, plain_int
from minidlc.support.errors import ScheduleError, nearest
from minidlc.support.locations import caller
from minidlc.support.names import is_name


class Knob(int):
    """A number with a name and its candidates; arithmetic on it gives plain numbers.

    ScheduleError (MDLC0631) for a value that is no candidate, a candidate that is no whole number.
    """

    name: str
    candidates: tuple[int, ...]

    def __new__(cls, name: str, value: int, candidates: Iterable[int] = ()) -> Knob:
        expect("knob", "name", name, str)
        expect("knob", "candidates", candidates, Iterable, hint="candidates=(8, 16, 32)")
        numbers = [_number(name, n) for n in (value, *candidates)]
        choices = tuple(numbers[1:] or numbers)
        if not is_name(name):
            raise ScheduleError(f"{name!r} is no name for a knob", loc=caller(), code="MDLC0631")
        if numbers[0] not in choices:
            raise ScheduleError(
                f"knob {name!r} cannot be {value!r}",
                loc=caller(),
                notes=(f"candidates: {', '.join(map(str, choices))}",),
                code="MDLC0631",
            )
        made = super().__new__(cls, numbers[0])
        made.name, made.candidates = name, choices
        return made

    def __getnewargs__(self) -> tuple[str, int, tuple[int, ...]]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return self.name, int(self), self.candidates

    @property
    def declaration(self) -> str:
        """The line of a trace's text that introduces it."""
        return f'knob("{self.name}", {int(self)}, candidates={list(self.candidates)})'

    def at(self, value: int) -> Knob:
        """The knob with another of its values."""
        return Knob(self.name, value, self.candidates)


def _number(name: str, given: object) -> int:
    """A value or candidate of a knob as an int; ScheduleError (MDLC0631) if it is none."""
    number = plain_int(given)
    if isinstance(number, int) and not isinstance(number, bool):
        return int(number)
    raise ScheduleError(
        f"knob {name!r}: {reprlib.repr(given)} is no whole number",
        loc=caller(),
        hint='such as knob("NR", 16, candidates=(8, 16, 32))',
        code="MDLC0631",
    )


def chosen(knobs: Mapping[str, Knob], values: Mapping[str, int]) -> dict[str, Knob]:
    """The knobs with new values for some; ScheduleError (MDLC0630) for a name that is none."""
    for name in values:
        if name not in knobs:
            raise ScheduleError(
                f"no knob {name!r}",
                loc=caller(),
                notes=(f"knobs: {', '.join(knobs) or 'none'}",),
                hint=nearest(name, knobs),
                code="MDLC0630",
            )
    return {name: knob.at(values.get(name, int(knob))) for name, knob in knobs.items()}
