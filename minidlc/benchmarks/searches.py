"""How soon each search finds the fast points of a cost table.

    python -m minidlc.benchmarks.searches                       # all tables that are shipped
    python -m minidlc.benchmarks.searches gemm_512 --seeds 5
    python -m minidlc.benchmarks.searches conv3x3_14 --transfer # with samples of the other tables

Medians over the seeds. The gap is that of the best point so far to the best of the table, after so
many trials; then the trials that it takes until the gap is at most 5 % and 3 %. On a table a search
takes no machine's time but its own, so that the same seeds give the same numbers anywhere.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

import numpy as np

from minidlc.tuning.model import FEATURES, analytic, best_model, ridge
from minidlc.tuning.problem import CostModel, Samples, Search, explore
from minidlc.tuning.result import curve
from minidlc.tuning.search import (
    Annealing,
    Bandit,
    Evolution,
    GridSearch,
    PolicyGradient,
    RandomSearch,
)
from minidlc.tuning.table import Table, TableProblem, names

SEEDS = 20
MARKS = (16, 32, 64, 128)
GAPS = (0.05, 0.03)
TAUGHT = 256  # samples of another table that a model is told of
BANDIT = (Evolution(), Annealing(), RandomSearch())


@dataclass(frozen=True)
class Entry:
    """A search, and the model that guides it; `known` says that the model knows other tables."""

    label: str
    search: Search
    model: CostModel | None = None
    known: bool = False


WITHOUT = (
    Entry("random", RandomSearch()),
    Entry("grid", GridSearch()),
    Entry("annealing", Annealing()),
    Entry("evolution", Evolution()),
    Entry("policy gradient", PolicyGradient()),
    Entry("bandit", Bandit(BANDIT)),
)
GUIDED = Entry("evolution, best model", Evolution(), best_model())
WITH = (
    Entry("annealing, best model", Annealing(), best_model()),
    Entry("bandit, best model", Bandit(BANDIT), best_model()),
    Entry("evolution, analytic", Evolution(), analytic),
    Entry("evolution, ridge", Evolution(), ridge),
    GUIDED,
)
TAUGHT_BY_OTHERS = Entry("evolution, best model, taught", Evolution(), best_model(), known=True)
TRANSFER = (WITHOUT[0], GUIDED, TAUGHT_BY_OTHERS)


@dataclass(frozen=True)
class Row:
    """Medians over the seeds: gaps at MARKS, trials to each of GAPS (None: more than were made)."""

    label: str
    gaps: tuple[float, ...]
    trials: tuple[float | None, ...]
    seconds: float

    def __str__(self) -> str:
        gaps = [f"{100 * g:.1f} %" for g in self.gaps]
        trials = ["more" if t is None else f"{t:g}" for t in self.trials]
        cells = (self.label, *gaps, *trials, f"{1e3 * self.seconds:.0f}")
        return f"| {' | '.join(cells)} |"


def curves(
    table: Table,
    entry: Entry,
    *,
    trials: int = MARKS[-1],
    seeds: int = SEEDS,
    known: Sequence[Samples] = (),
    batch: int = 8,
) -> list[list[float]]:
    """Of each seed: the gap after each trial, 0.03 for 3 %; the last where the table ended."""
    problem, found = TableProblem(table), list[list[float]]()
    for seed in range(seeds):
        run = explore(
            problem,
            entry.search,
            trials=min(trials, len(table.configs)),
            seed=seed,
            batch=batch,
            model=entry.model,
            known=known if entry.known else (),
        )
        found.append([cost / table.best - 1 for cost in curve(run)])
    return found


def random_curves(table: Table, seeds: int = SEEDS) -> list[list[float]]:
    """Of random search, to the end of the table; in large batches, which change nothing."""
    entry, count = Entry("random", RandomSearch()), len(table.configs)
    return curves(table, entry, trials=count, seeds=seeds, batch=512)


def gap_at(runs: Sequence[Sequence[float]], trials: int) -> float:
    """The median gap after so many trials."""
    return statistics.median_high(run[min(trials, len(run)) - 1] for run in runs)


def trials_to(runs: Sequence[Sequence[float]], gap: float) -> float | None:
    """The median number of trials until the gap is that small; None if half of the runs or more
    do not come so far."""
    counts = [next((n for n, g in enumerate(run, 1) if g <= gap), float("inf")) for run in runs]
    middle = statistics.median(counts)
    return middle if np.isfinite(middle) else None


def row(table: Table, entry: Entry, seeds: int, known: Sequence[Samples]) -> Row:
    """A row of the printed table. Random search goes on to the end: it costs nothing."""
    start = time.process_time()
    if isinstance(entry.search, RandomSearch):
        runs = random_curves(table, seeds)
    else:
        runs = curves(table, entry, seeds=seeds, known=known)
    seconds = (time.process_time() - start) / seeds
    return Row(
        entry.label,
        tuple(gap_at(runs, mark) for mark in MARKS),
        tuple(trials_to(runs, gap) for gap in GAPS),
        seconds,
    )


def samples_of(table: Table, count: int = TAUGHT) -> Samples:
    """Some points of a table at random, as those of an earlier tuning."""
    some = Random(0).sample(range(len(table.configs)), min(count, len(table.configs)))
    return Samples(table.features[some], table.costs[some])


def landscape(table: Table) -> str:
    """A sentence: how many points, how many near the best."""
    ran = table.costs[np.isfinite(table.costs)]
    near = ", ".join(f"{int((ran <= (1 + g) * table.best).sum())} within {g:.0%}" for g in GAPS)
    return (
        f"{table.name}: {len(table.configs)} points, {len(table.configs) - len(ran)} failed, best "
        f"{1e6 * table.best:.0f} µs, {near}, median {np.median(ran) / table.best:.2f} of the best"
    )


def main() -> None:
    """Print a table for each of the cost tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tables", nargs="*", help="names or files; all that are shipped")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--transfer", action="store_true", help="teach the model other tables")
    parser.add_argument("--known", nargs="*", default=[], help="of these tables; else all others")
    a = parser.parse_args()
    for path in a.tables or names():
        table = Table.load(path)
        others = a.known or [n for n in names() if n != Path(path).stem]
        known = [samples_of(Table.load(n)) for n in others] if a.transfer else []
        heads = ("search", *(f"gap at {m}" for m in MARKS), *(f"trials to {g:.0%}" for g in GAPS))
        print(f"{landscape(table)}\n\n| {' | '.join(heads)} | ms a run |")
        print(f"|{' --- |' * (len(heads) + 1)}")
        for entry in TRANSFER if a.transfer else (*WITHOUT, *WITH):
            if entry.model is analytic and table.feature_names != FEATURES:
                continue  # it reads certain features
            print(row(table, entry, a.seeds, known), flush=True)
        print()


if __name__ == "__main__":
    main()
