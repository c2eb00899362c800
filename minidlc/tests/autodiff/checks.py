"""What must hold of the gradient of every op: it is compared with differences of the op itself.

    for case in cases(op_class("relu")):            # its examples, in f64, at ordinary numbers
        check_gradient(case)                        # mc.grad = (s(x + h) - s(x - h)) / 2h

Here s(x) is the sum over all results of dy * y, dy random and positive, so that a sum of maxima is
convex. In f64 a step of 1e-6 leaves an error of about 1e-12 f''' by truncation and 1e-10 |s| by
rounding, so 1e-6 is a bound that a right gradient keeps with room to spare and a wrong term breaks.
At a kink the differences to the left and to the right differ, and what is asked for is a
subgradient: a number between them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

import minidlc as mc
from minidlc.expr.types import DType, f16, f32
from minidlc.graph import Graph, Value, difference, interpret, parse, verify
from minidlc.graph.graph import Constant
from minidlc.tests.autodiff.cases import Case, is_float, retyped, weighted

H = 2.0**-20  # the step of the differences in f64
BOUND = 1e-6  # how far a gradient may be from a difference, relative to 1 + its size
H_F32, BOUND_F32 = 2.0**-7, 1e-3  # of ops that are linear where they are real
BOUND_F16 = 1e-2  # five roundings, relative to the largest element
BOUND_COMPILED = 2e-5  # of f32, as above
LARGEST = 3e4  # gradients above may overflow in f16
KINK = 1e-4  # left and right differ by more: a kink, or a second derivative above 100
ONE_BY_ONE = 64  # inputs of more elements are checked along random directions
DIRECTIONS = 3


def check_gradient(case: Case) -> None:
    """The gradient is the difference of the loss, one element at a time or along directions."""
    rng = np.random.default_rng(7)
    for n, dx in zip(case.moving, case.gradients, strict=True):
        x = case.inputs[n]
        assert (dx.dtype, dx.shape) == (x.dtype, x.shape)

        def loss_at(moved: Any, n: int = n) -> float:
            return case.loss(*case.inputs[:n], moved, *case.inputs[n + 1 :])

        check = Differences(loss_at, x, case.loss(*case.inputs), case.scale, f"input {n}")
        for v in directions(x, rng):
            check.compare(v, float(np.sum(dx * v)))


def directions(x: Any, rng: np.random.Generator) -> Iterator[Any]:
    """Each element alone if they are few, else all of them together in random proportions."""
    if x.size <= ONE_BY_ONE:
        for place in np.ndindex(x.shape):
            v = np.zeros(x.shape)
            v[place] = 1.0
            yield v
    else:
        for _ in range(DIRECTIONS):
            yield rng.standard_normal(x.shape)


@dataclass(frozen=True)
class Differences:
    """A function of one array around `x`, where it is `here`; `scale`: how large its terms are."""

    function: Callable[[Any], float]
    x: Any
    here: float
    scale: float
    what: str

    def compare(self, v: Any, slope: float) -> None:
        """`slope` is the change of the function along `v`; at a kink, between left and right."""
        x = self.x
        step, rounding = (H, BOUND) if x.dtype == np.float64 else (H_F32, BOUND_F32)
        h = step * max(1.0, float(np.max(np.abs(x * (v != 0)))))
        moved = (h * v).astype(x.dtype)
        ahead, behind = self.function(x + moved), self.function(x - moved)
        assert np.isfinite([ahead, behind]).all(), f"{self.what}: it is {ahead} and {behind}"
        left, right = (self.here - behind) / h, (ahead - self.here) / h
        central = (ahead - behind) / (2 * h)
        bound = rounding * (1 + abs(central)) + 8 * float(np.finfo(x.dtype).eps) * self.scale / h
        if abs(right - left) <= KINK * (1 + abs(central)):
            left = right = central
        low, high = min(left, right) - bound, max(left, right) + bound
        place = np.argwhere(v).tolist() if np.count_nonzero(v) == 1 else "a direction"
        assert low <= slope <= high, f"{self.what} at {place}: {slope} not in [{low}, {high}]"


def check_forward(case: Case) -> None:
    """Forward mode is the transpose of reverse mode: <dy, J dx> = <J^T dy, dx>."""
    rng = np.random.default_rng(8)
    moving = [case.inputs[n] for n in case.moving]
    dxs = [rng.standard_normal(x.shape).astype(x.dtype) for x in moving]
    pushed = interpret(mc.jvp(case.graph), [*case.given, *dxs])[1]
    pulled = sum(float(np.sum(g * dx)) for g, dx in zip(case.gradients, dxs, strict=True))
    bound = 1e-10 if pushed.dtype == np.float64 else 1e-5
    np.testing.assert_allclose(float(pushed), pulled, rtol=bound, atol=bound)


def check_second(case: Case) -> None:
    """The gradient of the gradient is the difference of the gradient, along directions."""
    rng = np.random.default_rng(9)
    first = case.gradient
    total: Value = Constant("zero", np.zeros((), first.outputs[0].type.dtype.numpy))
    for n, dx in zip(case.moving, first.outputs, strict=True):
        x = case.inputs[n]
        total = total + weighted(dx, rng.uniform(-1, 1, x.shape).astype(x.dtype))
    both = Graph.of("twice", first.inputs, [total])
    seconds = interpret(mc.grad(both), case.given)
    scale = sum(float(np.sum(np.abs(g))) for g in case.gradients) + case.scale
    for n, dx in zip(case.moving, seconds, strict=True):
        x, at = case.inputs[n], case.places.index(n)

        def loss_at(moved: Any, at: int = at) -> float:
            return float(interpret(both, [*case.given[:at], moved, *case.given[at + 1 :]])[0])

        if x.size:
            v = rng.standard_normal(x.shape)
            check = Differences(loss_at, x, loss_at(x), scale, f"second: input {n}")
            check.compare(v, float(np.sum(dx * v)))


def check_text(case: Case) -> None:
    """The gradient verifies, prints, and its text reads back as the same graph."""
    verify(case.gradient)
    assert difference(case.gradient, parse(str(case.gradient))) is None


def check_narrow(case: Case) -> None:
    """In f16 the gradient is that of f64, but for roundings of what is stored in f16."""
    _check_other(case, f16, BOUND_F16, interpret)


def check_compiled(case: Case) -> None:
    """As machine code in f32 the gradient is that of f64, but for roundings."""

    def run(graph: Graph, inputs: list[Any]) -> list[Any]:
        got = mc.compile(graph)(*inputs)
        return list(got) if isinstance(got, (tuple, list)) else [got]

    _check_other(case, f32, BOUND_COMPILED, run)


def _check_other(
    case: Case, element: DType, rounding: float, run: Callable[[Graph, list[Any]], list[Any]]
) -> None:
    """The gradient in another type, at the inputs that this type can hold."""
    inputs = [x.astype(element.numpy) if is_float(x) else x for x in case.given]
    wide = [x.astype(np.float64) if is_float(x) else x for x in inputs]
    got = run(mc.grad(retyped(case.graph, element)), inputs)
    for a, b in zip(got, interpret(case.gradient, wide), strict=True):
        assert (a.dtype, a.shape) == (element.numpy, b.shape)
        largest = float(np.max(np.abs(b), initial=1.0))
        if largest < LARGEST:
            bound = rounding * largest
            np.testing.assert_allclose(a.astype(np.float64), b, rtol=0, atol=bound)


CHECKS = (check_gradient, check_forward, check_text)


def check_cases(found: Iterable[Case], *checks: Callable[[Case], None]) -> None:
    """Run checks on each case; the first failure names it."""
    for case in found:
        try:
            for check in checks:
                check(case)
        except Exception as e:
            e.add_note(f"case: {case}")
            raise
