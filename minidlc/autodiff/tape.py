"""A tape: reverse mode for NumPy code that runs at once, on one slide.

    w = Variable(np.zeros((2, 1)))
    loss = (Variable(x) @ w - t).tanh().sum()       # computed now, and remembered
    [dw] = gradients(loss, [w])                     # walked back later

Each operation notes its inputs and how a change of its result reaches them. That record is the
tape. `mc.grad` does the same to a graph and runs nothing. Reads and writes arrays of f64; shapes
that do not fit are NumPy's errors. Algorithm: Speelpenning, 1980. Treated in course chapter
03_autodiff.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from minidlc.expr.types import Array
from minidlc.support.arguments import expect, expect_each
from minidlc.support.errors import GradientError


class Variable:
    """An array, and how it was computed: `parents` pairs each input with its way back."""

    __array_ufunc__ = None  # of array * variable Python asks us, not NumPy

    def __init__(self, array: object, *parents: tuple[Variable, Callable[[Array], Array]]) -> None:
        self.array: Array = np.asarray(array, np.float64)
        self.parents = parents

    def __add__(self, other: object) -> Variable:
        a, b = self, variable(other)
        return Variable(a.array + b.array, (a, lambda dy: dy), (b, lambda dy: dy))

    def __mul__(self, other: object) -> Variable:
        a, b = self, variable(other)
        y = a.array * b.array
        return Variable(y, (a, lambda dy: dy * b.array), (b, lambda dy: dy * a.array))

    def __sub__(self, other: object) -> Variable:
        return self + variable(other) * -1.0

    def __rsub__(self, other: object) -> Variable:
        return self * -1.0 + other

    def __matmul__(self, other: object) -> Variable:
        a, b = self, variable(other)
        if (a.array.ndim, b.array.ndim) != (2, 2):
            text = f"tape: {a.array.shape} @ {b.array.shape}: the tape multiplies matrices only"
            raise GradientError(text, hint="a row is of shape (1, n)", code="MDLC1288")
        y = a.array @ b.array
        return Variable(y, (a, lambda dy: dy @ b.array.T), (b, lambda dy: a.array.T @ dy))

    __radd__, __rmul__ = __add__, __mul__

    def relu(self) -> Variable:
        """0 where an element is negative; its derivative at 0 is 0."""
        return Variable(np.maximum(self.array, 0), (self, lambda dy: dy * (self.array > 0)))

    def tanh(self) -> Variable:
        """The hyperbolic tangent of each element."""
        y = np.tanh(self.array)
        return Variable(y, (self, lambda dy: dy * (1 - y * y)))

    def sum(self) -> Variable:
        """The sum of all elements, one number."""
        return Variable(self.array.sum(), (self, lambda dy: np.broadcast_to(dy, self.array.shape)))


def variable(x: object) -> Variable:
    """`x` as it is, or an array that nothing led to."""
    return x if isinstance(x, Variable) else Variable(x)


def gradients(loss: Variable, wrt: Sequence[Variable]) -> list[Array]:
    """How the loss, one number, changes with each of `wrt`; zeros where it does not.

    A variable is left behind when all that read it were: then its dy is complete. Raises
    GradientError MDLC1287 for a loss that is no single number.
    """
    expect("tape.gradients", "loss", loss, Variable)
    if loss.array.size != 1:
        text = f"tape.gradients: the loss has shape {loss.array.shape}, expected one number"
        raise GradientError(text, hint="loss.sum()", code="MDLC1287")
    dys = {loss: np.ones_like(loss.array)}
    for y in reversed(in_order(loss)):
        for x, back in y.parents:
            dx = _summed_to(back(dys[y]), x.array.shape)
            dys[x] = dys[x] + dx if x in dys else dx
    wrt = expect_each("tape.gradients", "wrt", wrt, Variable)
    return [dys.get(x, np.zeros_like(x.array)) for x in wrt]


def in_order(last: Variable) -> list[Variable]:
    """The variables that led to the last one, inputs first: the tape."""
    done: dict[Variable, None] = {}
    to_do = [(last, False)]
    while to_do:
        y, inputs_are_done = to_do.pop()
        if inputs_are_done:
            done[y] = None
        elif y not in done:
            to_do += [(y, True), *((x, False) for x, _ in y.parents)]
    return list(done)


def _summed_to(dy: Array, shape: tuple[int, ...]) -> Array:
    """What broadcasting had repeated, summed again."""
    ahead = dy.ndim - len(shape)
    repeated = [ahead + d for d, n in enumerate(shape) if n != dy.shape[ahead + d]]
    return dy.sum((*range(ahead), *repeated)).reshape(shape)
