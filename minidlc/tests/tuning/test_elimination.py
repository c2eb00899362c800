"""The least sum over choices, against trying every choice."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest

from minidlc.tuning.elimination import WIDEST, Factor, cheapest

pytestmark = pytest.mark.ch06


def brute_force(factors: Sequence[Factor], count: int) -> float:
    """The least cost of all choices of variables 0 to count - 1."""
    return min(
        cost_of(factors, dict(enumerate(choice)))
        for choice in itertools.product((0, 1), repeat=count)
    )


def cost_of(factors: Sequence[Factor], choice: dict[int, int]) -> float:
    return sum(float(f.table[tuple(choice[v] for v in f.scope)]) for f in factors)  # pyright: ignore


def alone_and_pairs(pairs: Sequence[tuple[int, int]], count: int, rng: np.random.Generator):
    """Random costs of each variable and of each pair that differs."""
    factors = [Factor((v,), rng.random(2)) for v in range(count)]
    for pair in pairs:
        move = rng.random()
        factors.append(Factor(pair, np.array([[0.0, move], [rng.random(), 0.0]])))
    return [factors[i] for i in rng.permutation(len(factors))]


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("shape", ["chain", "tree", "ring", "random"])
def test_it_is_the_least_of_all_choices(shape: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    count = int(rng.integers(2, 10))
    pairs = {
        "chain": [(i, i + 1) for i in range(count - 1)],
        "tree": [(int(rng.integers(0, i)), i) for i in range(1, count)],
        "ring": [(i, (i + 1) % count) for i in range(count)],
        "random": [tuple(rng.choice(count, 2, replace=False).tolist()) for _ in range(2 * count)],
    }[shape]
    factors = alone_and_pairs(pairs, count, rng)
    found = cheapest(factors)
    assert found is not None
    choice, cost = found
    assert set(choice) == set(range(count))
    assert cost == pytest.approx(brute_force(factors, count))
    assert cost_of(factors, choice) == pytest.approx(cost)  # pyright: ignore


@pytest.mark.parametrize("seed", range(20))
def test_joins_of_several_and_what_cannot_be(seed: int) -> None:
    """As at an add: its layout is decided by its inputs; inf for every other."""
    rng = np.random.default_rng(seed)
    factors = alone_and_pairs([(0, 1), (1, 2), (2, 3)], 6, rng)
    join = np.full((2, 2, 2), np.inf)
    for a, b in itertools.product((0, 1), repeat=2):
        join[a, b, a and b] = 0.0
    factors += [Factor((0, 3, 4), join), Factor((4, 2, 5), join)]
    found = cheapest(factors)
    assert found is not None
    assert found[1] == pytest.approx(brute_force(factors, 6))
    assert found[0][4] == (found[0][0] and found[0][3])


def test_of_equals_the_first_layout_and_no_variable_at_all() -> None:
    assert cheapest([Factor(("a",), np.zeros(2))]) == ({"a": 0}, 0.0)
    assert cheapest([]) == ({}, 0.0)


def test_a_long_chain_takes_no_time_and_a_clique_is_refused() -> None:
    rng = np.random.default_rng(0)
    chain = alone_and_pairs([(i, i + 1) for i in range(299)], 300, rng)
    found = cheapest(chain)
    assert found is not None
    assert cost_of(chain, found[0]) == pytest.approx(found[1])  # pyright: ignore
    size = WIDEST + 1
    everyone = list(itertools.combinations(range(size), 2))
    assert cheapest(alone_and_pairs(everyone, size, rng)) is None
