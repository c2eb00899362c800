"""One way to compute a kind of kernel fast: where it fits, what it costs, how it is scheduled.

    gemv = Implementation("gemv", "matmul", schedule_gemv, applies=is_one_row, cost=gemv_cost)
    gemv.applies(group, target)                     # True for a product of one row
    choose(IMPLEMENTATIONS, "matmul", group, target).name       # 'gemv', if that is the cheapest

Several implementations may serve one kind: a matrix product of one row is no smaller version of
one of a thousand. Of those that apply, the one of the least estimated cost is taken.
Treated in course chapter 04_lowering.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from minidlc.schedules.group import Group
from minidlc.support.errors import ScheduleError
from minidlc.target import Target
from minidlc.te import Schedule

Knobs: TypeAlias = Mapping[str, int]
Space: TypeAlias = Mapping[str, tuple[int, ...]]  # the candidates of each knob, the default first


NONE: Knobs = {}  # nothing is asked for: what a schedule takes by itself


def always(group: Group, target: Target) -> bool:
    """Fits every group of its kind."""
    return True


def no_knobs(group: Group, target: Target) -> Space:
    """Nothing to choose."""
    return {}


def any_knobs(group: Group, target: Target, knobs: Knobs) -> bool:
    """No values are left out."""
    return True


def default_first(default: int, others: Iterable[int]) -> tuple[int, ...]:
    """Candidates of a knob: what is taken where nothing was tuned, then the others, each once."""
    return tuple(dict.fromkeys((default, *others)))


def free(group: Group, target: Target) -> float:
    """No estimate: taken if it is the only one that applies, or the first of such."""
    return 0.0


@dataclass(frozen=True)
class Implementation:
    """A schedule for the groups of one kind, with the conditions under which it is right and good.

    `schedule(sch, group, target, knobs)` applies primitives. `applies` says whether the group is
    one that it can take; `knobs` which numbers it leaves open; `cost` estimates cycles, in a unit
    that all implementations of the kind share. `compute` gives other tensor expressions with the
    same results, which are then scheduled in place of the group's own (None: those of the ops).
    `allowed` says of values of the knobs, before anything is built, that they may be good: a tuner
    tries no others. Group and knobs are those of the `variant`.
    """

    name: str
    kind: str
    schedule: Callable[[Schedule, Group, Target, Knobs], None]
    applies: Callable[[Group, Target], bool] = always
    knobs: Callable[[Group, Target], Space] = no_knobs
    cost: Callable[[Group, Target], float] = free
    compute: Callable[[Group], Group] | None = None
    allowed: Callable[[Group, Target, Knobs], bool] = any_knobs

    def defaults(self, group: Group, target: Target) -> Knobs:
        """The first candidate of each knob."""
        return {name: candidates[0] for name, candidates in self.knobs(group, target).items()}

    def variant(self, group: Group) -> Group:
        """The tensor expressions that this implementation schedules."""
        return group if self.compute is None else self.compute(group)


@dataclass(frozen=True)
class Choice:
    """An implementation and a value for each of its knobs; `source` says who chose them."""

    implementation: Implementation
    knobs: Knobs
    source: str = ""

    def apply(self, sch: Schedule, group: Group, target: Target) -> None:
        """Schedule the stages of `implementation.variant(group)`."""
        self.implementation.schedule(sch, group, target, self.knobs)


def ranked(
    implementations: Iterable[Implementation], kind: str, group: Group, target: Target
) -> list[Implementation]:
    """The implementations of `kind` that apply, the cheapest first; equals as they are listed."""
    fitting = [i for i in implementations if i.kind == kind and i.applies(group, target)]
    return sorted(fitting, key=lambda i: i.cost(group, target))


def choose(
    implementations: Iterable[Implementation], kind: str, group: Group, target: Target
) -> Implementation:
    """The cheapest implementation of `kind` that applies; of equals the first listed.

    ScheduleError (MDLC0622) if none applies.
    """
    fitting = ranked(implementations, kind, group, target)
    if not fitting:
        raise ScheduleError(f"no schedule of the kind {kind!r} fits {group.last}", code="MDLC0622")
    return fitting[0]
