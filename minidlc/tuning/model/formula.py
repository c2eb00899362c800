"""A cost model that is a formula, and explains itself term by term.

    print(explain(loops, target))
    # term          cycles  share  why
    # arithmetic  4.22e+06   81 %  8.39e+06 instructions on vectors, 0 on single elements, …
    # from L2     4.77e+05    9 %  2.38e+05 lines come into the first cache; 2 cycles each
    analytic(known, asked)                          # as a cost model: seconds, the least first

Cycles of a call are a sum of terms, each a count of the loops times what a modern core takes for
one: a roofline (S. Williams, A. Waterman, D. Patterson, 2009) with the terms beside the roofs.
Loads hide behind arithmetic, so only what they take longer counts. Where trials are known, the
price of each term is fitted to them, never below 0. Treated in course chapter 06_autotune.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from minidlc.expr.types import Array
from minidlc.loop.nodes import LoopFunction
from minidlc.target import Target
from minidlc.tuning.model.features import (
    ARITHMETIC_A_CYCLE,
    FEATURES,
    loop_features,
)
from minidlc.tuning.model.samples import check_features
from minidlc.tuning.problem import Samples


@dataclass(frozen=True)
class Term:
    """Cycles that go with some features; `prices` are cycles for one of each."""

    name: str
    prices: Mapping[str, float]
    why: str  # {vector} stands for the number of them in a call


_ONE = 1 / ARITHMETIC_A_CYCLE
TERMS: tuple[Term, ...] = (
    Term(
        "arithmetic",
        {"vector": _ONE, "scalar": _ONE, "select": _ONE},
        "{vector} instructions on vectors, {scalar} on single elements, {select} choices; "
        "2 a cycle",
    ),
    Term("functions", {"slow": 8.0}, "{slow} quotients and functions such as exp; 8 cycles each"),
    Term(
        "loads, stores",
        {"unhidden": 1.0},
        "{vector_loads} vectors and {broadcasts} elements loaded, {vector_stores} vectors stored: "
        "what takes longer than the arithmetic beside it",
    ),
    Term(
        "lane by lane",
        {"gathers": 1.0, "scatters": 1.0, "horizontal": 6.0},
        "{gathers} elements gathered, {scatters} scattered, {horizontal} vectors reduced",
    ),
    Term("waiting", {"waits": 1.0}, "sums wait for themselves; 4 cycles each"),
    Term("spills", {"spills": 2.0}, "{spills} vectors find no register; stored and loaded"),
    Term("loops", {"iterations": 1.0}, "{iterations} iterations; 1 cycle each"),
    Term("tests", {"branches": 2.0}, "{branches} tests; 2 cycles each"),
    Term("from L2", {"l1_lines": 2.0}, "{l1_lines} lines come into the first cache; 2 cycles each"),
    Term(
        "from memory",
        {"l2_lines": 6.0},
        "{l2_lines} lines come into the second cache; 6 cycles each",
    ),
)
_FORK = 4000.0  # cycles until all threads run, and until all have ended
_PULL = 1e-5  # toward equal factors: decides where the trials do not
_PLACE = {name: n for n, name in enumerate(FEATURES)}


@dataclass(frozen=True)
class Row:
    """A term of an explanation: cycles of a call, their share of all, and what they go to."""

    term: str
    cycles: float
    share: float
    why: str


@dataclass(frozen=True)
class Explanation:
    """The rows, largest first; `fitted` says whether the prices were fitted to trials."""

    rows: tuple[Row, ...]
    fitted: bool = False

    @property
    def cycles(self) -> float:
        """Of a call."""
        return sum(row.cycles for row in self.rows)

    def __str__(self) -> str:
        lines = [f"{'term':14} {'cycles':>9}  share  why"]
        for row in self.rows:
            lines.append(f"{row.term:14} {row.cycles:9.3g}  {100 * row.share:3.0f} %  {row.why}")
        prices = "fitted to trials" if self.fitted else "of a modern core, not fitted"
        return "\n".join([*lines, f"{'all':14} {self.cycles:9.3g}  100 %  prices {prices}"])


def explain(
    loops: LoopFunction, target: Target, threads: int = 1, known: Sequence[Samples] = ()
) -> Explanation:
    """Where the cycles of a kernel go, largest term first; terms of no cycles are left out.

    The prices of the terms are fitted to `known`, if that is given; what was fitted is in cycles of
    the machine's core only as far as `arithmetic` is.
    """
    row = loop_features(loops, target, threads)
    factors = fitted(known)
    cycles = terms(row[None])[0] * (factors / factors[0] if factors[0] else factors)
    total = max(float(cycles.sum()), 1e-9)
    work = 2.0 ** row[_PLACE["work"]]
    counts = {name: f"{work * value:.3g}" for name, value in zip(FEATURES, row, strict=True)}
    whys = [*(term.why for term in TERMS), "threads start and wait for one another"]
    names = [*(term.name for term in TERMS), "threads"]
    rows = [
        Row(name, float(c), float(c) / total, why.format(**counts))
        for name, c, why in zip(names, cycles, whys, strict=True)
        if c > 0
    ]
    rows.sort(key=lambda r: -r.cycles)
    return Explanation(tuple(rows), fitted=bool(known))


def terms(features: Array) -> Array:
    """f64[n, len(TERMS) + 1]: cycles of each term, and last those of starting threads."""
    columns = list[Array]()
    work = 2.0 ** features[:, _PLACE["work"]]
    threads = 2.0 ** features[:, _PLACE["threads"]]
    used = threads * features[:, _PLACE["balance"]]
    for term in TERMS:
        each = np.zeros(len(features))
        for name, price in term.prices.items():
            each = each + price * features[:, _PLACE[name]]
        columns.append(work * each / used)
    forks = 2.0 ** features[:, _PLACE["forks"]] - 1
    columns.append(np.where(threads > 1, _FORK * forks, 0.0))
    return np.stack(columns, axis=1)


def analytic(known: Sequence[Samples], asked: Array) -> Array:
    """Cost model: the sum of the terms, f64[m]; in seconds where anything is known, else cycles.

    TuneError (MDLC1355) for rows that are not of `FEATURES`.
    """
    check_features("analytic", known, asked)
    return terms(asked) @ fitted(known)


def fitted(known: Sequence[Samples]) -> Array:
    """f64[len(TERMS) + 1]: seconds for a cycle of each term, all 1 if nothing is known.

    Least squares of relative errors with factors of at least 0. Each problem has the same say, and
    a factor that the trials say little of stays near that of the others.
    """
    rows, costs, weights = list[Array](), list[Array](), list[Array]()
    for samples in known:
        sound = np.isfinite(samples.features).all(axis=1)
        sound &= np.isfinite(samples.costs) & (samples.costs > 0)
        if count := int(np.count_nonzero(sound)):
            rows.append(terms(samples.features[sound]))
            costs.append(samples.costs[sound])
            weights.append(np.full(count, count**-0.5))
    if not rows:
        return np.ones(len(TERMS) + 1)
    x, y, w = np.concatenate(rows), np.concatenate(costs), np.concatenate(weights)
    clock = float(np.median(y / x.sum(axis=1)))  # seconds a cycle if all prices are right
    a = clock * x / y[:, None] * w[:, None]
    return clock * nonnegative(a, w, pull=_PULL)


def nonnegative(a: Array, b: Array, pull: float, sweeps: int = 200) -> Array:
    """The f >= 0 of least |a f - b|² + pull |f - 1|²: one coordinate after the other.

    C. Franc, V. Hlaváč, M. Navara, Sequential Coordinate-Wise Algorithm for the Non-negative Least
    Squares Problem, 2005. The sum is strictly convex, so the order does not matter in the end.
    """
    square = (a.T @ a + pull * np.eye(a.shape[1])).tolist()  # so small that lists are quicker
    goal = (a.T @ b + pull).tolist()
    f = [1.0] * len(goal)
    for _ in range(sweeps):
        for n, row in enumerate(square):
            slope = sum(x * y for x, y in zip(row, f, strict=True)) - goal[n]
            f[n] = max(0.0, f[n] - slope / row[n])
    return np.array(f)
