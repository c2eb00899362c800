"""The cheapest of all choices between two layouts for each image, without trying every one.

    a, b = "a", "b"
    alone = Factor((a,), np.array([2.0, 1.0]))              # a costs 2 in layout 0, 1 in layout 1
    move = Factor((a, b), np.array([[0.0, 5.0], [5.0, 0.0]]))  # 5 where neighbours differ
    cheapest([alone, move])                                 # ({a: 1, b: 1}, 1.0)

Dynamic programming over the neighbours: a choice is settled for every state of those that share a
factor with it, the least cost becomes a factor of these, and so on; on a chain that is the DP from
left to right. It is exact for any graph and takes 2^w steps, w neighbours at once: 1 on a chain,
and in trees and residual nets few. U. Bertelè and F. Brioschi, Nonserial Dynamic Programming, 1972;
the planning of layouts by it: Y. Liu et al., Optimizing CNN Model Inference on CPUs, USENIX ATC
2019. Treated in course chapter 06_autotune.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass

import numpy as np

from minidlc.expr.types import Array

WIDEST = 16  # neighbours at once: a table of 2^16 costs


@dataclass(frozen=True)
class Factor:
    """The cost of each joint choice of a few variables: f64[2, …, 2], an axis for each; inf if it
    cannot be."""

    scope: tuple[Hashable, ...]
    table: Array

    def over(self, order: tuple[Hashable, ...]) -> Array:
        """The table with the axes of `order`, 1 long where the factor does not depend on one."""
        axes = sorted(range(len(self.scope)), key=lambda i: order.index(self.scope[i]))
        shape = [2 if v in self.scope else 1 for v in order]
        return self.table.transpose(axes).reshape(shape)


def cheapest(factors: Iterable[Factor]) -> tuple[dict[Hashable, int], float] | None:
    """A choice, 0 or 1, for each variable, of the least sum, and the sum; of equals 0.

    None if more than `WIDEST` variables had to be looked at together.
    """
    left = list(factors)
    order = {v: i for i, v in enumerate(dict.fromkeys(v for f in left for v in f.scope))}
    settled = list[tuple[Hashable, tuple[Hashable, ...], Array]]()
    waiting = set(order)
    while waiting:
        neighbours = {v: _neighbours(v, left) for v in waiting}
        chosen = min(waiting, key=lambda v: (len(neighbours[v]), order[v]))
        scope = (*sorted(neighbours[chosen], key=order.__getitem__), chosen)
        if len(scope) > WIDEST:
            return None
        total: Array = np.zeros((2,) * len(scope))
        for factor in left:
            if chosen in factor.scope:
                total = total + factor.over(scope)
        settled.append((chosen, scope[:-1], total.argmin(axis=-1)))
        left = [f for f in left if chosen not in f.scope]
        left.append(Factor(scope[:-1], total.min(axis=-1)))
        waiting.remove(chosen)
    found = dict[Hashable, int]()
    for variable, scope, choice in reversed(settled):
        found[variable] = int(choice[tuple(found[v] for v in scope)])
    return found, float(sum(f.table for f in left))


def _neighbours(variable: Hashable, factors: Iterable[Factor]) -> set[Hashable]:
    """The variables that share a factor with this one."""
    return {v for f in factors if variable in f.scope for v in f.scope} - {variable}
