"""The coefficients of codegen/polynomials.py, fitted: the smallest largest error on an interval.

    python -m minidlc.benchmarks.fit_polynomials    # prints each tuple and its error

Lawson's method: least squares again and again, each time with more weight where the error was
large, ends at the polynomial whose largest error is smallest. Then the coefficients are rounded
to f32 one by one, the constant term first, and the others are fitted again around it. Of P / Q
the same method fits target * Q - P, with the weight that 1 / Q of the step before gives. Errors
are relative to the function that the polynomial is for. Reads and writes nothing.
Treated in course chapter 05_backend_opt.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from minidlc.expr.types import Array

Formula = Callable[[float], float]


@dataclass(frozen=True)
class Fit:
    """P(v(x)) ~ target(x) for x in low..high; an error e of P is an error weight(x) * e."""

    name: str
    degree: int
    low: float
    high: float
    target: Formula
    weight: Formula
    variable: Formula = lambda x: x
    fixed: tuple[float, ...] = ()  # the lowest coefficients, where they are given
    bits: int = 32  # of a coefficient


def series(term: Callable[[int], float], x: float) -> float:
    """term(0) + term(1) x + term(2) x**2 + …: without the cancellation of the closed form."""
    return math.fsum(term(k) * x**k for k in range(150))


def factorial(n: int) -> float:
    """n! as a float, infinite where it is too large for one."""
    return float(math.factorial(n)) if n < 171 else math.inf


def _erf_over_x(x: float) -> float:
    return series(lambda k: (-1) ** k * 2 / math.sqrt(math.pi) / factorial(k) / (2 * k + 1), x * x)


def _tanh_tail(x: float) -> float:
    """(tanh(x) / x - 1) / x**2."""
    top = series(lambda k: 1 / factorial(2 * k + 3) - 1 / factorial(2 * k + 2), x * x)
    return top / math.cosh(x)


def _log2_over_s(s: float) -> float:
    return series(lambda k: 2 / math.log(2) / (2 * k + 1), s * s)


HALF_LN2 = math.log(2) / 2 + 1e-4
FITS = (
    Fit(
        "EXP",
        4,
        -HALF_LN2,
        HALF_LN2,
        lambda r: series(lambda k: 1 / factorial(k + 2), r),
        lambda r: r * r / math.exp(r),
    ),
    Fit(
        "LOG",
        8,
        math.sqrt(0.5) - 1,
        math.sqrt(2) - 1,
        lambda f: series(lambda k: (-1) ** k / (k + 3), f),
        lambda f: f**3 / (math.log1p(f) or 1),
    ),
    Fit(
        "TANH",
        4,
        0.0,
        0.5625,
        _tanh_tail,
        lambda x: x**3 / math.tanh(x) if x else 0.0,
        lambda x: x * x,
    ),
    Fit(
        "ERF",
        6,
        0.0,
        1.125,
        lambda x: _erf_over_x(x) - 1,
        lambda x: 1 / _erf_over_x(x),
        lambda x: x * x,
    ),
    Fit(
        "ERFC",
        8,
        1.125,
        3.9,
        lambda x: math.erfc(x) ** -0.25,
        lambda x: 4 * math.erfc(x) ** 1.25 / math.erf(x),
        lambda x: x - 1.125,
    ),
    Fit(
        "SIN",
        3,
        0.0,
        math.pi / 4 + 1e-3,
        lambda x: series(lambda k: (-1) ** (k + 1) / factorial(2 * k + 3), x * x),
        lambda x: x**3 / math.sin(x) if x else 0.0,
        lambda x: x * x,
    ),
    Fit(
        "COS",
        2,
        0.0,
        math.pi / 4 + 1e-3,
        lambda x: series(lambda k: (-1) ** k / factorial(2 * k + 4), x * x),
        lambda x: x**4 / math.cos(x),
        lambda x: x * x,
    ),
    Fit(
        "LOG2",
        4,
        0.0,
        (math.sqrt(2) - 1) / (math.sqrt(2) + 1),
        _log2_over_s,
        lambda s: 1 / _log2_over_s(s),
        lambda s: s * s,
        bits=64,
    ),
    Fit("EXP2", 6, -0.5, 0.5, lambda r: 2**r, lambda r: 2**-r, bits=64),
)


def solve(basis: Array, target: Array, weight: Array, steps: int = 300) -> Array:
    """The coefficients with the smallest largest |weight * (basis @ c - target)|."""
    importance = np.full(len(target), 1 / len(target))
    best, least = np.zeros(basis.shape[1]), math.inf
    for _ in range(steps):
        w = np.sqrt(importance) * weight
        c = np.linalg.lstsq(basis * w[:, None], target * w, rcond=None)[0]
        error = np.abs(weight * (basis @ c - target))
        if error.max() < least:
            best, least = c, error.max()
        importance *= error
        importance /= importance.sum()
    return best


def coefficients(fit: Fit, points: int = 2001) -> tuple[list[float], float]:
    """Rounded coefficients, the highest power first, and the largest error."""
    angle = np.linspace(0, math.pi, points)  # denser at the ends
    x = (fit.low + fit.high) / 2 - np.cos(angle) * (fit.high - fit.low) / 2
    v, target, weight = (
        np.array([g(float(t)) for t in x]) for g in (fit.variable, fit.target, fit.weight)
    )
    powers = v[:, None] ** np.arange(fit.degree + 1)
    done = list(fit.fixed)
    while len(done) <= fit.degree:
        left = target - powers[:, : len(done)] @ np.array(done)
        c = solve(powers[:, len(done) :], left, weight)
        done.append(float(np.float32(c[0])) if fit.bits == 32 else float(c[0]))
        if fit.bits == 64:
            done += [float(a) for a in c[1:]]
    error = np.max(np.abs(weight * (powers @ np.array(done) - target)))
    return done[::-1], float(error)


@dataclass(frozen=True)
class Rational:
    """x P(x*x) / Q(x*x) ~ target(x) for x in 0..high; P(0) = `first`, Q(0) = 1."""

    name: str
    degrees: tuple[int, int]
    high: float
    target: Formula
    first: float


QUICK_TANH = Rational("QUICK_TANH", (6, 3), 7.8, math.tanh, 1.0)


def denominator(fit: Rational, points: int = 601, steps: int = 200) -> list[float]:
    """Rounded coefficients of Q, the highest power first."""
    x = fit.high * (1 - np.cos(np.linspace(0.01, math.pi, points))) / 2
    g, v = np.array([fit.target(float(t)) for t in x]) / x, (x / fit.high) ** 2
    p, q = fit.degrees
    powers = v[:, None] ** np.arange(1, max(p, q) + 1)
    basis = np.hstack([powers[:, :p], -g[:, None] * powers[:, :q]])
    importance, bottom = np.ones(points), np.ones(points)
    best, least = np.zeros(q), math.inf
    for _ in range(steps):
        w = np.sqrt(importance) / (g * bottom)
        c = np.linalg.lstsq(basis * w[:, None], (g - fit.first) * w, rcond=None)[0]
        bottom = 1 + powers[:, :q] @ c[p:]
        error = np.abs((fit.first + powers[:, :p] @ c[:p]) / bottom / g - 1)
        if error.max() < least:
            best, least = c[p:], float(error.max())
        importance *= error
        importance /= importance.sum()
    scaled = np.append(1.0, best) / fit.high ** (2 * np.arange(q + 1))
    return [float(np.float32(c)) for c in scaled[::-1]]


def quotient(fit: Rational) -> tuple[list[float], list[float], float]:
    """Rounded coefficients of P and Q, the highest power first, and the largest error."""
    low = denominator(fit)

    def goal(x: float) -> float:
        return (fit.target(x) / x if x else fit.first) * float(np.polyval(low, x * x))

    around = Fit(
        fit.name,
        fit.degrees[0],
        0.0,
        fit.high,
        goal,
        lambda x: 1 / goal(x),
        lambda x: x * x,
        (fit.first,),
    )
    top, error = coefficients(around, 601)
    return top, low, error


def main() -> None:
    """Print every tuple as it stands in the modules of codegen."""
    for fit in FITS:
        found, error = coefficients(fit)
        print_tuple(fit.name, found, error)
    top, low, error = quotient(QUICK_TANH)
    print_tuple("QUICK_TANH_P", top, error)
    print_tuple("QUICK_TANH_Q", low, error)


def print_tuple(name: str, found: list[float], error: float) -> None:
    """One tuple, as the formatter leaves it, and its error."""
    print(f"{name} = (  # {error:.2e}, that is 2**{math.log2(error):.1f}")
    print("".join(f"    {c!r},\n" for c in found) + ")")


if __name__ == "__main__":
    main()
