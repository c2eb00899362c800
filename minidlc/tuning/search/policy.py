"""An agent that learns by policy gradient which values of which knobs pay.

    agent = PolicyGradient()
    explore(TableProblem(table), agent, trials=128)
    agent.policy(space, trials).knobs["gemm", "rows"]       # f64[candidates]: probabilities

The policy is a categorical distribution over ways, and one for each knob of each way. An action is
a point, its reward the logarithm of how much faster than before it is. REINFORCE with a baseline
(R. Williams, Simple Statistical Gradient-Following Algorithms, Machine Learning 1992) moves the
logits along reward · (one-hot - probabilities), the gradient of the log-probability of what was
done. Knobs are taken to be independent, which they are not: a model that sees their products learns
faster, and this agent shows why. Treated in course chapter 06_autotune.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

import numpy as np

from minidlc.expr.types import Array
from minidlc.support.errors import TuneError
from minidlc.tuning.problem import Score
from minidlc.tuning.search.proposals import filled
from minidlc.tuning.space import Config, Space
from minidlc.tuning.trial import Trial

_DRAWS = 100  # for an action that is a point, and new; a random point takes its place


class Policy:
    """Logits of ways, f64[ways], and of each knob, f64[candidates]; all equal at first."""

    def __init__(self, space: Space) -> None:
        self.space = space
        self.names = list(space.ways)
        self.way_logits = np.zeros(len(space.ways))
        self.knob_logits = {
            (way, knob): np.zeros(len(candidates))
            for way, knobs in space.ways.items()
            for knob, candidates in knobs.items()
        }

    @property
    def ways(self) -> dict[str, float]:
        """The probability of each way."""
        return dict(zip(self.names, map(float, softmax(self.way_logits)), strict=True))

    @property
    def knobs(self) -> dict[tuple[str, str], Array]:
        """Of each (way, knob): the probabilities of its candidates."""
        return {key: softmax(logits) for key, logits in self.knob_logits.items()}

    def draw(self, rng: Random) -> Config:
        """An action; it need not be a point that is allowed."""
        way = self.names[_drawn(self.way_logits, rng)]
        return Config(
            way,
            tuple(
                (knob, candidates[_drawn(self.knob_logits[way, knob], rng)])
                for knob, candidates in self.space.ways[way].items()
            ),
        )

    def learn(self, action: Config, step: float) -> None:
        """Move every logit that took part by `step` along the gradient of log p(action)."""
        _moved(self.way_logits, self.names.index(action.way), step)
        for knob, value in action.knobs:
            place = self.space.ways[action.way][knob].index(value)
            _moved(self.knob_logits[action.way, knob], place, step)


@dataclass(frozen=True)
class PolicyGradient:
    """The agent: `rate` is that of learning, `memory` the share of the baseline that is kept.

    TuneError (MDLC1334) for a rate that is not above 0, or a memory that is not from 0 to 1.
    """

    rate: float = 0.5
    memory: float = 0.8
    name: str = "policy gradient"

    def __post_init__(self) -> None:
        if not (0 < self.rate < math.inf and 0 <= self.memory <= 1):
            hint = "a rate above 0, a memory from 0 to 1"
            raise TuneError(f"the agent cannot learn: {self}", hint=hint, code="MDLC1334")

    def __call__(
        self,
        space: Space,
        trials: Sequence[Trial],
        score: Score | None,
        count: int,
        rng: Random,
    ) -> list[Config]:
        """`count` actions that are new points; the score is not asked."""
        policy, tried = self.policy(space, trials), {t.config for t in trials}
        found = list[Config]()
        for _ in range(count):
            actions = (policy.draw(rng) for _ in range(_DRAWS))
            if new := next((a for a in actions if a in space and a not in tried), None):
                found.append(new)
                tried.add(new)
        return filled(found, space, trials, count, rng)

    def policy(self, space: Space, trials: Sequence[Trial]) -> Policy:
        """What the agent has learnt from these trials, in their order.

        The baseline is a moving average of rewards. A failed trial is rewarded as the slowest so
        far; before one has succeeded there is nothing to compare with, and nothing is learnt.
        """
        policy, baseline, least = Policy(space), None, math.inf
        for trial in trials:
            reward = -math.log2(trial.cost) if math.isfinite(trial.cost) else least
            if not math.isfinite(reward):
                continue
            least = min(least, reward)
            baseline = reward if baseline is None else baseline
            policy.learn(trial.config, self.rate * min(1.0, max(-1.0, reward - baseline)))
            baseline = self.memory * baseline + (1 - self.memory) * reward
        return policy


def softmax(logits: Array) -> Array:
    """Probabilities, f64[n], from logits."""
    powers = np.exp(logits - logits.max())
    return powers / powers.sum()


def _drawn(logits: Array, rng: Random) -> int:
    return rng.choices(range(len(logits)), softmax(logits).tolist())[0]


def _moved(logits: Array, place: int, step: float) -> None:
    gradient = -softmax(logits)
    gradient[place] += 1.0
    logits += step * gradient
