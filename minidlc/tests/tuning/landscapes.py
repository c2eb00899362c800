"""Made-up cost tables: plausible landscapes from a seed, for searches and models to be tried on.

A cost is a product of effects of single knobs (a valley in the logarithm of the value), of pairs of
knobs (a product that should be near some size, as a tile near that of a cache) and cliffs (a
product above a limit costs half as much again, as registers that spill). A share of the points
fails. Features are what loops would tell: logarithms of knobs and products, and whether a cliff is
passed; the features of a point do not give its cost away, but determine it up to noise.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from random import Random

import numpy as np

from minidlc.expr.types import Array
from minidlc.tuning.problem import Samples
from minidlc.tuning.space import Config, Space
from minidlc.tuning.table import Table
from minidlc.tuning.trial import Fate

TILES = Space(
    {
        "tiled": {
            "rows": (1, 2, 3, 4, 6, 8, 12),
            "vectors": (1, 2, 3, 4),
            "middle": (1, 2, 4, 8, 16),
            "depth": (8, 16, 32, 64, 128, 256),
            "unroll": (1, 2, 4),
            "packed": (0, 1),
        },
        "flat": {"vectors": (1, 2, 4, 8), "unroll": (1, 2, 4, 8), "grain": (1, 2, 4, 8, 16)},
    }
)


def synthetic(space: Space = TILES, seed: int = 0, *, name: str = "made_up") -> Table:
    """The table of all allowed points of a space."""
    effects = {way: _Effects(knobs, Random(f"{seed} {way}")) for way, knobs in space.ways.items()}
    noise = Random(seed)
    configs = tuple(space)
    costs = [effects[c.way].cost(c) * math.exp(noise.gauss(0, 0.02)) for c in configs]
    failed = [noise.random() < 0.03 for _ in configs]
    width = max(len(e.row(next(c for c in configs if c.way == w))) for w, e in effects.items())
    features = np.zeros((len(configs), len(effects) + width))
    for row, config in zip(features, configs, strict=True):
        row[list(space.ways).index(config.way)] = 1.0
        values = effects[config.way].row(config)
        row[len(effects) : len(effects) + len(values)] = values
    return Table(
        name,
        configs,
        np.where(failed, np.inf, 1e-4 * np.array(costs)),
        tuple(Fate.CRASHED if f else Fate.OK for f in failed),
        features,
        tuple(f"f{number}" for number in range(features.shape[1])),
        {"kernel": "none: made up", "how": f"synthetic, seed {seed}"},
    )


class _Effects:
    """What the knobs of one way do to its cost."""

    def __init__(self, knobs: Mapping[str, Sequence[int]], rng: Random) -> None:
        self.base = rng.uniform(1.0, 1.6)
        self.valleys = {
            name: (rng.choice(_logs(values)), rng.uniform(0.01, 0.05))
            for name, values in knobs.items()
        }
        pairs = list(itertools.combinations(knobs, 2))
        self.pairs = {
            pair: (_middle(knobs, pair, rng), rng.uniform(0.02, 0.06))
            for pair in rng.sample(pairs, min(3, len(pairs)))
        }
        self.cliffs = {
            pair: _middle(knobs, pair, rng) + 1 for pair in rng.sample(pairs, min(2, len(pairs)))
        }

    def cost(self, config: Config) -> float:
        """In any unit."""
        logs = {name: math.log2(abs(value) + 1) for name, value in config.knobs}
        slow = sum(weight * (logs[n] - low) ** 2 for n, (low, weight) in self.valleys.items())
        for (a, b), (low, weight) in self.pairs.items():
            slow += weight * (logs[a] + logs[b] - low) ** 2
        return self.base * math.exp(slow) * 1.5 ** sum(self._cliffs(logs))

    def row(self, config: Config) -> list[float]:
        """The features of a point."""
        logs = {name: math.log2(abs(value) + 1) for name, value in config.knobs}
        return [*logs.values(), *(logs[a] + logs[b] for a, b in self.pairs), *self._cliffs(logs)]

    def _cliffs(self, logs: Mapping[str, float]) -> list[float]:
        return [float(logs[a] + logs[b] > top) for (a, b), top in self.cliffs.items()]


def _logs(values: Sequence[int]) -> list[float]:
    return [math.log2(abs(value) + 1) for value in values]


def _middle(knobs: Mapping[str, Sequence[int]], pair: tuple[str, str], rng: Random) -> float:
    return sum(rng.choice(_logs(knobs[name])) for name in pair)


def nearest_model(known: Sequence[Samples], asked: Array) -> Array:
    """A cost model that is simple and quick: log cost as that of the three nearest points."""
    features = np.concatenate([s.features for s in known])
    costs = np.concatenate([s.costs for s in known])
    ran = np.isfinite(costs)
    if not ran.any():
        return np.zeros(len(asked))
    logs = np.log(np.where(ran, costs, costs[ran].max() * 2))
    spread = features.std(axis=0) + 1e-9
    apart = ((asked[:, None] - features[None]) / spread) ** 2
    distance = apart.sum(axis=2)
    near = np.argsort(distance, axis=1, kind="stable")[:, :3]
    weights = 1.0 / (np.take_along_axis(distance, near, axis=1) + 1e-3)
    return (logs[near] * weights).sum(axis=1) / weights.sum(axis=1)
