"""A space of which certain points are known, and no others: that of a table of costs.

    space = Listed.of(points)                       # 3,000 of a sketch's millions
    space.random(Random(0)) in points               # True
    space.mutated(c, Random(0))                     # the point listed that differs in one knob …

Where all points around are listed, searches move as in the space that the points are from. Where
they lie scattered, a step leads to the nearest that is listed. Treated in course chapter
06_autotune.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from random import Random

import numpy as np

from minidlc.expr.types import Array
from minidlc.support.errors import TuneError
from minidlc.tuning.space import Config, Space

_FAR = 1 << 14  # more than any number of knobs


@dataclass(frozen=True)
class Listed(Space):
    """The points of `points`; made by `Listed.of`."""

    points: tuple[Config, ...] = field(default=(), repr=False)

    @staticmethod
    def of(points: Sequence[Config]) -> Listed:
        """The space of these points: a knob's candidates are the values that occur.

        TuneError (MDLC1301) if there is no point, one twice, or points of one way have other knobs.
        """
        ways = dict[str, dict[str, set[int]]]()
        for point in points:
            knobs = ways.setdefault(point.way, {name: set() for name, _ in point.knobs})
            if [name for name, _ in point.knobs] != list(knobs):
                text = f"{point} has other knobs than points before it: {', '.join(knobs)}"
                raise TuneError(text, code="MDLC1301")
            for name, value in point.knobs:
                knobs[name].add(value)
        if len(set(points)) < len(points):
            raise TuneError("a list of points has one of them twice", code="MDLC1301")
        found = {w: {k: tuple(sorted(v)) for k, v in knobs.items()} for w, knobs in ways.items()}
        return Listed(found, frozenset(points).__contains__, tuple(points))

    @cached_property
    def size(self) -> int:
        """Number of points."""
        return len(self.points)

    def at(self, number: int) -> Config:
        """The point of that number, in the order of the list."""
        return self.points[number]

    def __iter__(self) -> Iterator[Config]:
        """Every point, in the order of the list."""
        return iter(self.points)

    def __contains__(self, config: object) -> bool:
        return isinstance(config, Config) and self.allowed(config)

    @cached_property
    def _by_way(self) -> dict[str, list[Config]]:
        found = {way: list[Config]() for way in self.ways}
        for point in self.points:
            found[point.way].append(point)
        return found

    @cached_property
    def _values(self) -> dict[str, Array]:
        """By way: i64[knobs, points]."""
        return {
            way: np.array([[v for _, v in p.knobs] for p in points], np.int64).T.copy()
            for way, points in self._by_way.items()
        }

    def random(self, rng: Random) -> Config:
        """Any point: first a way, each as likely as another, then one of its points."""
        return rng.choice(self._by_way[rng.choice(list(self.ways))])

    def mutated(self, config: Config, rng: Random, changes: int = 1) -> Config:
        """A point of the same way that differs in `changes` knobs, or in nearly as many."""
        apart = self._apart(config)
        off = np.where(apart > 0, np.abs(apart - changes), _FAR)
        return self._least(config.way, off, rng) if off.min() < _FAR else config

    def crossed(self, a: Config, b: Config, rng: Random) -> Config:
        """Each knob from one of two points of the same way, or the nearest to that which is
        neither; `a` if they are of different ways."""
        if a.way != b.way:
            return a
        other = b.values
        pairs = ((n, v if rng.random() < 0.5 else other[n]) for n, v in a.knobs)
        child = Config(a.way, tuple(pairs))
        if child in self:
            return child
        off = np.where((self._apart(a) == 0) | (self._apart(b) == 0), _FAR, self._apart(child))
        return self._least(a.way, off, rng) if off.min() < _FAR else a

    def _apart(self, config: Config) -> Array:
        """Of each point of the way: the number of knobs that differ from those of `config`."""
        values = self._values[config.way]
        here = np.array([v for _, v in config.knobs], np.int64)
        return (values != here[:, None]).sum(axis=0, dtype=np.int16)

    def _least(self, way: str, distance: Array, rng: Random) -> Config:
        places = np.flatnonzero(distance == distance.min())
        return self._by_way[way][int(places[rng.randrange(len(places))])]
