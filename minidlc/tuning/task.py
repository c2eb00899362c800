"""One kernel to be tuned: the ways to compute it, their space, and the loops of a point.

    task = Task(group, "matmul", target, threads=1, name="k0_matmul")
    task.default                                    # what the compiler takes by itself
    c = task.lower(task.space.random(Random(0)))    # Candidate: schedule, loops, loops of packing

Ways are the hand-written schedules that apply to the group (schedules/) and the sketches generated
from its tensor expressions (tuning/sketch). Treated in course chapter 06_autotune.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from minidlc.loop.inside import check_inside
from minidlc.loop.nodes import LoopFunction
from minidlc.loop.verify import verify_function
from minidlc.schedules import IMPLEMENTATIONS, Choice, Group, Implementation
from minidlc.schedules.implementation import ranked
from minidlc.support.errors import TuneError, nearest
from minidlc.target import Target
from minidlc.te import Schedule, create_schedule, lower
from minidlc.te.knob import Knob
from minidlc.te.tensor import stages
from minidlc.tuning.sketch import sketches
from minidlc.tuning.space import Config, Space
from minidlc.tuning.workload import Workload


@dataclass(frozen=True)
class Candidate:
    """A point as loops. `init` packs constants, once, before any run of `loops`."""

    config: Config
    schedule: Schedule
    loops: LoopFunction
    init: tuple[LoopFunction, ...]


@dataclass(frozen=True)
class Task:
    """A kernel, the machine it is for, and the threads a call may use."""

    group: Group
    kind: str
    target: Target
    threads: int
    name: str = "kernel"

    @cached_property
    def workload(self) -> Workload:
        """What is computed, by content."""
        return Workload.of(self.group, self.kind, self.target, self.threads)

    @cached_property
    def ways(self) -> Mapping[str, Implementation]:
        """How it may be computed, by name: the compiler's own choice first."""
        return {i.name: i for i in ways(self.group, self.kind, self.target)}

    @cached_property
    def space(self) -> Space:
        """Every point of every way."""
        found = {n: i.knobs(self._variant(i), self.target) for n, i in self.ways.items()}
        return Space(found, self.is_allowed)

    def is_allowed(self, config: Config) -> bool:
        """False for a point that cannot be good, so that nothing need be built to know.

        The default is a point whatever is thought of it: all others are compared with it.
        """
        if config == self.default:
            return True
        way = self.ways[config.way]
        return way.allowed(self._variant(way), self.target, config.values)

    @cached_property
    def default(self) -> Config:
        """What the compiler takes where nothing was tuned."""
        name, way = next(iter(self.ways.items()))
        return Config.of(name, way.defaults(self._variant(way), self.target))

    def way(self, name: str) -> Implementation:
        """A way by name; TuneError (MDLC1303) if there is none of that name."""
        if name not in self.ways:
            hint = nearest(name, self.ways)
            text = f"{self.name}: no way {name!r} to compute a {self.kind} kernel"
            raise TuneError(text, hint=hint, code="MDLC1303")
        return self.ways[name]

    def choice(self, config: Config, source: str = "") -> Choice:
        """What the compiler can be told to take for this kernel; its trace names the knobs."""
        return Choice(self.way(config.way), self._knobs(config), source)

    def schedule(self, config: Config) -> Schedule:
        """The schedule of a point, its knobs still open; ScheduleError where a step is illegal."""
        way = self.way(config.way)
        group = replace(self._variant(way), constants=self.group.constants, made_for=way.name)
        sch = create_schedule(group.outputs, constants=group.constants, checked=False)
        way.schedule(sch, group, self.target, self._knobs(config))
        return sch

    def _knobs(self, config: Config) -> dict[str, Knob]:
        candidates = self.space.ways[config.way]
        return {name: Knob(name, v, candidates[name]) for name, v in config.knobs}

    def lower(self, config: Config) -> Candidate:
        """The loops of a point; CompileError where a step, or a check of the loops, says no."""
        candidate = self.unchecked(config)
        verify_function(candidate.loops)
        check_inside(candidate.loops)
        return candidate

    def unchecked(self, config: Config) -> Candidate:
        """As `lower`, without the checks of the loops: for points that are only looked at."""
        sch = self.schedule(config)
        init = sch.lower_init("kernel") if sch.state.prepacked() else ()
        given = sch.state.part(sch.state.outputs).placeholders
        outputs = [t.name for t in self.group.outputs]
        loops = lower(sch, name="kernel", params=(*(p.name for p in given), *outputs))
        return Candidate(config, sch, loops, init)

    @cached_property
    def placeholders(self) -> tuple[str, ...]:
        """Names of what the kernel is given, before anything is packed."""
        return tuple(t.name for t in stages(self.group.outputs) if t.body is None)

    def _variant(self, way: Implementation) -> Group:
        cached = self._variants
        if way.name not in cached:
            cached[way.name] = way.variant(self.group)
        return cached[way.name]

    @cached_property
    def _variants(self) -> dict[str, Group]:
        return {}


def ways(group: Group, kind: str, target: Target) -> list[Implementation]:
    """The implementations that apply, the cheapest by estimate first; then the sketches."""
    return [*ranked(IMPLEMENTATIONS, kind, group, target), *sketches(group, kind, target)]
