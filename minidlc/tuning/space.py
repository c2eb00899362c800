"""What may be tried: ways to compute a kernel, each with knobs, and the points they span.

    space = Space({"gemm": {"rows": (4, 6, 8), "vectors": (1, 2)}, "gemv": {}})
    space.size                                      # 7
    c = space.random(Random(0))                     # gemm(rows=6, vectors=1)
    space.neighbours(c)                             # one knob one step away

A point (`Config`) names a way and gives each of its knobs one of its candidates. Knobs of
different ways need not be the same. `allowed` leaves out points that cannot be good, such as tiles
larger than the register file, before anything is built. The terms are those of AutoTVM (T. Chen et
al., Learning to Optimize Tensor Programs, 2018). Treated in course chapter 06_autotune.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from random import Random

from minidlc.support.errors import TuneError, nearest

_ATTEMPTS = 1000  # at a random point that is allowed, before all points are listed
_IN_VAIN = 100  # draws that give nothing new, before what is left is listed
_LISTED = 1 << 20  # points; a larger space is never listed whole for that


@dataclass(frozen=True, order=True)
class Config:
    """A way and a value for each of its knobs: a point of a space."""

    way: str
    knobs: tuple[tuple[str, int], ...] = ()

    @staticmethod
    def of(way: str, knobs: Mapping[str, int]) -> Config:
        """From a dict; knobs keep its order."""
        return Config(way, tuple((name, int(value)) for name, value in knobs.items()))

    @property
    def values(self) -> dict[str, int]:
        """The knobs as a dict."""
        return dict(self.knobs)

    def __str__(self) -> str:
        return f"{self.way}({', '.join(f'{name}={value}' for name, value in self.knobs)})"


def everything(config: Config) -> bool:
    """No point is left out."""
    return True


@dataclass(frozen=True)
class Space:
    """The points of all ways; `ways` maps a way to its knobs, a knob to its candidates.

    TuneError (MDLC1301) if there is no way, or a knob has no candidate or one twice.
    """

    ways: Mapping[str, Mapping[str, tuple[int, ...]]]
    allowed: Callable[[Config], bool] = field(default=everything, repr=False)

    def __post_init__(self) -> None:
        if not self.ways:
            raise TuneError("a space without a single way", code="MDLC1301")
        for way, knobs in self.ways.items():
            for knob, candidates in knobs.items():
                if not candidates or len(set(candidates)) < len(candidates):
                    text = f"{way}: knob {knob!r} has the candidates {list(candidates)}"
                    hint = "at least one, and each once"
                    raise TuneError(text, hint=hint, code="MDLC1301")

    @cached_property
    def size(self) -> int:
        """Number of points, those that are not allowed included."""
        return sum(math.prod(map(len, knobs.values())) for knobs in self.ways.values())

    def at(self, number: int) -> Config:
        """The point of that number, from 0 to size - 1, in the order of iteration; allowed or
        not."""
        for way, knobs in self.ways.items():
            count = math.prod(map(len, knobs.values()))
            if number < count:
                values = list[tuple[str, int]]()
                for name, candidates in reversed(list(knobs.items())):
                    number, place = divmod(number, len(candidates))
                    values.append((name, candidates[place]))
                return Config(way, tuple(reversed(values)))
            number -= count
        raise IndexError("no point of that number")

    def __iter__(self) -> Iterator[Config]:
        """Every allowed point, way by way, the last knob changing fastest."""
        for way, knobs in self.ways.items():
            for values in itertools.product(*knobs.values()):
                config = Config(way, tuple(zip(knobs, values, strict=True)))
                if self.allowed(config):
                    yield config

    def __contains__(self, config: object) -> bool:
        if not isinstance(config, Config) or config.way not in self.ways:
            return False
        knobs = self.ways[config.way]
        known = [name for name, _ in config.knobs] == list(knobs)
        return known and all(v in knobs[n] for n, v in config.knobs) and self.allowed(config)

    def check(self, config: Config) -> Config:
        """The point itself; TuneError (MDLC1302) if it is none of the space."""
        if config in self:
            return config
        ways, knobs = self.ways, self.ways.get(config.way)
        hint = "it is left out: no such point can be good" if knobs else None
        if knobs is None:
            hint = nearest(config.way, ways)
        elif [name for name, _ in config.knobs] != list(knobs):
            hint = f"the knobs of {config.way} are {', '.join(knobs) or 'none'}"
        else:
            wrong = [(n, v) for n, v in config.knobs if v not in knobs[n]]
            hint = f"{wrong[0][0]} is one of {list(knobs[wrong[0][0]])}" if wrong else hint
        raise TuneError(f"{config} is no point of the space", hint=hint, code="MDLC1302")

    def random(self, rng: Random) -> Config:
        """Any allowed point: first a way, each as likely as another, then its knobs."""
        names = list(self.ways)
        for _ in range(_ATTEMPTS):
            config = self._draw(rng.choice(names), rng)
            if self.allowed(config):
                return config
        if not self._points:
            raise TuneError("no point of the space is allowed", code="MDLC1301")
        return rng.choice(self._points)

    @cached_property
    def _points(self) -> list[Config]:
        return list(self)

    def _draw(self, way: str, rng: Random) -> Config:
        knobs = self.ways[way]
        return Config(way, tuple((name, rng.choice(values)) for name, values in knobs.items()))

    def distinct(self, count: int, rng: Random, known: Iterable[Config] = ()) -> list[Config]:
        """Up to `count` random points, all different and none of `known`; fewer if there are no
        more."""
        seen, found, in_vain = set(known), list[Config](), 0
        is_listed = self.size < _LISTED
        while len(found) < count and in_vain < (_IN_VAIN if is_listed else _ATTEMPTS):
            config = self.random(rng)
            in_vain += 1
            if config not in seen:
                seen.add(config)
                found.append(config)
                in_vain = 0
        missing = count - len(found)
        rest = [c for c in self._points if c not in seen] if missing and is_listed else []
        return found + rng.sample(rest, min(missing, len(rest)))

    def mutated(self, config: Config, rng: Random, changes: int = 1) -> Config:
        """The point with `changes` of its knobs drawn again; itself if nothing else is allowed."""
        knobs = self.ways[config.way]
        open_knobs = [name for name, values in knobs.items() if len(values) > 1]
        for _ in range(_ATTEMPTS if open_knobs else 0):
            drawn = rng.sample(open_knobs, min(changes, len(open_knobs)))
            values = config.values
            for name in drawn:
                values[name] = rng.choice([v for v in knobs[name] if v != values[name]])
            if self.allowed(new := Config.of(config.way, values)):
                return new
        return config

    def crossed(self, a: Config, b: Config, rng: Random) -> Config:
        """Each knob from one of two points of the same way; `a` if they are of different ways."""
        if a.way != b.way:
            return a
        other = b.values
        pairs = ((n, v if rng.random() < 0.5 else other[n]) for n, v in a.knobs)
        new = Config(a.way, tuple(pairs))
        return new if self.allowed(new) else a

    def neighbours(self, config: Config) -> list[Config]:
        """The allowed points with one knob at its next smaller or larger candidate."""
        found = list[Config]()
        for name, value in config.knobs:
            order = sorted(self.ways[config.way][name])
            place = order.index(value)
            for near in (place - 1, place + 1):
                if 0 <= near < len(order):
                    new = Config.of(config.way, {**config.values, name: order[near]})
                    if self.allowed(new):
                        found.append(new)
        return found
