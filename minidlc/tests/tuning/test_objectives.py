"""Objectives beside time: hand-made loops, counted; Pareto fronts; weighted problems."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minidlc.expr.types import Array
from minidlc.loop.text import parse_function
from minidlc.support.errors import TuneError
from minidlc.target import Target
from minidlc.tests.tuning.kernels import product, task_of
from minidlc.tuning.model.features import Loops
from minidlc.tuning.objectives import (
    OBJECTIVES,
    Weighted,
    energy,
    figures,
    moved_bytes,
    objective,
    pareto,
)
from minidlc.tuning.space import Config, Space
from minidlc.tuning.trial import Fate, Trial

pytestmark = pytest.mark.ch06
TARGET = Target("x86_64-unknown-linux-gnu", "skylake", "+avx2,+fma", vector_bits=256, registers=16)


def trial(number: int, seconds: float, **others: float) -> Trial:
    return Trial(Config.of("a", {"n": number}), Fate.OK, (seconds,), figures=others)


def test_the_energy_of_a_sum_of_vectors_by_hand() -> None:
    fn = parse_function("""
def add(x: f32[128], y: f32[128]):
    for i in serial(0, 16):
        for l in vectorized(0, 8):
            y[8*i + l] = x[8*i + l] + 1.0
""")
    loops = Loops(fn, TARGET, 1)
    arithmetic = 128 * 2.3 + 16 * 3 * 70  # a load, a sum, a store
    levels = 16 * 2 * 32 * 2.5 + 16 * 64 * 12.5 + (16 * 64 + 512) * 243.75
    assert moved_bytes(loops) == 16 * 64 + 512
    assert energy(loops) == pytest.approx(1e-12 * (arithmetic + levels))


def test_workspace_and_packed_constants_are_the_peak() -> None:
    """The buffer that a schedule packs its constant into is there once, before any run."""
    task = task_of(product(64, 64, 64, constant=True))
    c = task.lower(next(c for c in task.space if c.way == "gemm_packed"))
    packed = sum(p.type.nbytes for fn in c.init for p in fn.params if p.name in fn.outputs)
    assert packed >= 4 * 64 * 64
    bare = replace(c, init=())
    peaks = [figures(x, task.target, 1)["peak_bytes"] for x in (c, bare)]
    assert peaks[0] - peaks[1] == packed


def test_a_stack_buffer_counts_once_wherever_it_lies() -> None:
    task = task_of(product(8, 8, 8))
    c = task.lower(task.default)
    small = parse_function("""
def f(x: f32[64], y: f32[64]):
    for n in serial(0, 2):
        t = alloc(f32[64], "stack")
        for i in serial(0, 64):
            t[i] = x[i]
        for i in serial(0, 64):
            y[i] = t[i]
    for n in serial(0, 2):
        u = alloc(f32[32], "stack")
        for i in serial(0, 32):
            u[i] = x[i]
        for i in serial(0, 32):
            y[i] = u[i]
""")
    found = figures(replace(c, loops=small, init=()), TARGET, 1)
    assert found["peak_bytes"] == 256
    assert set(found) == set(OBJECTIVES) - {"seconds"}


values = st.lists(
    st.tuples(st.integers(1, 6), st.integers(1, 6), st.integers(1, 6)), min_size=1, max_size=24
)


@settings(max_examples=150, deadline=None)
@given(values)
def test_no_trial_of_a_front_is_beaten_and_every_other_is(rows: list[tuple[int, int, int]]) -> None:
    names = ("seconds", "energy", "peak_bytes")
    trials = [trial(n, s, energy=e, peak_bytes=p) for n, (s, e, p) in enumerate(rows)]
    front = pareto(trials, names)

    def row(t: Trial) -> tuple[float, ...]:
        return tuple(objective(t, name) for name in names)

    def beats(a: Trial, b: Trial) -> bool:
        pairs = list(zip(row(a), row(b), strict=True))
        return all(x <= y for x, y in pairs) and any(x < y for x, y in pairs)

    assert front == sorted(front, key=row)
    assert len({row(t) for t in front}) == len(front)
    assert not any(beats(a, b) for a in trials for b in front)
    for t in trials:
        assert t in front or any(beats(a, t) or row(a) == row(t) for a in front)


def test_of_equal_trials_the_first_stays_and_failed_ones_go() -> None:
    same = [trial(0, 2.0, energy=1.0), trial(1, 1.0, energy=2.0), trial(2, 1.0, energy=2.0)]
    failed = Trial(Config.of("a", {"n": 9}), Fate.CRASHED, reason="signal 11")
    assert pareto([failed, *same]) == [same[1], same[0]]
    assert pareto([failed]) == []
    assert pareto(same, ["seconds"]) == [same[1]]


def test_an_objective_that_no_one_counted() -> None:
    with pytest.raises(TuneError, match="MDLC1335") as caught:
        pareto([trial(0, 1.0, energy=1.0)], ("seconds", "enrgy"))
    assert "energy" in str(caught.value)
    with pytest.raises(TuneError, match="MDLC1335"):
        pareto([trial(0, 1.0)], ())


FOUR = Space({"a": {"n": (1, 2, 3, 4)}})


@dataclass(frozen=True)
class Trade:
    """Time falls with n, energy grows with its square; the last point fails."""

    space: Space = FOUR

    def features(self, configs: Sequence[Config]) -> Array:
        return np.zeros((len(configs), 1))

    def measure(self, configs: Sequence[Config]) -> list[Trial]:
        found = list[Trial]()
        for c in configs:
            n = c.values["n"]
            ran = Trial(c, Fate.OK, (12.0 / n,), figures={"energy": float(n * n)})
            found.append(ran if n < 4 else Trial(c, Fate.TIMEOUT, reason="no answer"))
        return found


def test_a_weighted_problem_has_the_least_product() -> None:
    problem = Weighted(Trade(), {"seconds": 1, "energy": 1})
    done = problem.measure(list(problem.space))
    assert [t.cost for t in done] == [12.0, 24.0, 36.0, math.inf]
    assert [t.figures.get("seconds") for t in done] == [12.0, 6.0, 4.0, None]
    assert objective(done[1], "seconds") == 6.0
    assert len(pareto(done)) == 3
    cubed = Weighted(Trade(), {"seconds": 3, "energy": 1}).measure(list(problem.space))
    assert [t.cost for t in cubed[:3]] == pytest.approx([1728, 864, 576])
    assert problem.features(list(problem.space)).shape == (4, 1)


@pytest.mark.parametrize("weights", [{}, {"seconds": 0.0}, {"seconds": -1.0}, {"energy": math.nan}])
def test_weights_that_weigh_nothing(weights: dict[str, float]) -> None:
    with pytest.raises(TuneError, match="MDLC1336"):
        Weighted(Trade(), weights)


def test_weights_of_what_was_not_counted() -> None:
    problem = Weighted(Trade(), {"peak_bytes": 1.0})
    with pytest.raises(TuneError, match="MDLC1335"):
        problem.measure(list(problem.space)[:1])
